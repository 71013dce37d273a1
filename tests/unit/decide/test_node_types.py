"""When a node type changes, and what keeps it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.core.availability import Availability
from advisor.core.decision import Decision
from advisor.schedulers.slurm.translator import parse_request, read_arguments
from advisor.service.decide import decide
from advisor.store.writer import Writer
from tests.again import same_again
from tests.unit.decide.site import SCRIPT, ask, codes, model, policy, response, snapshot


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
    says: dict[str, object] = {"understood_options": {"hint": [], "exclude": []}}
    store.apply_config("site", path="s", text="s", compiled=says, by="test")
    assert "option-binds" in codes(ask(store, "-N1 --exclusive --hint=nomultithread"))


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
            user="ada", uid=1000, choices={},
        )  # fmt: skip
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
