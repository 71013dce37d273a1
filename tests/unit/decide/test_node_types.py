"""When a node type changes, and what keeps it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from advisor.core.availability import Availability, JobLimits, PartitionState, Room
from advisor.core.decision import Decision
from advisor.core.inventory import NodeType
from advisor.schedulers.slurm.translator import parse_request, read_arguments
from advisor.service.decide import decide
from advisor.store.writer import Writer
from tests.again import same_again
from tests.unit.decide.site import BDW, SCRIPT, SKL, ask, codes, model, policy, response, snapshot


def test_a_constraint_by_the_user_keeps_the_node_type(store: Writer) -> None:
    policy(store, node_type_change="allow")
    model(store, "skl", [response("skl", 1, 1, t, 2_000_000) for t in range(4, 29, 4)])
    decision = ask(store, "-N1 --exclusive -p mixed -C broadwell")
    assert "constraint" not in decision.rewrite
    assert "user-set" in codes(decision)


def test_a_node_type_is_not_changed_where_nobody_knows_what_is_idle(store: Writer) -> None:
    model(store, "skl", [response("skl", 1, 1, t, 2_000_000) for t in range(4, 29, 4)])
    decision = ask(store, "-N1 --exclusive -p mixed")
    assert not decision.rewrite and not decision.environment
    assert "node-type-later" in codes(decision)


@pytest.mark.parametrize(
    ("says", "threads", "cap", "left"),
    [
        ({}, False, False, True),
        ({"other": []}, False, False, True),
        ({"project-code": []}, True, True, False),
        ({"project_code": ["node_type"]}, True, True, False),
        ({"project-code": ["threads"]}, False, True, False),
        ({"project-code": ["frequency", "threads"]}, False, False, False),
    ],
)
@pytest.mark.parametrize("name", ["project-code", "spank:site:project_code", "spank:project-code"])
def test_a_site_may_say_what_its_own_options_bind(
    store: Writer, says: dict[str, list[str]], threads: bool, cap: bool, left: bool, name: str
) -> None:
    compiled = {"understood_options": says}
    store.apply_config("site", path="s", text="s", compiled=compiled, by="test")
    options = {"nodes": "1", "exclusive": "", "time": "60", name: "a17"}
    request = parse_request(
        {"type": "sbatch", "options": options, "script": SCRIPT}, user="ada", uid=1, choices={}
    )
    decision = decide(request, snapshot(store), chance=lambda: 1.0)
    same_again(decision, snapshot(store), lambda: 1.0)
    assert ("option-not-understood" in codes(decision)) is left
    assert bool(decision.environment) is threads
    assert ("cpu-freq" in decision.rewrite) is cap


def test_a_site_cannot_loosen_what_the_table_says(store: Writer) -> None:
    says: dict[str, object] = {"understood_options": {"ntasks-per-core": [], "exclude": []}}
    store.apply_config("site", path="s", text="s", compiled=says, by="test")
    decision = ask(store, "-N1 -n1 --exclusive --ntasks-per-core=1")
    assert set(decision.rewrite) == {"cpu-freq"} and not decision.environment


@pytest.mark.parametrize("change", ["no-later", "allow"])
def test_a_scheduler_that_cannot_be_read_keeps_the_node_type_and_nothing_else(
    store: Writer, change: str
) -> None:
    """`allow` lets a job wait elsewhere; nobody lets it go where it may be refused."""
    policy(store, node_type_change=change)
    model(store, "skl", [response("skl", 1, 1, t, 2_000_000) for t in range(4, 29, 4)])
    unread = replace(snapshot(store), availability=Availability(problem="slurmctld is down"))
    unread.index()

    def decided(arguments: str) -> Decision:
        request = parse_request(
            {"type": "sbatch", "options": read_arguments(arguments.split()), "script": SCRIPT},
            user="ada",
            uid=1000,
            choices={},
        )
        decision = decide(request, unread, chance=lambda: 1.0)
        same_again(decision, unread, lambda: 1.0)
        return decision

    mixed = decided("-N1 --exclusive -p mixed")
    assert not mixed.rewrite and not mixed.environment
    assert "node-type-later" in codes(mixed)
    assert any("slurmctld is down" in r.text for r in mixed.reasons)
    assert decided("-N1 --exclusive -p batch").environment == {"OMP_NUM_THREADS": "20"}


@pytest.mark.parametrize(
    "script",
    ["echo $SLURM_CPUS_ON_NODE\nsrun ./stencil", "lscpu\nsrun ./stencil", "srun -w bdw1 ./stencil"],
)
def test_a_script_that_counts_cores_keeps_its_node_type(store: Writer, script: str) -> None:
    policy(store, node_type_change="allow")
    model(store, "skl", [response("skl", 1, 1, t, 2_000_000) for t in range(4, 29, 4)])
    decision = ask(store, "-N1 --exclusive -p mixed", script)
    assert not decision.rewrite and "mixed-partition" in codes(decision)


def test_several_partitions_of_several_node_types_are_left_alone(store: Writer) -> None:
    policy(store, node_type_change="allow")
    assert "several-partitions" in codes(ask(store, "-N1 --exclusive -p batch,mixed"))


def test_in_a_mixed_partition_the_node_type_is_pinned(store: Writer) -> None:
    policy(store, node_type_change="allow")
    decision = ask(store, "-N1 --exclusive -p mixed --mem=2G")
    assert decision.rewrite["constraint"] == "broadwell"


def test_a_job_is_never_bound_to_nodes_where_it_would_have_less_memory(store: Writer) -> None:
    policy(store, node_type_change="allow")
    decision = ask(store, "-N1 --exclusive -p mixed")  # it might land on skylake, with more
    assert not decision.rewrite and not decision.environment
    assert "no-room" in codes(decision)


def test_where_the_policy_keeps_node_types_a_mixed_partition_is_left_alone(store: Writer) -> None:
    policy(store, axes={"node_type": "keep"})
    decision = ask(store, "-N1 --exclusive -p mixed")
    assert not decision.rewrite
    assert "mixed-partition" in codes(decision)
    assert ask(store, "-N1 --exclusive -p mixed -C broadwell").rewrite
    assert ask(store, "-N1 --exclusive -p batch").rewrite


def skylake(store: Writer, freq: int, quality: str = "measured") -> None:
    """Stencil on skylake, with less energy than on broadwell, at one frequency that it has."""
    kind = NodeType(
        "skl",
        feature="skylake",
        partitions=("mixed",),
        sockets=2,
        cores=40,
        memory_mb=96_000,
        nodes=("skl1", "skl2"),
        freq_khz=(1_500_000, 1_800_000, 2_000_000),
        default_freq_khz=2_000_000,
    )
    store.save_node_types([kind], source="test")
    options = [response("skl", 1, 1, t, freq) for t in range(4, 41, 4)]
    model(store, "skl", options, energy_quality=quality)


@pytest.mark.parametrize(
    ("asked", "freq", "goes"),
    [
        ("", 2_000_000, True),
        ("--cpu-freq=1500000-1800000", 1_800_000, True),
        ("--cpu-freq=1500000-1800000", 2_000_000, False),  # more than the user's cap
    ],
)
def test_the_users_cap_holds_on_another_node_type(
    store: Writer, asked: str, freq: int, goes: bool
) -> None:
    policy(store, node_type_change="allow")
    skylake(store, freq)
    decision = ask(store, f"-N1 --exclusive -p mixed --mem=2G {asked}")
    assert (decision.rewrite.get("constraint") == "skylake") is goes, decision.reasons
    if goes:
        assert "cpu-freq" not in decision.rewrite  # no cap, or the user's own


@pytest.mark.parametrize(("quality", "goes"), [("measured", True), ("estimated", False)])
def test_estimated_energy_is_not_held_against_measured(
    store: Writer, quality: str, goes: bool
) -> None:
    policy(store, node_type_change="allow", estimated_energy="apply")
    skylake(store, 2_000_000, quality)
    decision = ask(store, "-N1 --exclusive -p mixed --mem=2G")
    assert (decision.rewrite.get("constraint") == "skylake") is goes


@pytest.mark.parametrize(("hook", "goes"), [("cli_filter", True), ("job_submit", False)])
def test_no_job_waits_elsewhere_that_may_have_a_deadline(
    store: Writer, hook: str, goes: bool
) -> None:
    """The policy lets jobs wait; job_submit does not see whether one has a deadline."""
    policy(store, node_type_change="allow")
    skylake(store, 2_000_000)
    decision = ask(store, "-N1 --exclusive -p mixed --mem=2G", hook=hook)
    assert (decision.rewrite.get("constraint") == "skylake") is goes
    assert ("node-type-later" in codes(decision)) is not goes


# -- memory that a job is given without asking ---------------------------------------------------


def mixed(store: Writer, memory_mb: tuple[float, float] | None, arguments: str = "") -> Decision:
    """Decide for a whole-node job in a partition of several node types, all of them idle."""
    site = snapshot(store)
    rooms = {(t, "mixed"): Room(2, 2, ((math.inf, 2),)) for t in ("bdw", "skl")}
    place = PartitionState(default_memory_mb=memory_mb)
    unlimited = JobLimits(enforced=False)
    site.availability = Availability("slurm", rooms, {"mixed": place}, limits=unlimited)
    options = read_arguments(f"-N1 --exclusive -p mixed -t 60 {arguments}".split())
    payload = {"type": "sbatch", "options": options, "script": SCRIPT}
    request = parse_request(payload, user="ada", uid=1000, choices={})
    decision = decide(request, site, chance=lambda: 1.0)
    same_again(decision, site, lambda: 1.0)
    return decision


@pytest.mark.parametrize(
    ("memory_mb", "changed"),
    [
        ((4000.0, 0.0), True),  # DefMemPerNode: the same on each of them
        ((0.0, 1000.0), False),  # DefMemPerCPU: it may land where there are more cores
        ((0.0, 0.0), False),  # all that its node has, and it may land where that is more
        (None, False),
    ],
)
def test_threads_and_cap_on_its_own_node_type_need_no_fatter_nodes_memory(
    store: Writer, memory_mb: tuple[float, float] | None, changed: bool
) -> None:
    decision = mixed(store, memory_mb)
    assert decision.changed is changed
    if changed:
        assert decision.rewrite["constraint"] == "broadwell"
        assert decision.environment and decision.rewrite["cpu-freq"]
    assert ("no-room" in codes(decision)) is not changed


@pytest.mark.parametrize(
    ("skylake_mb", "memory_mb", "moves"),
    [
        (96_000, (0.0, 0.0), True),  # all of the node's
        (63_000, (0.0, 0.0), False),
        (63_000, (4000.0, 0.0), True),  # by default per node
        (3000, (4000.0, 0.0), False),
        (96_000, (0.0, 2000.0), True),  # by default per core: 40 of them
        (70_000, (0.0, 2000.0), False),
    ],
)
def test_another_node_type_has_as_much_memory_as_the_job_really_gets(
    store: Writer, skylake_mb: int, memory_mb: tuple[float, float], moves: bool
) -> None:
    store.save_node_types([BDW, replace(SKL, memory_mb=skylake_mb)], source="test", replace=True)
    model(store, "skl", [response("skl", 1, 1, t, 2_000_000) for t in range(4, 29, 4)])
    decision = mixed(store, memory_mb)
    assert (decision.rewrite.get("constraint") == "skylake") is moves


# -- a frequency cap that the site sets for everybody --------------------------------------------

EVERYBODY = {"SLURM_CPU_FREQ_REQ": "2000000"}


@pytest.mark.parametrize(
    ("says", "environment", "arguments", "kept"),
    [
        ({}, EVERYBODY, "", True),
        ({"SLURM_CPU_FREQ_REQ": []}, EVERYBODY, "", False),
        ({"SLURM_CPU_FREQ_REQ=2000000": []}, EVERYBODY, "", False),
        ({"SLURM_CPU_FREQ_REQ=2000000": []}, {"SLURM_CPU_FREQ_REQ": "1200000-2000000"}, "", False),
        ({"SLURM_CPU_FREQ_REQ=2000000": []}, {"SLURM_CPU_FREQ_REQ": "1800000"}, "", True),
        ({"SLURM_CPU_FREQ_REQ": ["frequency"]}, EVERYBODY, "", True),
        ({"SLURM_CPU_FREQ_REQ": []}, EVERYBODY, "--cpu-freq=1800000", True),
        ({"SLURM_CPU_FREQ_REQ": []}, {**EVERYBODY, "SLURM_POWER": "level"}, "", True),
        ({"SLURM_CPU_FREQ_REQ": []}, {"SLURM_CPU_FREQ_REQ": "high"}, "", True),
    ],
)
def test_a_cap_that_the_site_sets_for_everybody(
    store: Writer,
    says: dict[str, list[str]],
    environment: dict[str, str],
    arguments: str,
    kept: bool,
) -> None:
    policy(store, axes={"frequency": "fill"})
    compiled = {"understood_options": says}
    store.apply_config("site", path="s", text="s", compiled=compiled, by="test")
    decision = ask(store, f"-N1 --exclusive {arguments}", env=environment)
    assert ("cpu-freq" in decision.rewrite) is not kept
    if not kept:
        assert decision.baseline is not None and decision.baseline.freq_khz == 2_000_000
        assert decision.rewrite["cpu-freq"] != "1200000-2000000"


def test_srun_takes_such_a_cap_as_its_own_option(store: Writer) -> None:
    policy(store, axes={"frequency": "fill"})
    says: dict[str, list[str]] = {"SLURM_CPU_FREQ_REQ": []}
    compiled = {"understood_options": says}
    store.apply_config("site", path="s", text="s", compiled=compiled, by="test")

    def decided(option: str) -> Decision:
        return ask(
            store,
            f"-N1 --exclusive --cpu-freq={option}",
            None,
            type="srun",
            argv=["./stencil"],
            env=EVERYBODY,
        )

    assert "cpu-freq" in decided("2000000").rewrite
    own = decided("1800000")
    assert "cpu-freq" not in own.rewrite and "user-set" in codes(own)
