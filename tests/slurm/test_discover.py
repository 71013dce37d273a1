"""``advisor site discover`` on a real Slurm: what it finds, Slurm accepts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from testbed import NODE_TYPES, Testbed

from advisor.core.inventory import NodeType
from advisor.paths import share
from advisor.store.reader import Reader

ROOT = share("config").parent


def advisor(testbed: Testbed, store: Path, *arguments: str) -> dict[str, Any]:
    """Run the command on the cluster and return its JSON."""
    command = [sys.executable, "-m", "advisor", *arguments, "--json", "--db", str(store)]
    done = testbed.run(command, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    data: dict[str, Any] = json.loads(done.stdout)
    return data


def node_types(store: Path) -> dict[str, NodeType]:
    with Reader(store) as reader:
        return dict(reader.inventory().node_types)


def test_discover_finds_the_node_types(testbed: Testbed, tmp_path: Path) -> None:
    store = tmp_path / "advisor.db"
    data = advisor(testbed, store, "site", "discover")
    found = node_types(store)
    assert set(found) == {t.feature for t in NODE_TYPES.values()}
    assert data["missing"][0]["node_types"] == sorted(found)
    for posed in NODE_TYPES.values():
        node_type = found[posed.feature]
        assert node_type.feature == posed.feature
        assert node_type.nodes == tuple(posed.nodes)
        assert (node_type.sockets, node_type.cores) == (posed.sockets, posed.cores)
        assert {"batch", posed.feature} <= set(node_type.partitions)
        assert node_type.default_partition == "batch"
        assert node_type.memory_mb > 0
    debug = [t for t in found.values() if "debug" in t.partitions]
    assert [(t.feature, t.nodes_in("debug")) for t in debug] == [("broadwell", 2)]
    again = advisor(testbed, store, "site", "discover")
    assert {t["status"] for t in again["node_types"]} == {"as before"}


def test_slurm_accepts_what_the_inventory_allows_and_no_more(
    testbed: Testbed, tmp_path: Path
) -> None:
    store = tmp_path / "advisor.db"
    advisor(testbed, store, "site", "discover")
    for node_type in node_types(store).values():
        for partition in node_type.partitions:
            count = node_type.nodes_in(partition)
            for nodes, cores, accepted in (
                (count, node_type.cores, True),
                (count, node_type.cores + 1, False),
                (count + 1, node_type.cores, False),
            ):
                done = testbed.run(
                    [
                        "sbatch",
                        "--test-only",
                        f"--partition={partition}",
                        f"--nodes={nodes}",
                        f"--constraint={node_type.feature}",
                        "--ntasks-per-node=1",
                        "--mem=1",
                        f"--cpus-per-task={cores}",
                        "--wrap=true",
                    ],
                    check=False,
                )
                case = f"{node_type.name} in {partition}: {nodes} x {cores}: {done.stderr}"
                assert (done.returncode == 0) is accepted, case


def test_a_hand_written_feature_slurm_does_not_have_is_not_taken(
    testbed: Testbed, tmp_path: Path
) -> None:
    store, site = tmp_path / "advisor.db", tmp_path / "site.yaml"
    site.write_text(
        "version: 1\nnode_types:\n"
        "  broadwell: {feature: brodwell, freq_khz: [1.2 GHz, 2.2 GHz]}\n"
        "  any: {nodes: 'mil[1-2]'}\n"
    )
    advisor(testbed, store, "site", "apply", str(site))
    notes = advisor(testbed, store, "site", "discover")["notes"]
    assert any("brodwell" in note for note in notes)
    found = node_types(store)
    assert found["any"].nodes == ("mil1", "mil2") and found["any"].feature == "milan"
    assert set(found) == {"any", "broadwell", "skylake"}
    assert found["broadwell"].feature == "broadwell"
    assert found["broadwell"].freq_khz == (1_200_000, 2_200_000)
