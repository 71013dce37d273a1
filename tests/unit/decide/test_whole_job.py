"""A job whose script is not understood gets a cap by what its own earlier jobs did."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from advisor.core.decision import Decision
from advisor.core.reading import JobReading
from advisor.core.stamp import make_stamp
from advisor.derive.worker import derive
from advisor.loop.collect import collect
from advisor.schedulers.base import JobRecord, Scheduler, StepRecord
from advisor.service.decide import decide_again
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from advisor.views.explain import decide_alone
from tests.unit.collect.jobs import Accounting
from tests.unit.decide.site import ask, codes, policy, snapshot

SCRIPT = """#!/bin/bash
srun ./prepare -s {seed}
srun ./stencil
"""
UNKNOWN = SCRIPT.replace("./stencil", "./other")
NOW = datetime.now(UTC).replace(microsecond=0)
FREE_KHZ = 2_200_000
STENCIL_S, POWER_W = 100 * 2.2e6**0.2 / 2.2e6**0.2, 90 + 28 * 4.5


def steps(
    main: str = "stencil", helper_s: float = 5.0, time_s: float = 100.0
) -> tuple[StepRecord, ...]:
    """What the accounting says of a script's two steps on one whole node of bdw."""

    def step(number: int, name: str, took_s: float) -> StepRecord:
        return StepRecord(str(number), name, "COMPLETED", took_s, 1, 1, POWER_W * took_s, cpus=28)

    return step(0, "prepare", helper_s), step(1, main, time_s)


def record(number: int, decision: Decision, parts: Sequence[StepRecord], **more: Any) -> JobRecord:
    ended = NOW - timedelta(hours=10 - number)
    parts_s = sum(p.elapsed_s or 0.0 for p in parts)
    job = JobRecord(
        str(number),
        decision.request.job_name if decision.request else "",
        decision.user,
        decision.account,
        "COMPLETED",
        submitted_at=(ended - timedelta(hours=1)).isoformat(),
        elapsed_s=parts_s + 1,
        nodes=1,
        node_list="bdw1",
        energy_j=sum(p.energy_j or 0.0 for p in parts),
        admin_comment=make_stamp(decision),
        ended_at=ended.isoformat(),
        partition="batch",
        cpus=28,
        resolution_s=0.01,
        whole_nodes=True,
        steps=tuple(parts),
    )
    return replace(job, **more)


def ran(
    store: Writer, decision: Decision, number: int, parts: Sequence[StepRecord], **more: Any
) -> None:
    """Store a decision as the daemon does, and collect its job."""
    submitted = NOW - timedelta(hours=11 - number)
    decision = replace(decision, created_at=submitted.isoformat())
    store.save_decision(decision)
    result = collect(
        store,
        cast("Scheduler", Accounting([record(number, decision, parts, **more)])),
        NOW - timedelta(days=2),
    )
    assert not result.failed
    assert len(result.outcomes) == 1


def asked(store: Writer, seed: int, script: str = SCRIPT) -> Decision:
    return ask(store, script=script.format(seed=seed))


def history(store: Writer, count: int = 3, script: str = SCRIPT, **more: Any) -> None:
    parts = steps(**more)
    for number in range(count):
        decision = asked(store, number, script)
        assert not decision.changed
        ran(store, decision, number, parts)
    assert derive(store)


def test_the_fourth_job_of_a_script_gets_a_cap(store: Writer) -> None:
    history(store, 2)
    assert "several-steps" in codes(asked(store, 17))
    ran(store, asked(store, 3), 3, steps())
    assert derive(store)
    decision = asked(store, 17)
    assert decision.changed and "cpu-freq" in decision.rewrite
    assert not decision.environment and decision.model_id is None
    assert (decision.application, decision.workload) == ("stencil", "whole-job")
    assert {"whole-job", "chosen", "confirmed"} <= codes(decision)
    assert "several-steps" not in codes(decision)
    text = next(r.text for r in decision.reasons if r.code == "whole-job")
    assert "94 % of its time is stencil, 6 % counted at the worst" in text
    assert decision.chosen is not None and decision.baseline is not None
    assert decision.chosen.configuration == replace(
        decision.baseline, freq_khz=decision.chosen.configuration.freq_khz
    )
    assert "this job runs on" in decision.message
    assert decision.request is not None
    with Reader(store.path) as reader:  # as explain does where no daemon answers
        alone = decide_alone(decision.request, reader)
    assert (alone.rewrite, alone.chosen) == (decision.rewrite, decision.chosen)
    parts = json.loads(json.dumps(decision.to_dict()))["parts"]
    assert [(p["program"], p["known"]) for p in parts] == [
        ("stencil", True),
        ("prepare", False),
        ("", False),
    ]
    assert sum(p["time_share"] for p in parts) == pytest.approx(1, abs=1e-3)


