"""The plan that a job carries, as the variable has it: written, read back, cut and forged."""

from __future__ import annotations

import string
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.recognise import recognise
from advisor.core.step_plan import (
    ANY,
    MAX_PLAN,
    PlanEntry,
    PlannedStep,
    PlanText,
    StepPlan,
    digest,
    key_of,
    read_plan,
    step_identity,
)

DECISION = "0123456789abcdef"
STEP = PlannedStep(
    "namd2",
    "stmv.namd",
    "namd2",
    "stmv.namd",
    ranks=2,
    threads=14,
    unset=True,
    threads_new=7,
    cap_khz=1_800_000,
    time_pct=(1.0, 0.0, 2.0),
    energy_pct=(-20.0, -22.0, -18.0),
)
TEXT = f"1 {DECISION} 1000 1 28 b6aa07da,2,14,u,7,1800000 444edccf"
counts = st.integers(1, 9_999_999)


@st.composite
def planned_steps(draw: st.DrawFn) -> PlannedStep:
    threads = draw(counts)
    return PlannedStep(
        draw(st.text(min_size=1, max_size=20)),
        draw(st.sampled_from(["", "in.lj -n 4", ANY])),
        "app",
        "workload",
        draw(counts),
        threads,
        draw(st.booleans()),
        draw(st.integers(0, threads - 1)),
        draw(st.one_of(st.just(0), st.integers(1000, 20_000_000))),
        draw(st.sampled_from(["OMP_NUM_THREADS", "FOO_NUM_THREADS"])),
        draw(st.sampled_from(["", "0a1b2c3d4e5f", "adler:0a1b2c3d:4711"])),
    )


plans = st.builds(
    StepPlan,
    st.integers(0, 2**32 - 2),
    counts,
    counts,
    st.lists(planned_steps(), min_size=1, max_size=80).map(tuple),
)


def test_the_form_stays_as_hooks_know_it() -> None:
    plan = StepPlan(1000, 1, 28, (STEP,))
    assert plan.text(DECISION) == TEXT
    assert key_of("namd2 stmv.namd") == "b6aa07da"
    assert StepPlan.from_dict(plan.to_dict()) == plan


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (PlanEntry("b6aa07da", 2, 14, True, 7, 1_800_000), "b6aa07da,2,14,u,7,1800000"),
        (PlanEntry("b6aa07da", 6, 1, False, 0, 1_200_000), "b6aa07da,6,1,-,0,1200000"),
        (PlanEntry("b6aa07da", 6, 2, False), "b6aa07da,6,2,-,0,0"),
        (PlanEntry("b6aa07da", 2, 14, True, 7, variable="A"), "b6aa07da,2,14,u,7,0,A"),
        (PlanEntry("b6aa07da", 2, 14, True, 7, build="01234567"), "b6aa07da,2,14,u,7,0,,01234567"),
        (
            PlanEntry("b6aa07da", 2, 14, True, 7, 1_800_000, "FOO_1", "01234567"),
            "b6aa07da,2,14,u,7,1800000,FOO_1,01234567",
        ),
    ],
)
def test_entries_and_whose_they_are(entry: PlanEntry, text: str) -> None:
    assert entry.text == text
    read = read_plan(forged(f"1 {DECISION} 1234 56 789 {text} 0"))
    assert read == PlanText(DECISION, 1234, 56, 789, (entry,))


def test_a_sum_that_is_off_by_one_digit() -> None:
    assert read_plan(TEXT) is not None
    for digit in "0123456789abcdef":
        assert (read_plan(TEXT[:-1] + digit) is None) == (digit != TEXT[-1])


def test_a_step_says_what_its_entry_does() -> None:
    step = PlannedStep("app", "in", "a", "w", 2, 14, False)
    assert not step.changes and step.entry.text == f"{key_of('app in')},2,14,-,0,0"
    assert "variable" not in step.to_dict() and "build" not in step.to_dict()
    assert replace(step, threads_new=7).changes is replace(step, cap_khz=1000).changes is True
    assert step.changes is False
    built = replace(step, build="ab12", variable="FOO")
    assert built.entry.text == f"{step.entry.text},FOO,{key_of('ab12')}"
    assert PlannedStep.from_dict(built.to_dict()) == built
    assert StepPlan(1, 1, 1, (STEP, step)).least_time == 1.0
    assert StepPlan(1, 1, 1, (replace(STEP, time_pct=(-1.0, -2.0, 0.0)),)).least_time == 0.98


