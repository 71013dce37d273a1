"""Verdicts: what counts as promised, worse, better, and what tells nothing."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.inventory import Inventory, NodeType
from advisor.loop.execution import Execution, differs, ran
from advisor.loop.verdict import QUANTITIES, PromiseInterval, in_words, judge, promised
from advisor.schedulers.base import JobRecord, StepRecord

TIME = PromiseInterval(100.0, 95.0, 105.0)
ENERGY = PromiseInterval(10_000.0, 9_000.0, 11_000.0)
RAN = Execution("bdw", 2, 1, 28, 1_900_000, True, 100.0, 1.0, 10_000.0)
BDW = NodeType(
    "bdw",
    "broadwell",
    ("batch",),
    cores=28,
    freq_khz=(1_200_000, 1_900_000, 2_200_000),
    nodes=("bdw1", "bdw2", "bdw3"),
)
SKL = NodeType("skl", "skylake", ("batch",), cores=40, nodes=("skl1",))
SITE = Inventory.of([BDW, SKL])
WANTED = Configuration("bdw", 2, 1, 28, 1_900_000)


def verdict(state: str = "COMPLETED", **changes: object) -> str:
    seen = replace(RAN, **changes)  # type: ignore[arg-type]
    return judge(state, seen, TIME, ENERGY, max_slowdown=0.05).verdict


@pytest.mark.parametrize(
    ("time_s", "energy_j", "expected"),
    [
        (100.0, 10_000.0, "as-promised"),
        (104.9, 10_990.0, "as-promised"),
        (107.9, 10_000.0, "as-promised"),  # 2 % error and 1 s of resolution
        (108.5, 10_000.0, "worse"),
        (100.0, 11_290.0, "as-promised"),
        (100.0, 11_400.0, "worse"),
        (90.0, 10_000.0, "better"),
        (90.0, 12_000.0, "worse"),
        (100.0, None, "unknown"),
        (120.0, None, "worse"),  # slower is told by the time alone
    ],
)
def test_a_completed_job_is_judged_by_its_intervals(
    time_s: float, energy_j: float | None, expected: str
) -> None:
    assert verdict(time_s=time_s, energy_j=energy_j) == expected


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED", "NODE_FAIL", "PREEMPTED", ""])
def test_a_job_that_did_not_end_well_tells_nothing(state: str) -> None:
    assert verdict(state, time_s=500.0) == "unknown"


def test_a_time_limit_that_struck_is_worse() -> None:
    assert verdict("TIMEOUT", time_s=60.0, energy_j=None) == "worse"


def test_shared_nodes_and_failed_steps_tell_nothing() -> None:
    assert verdict(time_s=500.0, whole_nodes=False) == "unknown"
    assert verdict(time_s=500.0, step_failed=True) == "unknown"


def test_far_is_beyond_the_interval_by_more_than_the_allowed_slowdown() -> None:
    near = judge("COMPLETED", replace(RAN, time_s=112.0), TIME, ENERGY, max_slowdown=0.05)
    far = judge("COMPLETED", replace(RAN, time_s=116.0), TIME, ENERGY, max_slowdown=0.05)
    assert (near.verdict, near.far) == ("worse", False)
    assert (far.verdict, far.far) == ("worse", True)


def test_a_measured_energy_says_nothing_about_an_estimate() -> None:
    seen = replace(RAN, energy_j=20_000.0)
    found = judge("COMPLETED", seen, TIME, ENERGY, max_slowdown=0.05, estimated_energy=True)
    assert found.verdict == "unknown"
    assert "estimate" in found.notes[0]


def test_a_promise_is_absolute() -> None:
    record = {
        "chosen": WANTED.to_dict(),
        "predicted": {
            "time_s": 104.0,
            "time_pct": 4.0,
            "time_pct_interval": [2.0, 6.0],
            "energy_j": 900.0,
            "energy_pct": -10.0,
            "energy_pct_interval": [-12.0, -8.0],
        },
    }
    chosen = Decision.from_dict(record).chosen
    time, energy = promised(chosen, "time"), promised(chosen, "energy")
    assert time is not None and energy is not None
    assert time.to_list() == pytest.approx([104.0, 102.0, 106.0])
    assert energy.to_list() == pytest.approx([900.0, 880.0, 920.0])


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "time_s",
                "energy_j",
                "time_pct",
                "energy_pct",
                "time_pct_interval",
                "energy_pct_interval",
            ]
        ),
        st.one_of(
            st.none(),
            st.floats(),
            st.text(max_size=3),
            st.integers(),
            st.lists(st.floats(), max_size=3),
        ),
    )
)
def test_a_promise_out_of_a_forged_stamp_is_finite_or_none(predicted: dict[str, object]) -> None:
    for quantity in QUANTITIES:
        record = {"chosen": WANTED.to_dict(), "predicted": predicted}
        found = promised(Decision.from_dict(record).chosen, quantity)
        assert found is None or found.lo <= found.value <= found.hi or math.isinf(found.hi)


def test_words() -> None:
    def say(value: float) -> str:
        return in_words("time", value, TIME, 0.03)

    assert say(100.0) == "as promised"
    assert say(103.0) == "3.0 % slower than promised, within its interval"
    assert say(94.0) == "6.0 % faster than promised, within its interval and measurement error"
    assert say(140.0) == "40.0 % slower than promised, outside its interval"
    # a run of two seconds by a clock of whole seconds: half of it is open, fifty times as much not
    assert in_words("time", 2.0, TIME, 0.52) == "98.0 % faster than promised, outside its interval"
    assert in_words("time", 200.0, TIME, 0.52).endswith(
        "slower than promised, outside its interval"
    )


# -- what ran ------------------------------------------------------------------------------------

STEP = StepRecord("0", "a.out", "COMPLETED", 50.0, 2, 2, 6000.0, 1_900_000, 1_890_000, 56)
JOB = JobRecord(
    "11",
    "job",
    "ann",
    "proj",
    "COMPLETED",
    "2026-01-31T12:00:00",
    60.0,
    2,
    "bdw[1-2]",
    6000.0,
    1_900_000,
    cpus=56,
    steps=(STEP,),
)


def test_a_job_is_timed_by_its_steps() -> None:
    seen = ran(JOB, SITE)
    assert seen.node_type == "bdw" and seen.whole_nodes is True
    assert (seen.time_s, seen.energy_j) == (50.0, 6000.0)
    assert (seen.ranks_per_node, seen.threads_per_node, seen.freq_khz) == (1, 28, 1_900_000)


def test_without_steps_it_is_the_whole_job_and_has_no_energy() -> None:
    seen = ran(replace(JOB, steps=(), energy_j=None), SITE)
    assert (seen.time_s, seen.energy_j) == (60.0, None)
    assert "srun" in seen.energy_note


def test_steps_that_overlap_count_nodes_twice() -> None:
    seen = ran(replace(JOB, steps=(STEP, replace(STEP, step_id="1"))), SITE)
    assert (seen.time_s, seen.energy_j) == (60.0, None)
    assert "overlapped" in seen.energy_note


def test_part_of_a_node_has_no_energy_of_its_own() -> None:
    seen = ran(replace(JOB, cpus=40), SITE)
    assert (seen.whole_nodes, seen.energy_j) == (False, None)


@pytest.mark.parametrize("nodes", ["bdw1,skl1", "gpu[1-2]", "", "bdw[1-", "None assigned"])
def test_nodes_of_no_single_known_type(nodes: str) -> None:
    seen = ran(replace(JOB, node_list=nodes), SITE)
    assert seen.node_type == "" and seen.whole_nodes is None
    assert "node type" in differs(WANTED, seen, SITE)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ""),
        ({"nodes": 3}, "3 nodes"),
        ({"node_type": "skl"}, "skl"),
        ({"freq_khz": 1_200_000}, "1.2 GHz"),
        ({"freq_khz": 0}, "2.2 GHz"),  # no cap: the default
        ({"ranks_per_node": 2}, "2 ranks"),
        ({"ranks_per_node": 0, "threads_per_node": 0}, ""),  # not told
        ({"threads_per_node": 20}, "20 cores"),
        ({"threads_per_node": 56}, ""),  # a step may have more cores than threads
    ],
)
def test_what_ran_is_held_against_what_was_decided(changes: dict[str, int], said: str) -> None:
    found = differs(WANTED, replace(RAN, **changes), SITE)  # type: ignore[arg-type]
    assert (said in found) if said else found == ""


def capped_job(*steps: StepRecord, observed: int | None = None) -> JobRecord:
    return JobRecord(
        "7",
        "a",
        "ada",
        "",
        "COMPLETED",
        elapsed_s=100.0,
        nodes=2,
        node_list="bdw[1-2]",
        freq_requested_khz=1_900_000,
        freq_observed_khz=observed,
        cpus=56,
        steps=steps,
    )


STEP = StepRecord("0", "a", "COMPLETED", 100.0, 2, 2, 10_000.0, 1_900_000, None, 56)
BATCH = StepRecord("batch", "batch", "COMPLETED", 100.0, 1, 1)


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (capped_job(STEP), ""),
        (capped_job(STEP, observed=1_880_000), ""),
        (capped_job(STEP, observed=1_950_000), ""),  # a mean of what the clock says
        (capped_job(STEP, observed=2_200_000), "had no effect: it ran at 2.2 GHz"),
        (capped_job(STEP, observed=2_596), ""),  # no frequency
        (capped_job(BATCH), "had no effect: no step was started with srun"),
    ],
)
def test_a_cap_that_had_no_effect_says_nothing_of_the_model(job: JobRecord, why: str) -> None:
    seen = ran(job, SITE)
    found = differs(WANTED, seen, SITE)
    assert found.endswith(why) and bool(found) is bool(why)
    assert seen.cap_khz == (0 if why else 1_900_000)
    # a job that nobody wanted to cap ran as it is, whatever cap of its own had no effect
    own = replace(WANTED, freq_khz=2_200_000)
    assert bool(differs(own, seen, SITE)) is not bool(why)