def test_its_promise_is_worse_than_the_programs_alone(store: Writer) -> None:
    history(store)
    whole, alone = asked(store, 17), ask(store)
    assert whole.chosen is not None and alone.chosen is not None
    khz = whole.chosen.configuration.freq_khz
    same = next(a for a in alone.alternatives if a.configuration.freq_khz == khz)
    assert whole.chosen.time.change > same.time.change
    assert whole.chosen.energy.change > same.energy.change


@pytest.mark.parametrize(
    ("why", "script", "more"),
    [
        ("its main part is unknown", UNKNOWN, {"main": "other"}),
        ("its known part is too small", SCRIPT, {"helper_s": 900.0}),
        ("its known part took something else", SCRIPT, {"time_s": 190.0}),
    ],
)
def test_no_cap_where(store: Writer, why: str, script: str, more: dict[str, Any]) -> None:
    history(store, script=script, **more)
    assert snapshot(store).histories
    decision = asked(store, 17, script)
    assert not decision.changed, why


def test_jobs_unlike_each_other_promise_nothing(store: Writer) -> None:
    history(store, 2)
    ran(store, asked(store, 4), 4, steps(helper_s=80.0))
    assert derive(store)
    decision = asked(store, 17)
    assert not decision.changed and "several-steps" in codes(decision)


@pytest.mark.parametrize(
    ("why", "arguments", "script"),
    [
        ("a user's own cap", "-N1 --exclusive --cpu-freq=2200000", SCRIPT),
        ("shared nodes", "-N1", SCRIPT),
        ("other nodes", "-N2 --exclusive", SCRIPT),
        ("opted out", "-N1 --exclusive", SCRIPT + "#ADVISOR off\n"),
        ("it reads its cap", "-N1 --exclusive", SCRIPT + "echo $SLURM_CPU_FREQ_REQ\n"),
        (
            "a step has its own",
            "-N1 --exclusive",
            SCRIPT.replace("srun ./st", "srun --cpu-freq=high ./st"),
        ),
        ("an option nobody knows", "-N1 --exclusive --frobnicate", SCRIPT),
    ],
)
def test_the_rules_of_all_caps_hold(store: Writer, why: str, arguments: str, script: str) -> None:
    for number in range(3):  # a history of just this script, where it may have one
        ran(store, ask(store, arguments, script.format(seed=1)), number, steps())
    assert derive(store)
    assert not ask(store, arguments, script.format(seed=2)).changed, why


@pytest.mark.parametrize(
    ("what", "script"),
    [
        ("timeout", SCRIPT.replace("srun ./st", "timeout 120 srun ./st")),
        ("srun --time", SCRIPT.replace("srun ./st", "srun -t 2 ./st")),
        ("ulimit -t", SCRIPT.replace("srun ./st", "ulimit -t 9000\nsrun ./st")),
        ("kill beside sleep", SCRIPT + "(sleep 120; kill $$) &\n"),
    ],
)
def test_a_program_that_is_ended_after_a_time_is_not_made_slower(
    store: Writer, what: str, script: str
) -> None:
    history(store, script=script)
    decision = asked(store, 17, script)
    assert not decision.changed
    (why,) = (r.text for r in decision.reasons if r.code == "program-ended")
    assert why == f"nothing is made slower: {what} in the script may end a program after a time"
    assert decision.request is not None and decision.reading is not None
    kept = JobReading.from_dict(json.loads(json.dumps(decision.reading.to_dict())))
    assert kept is not None
    for reading in (decision.reading, kept):  # without its script
        again = decide_again(
            replace(decision.request, script=None), reading, snapshot(store), chance=lambda: 1.0
        )
        assert not again.changed


def test_another_order_or_program_is_another_job(store: Writer) -> None:
    history(store)
    assert asked(store, 17).changed
    assert not asked(store, 17, SCRIPT + "srun ./more\n").changed
    assert not asked(store, 17, SCRIPT.replace("prepare", "prepare2")).changed
    assert not ask(store, script=SCRIPT.format(seed=1), user="bob").changed


def test_policy_and_holdout_hold(store: Writer) -> None:
    history(store)
    policy(store, mode="advise")
    assert "mode-advise" in codes(asked(store, 17))
    policy(store, axes={"frequency": "keep"})
    assert not asked(store, 17).changed
    policy(store, holdout=0.5)
    held = ask(store, script=SCRIPT.format(seed=17), chance=lambda: 0.1)
    assert held.holdout and not held.changed
    policy(store, max_slowdown=0.001)
    assert "slowdown" in codes(asked(store, 17))