@pytest.mark.parametrize("uid", [9, 99, 999, 9999, 99999, 999999])
def test_a_plan_takes_as_many_steps_as_fit(uid: int) -> None:
    steps = tuple(replace(STEP, ranks=10 ** (n % 5)) for n in range(100))
    plan = StepPlan(uid, 12, 28, steps)
    bounded = plan.bounded()
    one_more = StepPlan(uid, 12, 28, steps[: len(bounded.steps) + 1])
    assert len(bounded.text(DECISION)) <= MAX_PLAN < len(one_more.text(DECISION))
    assert read_plan(bounded.text(DECISION)) is not None
    assert read_plan(one_more.text(DECISION)) is None


def test_one_plan_is_as_long_as_any_may_be() -> None:
    """Of all lengths one is the bound itself."""
    plans_of_lengths = [
        StepPlan(10**uid, 10**nodes, 28, (replace(STEP, ranks=10**ranks), *[STEP] * 90)).bounded()
        for uid in (0, 9)
        for nodes in range(7)
        for ranks in range(7)
    ]
    texts = [plan.text(DECISION) for plan in plans_of_lengths]
    assert max(map(len, texts)) == MAX_PLAN == 2000
    assert all(read_plan(text) is not None for text in texts)


@given(plans, st.text("0123456789abcdef", min_size=16, max_size=16))
def test_what_is_written_is_read_back(plan: StepPlan, decision: str) -> None:
    bounded = plan.bounded()
    if not bounded.steps:
        return
    text = bounded.text(decision)
    read = read_plan(text)
    assert read is not None
    assert len(text) <= MAX_PLAN
    assert text.isascii() and text.isprintable()
    assert (read.decision, read.uid, read.nodes, read.cpus) == (
        decision,
        plan.uid,
        plan.nodes,
        plan.cpus,
    )
    assert read.entries == tuple(step.entry for step in bounded.steps)
    body = text[: text.rindex(" ") + 1]
    assert text == f"{body}{digest(body.encode()):08x}"


@given(plans, st.data())
def test_a_cut_or_altered_plan_is_none(plan: StepPlan, data: st.DataObject) -> None:
    bounded = plan.bounded()
    if not bounded.steps:
        return
    text = bounded.text(DECISION)
    assert read_plan(text[: data.draw(st.integers(0, len(text) - 1))]) is None
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from(string.printable).filter(lambda char: char != text[at]))
    assert read_plan(text[:at] + other + text[at + 1 :]) is None
    assert read_plan(text + " ") is None


def forged(text: str) -> str:
    """Return a text with the sum that belongs to it."""
    body = text.rpartition(" ")[0] + " "
    return body + key_of(body)


def test_a_forged_sum_does_not_make_it_a_plan() -> None:
    assert read_plan(forged(TEXT)) is not None
    for old, new in (
        ("1 0123", "2 0123"),
        (DECISION, DECISION.upper()),
        (" 1000 ", " 01000 "),
        (" 1 28", " 0 28"),
        (",14,", ",-14,"),
        (",14,", ",014,"),
        (",u,", ",x,"),
        (",7,", ",14,"),
        (",7,", ",28,"),
        (",1800000 ", ",1800000, "),
        (",1800000 ", ",1800000,OMP_NUM_THREADS "),
        (",1800000 ", ",1800000,LD_PRELOAD; "),
        (",1800000 ", ",1800000,,xyz "),
        (",1800000 ", ",1800000  "),
        (" b6aa07da,2,14,u,7,1800000", ""),
    ):
        assert old in TEXT
        assert read_plan(forged(TEXT.replace(old, new, 1))) is None, (old, new)
    more = " b6aa07da,2,14,u,7,1800000" * 90
    assert read_plan(forged(TEXT.replace(" 444e", f"{more} 444e"))) is None


def test_what_has_no_room_takes_the_entry_for_any_arguments_with_it() -> None:
    steps = [STEP] * 3 + [PlannedStep("a", ANY, "a", "default", 2, 14, False, 7)]
    few = StepPlan(1000, 1, 28, tuple(steps))
    assert few.bounded() == few
    many = StepPlan(1000, 1, 28, tuple(steps * 30)).bounded()
    assert 50 < len(many.steps) < 120
    assert all(step.arguments != ANY for step in many.steps)


@given(st.lists(st.text(string.ascii_letters + "-=. /$*'", min_size=1, max_size=9), max_size=4))
def test_the_identity_is_that_of_the_models_workload(arguments: list[str]) -> None:
    recognised = recognise(None, command=("/opt/bin/app", *arguments))
    workload = "" if recognised.workload == "default" else recognised.workload
    identity = step_identity("app", workload)
    assert identity == f"app {workload}".rstrip()
    assert ANY not in workload
