"""GPUs in the inventory: what schedulers, the driver and site.yaml say of them."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import pytest

from advisor.cli import doctor, main
from advisor.core.axes import AxisWriting, extra_words, writings_of
from advisor.core.inventory import Gpus, Inventory, NodeType
from advisor.core.power import power_bounds_w
from advisor.loop.health import check_inventory
from advisor.meters.nvml import Nvml, gpus_here
from advisor.policy.inventory import changes, gpus_text, merge_applied, merge_discovered, missing
from advisor.policy.load import check_text
from advisor.policy.render import to_yaml
from advisor.schedulers.cluster import Cluster, Node, Partition
from advisor.schedulers.grouping import group
from advisor.schedulers.pbs.inventory import cluster_of
from advisor.schedulers.slurm.inventory import parse_nodes, parse_nodes_json
from tests.unit.posed_gpus import load_nvml, needs_compiler, pose

LINE = (
    "NodeName={name} ActiveFeatures=a100 CPUTot=64 CoresPerSocket=32 Sockets=2 ThreadsPerCore=1 "
    "Gres={gres} RealMemory=1000 Weight=1 Partitions=gpu"
)
SITE = """\
version: 1
node_types:
  n:
    cores: 4
    gpus:
      model: NVIDIA A100
      count: 4
      freq_khz: {min: 210 MHz, max: 1410 MHz, step: 15 MHz}
      power_w: {min: 100, max: 400, step: 25}
      idle_w: 52
