"""Jobs of a recurring script try caps, one at a time, where the policy lets them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from advisor.core.decision import Decision
from advisor.derive.worker import derive
from advisor.loop.collect import collect
from advisor.schedulers.base import StepRecord
from advisor.service.decide import decide
from advisor.store.cap_trials import give_up_cap_trial, pending_cap_trials, take_cap_trial
from advisor.store.writer import Writer
from tests.unit.collect.jobs import Accounting
from tests.unit.decide.site import codes, policy, snapshot
from tests.unit.decide.test_whole_job import asked, ran, record

SCRIPT = """#!/bin/bash
srun ./prepare -s {seed}
srun ./other
"""
ONE_PROGRAM = "#!/bin/bash\nsrun ./other\n"
FREE_KHZ = 2_200_000
POWER_W = 200.0


def steps(khz: int = FREE_KHZ, *, slower: float = 1.0, job_khz: int = 0) -> tuple[StepRecord, ...]:
    """What the accounting says of two steps, the second of which saves power under a cap."""

    def step(number: int, name: str, took_s: float) -> StepRecord:
        energy_j = POWER_W * took_s * khz / FREE_KHZ
        return StepRecord(
            str(number),
            name,
            "COMPLETED",
            took_s,
            1,
            1,
            energy_j,
            cpus=28,
            freq_requested_khz=job_khz or None,
        )

    return step(0, "prepare", 5.0), step(1, "other", 100.0 * slower)


class NothingWaits(Accounting):
    """No job has ended, and none is waiting or running."""

    def unfinished_jobs(self) -> list[Any]:
        return []


@pytest.fixture
def known(store: Writer) -> Writer:
    """A script of unknown programs that ran three times, where jobs may try."""
    policy(store, cold_start={"cap_trials": 5})
    for number in range(3):
        ran(store, asked(store, number, SCRIPT), number, steps())
    assert derive(store)
    return store


def tried(store: Writer, number: int, **more: Any) -> Decision:
    """Let the next job of the script try what it is told, and collect it."""
    decision = asked(store, number, SCRIPT)
    assert "cap-trial" in codes(decision)
    assert take_cap_trial(store.path, decision)
    assert decision.chosen is not None
    khz = decision.chosen.configuration.freq_khz
    ran(store, decision, number, steps(khz, job_khz=khz, **more))
    assert derive(store)
    return decision


def caps(*decisions: Decision) -> list[int]:
    return [d.chosen.configuration.freq_khz for d in decisions if d.chosen]


def test_a_script_tries_caps_step_by_step(known: Writer) -> None:
    first = asked(known, 3, SCRIPT)
    assert first.changed and list(first.rewrite) == ["cpu-freq"] and not first.environment
    assert {"cap-trial", "whole-job"} <= codes(first) and first.model_id is None
    (why,) = (r.text for r in first.reasons if r.code == "cap-trial")
    assert "trial 1 of 5" in why
    assert "this job tries" in first.message and "ADVISOR=off" in first.message
    second, third = tried(known, 3), tried(known, 4)
    deeper = caps(first, second, third)
    assert deeper[0] == deeper[1] > deeper[2]
    assert first.chosen and first.chosen.time.hi <= 0.1


@pytest.mark.parametrize("line", ["timeout 120 srun ./other", "srun --time=2 ./other"])
def test_a_program_that_is_ended_after_a_time_tries_nothing(store: Writer, line: str) -> None:
    policy(store, cold_start={"cap_trials": 5})
    script = SCRIPT.replace("srun ./other", line)
    for number in range(3):
        ran(store, asked(store, number, script), number, steps())
    assert derive(store)
    decision = asked(store, 9, script)
    assert not decision.changed and "program-ended" in codes(decision)


def test_one_at_a_time(known: Writer) -> None:
    first = asked(known, 3, SCRIPT)
    assert take_cap_trial(known.path, first) and not take_cap_trial(
        known.path, asked(known, 4, SCRIPT)
    )
    other = asked(known, 5, SCRIPT)
    assert not other.changed and "cap-trial-pending" in codes(other)
    assert [t.decision_id for t in pending_cap_trials(known)] == [first.id]
    give_up_cap_trial(known.path, first.id)
    assert "cap-trial" in codes(asked(known, 6, SCRIPT))


def test_what_jobs_tried_becomes_the_advice(known: Writer) -> None:
    number = 3
    while "cap-trial" in codes(decision := asked(known, number, SCRIPT)):
        tried(known, number)
        number += 1
    assert decision.changed and 3 < number < 8
    assert {"whole-job", "chosen", "confirmed"} <= codes(decision)
    (words,) = (r.text for r in decision.reasons if r.code == "whole-job")
    assert f"{number - 3} of them tried a cap" in words
    policy(known, cold_start={"cap_trials": 0})
    assert asked(known, 9, SCRIPT).changed  # what is known stays known


def test_a_surprise_stops(known: Writer) -> None:
    tried(known, 3, slower=1.3)
    decision = asked(known, 9, SCRIPT)
    assert not decision.changed and "cap-trials-stopped" in codes(decision)


def test_a_trial_that_its_limit_ended_stops(known: Writer) -> None:
    decision = asked(known, 3, SCRIPT)
    assert take_cap_trial(known.path, decision)
    ran(known, decision, 3, steps(job_khz=caps(decision)[0]), state="TIMEOUT")
    assert derive(known)
    after = asked(known, 9, SCRIPT)
    assert not after.changed
    (why,) = (r.text for r in after.reasons if r.code == "cap-trials-stopped")
    assert "job 3 ended at its time limit" in why


@pytest.mark.parametrize("state", ["CANCELLED", "NODE_FAIL"])
def test_a_trial_that_told_nothing_frees_its_place(known: Writer, state: str) -> None:
    decision = asked(known, 3, SCRIPT)
    assert take_cap_trial(known.path, decision)
    ran(known, decision, 3, steps(job_khz=caps(decision)[0]), state=state)
    assert derive(known) and not pending_cap_trials(known)
    (again,) = (r.text for r in asked(known, 4, SCRIPT).reasons if r.code == "cap-trial")
    assert "trial 1 of 5" in again


def test_a_submission_that_never_became_a_job_frees_its_place(known: Writer) -> None:
    assert take_cap_trial(known.path, asked(known, 3, SCRIPT))
    nothing: Any = NothingWaits([])
    collect(known, nothing, datetime.now(UTC) - timedelta(days=1))
    assert pending_cap_trials(known)  # it may still come
    known.change_many(
        "UPDATE cap_trials SET created_at = ?",
        [((datetime.now(UTC) - timedelta(hours=2)).isoformat(),)],
    )
    collect(known, nothing, datetime.now(UTC) - timedelta(days=1))
    assert not pending_cap_trials(known)


def test_nobody_ends_another_users_trial(known: Writer) -> None:
    decision = asked(known, 3, SCRIPT)
    assert take_cap_trial(known.path, decision)
    forged = record(3, decision, steps(), user="bob")
    collect(known, Accounting([forged]), datetime.now(UTC) - timedelta(days=2))  # type: ignore[arg-type]
    assert pending_cap_trials(known)


@pytest.mark.parametrize("settings", [{"mode": "advise"}, {"axes": {"frequency": "keep"}}])
def test_the_policy_holds(known: Writer, settings: dict[str, Any]) -> None:
    policy(known, cold_start={"cap_trials": 5}, **settings)
    decision = asked(known, 9, SCRIPT)
    assert not decision.changed and "cap-trial" not in codes(decision)


def test_none_without_the_policys_word(known: Writer) -> None:
    policy(known)
    assert not asked(known, 9, SCRIPT).changed


@pytest.mark.parametrize("change", [{"array": True}, {"held": True}])
def test_no_array_and_no_job_that_waits_for_its_user(
    known: Writer, change: dict[str, bool]
) -> None:
    request = asked(known, 9, SCRIPT).request
    assert request is not None
    assert not decide(replace(request, **change), snapshot(known)).changed  # type: ignore[arg-type]


def test_a_program_without_a_model_tries_caps(store: Writer) -> None:
    """Its script is understood, and nobody swept it."""
    policy(store, cold_start={"cap_trials": 5})
    for number in range(3):
        decision = asked(store, number, ONE_PROGRAM)
        assert "no-model" in codes(decision)
        ran(store, decision, number, steps()[1:])
    assert derive(store)
    decision = asked(store, 9, ONE_PROGRAM)
    assert decision.changed and "cap-trial" in codes(decision) and "no-model" not in codes(decision)
    policy(store)
    assert "no-model" in codes(asked(store, 9, ONE_PROGRAM))


def test_a_limit_that_the_worst_would_break_stops_the_trial(known: Writer) -> None:
    from tests.unit.decide.site import ask

    tight = ask(known, "-N1 --exclusive -t 00:01:48", SCRIPT.format(seed=9))
    assert not tight.changed
    assert ask(known, "-N1 --exclusive -t 00:10:00", SCRIPT.format(seed=9)).changed
