"""Where a job stays as written: baseline, inventory, time limit, holdout, wrong options."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from advisor.core.decision import Decision
from advisor.schedulers.slurm.translator import parse_request, read_arguments
from advisor.service.decide import decide
from advisor.store.writer import Writer
from tests.unit.decide.site import BDW, FREQS, SCRIPT, ask, codes, model, policy, response, snapshot


def test_a_site_rule_names_the_variables_that_set_the_threads(store: Writer) -> None:
    rule = {"name": "stencil", "executable": ["stencil"], "threads_from": ["MKL_NUM_THREADS"]}
    store.apply_config("site", path="s", text="s", compiled={"applications": [rule]}, by="test")
    assert ask(store).environment == {"MKL_NUM_THREADS": "20"}
    kept = ask(store, env={"MKL_NUM_THREADS": "28"})
    assert kept.environment == {} and "threads-own" in codes(kept)


def test_a_baseline_far_off_the_grid_is_not_guessed(store: Writer) -> None:
    decision = ask(store, "-N1 -n1")
    assert "baseline-outside-model" in codes(decision)
    near = ask(store, "-N1 -n1 -c 26")
    assert "baseline-nearest" in codes(near)


def test_a_baseline_outside_of_what_was_run_is_not_trusted(store: Writer) -> None:
    """What the job takes as written is extrapolated: no saving against it is one."""
    grid = [
        response("bdw", 1, 1, threads, freq)
        for threads in range(4, 29, 4) for freq in FREQS
    ]  # fmt: skip
    far = [
        replace(o, measured=False, confirmed=False, extrapolated=True)
        if o.configuration.threads_per_node == 28 else o
        for o in grid
    ]  # fmt: skip
    assert ask(store).changed
    model(store, "bdw", far)
    decision = ask(store)
    assert "baseline-outside-model" in codes(decision) and not decision.changed
    ran = [replace(o, extrapolated=o.configuration.threads_per_node == 28) for o in grid]
    model(store, "bdw", ran)
    assert ask(store).changed


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        ({"env": {"ADVISOR": "off"}}, "opted-out"),
        ({"env": {"ADVISOR_MODE": "off"}}, "opted-out"),
        ({"script": "#ADVISOR off\nsrun ./stencil"}, "opted-out"),
        ({"choices": {"off": True}}, "opted-out"),
        ({"choices": {"workloads": {"stencil/*": {"off": True}}}}, "opted-out"),
        ({"script": "srun ./unknown"}, "no-model"),
        ({"script": "cd /tmp"}, "unrecognised"),
        ({"script": None}, "no-script"),
        ({"type": "salloc", "script": None, "argv": []}, "interactive"),
        ({"het": True}, "het-job"),
        ({"script": "#SBATCH hetjob\nsrun ./stencil"}, "het-job"),
        ({"env": {"ADVISOR_MODE": "observe"}}, "mode-observe"),
        ({"env": {"ADVISOR_MODE": "advise"}}, "mode-advise"),
        ({"arguments": "-N1 --exclusive -t 1"}, "time-limit"),
        ({"arguments": "-N1 --exclusive --constraint=a&b"}, "no-baseline"),
        ({"arguments": "-N1 --exclusive -p nowhere"}, "no-baseline"),
        ({"arguments": "-N 4 --exclusive"}, "baseline-outside-model"),
        ({"chance": lambda: 0.0}, "chosen"),
    ],
)
def test_jobs_left_alone_say_why(store: Writer, payload: dict[str, Any], code: str) -> None:
    decision = ask(store, **payload)
    assert code in codes(decision)
    if code != "chosen":
        assert not decision.rewrite
        assert not decision.environment


def test_holdout_is_drawn_and_recorded(store: Writer) -> None:
    policy(store, holdout=0.5)
    held = ask(store, chance=lambda: 0.4)
    assert held.holdout and not held.rewrite and "holdout" in codes(held)
    assert held.chosen is not None
    assert ask(store, chance=lambda: 0.6).rewrite


def test_the_time_limit_is_respected_and_never_touched(store: Writer) -> None:
    generous = ask(store, "-N1 --exclusive -t 10")
    assert generous.rewrite and "time" not in generous.rewrite
    tight = ask(store, "-N1 --exclusive -t 1:41")
    assert tight.chosen is None or tight.chosen.time_s * 1.005 <= 101
    assert "time-limit" in codes(tight)


def test_limits_that_rule_nothing_out_share_a_choice(store: Writer) -> None:
    site = snapshot(store)

    def decided(minutes: int) -> Decision:
        options = read_arguments(f"-N1 --exclusive -t {minutes}".split())
        payload = {"type": "sbatch", "options": options, "script": SCRIPT}
        request = parse_request(payload, user="ada", uid=1000, choices={})
        return decide(request, site, chance=lambda: 1.0)

    hours, days, tight = decided(60), decided(2 * 1440), decided(2)
    assert len(site.choices) == 2
    assert (hours.chosen, hours.codes) == (days.chosen, days.codes)
    assert "time-limit" in tight.codes and "time-limit" not in hours.codes


def test_no_steps_in_the_inventory_no_frequency_in_the_job(store: Writer) -> None:
    store.save_node_types([replace(BDW, freq_khz=(), default_freq_khz=0)], source="test")
    decision = ask(store)
    assert "cpu-freq" not in decision.rewrite
    assert decision.environment == {"OMP_NUM_THREADS": "20"}
    assert "no-frequency-steps" in codes(decision)


def test_a_node_type_that_is_gone_is_never_written(store: Writer) -> None:
    policy(store, node_type_change="allow")
    model(store, "skl", [response("skl", 1, 1, t, 2_000_000) for t in range(4, 29, 4)])
    moved = ask(store, "-N1 --exclusive -p mixed")
    assert moved.rewrite["constraint"] == "skylake"
    store.save_node_types([BDW], source="test", replace=True)
    stays = ask(store, "-N1 --exclusive -p mixed")
    assert "constraint" not in stays.rewrite
    assert "not-in-inventory" in codes(stays)


def test_a_missing_model_says_how_to_get_one(store: Writer) -> None:
    decision = ask(store, script="srun ./fresh")
    assert {"no-model", "training-ask"} <= codes(decision)
    assert "advisor train /home/job.sh" in decision.message
    policy(store, training={"mode": "off"})
    assert ask(store, script="srun ./fresh").message == ""


@pytest.mark.parametrize("options", [{"nodes": "two"}, {"time": "soon"}, {"mem": "lots"}])
def test_options_that_make_no_sense_are_named(options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        parse_request({"options": options}, user="a", uid=1, choices={})