axes: {gpu_power_w: {option: gpu-power, value: "{}"}}
"""


def compiled(text: str) -> dict[str, Any]:
    site, problems = check_text(text, "site.yaml", "site")
    assert site is not None, [str(p) for p in problems]
    return site


@pytest.mark.parametrize(
    ("gres", "count", "models"),
    [
        ("gpu:a100:4(S:0-1)", 4, ("a100",)),
        ("gpu:2", 2, ()),
        ("gpu", 1, ()),
        ("gpu:tesla:2(S:0),gpu:kepler:2(S:1),nvme:1", 4, ("kepler", "tesla")),
        ("nvme:1,mps:400", 0, ()),
        ("(null)", 0, ()),
        ("gpu:a100_3g.20gb:2", 2, ("a100_3g.20gb",)),
    ],
)
def test_slurm_states_gpus_as_generic_resources(
    gres: str, count: int, models: tuple[str, ...]
) -> None:
    (node,) = parse_nodes(LINE.format(name="g1", gres=gres))
    assert (node.gpus, node.gpu_models) == (count, models)
    fields = {"name": "g1", "cpus": 64, "sockets": 2, "cores": 32, "threads": 1, "weight": 1}
    more = {"real_memory": 1000, "active_features": "a100", "partitions": ["gpu"], "gres": gres}
    (node,) = parse_nodes_json(json.dumps({"nodes": [{**fields, **more}]}))
    assert (node.gpus, node.gpu_models) == (count, models) or gres == "(null)"


def test_nodes_of_a_type_that_differ_in_gpus_are_said() -> None:
    nodes = parse_nodes(
        "\n".join(
            LINE.format(name=name, gres=gres)
            for name, gres in (("g1", "gpu:a100:4"), ("g2", "gpu:a100:2"), ("g3", "gpu:h100:4"))
        )
    )
    (node_type,), notes = group(Cluster("x", tuple(nodes), (Partition("gpu"),)))
    assert node_type.gpus == Gpus("", 2)
    assert notes == [
        "the nodes of a100 differ in their number of GPUs: the fewest count",
        "the nodes of a100 have several models of GPUs: a100, h100",
    ]
    (alike,), notes = group(Cluster("x", tuple(nodes[:1]), (Partition("gpu"),)))
    assert alike.gpus == Gpus("a100", 4) and notes == []
    (lack,) = [m for m in missing([alike], by_feature=True) if "GPUs" in m.message]
    assert lack.node_types == ("a100",)


def test_pbs_states_gpus_of_all_vnodes() -> None:
    def vnode(gpus: object) -> dict[str, Any]:
        return {"resources_available": {"host": "g1", "ncpus": 8, "mem": "1gb", "ngpus": gpus}}

    nodes = {"nodes": {"g1[0]": vnode(2), "g1[1]": vnode("2"), "g1[2]": vnode("many")}}
    queue = {"queue_type": "Execution", "enabled": "True", "started": "True"}
    (node,) = cluster_of({}, nodes, {"q": queue}).nodes
    assert node.gpus == 4


def test_a_node_type_without_gpus_is_stored_as_before() -> None:
    assert "gpus" not in NodeType("n").to_dict()
    gpus = Gpus("NVIDIA A100", 4, (1_200_000, 1_410_000), (100, 400), 52.0)
    assert NodeType.from_dict(NodeType("n", gpus=gpus).to_dict()).gpus == gpus
    assert gpus_text(gpus) == "4 x NVIDIA A100, 1.2-1.41 GHz (2), 100-400 W, idle 52 W"
    assert changes(NodeType("n"), NodeType("n", gpus=gpus)) == [f"gpus none -> {gpus_text(gpus)}"]


def test_the_site_file_states_gpus_and_how_axes_are_written() -> None:
    site = compiled(SITE)
    (made,) = merge_applied([], {}, site, {})[0]["site"]
    assert made.gpus.model == "NVIDIA A100" and made.gpus.count == 4 and made.gpus.idle_w == 52
    assert made.gpus.power_w == tuple(range(100, 401, 25))
    assert made.gpus.freq_khz[::80] == (210_000, 1_410_000) and len(made.gpus.freq_khz) == 81
    assert made.gpus.steps("gpu_power_w") == made.gpus.power_w
    assert writings_of(site) == {"gpu_power_w": AxisWriting("gpu-power", "{}")}
    assert writings_of({}) == {}
    assert compiled(to_yaml("site", site)) == site


def test_the_scheduler_says_how_many_gpus_there_are() -> None:
    site = compiled(SITE)
    discovered = NodeType("n", cores=8, nodes=("n1",), gpus=Gpus("a100", 2))
    merged = merge_discovered([discovered], site)
    assert merged.known[0].gpus.count == 2 and merged.known[0].gpus.model == "NVIDIA A100"
    assert merged.notes == ("n: gpus.count: 4 is more than the 2 the scheduler gives",)
    after, _ = merge_applied([discovered], {"n": "slurm"}, site, {})
    assert after["slurm"][0].gpus.count == 2 and after["slurm"][0].gpus.idle_w == 52
    gone, _ = merge_applied(after["slurm"], {"n": "slurm"}, compiled("version: 1\n"), site)
    assert gone["slurm"][0].gpus.count == 2 and gone["slurm"][0].gpus.power_w == ()


@pytest.mark.parametrize(
    ("line", "key", "message"),
    [
        ("axes: {gpu_power: {option: x}}", "axes.gpu_power", "is not an axis"),
        ("axes: {gpu_power_w: {option: gpu power}}", "axes.gpu_power_w.option", "is not a name"),
        ("axes: {gpu_power_w: {option: g, value: '{}{}'}}", "axes.gpu_power_w.value", "with {}"),
        ("axes: {gpu_power_w: {option: g, value: '$({})'}}", "axes.gpu_power_w.value", "with {}"),
        ("axes: {gpu_power_w: {value: '{}'}}", "axes.gpu_power_w", "names no option"),
        ("axes: {gpu_power_w: {nodes: true, option: g}}", "axes.gpu_power_w", "names no option"),
        ("axes: {gpu_power_w: {nodes: maybe}}", "axes.gpu_power_w.nodes", "neither true nor false"),
        ("node_types: {n: {gpus: 4}}", "node_types.n.gpus", "must be keys"),
        ("node_types: {n: {gpus: {count: 0}}}", "node_types.n.gpus.count", "out of range"),
        ("node_types: {n: {gpus: {power_w: 9e3}}}", "node_types.n.gpus.power_w[0]", "whole number"),
        (
            "node_types: {n: {gpus: {power_w: {min: 300, max: 100, step: 5}}}}",
            "node_types.n.gpus.power_w.max",
            "below min",
        ),
        ("node_types: {n: {gpus: {freq_khz: 1410}}}", "node_types.n.gpus.freq_khz[0]", "MHz"),
    ],
)
def test_mistakes_are_named_by_line_and_key(line: str, key: str, message: str) -> None:
    site, problems = check_text(f"version: 1\n{line}\n", "site.yaml", "site")
    assert site is None and len(problems) == 1
    assert problems[0].key == key and problems[0].line == 2 and message in str(problems[0])


def test_what_gpus_take_counts_among_what_a_node_can_have_used() -> None:
    bare = NodeType("n", base_power_w=100, core_power_w=5, cores=8)
    with_gpus = NodeType(
        "n", base_power_w=100, core_power_w=5, cores=8, gpus=Gpus(count=4, power_w=(100, 400))
    )
    assert power_bounds_w(with_gpus)[1] == power_bounds_w(bare)[1] + 4 * 1600


def test_axes_in_words() -> None:
    extra = (("gpu_freq_khz", 1_380_000), ("gpu_power_w", 200))
    assert extra_words(extra) == "GPU clock 1.38 GHz, GPU power limit 200 W"


A100 = {"name": "NVIDIA A100", "clocks": "1410 210 15", "least": 100_000, "most": 400_000}


@needs_compiler
def test_nvml_tells_this_machines_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_nvml()
    file = tmp_path / "nvml.txt"
    monkeypatch.setenv("POSED_NVML", str(file))
    pose(file, {**A100, "power": 51_800}, {**A100, "power": 52_340})
    gpus, notes = gpus_here()
    assert notes == [] and (gpus.model, gpus.count, gpus.idle_w) == ("NVIDIA A100", 2, 52.3)
    assert gpus.freq_khz == tuple(range(210_000, 1_410_001, 15_000))
    assert gpus.power_w == tuple(range(100, 401, 10))
    limits = {**A100, "least": 100_500, "most": 350_000, "power": 60_000, "processes": 1}
    pose(file, {**A100, "power": 50_000, "clocks": "1200 210 30"}, limits)
    gpus, notes = gpus_here()
    assert notes == ["GPU 1: its idle power is not known, it computes"]
    assert gpus.freq_khz[-1] == 1_200_000 and len(gpus.freq_khz) == 34
    assert gpus.power_w[0] == 101 and gpus.power_w[-1] == 350 and gpus.idle_w == 50
    pose(file, A100, {"name": "NVIDIA T4"}, {"error.handle": 4})
    gpus, notes = gpus_here()
    assert gpus == Gpus(count=3) and any("of several models" in n for n in notes)
    pose(file, {"name": "vGPU", "error.limits": 3})
    gpus, notes = gpus_here()
    assert (gpus.model, gpus.freq_khz, gpus.power_w) == ("vGPU", (), ())
    assert "its clocks are not known: Not Supported" in notes[0]
    assert not Path(f"{file}.set").exists(), "whoever asks sets nothing"


@needs_compiler
def test_discover_on_the_node_shows_its_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    load_nvml()
    file = tmp_path / "nvml.txt"
    monkeypatch.setenv("POSED_NVML", str(file))
    pose(file, {**A100, "power": 51_800})
    words = ["site", "discover", "--scheduler", "local", "--dry-run", "--db", str(tmp_path / "db")]
    assert main(words) == 0
    assert "local: GPUs: 1 x NVIDIA A100, 0.21-1.41 GHz (81), 100-400 W, idle 51.8 W" in (
        capsys.readouterr().out
    )
    assert main([*words, "--json"]) == 0
    (local,) = json.loads(capsys.readouterr().out)["node_types"]
    assert local["gpus"]["count"] == 1 and local["gpus"]["power_w"][-1] == 400


@needs_compiler
def test_doctor_says_what_keeps_the_gpus_here_from_being_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_nvml()
    file = tmp_path / "nvml.txt"
    monkeypatch.setenv("POSED_NVML", str(file))
    node_type = NodeType("gpunode", nodes=(platform.node().partition(".")[0],), gpus=Gpus("A", 2))

    def said() -> list[tuple[str, str]]:
        checks = doctor._gpus_here(Inventory({"gpunode": node_type}))
        return [(check.state, check.text) for check in checks]

    pose(file, A100, A100)
    assert said() == [("ok", "here: 2 x NVIDIA A100")]
    pose(file, A100)
    assert said() == [("warn", "here: 1 GPU, where the inventory has 2 for gpunode")]
    pose(file, A100, {"name": "NVIDIA T4"})
    [(state, text)] = [found for found in said() if "models" in found[1]]
    assert state == "warn" and "GPUs of several models: NVIDIA A100, NVIDIA T4" in text
    pose(file, {"name": "vGPU", "error.limits": 3}, A100)
    assert any("GPU 0: its power limits are not known" in text for _, text in said())
    pose(file, A100, A100, **{"error.init": 9})
    monkeypatch.setattr(Nvml, "present", lambda _: True)
    assert (said()[0][0], said()[0][1].rpartition(": ")[2]) == ("warn", "Driver Not Loaded")


@pytest.mark.parametrize(("clocks", "state"), [((), "warn"), ((800_000, 1_400_000), "ok")])
def test_doctor_says_which_node_types_gpus_are_kept(clocks: tuple[int, ...], state: str) -> None:
    node_type = NodeType("gpunode", feature="f", nodes=("g1",), gpus=Gpus("A", 2, clocks))
    checks = check_inventory(Inventory({"gpunode": node_type}))
    [found] = [check for check in checks if check.name == "gpus"]
    assert found.state == state and "gpunode" in found.text


def test_nodes_keep_their_hardware_when_their_gpus_differ() -> None:
    one = Node("a", cores=8, gpus=4)
    assert one.hardware == Node("b", cores=8).hardware, "node types keep their names"
