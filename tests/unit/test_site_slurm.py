"""Reading and grouping a Slurm cluster, from what a real 22.05.8 controller said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import SchedulerError
from advisor.schedulers.cluster import Cluster, Node, Partition
from advisor.schedulers.grouping import Claim, claims_of, group
from advisor.schedulers.slurm import inventory as slurm_inventory
from advisor.schedulers.slurm.inventory import (
    parse_nodes,
    parse_nodes_json,
    parse_partitions,
    read_cluster,
)

RECORDED = Path(__file__).parent / "slurm_22_05"
NODES = (RECORDED / "nodes.txt").read_text()
PARTITIONS = (RECORDED / "partitions.txt").read_text()


def cluster() -> Cluster:
    return Cluster("22.05.8", tuple(parse_nodes(NODES)), tuple(parse_partitions(PARTITIONS)))


def by_name(nodes: list[Node]) -> dict[str, Node]:
    return {n.name: n for n in nodes}


def test_nodes_of_real_output() -> None:
    nodes = by_name(parse_nodes(NODES))
    assert len(nodes) == 15
    assert nodes["bdw1"] == Node(
        "bdw1",
        features=("broadwell", "ib"),
        sockets=2,
        cores=26,  # 28, less CoreSpecCount=2
        threads_per_core=1,
        memory_mb=126_000,  # 128000, less MemSpecLimit=2000
        weight=10,
        partitions=("debug", "work"),
    )
    assert nodes["gpu-a1n2"].features == ()
    assert (nodes["gpu-a1n2"].cores, nodes["gpu-a1n2"].threads_per_core) == (64, 2)
    assert nodes["login1"].partitions == ()


def test_cores_counted_as_cpus_have_no_threads() -> None:
    odd = by_name(parse_nodes(NODES))["odd"]
    assert (odd.sockets, odd.cores, odd.threads_per_core) == (2, 8, 1)


def test_comments_and_reasons_are_not_believed() -> None:
    assert "Partitions=gpu,debug RealMemory=9" in NODES
    assert "Reason=Sockets=9 bad dimm, ActiveFeatures=fast" in NODES
    nodes = by_name(parse_nodes(NODES))
    for name in ("skl003", "skl004"):
        assert nodes[name].partitions == ("work",)
        assert nodes[name].features == ("skylake", "ib", "avx512")
        assert (nodes[name].sockets, nodes[name].memory_mb) == (2, 192_000)


def test_the_operating_system_is_skipped_and_what_follows_is_read() -> None:
    line = NODES.splitlines()[0].replace(
        "  RealMemory=",
        " Version=22.05.8 OS=Linux 6.1.0 #1 SMP Sockets=7 Partitions=x (2024-02-01)  RealMemory=",
    )
    assert parse_nodes(line) == parse_nodes(NODES.splitlines()[0])


def test_partitions_of_real_output() -> None:
    assert parse_partitions(PARTITIONS) == [
        Partition("debug", max_nodes=1),
        Partition("work", default=True),
        Partition("gpu"),
        Partition("hidden"),
        Partition("empty"),
    ]


def test_json_of_the_same_controller_says_the_same() -> None:
    """22.05 has no specialised memory in its JSON: the text is read there."""
    text, told = parse_nodes(NODES), parse_nodes_json((RECORDED / "sinfo.json").read_text())
    assert [(n.name, n.features, n.hardware[:3], n.partitions, n.weight) for n in told] == [
        (n.name, n.features, n.hardware[:3], n.partitions, n.weight) for n in text
    ]
    unlimited = [n for n in text if not n.name.startswith("bdw")]
    assert unlimited == [n for n in told if not n.name.startswith("bdw")]


def test_json_of_later_releases() -> None:
    node = {
        "name": "n1",
        "active_features": ["a", "b"],
        "sockets": 2,
        "cores": 8,
        "threads": 2,
        "cpus": 32,
        "effective_cpus": 28,
        "real_memory": 1000,
        "specialized_memory": 100,
        "weight": {"set": True, "infinite": False, "number": 7},
        "partitions": ["p"],
    }
    (read,) = parse_nodes_json(json.dumps({"nodes": [node]}))
    assert read == Node(
        "n1",
        ("a", "b"),
        sockets=2,
        cores=14,
        threads_per_core=2,
        memory_mb=900,
        weight=7,
        partitions=("p",),
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"nodes": 3}',
        '{"nodes": [{}]}',
        '{"nodes": [[]]}',
        '{"nodes": ["x"]}',
        '{"nodes": [{"name": "a", "cpus": "many"}]}',
    ],
)
def test_odd_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_nodes_json(text)


def test_text_that_is_something_else_is_refused() -> None:
    with pytest.raises(SchedulerError, match="unexpected"):
        parse_nodes("slurm_load_node error: whatever\n")
    assert parse_nodes("No nodes in the system\n") == []


@given(st.lists(st.sampled_from([*NODES.split(), "=", "Sockets=x", "Weight=", "\n"])))
def test_mangled_text_is_read_or_refused(words: list[str]) -> None:
    try:
        nodes = parse_nodes(" ".join(words))
    except SchedulerError:
        return
    assert all(n.cores >= 1 and n.threads_per_core >= 1 and n.memory_mb >= 0 for n in nodes)


def test_grouping() -> None:
    types, notes = group(cluster())
    found = {t.name: t for t in types}
    assert list(found) == ["bigmem", "broadwell", "gpu-a", "odd", "skl"]
    assert found["broadwell"].feature == "broadwell"
    assert found["broadwell"].nodes == ("bdw1", "bdw2", "bdw3", "bdw4", "bdw7")
    assert found["broadwell"].partitions == ("debug", "work")
    assert found["broadwell"].nodes_in("debug") == 1  # MaxNodes=1
    assert found["broadwell"].nodes_in("work") == 5
    assert found["broadwell"].default_partition == "work"
    assert found["gpu-a"].default_partition == ""
    assert found["skl"].feature == ""  # skylake would select bigmem, too
    assert found["bigmem"].feature == "bigmem"
    assert notes == ["1 node in no partition left out: login1"]


def test_a_claim_brings_nodes_together_by_feature_or_name() -> None:
    claims = claims_of(
        {"skylake": {"feature": "skylake"}, "left": {"nodes": ["bdw1", "bdw2"]}, "x": {"cores": 3}}
    )
    assert claims == (
        Claim("skylake", feature="skylake"),
        Claim("left", frozenset({"bdw1", "bdw2"})),
    )
    types, notes = group(cluster(), claims)
    found = {t.name: t for t in types}
    assert set(found) == {"skylake", "left", "bdw", "gpu-a", "odd"}
    assert found["skylake"].feature == "skylake"
    assert len(found["skylake"].nodes) == 6
    assert found["skylake"].memory_mb == 192_000
    assert any("skylake differ in hardware" in n for n in notes)
    assert found["left"].feature == found["bdw"].feature == ""


def nodes_of(*specs: tuple[str, str, int]) -> Cluster:
    return Cluster(
        "x",
        tuple(
            Node(
                name,
                tuple(features.split()),
                sockets=2,
                cores=cores,
                memory_mb=1024,
                partitions=("p",),
            )
            for name, features, cores in specs
        ),
        (Partition("p"),),
    )


def test_types_alike_but_for_features_are_pointed_out() -> None:
    rack = nodes_of(("n1", "epyc r1", 8), ("n2", "epyc r2", 8), ("m1", "old", 8))
    types, notes = group(rack)
    assert [t.name for t in types] == ["old", "r1", "r2"]
    assert len(notes) == 1 and "r1, r2" in notes[0] and "{feature: epyc}" in notes[0]
    types, notes = group(rack, (Claim("epyc", feature="epyc"),))
    assert [(t.name, t.feature) for t in types] == [("epyc", "epyc"), ("old", "old")]
    assert not notes


def test_equal_names_are_told_apart_by_hardware() -> None:
    types, _ = group(nodes_of(("n1", "x", 8), ("n2", "x", 16), ("n3", "x y&z", 8)))
    assert [t.name for t in types] == ["n-16c-1g", "n-8c-1g", "n-8c-1g-2"]
    assert [t.feature for t in types] == ["", "", ""]  # y&z would be an expression


@given(
    st.lists(
        st.tuples(
            st.sets(st.sampled_from("abc")), st.integers(1, 3), st.sampled_from(["n", "m", "4"])
        ),
        max_size=8,
    )
)
def test_every_node_is_in_one_type_and_names_are_unique(
    specs: list[tuple[set[str], int, str]],
) -> None:
    made = nodes_of(
        *((f"{head}{i}", " ".join(sorted(f)), cores) for i, (f, cores, head) in enumerate(specs))
    )
    types, _ = group(made)
    assert sorted(n for t in types for n in t.nodes) == sorted(n.name for n in made.nodes)
    assert len({t.name for t in types}) == len(types)
    for t in types:
        if t.feature:
            assert {n.name for n in made.nodes if t.feature in n.features} == set(t.nodes)


def scontrol(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "scontrol"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_a_release_without_json_is_read_by_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scontrol(
        tmp_path,
        f'case "$*" in --version) echo slurm 22.05.8;; *--json*) echo "unrecognized" >&2; exit 1;;'
        f" *partition) cat {RECORDED}/partitions.txt;; *) cat {RECORDED}/nodes.txt;; esac",
        monkeypatch,
    )
    assert read_cluster() == Cluster("slurm 22.05.8", cluster().nodes, cluster().partitions)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'slurm_load_partitions: Unable to contact slurm controller' >&2; exit 1", "contact"),
        ("[ $1 = --version ] || echo nonsense", "unexpected"),
        ("[ $1 = --version ] || true", "no node in any partition"),
        ("exit 3", "3"),
    ],
)
def test_a_slurm_that_does_not_answer(
    script: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scontrol(tmp_path, script, monkeypatch)
    with pytest.raises(SchedulerError, match=said):
        read_cluster()


def test_no_slurm_and_a_hanging_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SchedulerError, match="PATH") as caught:
        read_cluster()
    assert "--scheduler local" in caught.value.hint
    scontrol(tmp_path, "exec sleep 60", monkeypatch)
    monkeypatch.setattr(slurm_inventory, "TIMEOUT_S", 0.2)
    with pytest.raises(SchedulerError, match="no answer"):
        read_cluster()
