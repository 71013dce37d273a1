"""``advisor site``: discover, and the site file's check, apply, diff, show, rollback."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.core.inventory import Inventory
from advisor.paths import share
from advisor.store.reader import Reader

Advisor = Callable[..., Any]
RECORDED = Path(__file__).parent.parent / "unit" / "slurm_22_05"

SITE = """\
version: 1
node_types:
  broadwell: {freq_khz: {min: 1.2 GHz, max: 1.4 GHz, step: 100 MHz}, base_power_w: 100}
"""


@pytest.fixture
def site_file(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    return tmp_path / "config" / "site.yaml"


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An scontrol that repeats what a real 22.05.8 said; the folder's files may be edited."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    for name in ("nodes.txt", "partitions.txt"):
        (folder / name).write_text((RECORDED / name).read_text())
    program = folder / "scontrol"
    program.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        "--version) echo slurm-wlm 22.05.8;;\n"
        "*--json*) echo \"scontrol: unrecognized option '--json'\" >&2; exit 1;;\n"
        f"*partition) cat {folder}/partitions.txt;;\n"
        f"*node) cat {folder}/nodes.txt;;\n"
        "*) exit 9;;\n"
        "esac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def inventory(store: Path) -> Inventory:
    with Reader(store) as reader:
        return reader.inventory()


def test_discover(advisor: Advisor, slurm: Path, store_path: Path) -> None:
    done = advisor("site", "discover")
    assert (done.code, done.err) == (0, "")
    assert "14 nodes in 5 node types" in done.out
    assert "bdw[1-4,7]" in done.out and "login1" in done.out
    assert "missing: bigmem, broadwell, gpu-a, odd, skl: no frequency steps known" in done.out
    assert "    broadwell: {freq_khz: {min: 1.2 GHz, max: 2.4 GHz, step: 100 MHz}}" in done.out
    found = inventory(store_path)
    assert set(found.node_types) == {"bigmem", "broadwell", "gpu-a", "odd", "skl"}
    assert found.node_types["broadwell"].cores == 26
    assert found.default_partition == "work"
    assert [t.name for t in found.in_partition("debug")] == ["skl", "broadwell"]


def test_discover_for_programs_and_dry(advisor: Advisor, slurm: Path, store_path: Path) -> None:
    data = advisor("site", "discover", "--dry-run", "--json").json()
    assert not store_path.exists()
    assert data["schema"] == "advisor/site/1" and data["action"] == "discover"
    assert data["dry_run"] is True and data["scheduler"] == "slurm"
    types = {t["name"]: t for t in data["node_types"]}
    assert types["broadwell"]["status"] == "new"
    assert types["broadwell"]["nodes"] == ["bdw1", "bdw2", "bdw3", "bdw4", "bdw7"]
    assert data["missing"][0]["node_types"] == sorted(types)
    assert data["gone"] == []
    assert "nothing was stored" in advisor("site", "discover", "--dry-run").out


def test_new_changed_and_gone(advisor: Advisor, slurm: Path, store_path: Path) -> None:
    advisor("site", "discover")
    lines = (slurm / "nodes.txt").read_text().splitlines()
    kept = [line for line in lines if not line.startswith("NodeName=sklbig")]
    kept = [line.replace("RealMemory=256000", "RealMemory=512000") for line in kept]
    kept.append(kept[0].replace("bdw1", "hsw1").replace("broadwell", "haswell"))
    (slurm / "nodes.txt").write_text("\n".join(kept) + "\n")
    data = advisor("site", "discover", "--dry-run", "--json").json()
    assert set(inventory(store_path).node_types) == {"bigmem", "broadwell", "gpu-a", "odd", "skl"}
    status = {t["name"]: t["status"] for t in data["node_types"]}
    assert status == {
        "broadwell": "as before",
        "gpu-a": "changed",
        "haswell": "new",
        "odd": "as before",
        "skylake": "new",
    }
    assert data["gone"] == ["bigmem", "skl"]
    done = advisor("site", "discover")
    assert "gpu-a: memory_mb 256000 -> 512000" in done.out
    assert "gone: bigmem" in done.out
    assert set(inventory(store_path).node_types) == set(status)


def test_hand_written_values_win_and_survive(
    advisor: Advisor, slurm: Path, site_file: Path, store_path: Path
) -> None:
    site_file.write_text(SITE)
    assert f"{site_file} is not in effect yet" in advisor("site", "discover").out
    done = advisor("site", "apply")
    assert done.code == 0 and "site version 1 applied" in done.out
    broadwell = inventory(store_path).node_types["broadwell"]
    assert broadwell.freq_khz == (1_200_000, 1_300_000, 1_400_000)
    assert broadwell.default_freq_khz == 1_400_000 and broadwell.base_power_w == 100
    assert broadwell.cores == 26
    done = advisor("site", "discover")
    assert "1.2-1.4 GHz (3)" in done.out and "broadwell:" not in done.out.split("missing")[0]
    assert inventory(store_path).node_types["broadwell"] == broadwell
    site_file.write_text("version: 1\n")
    done = advisor("site", "apply")
    assert "next `advisor site discover`" in done.out and "broadwell.freq_khz" in done.out
    assert inventory(store_path).node_types["broadwell"].freq_khz == ()
    advisor("site", "rollback")
    assert inventory(store_path).node_types["broadwell"] == broadwell


def test_what_slurm_would_refuse_is_told_and_not_taken(
    advisor: Advisor, slurm: Path, site_file: Path, store_path: Path
) -> None:
    site_file.write_text(
        "version: 1\nnode_types:\n"
        "  broadwell: {cores: 28, feature: brodwell, nodes: 'bdw[1-9]'}\n"
        "  brodwel: {freq_khz: [1 GHz]}\n"
        "default_node_types: {work: brodwel}\n"
    )
    done = advisor("site", "apply")
    assert "from the site file alone" in done.out
    done = advisor("site", "discover")
    assert done.code == 0
    for text in (
        "no node has the feature 'brodwell'",
        "28 is more than the 26",
        "brodwel of the",
        "default_node_types.work: 'brodwel' is not in the inventory",
    ):
        assert text in done.out
    broadwell = inventory(store_path).node_types["broadwell"]
    assert (broadwell.cores, broadwell.feature) == (26, "broadwell")
    assert len(broadwell.nodes) == 5


def test_without_a_scheduler_the_site_file_is_the_inventory(
    advisor: Advisor, site_file: Path, store_path: Path
) -> None:
    site_file.write_text(
        SITE + "  epyc: {cores: 64, sockets: 2, nodes: 'n[1-4]', partitions: batch}\n"
        "default_partition: nowhere\n"
    )
    done = advisor("site", "apply")
    assert done.code == 0 and "no node type is in 'nowhere'" in done.out
    found = inventory(store_path)
    assert set(found.node_types) == {"epyc"}
    assert found.node_types["epyc"].nodes == ("n1", "n2", "n3", "n4")
    site_file.write_text("version: 1\n")
    advisor("site", "apply")
    assert not inventory(store_path).node_types


def test_local(advisor: Advisor, slurm: Path, site_file: Path, store_path: Path) -> None:
    done = advisor("site", "discover", "--scheduler", "local")
    assert done.code == 0 and "this machine: 1 node in 1 node type" in done.out
    (local,) = inventory(store_path).node_types.values()
    assert local.cores >= 1 and local.memory_mb > 0 and len(local.nodes) == 1
    advisor("site", "discover")
    assert len(inventory(store_path).node_types) == 6
    data = advisor("site", "discover", "--scheduler", "local", "--json").json()
    assert [t["status"] for t in data["node_types"]] == ["as before"]
    assert data["gone"] == []
    assert len(inventory(store_path).node_types) == 6


def test_no_slurm_here(
    advisor: Advisor, tmp_path: Path, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = advisor("site", "discover")
    assert done.code == 1 and done.out == ""
    assert done.err.startswith("advisor: scontrol is not in PATH") and "local" in done.err
    assert not store_path.exists()


def test_an_answer_without_nodes_does_not_empty_the_inventory(
    advisor: Advisor, slurm: Path, store_path: Path
) -> None:
    advisor("site", "discover")
    (slurm / "nodes.txt").write_text("No nodes in the system\n")
    done = advisor("site", "discover")
    assert done.code == 1 and "no node in any partition" in done.err
    (slurm / "nodes.txt").write_text("slurm_load_node error: garbage\n")
    done = advisor("site", "discover")
    assert done.code == 1 and "unexpected" in done.err
    assert len(inventory(store_path).node_types) == 5


def test_the_site_file_has_the_verbs_of_the_policy(
    advisor: Advisor, site_file: Path, tmp_path: Path, store_path: Path
) -> None:
    site_file.write_text("version: 1\nnode_types:\n  a: {core: 3}\n")
    done = advisor("site", "check")
    assert done.code == 1
    assert f"{site_file}:3: node_types.a.core: unknown key (did you mean 'cores'?" in done.out
    done = advisor("site", "apply")
    assert done.code == 1 and "the built-in default stays in effect" in done.err
    assert not store_path.exists()
    example = share("config/site.yaml")
    assert advisor("site", "check", example).code == 0
    data = advisor("site", "apply", example, "--json").json()
    assert (data["schema"], data["action"], data["version"]) == ("advisor/site/1", "apply", 1)
    assert advisor("site", "apply", example).out == "already applied: site version 1\n"
    shown = tmp_path / "shown.yaml"
    shown.write_text(advisor("site", "show").out)
    assert "step: 100 MHz" in shown.read_text()
    data = advisor("site", "diff", shown, "--json").json()
    assert data["changes"] == [] and data["same"] is False
    settings = advisor("site", "show", "--json").json()["settings"]
    assert settings["applications"][0]["workload"] == "n{size}"
    assert advisor("site", "rollback").code == 3
    site_file.write_text("version: 1\n")
    advisor("site", "apply")
    assert advisor("site", "rollback", "--json").json()["version"] == 1