@pytest.mark.parametrize(("time", "energy", "jobs"), [(1.5, 1.0, 1), (1.0, 1.2, 2)])
def test_what_turns_out_worse_is_left_alone(
    store: Writer, time: float, energy: float, jobs: int
) -> None:
    history(store)
    for number in range(4, 4 + jobs):
        decision = asked(store, number)
        assert decision.changed
        khz = decision.chosen.configuration.freq_khz  # type: ignore[union-attr]
        capped = tuple(
            replace(
                s,
                elapsed_s=time * (s.elapsed_s or 0.0),
                energy_j=energy * (s.energy_j or 0.0),
                freq_requested_khz=khz,
            )
            for s in steps()
        )
        ran(store, decision, number, capped, freq_requested_khz=khz)
        (outcome,) = store.outcomes("job_id = ?", (str(number),))
        assert outcome.verdict == "worse"
        assert derive(store)
    decision = asked(store, 17)
    assert not decision.changed
    assert {"several-steps", "whole-job-worse"} <= codes(decision)


def test_a_whole_job_teaches_its_program_nothing(store: Writer) -> None:
    history(store)
    decision = asked(store, 4)
    khz = decision.chosen.configuration.freq_khz  # type: ignore[union-attr]
    capped = tuple(replace(s, freq_requested_khz=khz) for s in steps())
    ran(store, decision, 4, capped, freq_requested_khz=khz)
    assert not store.observations("stencil", "default")
    assert not store.rows("SELECT name FROM workloads WHERE name = 'whole-job'")


def test_a_suspended_model_carries_no_job(store: Writer) -> None:
    history(store)
    (model,) = store.find_models("stencil", "default", "bdw")
    store.set_model_state(model.id, "suspended", "test")
    decision = asked(store, 17)
    assert not decision.changed and "several-steps" in codes(decision)


LOOP = "#!/bin/bash\nfor i in 1 2; do\n  srun ./stencil\ndone\n"
UNCLEAR = "#!/bin/bash\nread N < ranks\nsrun -n $N ./stencil\n"
FUNCTION = "#!/bin/bash\nrun() { srun ./stencil; }\nrun\n"
PYTHON = "#!/usr/bin/env python3\nimport subprocess\nsubprocess.run(['srun', './stencil'])\n"


@pytest.mark.parametrize(
    ("code", "script", "times"),
    [
        ("loop-of-steps", LOOP, 2),
        ("no-baseline", UNCLEAR, 1),
        ("script-not-understood", FUNCTION, 1),
        ("script-not-understood", PYTHON, 1),
    ],
)
def test_scripts_of_other_kinds(store: Writer, code: str, script: str, times: int) -> None:
    _, stencil = steps()
    ran_steps = [replace(stencil, step_id=str(n)) for n in range(times)]
    for number in range(3):
        decision = ask(store, script=script)
        assert not decision.changed and code in codes(decision)
        ran(store, decision, number, ran_steps)
    assert derive(store)
    decision = ask(store, script=script)
    assert list(decision.rewrite) == ["cpu-freq"] and "whole-job" in codes(decision)
    assert decision.parts[0]["known"] and decision.parts[0]["time_share"] == pytest.approx(
        0.99, 0.02
    )


def test_steps_at_once_tell_of_the_whole_job_alone(store: Writer) -> None:
    script = "#!/bin/bash\nsrun ./stencil &\nsrun ./stencil &\nwait\n"
    _, stencil = steps()
    for number in range(3):
        both = [stencil, replace(stencil, step_id="2")]
        ran(store, ask(store, script=script), number, both, elapsed_s=101.0)
    assert derive(store)
    ((_, known),) = snapshot(store).histories.values()
    assert all(job["whole"] for job in json.loads(known)["jobs"])
    decision = ask(store, script=script)
    assert not decision.changed and "whole-job" not in codes(decision)


def test_the_limit_that_ends_a_job_holds(store: Writer) -> None:
    history(store)
    script = SCRIPT.format(seed=17)
    assert ask(store, "-N1 --exclusive -t 3", script, hours=0).changed
    short = ask(store, "-N1 --exclusive -t 1:46", script, hours=0)  # as written it takes 106 s
    assert not short.changed and "time-limit" in codes(short)
    unknown = ask(store, "-N1 --exclusive", script, hours=0)
    assert not unknown.changed and "time-limit-unknown" in codes(unknown)


def test_no_cap_where_none_reaches_a_step(store: Writer) -> None:
    history(store)
    script = SCRIPT.replace("srun ./stencil", "export SLURM_CPU_BIND=none\nsrun ./stencil")
    assert asked(store, 17).changed
    for number in range(4, 7):
        ran(store, asked(store, number, script), number, steps())
    assert derive(store)
    decision = asked(store, 17, script)
    assert not decision.changed


def test_a_script_of_too_many_programs_has_no_history_to_go_by(store: Writer) -> None:
    many = SCRIPT + "".join(f"srun ./tool{i}\n" for i in range(41))
    for number in range(3):
        ran(store, asked(store, number, many), number, steps())
    assert derive(store) and snapshot(store).histories
    assert not asked(store, 17, many).changed


def test_steps_of_no_time_promise_nothing(store: Writer) -> None:
    short = tuple(replace(s, elapsed_s=0.0, energy_j=None) for s in steps())
    for number in range(3):
        ran(store, asked(store, number), number, short)
    assert derive(store)
    assert not asked(store, 17).changed
