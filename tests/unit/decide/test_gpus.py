"""GPU clocks and power limits of jobs that ask for GPUs: which are chosen, and how written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from advisor.core.availability import Availability, JobLimits
from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.gpus import GpusAsked
from advisor.core.inventory import Gpus, NodeType
from advisor.core.option import Option
from advisor.core.stamp import make_stamp, read_stamp
from advisor.loop.comparable import model_promises
from advisor.schedulers.slurm.translator import gpus_asked, parse_request, read_arguments
from advisor.service.decide import decide
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from tests.again import same_again
from tests.unit.decide.site import codes, model, policy, snapshot

TOP_KHZ, TOP_W = 1_400_000, 300
CLOCKS, LIMITS = (800_000, 1_100_000, TOP_KHZ), (150, 200, TOP_W)
NODE = NodeType(
    "a100",
    feature="a100",
    partitions=("gpu",),
    cores=16,
    memory_mb=64_000,
    freq_khz=(1_200_000, 2_000_000),
    nodes=("g1", "g2"),
    default_partition="gpu",
    gpus=Gpus("NVIDIA A100", 4, CLOCKS, (100, *LIMITS)),
)
SRUN, PLAIN = "srun ./train", "./train"
CAPPING = {
    "Prolog": "/etc/slurm/advisor-node-cap",
    "Epilog": "/etc/slurm/advisor-node-cap",
    "PrologFlags": "Alloc",
    "JobSubmitPlugins": "lua",
}
OPTION = {"gpu_power_w": {"option": "gpu-power", "value": "watts={}"}}
BY_NODES = {"gpu_power_w": {"nodes": True}, "gpu_freq_khz": {"nodes": True}}


def option(axis: str, value: int, share: float, freq_khz: int = 2_000_000) -> Option:
    """A program that a lower clock or limit hardly slows: 2 % of time for 25 % of energy."""
    f = freq_khz / 2_000_000
    time_s = 100 * (1 + 0.02 * (1 - share)) / f**0.01
    energy_j = 40_000 * (0.5 + 0.5 * share) * (0.9 + 0.1 * f)
    c = Configuration("a100", 1, 1, 16, freq_khz, ((axis, value),) if axis else ())
    ends = (0.995 * time_s, 1.005 * time_s), (0.995 * energy_j, 1.005 * energy_j)
    return Option(c, time_s, *ends[0], energy_j, *ends[1], True, True, True)


@pytest.fixture
def gpu_store(store: Writer) -> Writer:
    """A store that knows a node type with GPUs, and a model of each axis, and of neither."""
    store.save_node_types([NODE], source="test")
    stats = {"gpus": 4, "gpus_metered": True}
    for name, axis, values in (
        ("train", "gpu_freq_khz", CLOCKS),
        ("limited", "gpu_power_w", LIMITS),
    ):
        options = [option(axis, v, v / values[-1]) for v in values]
        model(store, "a100", options, name, stats=stats)
    for name, more in (("plain", {}), ("metered", stats)):
        both = [option("", 0, 1.0, freq_khz) for freq_khz in NODE.freq_khz]
        model(store, "a100", both, name, stats=more)
    return store


def ask(
    writer: Writer,
    arguments: str = "-N1 -n1 --gres=gpu:4 --exclusive",
    line: str = SRUN,
    *,
    axes: dict[str, Any] | None = None,
    settings: dict[str, str] | None = None,
    **payload: Any,
) -> Decision:
    if axes is not None:
        compiled = {"axes": axes, "applications": []}
        writer.apply_config("site", path="s", text=repr(axes), compiled=compiled, by="test")
    site = snapshot(writer)
    limits = JobLimits(enforced=False)
    site.availability = Availability("slurm", {}, {}, limits=limits, settings=settings or CAPPING)
    options = read_arguments([*arguments.split(), "-t", "600"]) | payload.pop("more", {})
    sent = {"type": "sbatch", "options": options, "script": f"#!/bin/bash\n{line}\n", **payload}
    request = parse_request(sent, user="ada", uid=1000, choices={})
    decision = decide(request, site, chance=lambda: 1.0)
    same_again(decision, site, lambda: 1.0)
    return decision


@pytest.mark.parametrize(
    "gpus",
    [
        "--gres=gpu:4",
        "--gres=gpu:a100:4,nvme:1",
        "--gpus=4",
        "--gpus-per-node=a100:4",
        "--gpus-per-task=4",
    ],
)
def test_a_gpu_job_gets_its_clock_by_slurms_own_option(gpu_store: Writer, gpus: str) -> None:
    decision = ask(gpu_store, f"-N1 -n1 -c16 {gpus}")
    assert decision.rewrite == {"gpu-freq": "800"} and decision.changed, decision.codes
    assert decision.chosen is not None and decision.baseline is not None
    assert decision.chosen.configuration.extra == (("gpu_freq_khz", 800_000),)
    assert decision.baseline.extra == () and decision.environment == {}
    assert "GPU clock 0.8 GHz" in decision.message
    data = decision.to_dict()
    assert data["chosen"]["gpu_freq_khz"] == 800_000  # type: ignore[index]
    again = Decision.from_dict(data).chosen
    assert again is not None and again.configuration == decision.chosen.configuration


def test_its_stamp_tells_the_clock_and_the_model_bears_it_out(gpu_store: Writer) -> None:
    decision = ask(gpu_store)
    again = read_stamp(make_stamp(decision))
    assert again is not None and again.chosen is not None and decision.chosen is not None
    assert again.chosen.configuration == decision.chosen.configuration
    assert again.node_axes == ()
    with Reader(gpu_store.path) as reader:
        (stored,) = reader.find_models("train", None, None)
    assert model_promises(again, stored, stored)
    higher = replace(again.chosen.configuration, extra=(("gpu_freq_khz", 1_100_000),))
    forged = replace(again, chosen=again.chosen._replace(configuration=higher))
    assert not model_promises(forged, stored, stored)


def test_a_power_limit_is_written_by_the_sites_own_option(gpu_store: Writer) -> None:
    decision = ask(gpu_store, line="srun ./limited", axes=OPTION)
    assert decision.rewrite == {"gpu-power": "watts=150"}
    assert "GPU power limit 150 W" in decision.message
    kept = ask(gpu_store, line="srun ./limited", axes={})
    assert kept.rewrite == {} and "axis-unwritten" in codes(kept)


def test_a_comment_of_the_users_own_stays(gpu_store: Writer) -> None:
    axes = {"gpu_power_w": {"option": "comment", "value": "watts={}"}}
    assert ask(gpu_store, line="srun ./limited", axes=axes).rewrite == {"comment": "watts=150"}
    own = ask(gpu_store, line="srun ./limited", more={"comment": "mine"})
    assert own.rewrite == {} and "GPU power limit by --comment" in words(own)


def words(decision: Decision) -> str:
    return "; ".join(r.text for r in decision.reasons)


@pytest.mark.parametrize("line", [SRUN.replace("train", "limited"), "mpirun -np 1 ./limited"])
def test_the_nodes_set_it_for_batch_jobs_whatever_starts_the_program(
    gpu_store: Writer, line: str
) -> None:
    decision = ask(gpu_store, line=line, axes=BY_NODES)
    assert decision.changed and decision.rewrite == {}
    assert decision.node_axes == (("gpu_power_w", 150),)
    stamp = make_stamp(decision)
    assert '"gpus":{"gpu_power_w":150}' in stamp
    again = read_stamp(stamp)
    assert again is not None and again.node_axes == decision.node_axes and again.changed
    assert Decision.from_dict(decision.to_dict()).node_axes == decision.node_axes
    assert decision.withdrawn().node_axes == () and not decision.withdrawn().changed
    without = ask(gpu_store, line=line, settings={"Prolog": "/etc/slurm/site"})
    assert not without.changed and "Prolog does not name advisor-node-cap" in words(without)


@pytest.mark.parametrize(
    ("arguments", "line", "why"),
    [
        ("-N1 -n1", SRUN, "the job asks for no GPUs"),
        ("-N1 -n1 --gres=gpu:0", SRUN, "the job asks for no GPUs"),
        ("-N1 -n1 --gres=gpu:2", SRUN, "2 GPUs a node, where its runs had 4,"),
        ("-N1 -n1 --gpus=8", SRUN, "8 GPUs a node"),
        ("-N1 -n1 --gres=gpu:4 --gpu-freq=900", SRUN, "GPU clock by --gpu-freq"),
        ("-N1 -n1 --gres=gpu:4", "mpirun -np 1 ./train", "Slurm caps srun's steps only"),
        ("-N1 -n1 --gres=gpu:4", PLAIN, "no srun"),
        ("-N1 -n1 --gres=gpu:a100:2,gpu:v100:2", SRUN, "name GPUs more than once"),
        ("-N1 -n1 --gres=gpu:4 --gpus=4", SRUN, "name GPUs more than once"),
        ("-N1 -n1 --gres=shard:4", SRUN, "shares GPUs with other jobs"),
        ("-N1 -n1 --gres=mps:50", SRUN, "shares GPUs with other jobs"),
    ],
)
def test_a_job_whose_gpus_are_not_the_models_stays_as_it_is(
    gpu_store: Writer, arguments: str, line: str, why: str
) -> None:
    decision = ask(gpu_store, f"{arguments} --exclusive", line)
    assert decision.rewrite == {} and not decision.changed
    assert why in words(decision)
    assert len([r for r in decision.reasons if "GPU" in r.text]) == 1


@pytest.mark.parametrize("variable", ["SLURM_GPU_FREQ", "SBATCH_GPU_FREQ"])
def test_a_clock_that_the_users_environment_sets_is_kept(gpu_store: Writer, variable: str) -> None:
    decision = ask(gpu_store, env={variable: "900"})
    assert decision.rewrite == {} and f"GPU clock by {variable}" in words(decision)


def test_the_users_own_use_of_the_sites_option_is_kept(gpu_store: Writer) -> None:
    for more in ({"gpu-power": "250"}, {"spank:gpu-power": "250"}):
        decision = ask(gpu_store, line="srun ./limited", axes=OPTION, more=more)
        assert decision.rewrite == {} and "gpu-power" in words(decision)


def test_a_limit_outside_of_the_devices_range_is_not_set(gpu_store: Writer) -> None:
    for gpus, why in (
        (replace(NODE.gpus, power_w=(250, 300)), "GPU power limit 150 W on a100"),
        (replace(NODE.gpus, power_w=()), "the inventory lists none for a100"),
    ):
        gpu_store.save_node_types([replace(NODE, gpus=gpus)], source="test")
        decision = ask(gpu_store, line="srun ./limited", axes=OPTION)
        assert "gpu-power" not in decision.rewrite and why in words(decision)
    clocks = replace(NODE.gpus, freq_khz=(900_000, 1_100_000, TOP_KHZ))
    gpu_store.save_node_types([replace(NODE, gpus=clocks)], source="test")
    assert ask(gpu_store).rewrite == {"gpu-freq": "1100"}


def test_two_models_in_a_node_have_nothing_that_can_be_set(gpu_store: Writer) -> None:
    gpu_store.save_node_types([replace(NODE, gpus=Gpus(count=4))], source="test")
    decision = ask(gpu_store)
    assert decision.rewrite == {} and "the inventory lists none for a100" in words(decision)


@pytest.mark.parametrize(("rule", "changes"), [("keep", False), ("fill", True), ("cap", True)])
def test_the_policy_may_keep_gpus(gpu_store: Writer, rule: str, changes: bool) -> None:
    policy(gpu_store, axes={"gpu": rule})
    decision = ask(gpu_store)
    assert decision.changed == changes
    assert changes or "the policy keeps GPU clock" in words(decision)


def test_the_processors_cap_of_a_gpu_job_needs_energies_with_its_gpus(gpu_store: Writer) -> None:
    policy(gpu_store, max_slowdown=0.3)
    kept = ask(gpu_store, line="srun ./plain")
    assert kept.rewrite == {} and "without its GPUs" in words(kept)
    assert "cpu-freq" in ask(gpu_store, line="srun ./metered").rewrite
    assert "cpu-freq" in ask(gpu_store, "-N1 -n1 --exclusive", "srun ./plain").rewrite


def test_gpus_that_options_ask_for() -> None:
    asked = {
        "gres": {"gpu": 1, "gpu:2": 2, "gpu:a100:3(S:0)": 1, "nvme:4": 0, "gres:gpu:a100:2": 2},
        "gpus": {"8": 8, "a100:8": 8, "gres:gpu:8": 8},
    }
    for name, forms in asked.items():
        for text, count in forms.items():
            found = gpus_asked({name: text})
            assert (found.count if found else 0) == count, text
    c = Configuration("n", 2, 3, 6, 0)
    assert GpusAsked("node", 4).on_a_node(c) == GpusAsked("job", 8).on_a_node(c) == 4
    assert GpusAsked("task", 2).on_a_node(c) == 6
    with pytest.raises(ValueError, match="7 GPUs on 2 nodes are not as many on each"):
        GpusAsked("job", 7).on_a_node(c)
