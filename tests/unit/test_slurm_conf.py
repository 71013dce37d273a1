"""What slurm.conf says of nodes and partitions, for hooks installed before Slurm runs."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from advisor.schedulers.slurm.conf import read_conf

CONF = """\
ClusterName=test   # a comment
NodeName=DEFAULT RealMemory=4000 ThreadsPerCore=1
NodeName=bdw[1-4] Sockets=2 CoresPerSocket=14 \\
    Feature=broadwell,ib Weight=1
nodename=skl[01-02] CPUs=40 Features="skylake" MemSpecLimit=500
NodeName=spare CPUs=4
Include more.conf
PartitionName=DEFAULT MaxTime=60
PartitionName=batch Nodes=ALL Default=YES
PartitionName=debug Nodes=bdw[1-2] MaxNodes=1
PartitionName=odd Nodes=bdw[1-
"""


def test_nodes_and_partitions(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(CONF)
    (tmp_path / "more.conf").write_text("NodeName=mil1 Sockets=1 CoresPerSocket=8 ThreadsPerCore=2")
    cluster = read_conf(tmp_path / "slurm.conf")
    assert cluster is not None
    nodes = {n.name: n for n in cluster.nodes}
    assert set(nodes) == {"bdw1", "bdw2", "bdw3", "bdw4", "skl01", "skl02", "spare", "mil1"}
    assert nodes["bdw2"].hardware == (2, 28, 1, 4000)
    assert nodes["bdw2"].features == ("broadwell", "ib")
    assert nodes["bdw2"].partitions == ("batch", "debug")
    assert nodes["skl02"].hardware == (1, 40, 1, 3500)
    assert nodes["mil1"].hardware == (1, 8, 2, 4000)
    partitions = {p.name: p for p in cluster.partitions}
    assert partitions["batch"].default
    assert partitions["debug"].max_nodes == 1


def test_nothing_to_tell(tmp_path: Path) -> None:
    assert read_conf(tmp_path / "slurm.conf") is None
    (tmp_path / "slurm.conf").write_text("ClusterName=x\nInclude slurm.conf\n")
    assert read_conf(tmp_path / "slurm.conf") is None


@given(st.text(max_size=200))
def test_no_text_breaks_it(text: str) -> None:
    path = Path("/dev/shm") / "advisor-test-slurm.conf"
    path.write_text("NodeName=" + text + "\nPartitionName=" + text, errors="replace")
    try:
        read_conf(path)
    finally:
        path.unlink()
