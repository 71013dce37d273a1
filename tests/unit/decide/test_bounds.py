"""Where a job stays as written: baseline, inventory, time limit, holdout, wrong options."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.core.availability import Availability, Bounds, JobLimits, PartitionState
from advisor.core.decision import Decision
from advisor.core.option import Option
from advisor.core.requested_configuration import configuration_of
from advisor.schedulers.slurm.translator import parse_request, read_arguments
from advisor.service.decide import decide
from advisor.store.writer import Writer
from tests.again import same_again
from tests.unit.decide.site import BDW, FREQS, SCRIPT, ask, codes, model, policy, response, snapshot


def test_a_site_rule_names_the_variables_that_set_the_threads(store: Writer) -> None:
    rule = {"name": "stencil", "executable": ["stencil"], "threads_from": ["MKL_NUM_THREADS"]}
    store.apply_config("site", path="s", text="s", compiled={"applications": [rule]}, by="test")
    assert ask(store).environment == {"MKL_NUM_THREADS": "20"}
    kept = ask(store, env={"MKL_NUM_THREADS": "28"})
    assert kept.environment == {} and "threads-own" in codes(kept)


@pytest.mark.parametrize(
    ("tasks", "threads"),
    [("-n28", None), ("-N1 -n28", None), ("-N1 --ntasks-per-node=28", None), ("-N1 -n1", "20")],
)
def test_no_more_threads_than_the_request_leaves_a_task(
    store: Writer, tasks: str, threads: str | None
) -> None:
    """A step of one task has all cores; the filter does not see that, and would drop the stamp."""
    decision = ask(store, f"{tasks} --exclusive", script=SCRIPT.replace("srun", "srun -n1"))
    assert decision.environment.get("OMP_NUM_THREADS") == threads
    assert decision.rewrite.keys() == {"cpu-freq"}


def test_without_an_inventory_the_command_that_makes_one_is_named(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.db") as store:
        policy(store)
        model(store, "bdw", [response("bdw", 1, 1, t, FREQS[-1]) for t in range(4, 29, 4)])
        decision = ask(store, "-N1 --exclusive -p batch")
    (why,) = (r.text for r in decision.reasons if r.code == "no-baseline")
    assert "the inventory is empty: run advisor site discover" in why


def test_a_baseline_far_off_the_grid_is_not_guessed(store: Writer) -> None:
    decision = ask(store, "-N1 -n1")
    assert "baseline-outside-model" in codes(decision)
    near = ask(store, "-N1 -n1 -c 26")
    assert "baseline-nearest" in codes(near)


def test_a_baseline_outside_of_what_was_run_is_not_trusted(store: Writer) -> None:
    """What the job takes as written is extrapolated: no saving against it is one."""
    grid = [response("bdw", 1, 1, threads, freq) for threads in range(4, 29, 4) for freq in FREQS]
    far = [
        replace(o, measured=False, confirmed=False, extrapolated=True)
        if o.configuration.threads_per_node == 28
        else o
        for o in grid
    ]
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


# -- the limit that will hold --------------------------------------------------------------------


PLACE = PartitionState(default=True)


def decided(
    store: Writer,
    arguments: str = "-N1 --exclusive",
    *,
    place: PartitionState = PLACE,
    limits: JobLimits | None = JobLimits(enforced=False),  # noqa: B008
    known: bool = True,
    choices: dict[str, Any] | None = None,
    **payload: Any,
) -> Decision:
    """Decide for a job in a partition, as a daemon does that watches it."""
    site = snapshot(store)
    state = Availability("slurm", partitions={"batch": place, "mixed": place}, limits=limits)
    site.availability = state if known else Availability(problem="it is too old")
    options = read_arguments(arguments.split())
    request = parse_request(
        {"type": "sbatch", "options": options, "script": SCRIPT, **payload},
        user="ada",
        uid=1000,
        choices=choices or {},
    )
    decision = decide(request, site, chance=lambda: 1.0)
    same_again(decision, site, lambda: 1.0)
    return decision


@pytest.mark.parametrize("kind", ["sbatch", "srun", "salloc"])
@pytest.mark.parametrize(
    ("place", "limits"),
    [
        (replace(PLACE, time_limit_s=101.0), JobLimits(enforced=False)),
        (PLACE, JobLimits({"ada": {"lab": Bounds(wall_s=101.0)}})),
        (
            PLACE,
            JobLimits({"ada": {"lab": Bounds(qos=("q",))}}, {"q": Bounds(wall_s=101.0)}),
        ),
        (
            replace(PLACE, qos="q"),
            JobLimits({"ada": {"lab": Bounds()}}, {"q": Bounds(wall_s=101.0)}),
        ),
    ],
)
def test_a_limit_that_the_job_does_not_state_is_respected(
    store: Writer, kind: str, place: PartitionState, limits: JobLimits
) -> None:
    words = ["./stencil"] if kind == "srun" else ["/home/job.sh"]
    more: dict[str, Any] = {"type": kind, "argv": words, "env": {"ADVISOR_APPLICATION": "stencil"}}
    if kind != "sbatch":
        more["script"] = None
    free = decided(store, **more)
    held = decided(store, place=place, limits=limits, **more)
    if kind != "salloc":  # an interactive job does not change at all
        assert free.chosen is not None and free.chosen.time_s * 1.005 > 101
        assert "time-limit" in codes(held) and "time-limit" not in codes(free)
    assert held.chosen is None or held.chosen.time_s * 1.005 <= 101
    stated = decided(store, "-N1 --exclusive -t 10", place=place, limits=limits, **more)
    assert stated.chosen == free.chosen
    unlimited = decided(store, "-N1 --exclusive -t 0", place=place, limits=limits, **more)
    assert unlimited.chosen == free.chosen


@pytest.mark.parametrize(
    "unknown",
    [
        {"known": False},
        {"limits": None},
        {"limits": JobLimits({"bob": {"lab": Bounds()}})},
        {"place": replace(PLACE, time_limit_s=None)},
        {"arguments": "-N1 --exclusive -t 60 --deadline=now+1hour"},
    ],
)
def test_where_no_limit_is_known_nothing_is_slower_than_as_written(
    store: Writer, unknown: dict[str, Any]
) -> None:
    decision = decided(store, **unknown)
    assert "time-limit-unknown" in codes(decision)
    base = response("bdw", 1, 1, 28, 2_200_000)
    assert decision.chosen is None or decision.chosen.time_s <= base.time_s
    for shown in decision.alternatives:
        assert shown.time_s <= base.time_s
    assert decided(store, "-N1 --exclusive -t 60").changed


def test_without_a_limit_what_is_faster_may_still_be_chosen(store: Writer) -> None:
    """Fewer threads are faster here and need less; lower clocks are slower."""

    def contended(threads: int, freq: int) -> Option:
        option = response("bdw", 1, 1, threads, freq)
        factor = 1 + (threads - 20) / 100
        return replace(
            option,
            time_s=option.time_s * factor,
            time_lo_s=option.time_lo_s * factor,
            time_hi_s=option.time_hi_s * factor,
            energy_j=option.energy_j * factor,
            energy_lo_j=option.energy_lo_j * factor,
            energy_hi_j=option.energy_hi_j * factor,
        )

    grid = [contended(t, f) for t in (20, 24, 28) for f in BDW.freq_khz]
    model(store, "bdw", grid)
    unknown, known = decided(store, known=False), decided(store, "-N1 --exclusive -t 60")
    assert unknown.chosen is not None and unknown.environment == {"OMP_NUM_THREADS": "20"}
    assert known.chosen is not None
    assert unknown.chosen.time_s <= contended(28, 2_200_000).time_s < known.chosen.time_s


def test_a_signal_comes_before_the_limit(store: Writer) -> None:
    free = decided(store, "-N1 --exclusive -t 4")
    assert free.chosen is not None and free.chosen.time_s * 1.005 > 60
    for words in ("--signal=TERM@120", "--signal=B:USR1@120"):
        held = decided(store, f"-N1 --exclusive -t 4 {words}")
        assert held.chosen is None and "time-limit" in codes(held)
    assert decided(store, "-N1 --exclusive -t 40 --signal=TERM@120").chosen == free.chosen
    assert decided(store, "-N1 --exclusive --signal=TERM@120").chosen == free.chosen


def enforced(store: Writer, lines: str = "", **payload: Any) -> Decision:
    """Decide for a job that passed by the filter; its script has these lines."""
    script = SCRIPT.replace("\n", f"\n{lines}", 1)
    return decided(store, "-N1 --exclusive -t 60", hook="job_submit", script=script, **payload)


def test_in_the_controller_a_job_is_judged_as_if_it_had_a_signal_or_a_deadline(
    store: Writer,
) -> None:
    """Slurm gives job_submit neither of them, so a command line may have any."""
    base = response("bdw", 1, 1, 28, 2_200_000)
    decision = enforced(store)
    assert "time-limit-unknown" in codes(decision)
    assert decision.chosen is not None and decision.chosen.time_s <= base.time_s
    assert decision.environment == {"OMP_NUM_THREADS": "20"} and decision.rewrite == {}


@pytest.mark.parametrize(
    "option",
    ["ntasks-per-core=1", "ntasks-per-socket=1", "gpus-per-task=1"],
)
def test_what_says_which_cores_a_task_gets_leaves_the_cap(store: Writer, option: str) -> None:
    policy(store, axes={"threads": "override", "node_type": "override"})
    decision = ask(store, f"-N1 -n1 --exclusive --{option}")
    assert set(decision.rewrite) == {"cpu-freq"} and not decision.environment
    assert decision.baseline == ask(store, "-N1 -n1 --exclusive").baseline
    one_task = ask(store, f"-n1 --exclusive --{option}")  # on one node, as Slurm has it
    assert one_task.rewrite == decision.rewrite and one_task.baseline == decision.baseline
    for arguments in ("-N1", "-n2", ""):  # how many tasks it makes, and where, is not known
        decision = ask(store, f"{arguments} --exclusive --{option}")
        assert not decision.changed and "no-baseline" in codes(decision)


@pytest.mark.parametrize("hint", ["memory_bound", "nomultithread", "compute_bound", "multithread"])
def test_a_hint_that_leaves_cores_idle_changes_nothing(store: Writer, hint: str) -> None:
    """Asked of a real Slurm: the steps of `-n1 -c14 --exclusive` run on one core of 28."""
    decision = ask(store, f"-N1 -n1 -c14 --exclusive --hint={hint}")
    assert not decision.changed and "option-binds" in codes(decision)


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        ("#SBATCH --signal=TERM@120\n", {}),
        ("#SBATCH --deadline=now+2hours\n", {"node_type": "--deadline"}),
        ("#SBATCH --overcommit\n", {"shape": "--overcommit"}),
        ("#SBATCH -S 2\n", {"shape": "--core-spec"}),
        ("#SBATCH --spread-job\n", {"shape": "--spread-job"}),
    ],
)
def test_in_the_controller_the_scripts_own_lines_are_read(
    store: Writer, lines: str, kept: dict[str, str]
) -> None:
    decision = enforced(store, lines)
    assert decision.request is not None and dict(decision.request.binds) == kept
    assert decision.request.signal_before_s == (180 if "signal" in lines else 0)
    assert ("option-binds" in codes(decision)) is not {"all", "shape"}.isdisjoint(kept)


def test_a_job_that_may_be_given_less_time_is_left_alone(store: Writer) -> None:
    assert "option-binds" in codes(decided(store, "-N1 --exclusive -t 60 --time-min=2"))


@pytest.mark.parametrize(
    ("more", "code", "word"),
    [
        ({"place": replace(PLACE, time_limit_s=101.0)}, "pin-impossible", "within the time limit"),
        ({"known": False}, "pin-impossible", "state one"),
        ({}, "pinned", ""),
        ({"known": False, "arguments": "-N1 --exclusive -t 60"}, "pinned", ""),
    ],
)
def test_a_pin_that_would_be_ended_is_refused_and_says_why(
    store: Writer, more: dict[str, Any], code: str, word: str
) -> None:
    pin = {"nodes": 1, "ranks_per_node": 1, "threads_per_node": 28, "freq_khz": 1_200_000}
    choices = {"workloads": {"stencil/default": {"pin": pin}}}
    decision = decided(store, **more, choices=choices)
    assert decision.changed is (code == "pinned")
    (found,) = (r for r in decision.reasons if r.code == code)
    assert word in found.text


@pytest.mark.parametrize(
    ("value", "asked", "threads"),
    [
        ("14", "", 14),
        ("$N", "", 14),
        ("'14'", "", 14),
        ("$SLURM_CPUS_PER_TASK", "", 28),
        ("${SLURM_CPUS_PER_TASK}", "-n1 -c14", 14),
        ("${SLURM_CPUS_PER_TASK:-14}", "", 14),
        ("${SLURM_CPUS_PER_TASK-14}", "", 14),
        ("${SLURM_CPUS_PER_TASK:=14}", "", 14),
        ("${SLURM_CPUS_PER_TASK:-14}", "-n1 -c20", 20),
        ("$(nproc)", "", 28),
        ("$SLURM_CPUS_ON_NODE", "-n1", 28),
        ("$(nproc)", "-n2", None),
        ("$SLURM_CPUS_ON_NODE", "-n2", None),
        ("$((SLURM_CPUS_PER_TASK / 2))", "", None),
        ("$(cat threads)", "", None),
        ("`cat threads`", "", None),
        ("$X", "", None),
        ("${X:-14}", "", None),
        ("$SLURM_NTASKS", "", None),
        ("14; export OMP_NUM_THREADS=7", "", None),
        ("14; [ -f x ] && export OMP_NUM_THREADS=7", "", None),
    ],
)
def test_a_baseline_has_the_threads_that_its_script_sets(
    store: Writer, value: str, asked: str, threads: int | None
) -> None:
    """Else a cap that is right for all cores would be given to fewer, which it may slow."""
    script = f"#!/bin/bash\nN=14\nexport OMP_NUM_THREADS={value}\nsrun ./stencil\n"
    decision = ask(store, f"-N1 --exclusive {asked}", script)
    if threads is None:
        assert "no-baseline" in codes(decision) and not decision.rewrite
        assert "how many threads a rank has" in decision.message + "".join(
            reason.text for reason in decision.reasons
        )
        assert "cat threads" not in "".join(reason.text for reason in decision.reasons)
    else:
        assert "no-baseline" not in codes(decision)
        assert decision.reading is not None
        assert request_threads(decision) == threads


def request_threads(decision: Decision) -> int:
    """Return the threads of a rank of the job as written, before the nearest measured is taken."""
    assert decision.baseline is not None and decision.request is not None
    assert decision.reading is not None and decision.reading.use is not None
    asked = configuration_of(
        replace(decision.request, script_threads=decision.reading.threads),
        BDW,
        decision.reading.use,
    )
    return asked.threads_per_rank


@pytest.mark.parametrize(
    ("asked", "script", "shape"),
    [
        ("", "srun ./stencil", (1, 28)),
        ("", "srun -c 28 ./stencil", (1, 28)),
        ("-n1", "srun -c 14 ./stencil", (1, 14)),
        ("", "srun -c 14 ./stencil", None),
        ("", "srun --cpus-per-task=4 ./stencil", None),
        ("", "srun -c $SLURM_CPUS_PER_TASK ./stencil", None),
        ("-c28", "srun -c $SLURM_CPUS_PER_TASK ./stencil", (1, 28)),
        ("", "export SRUN_CPUS_PER_TASK=14\nsrun ./stencil", None),
        ("-n1", "export SRUN_CPUS_PER_TASK=14\nsrun ./stencil", (1, 14)),
        ("", "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\nsrun ./stencil", None),
        ("-c28", "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\nsrun ./stencil", (1, 28)),
        ("-n2 -c14", "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\nsrun ./stencil", (2, 28)),
        ("-n1", "export SRUN_CPUS_PER_TASK=$(cat cpus)\nsrun ./stencil", None),
    ],
)
def test_srun_with_cpus_and_without_tasks_starts_as_many_as_fit(
    store: Writer, asked: str, script: str, shape: tuple[int, int] | None
) -> None:
    """On a node type with more cores it would start more of them than the user's."""
    decision = ask(store, f"-N1 --exclusive {asked}", f"#!/bin/bash\n{script}\n")
    if shape is None:
        assert "no-baseline" in codes(decision) and not decision.rewrite
    else:
        assert "no-baseline" not in codes(decision)
        assert decision.baseline is not None and decision.baseline.ranks_per_node == shape[0]
        assert request_threads(decision) * shape[0] == shape[1]


def test_cpus_that_the_environment_gives_srun_leave_the_baseline_open(store: Writer) -> None:
    decision = ask(store, "-N1 -n1 --exclusive", env={"SRUN_CPUS_PER_TASK": "2"})
    assert "no-baseline" in codes(decision) and not decision.rewrite


@pytest.mark.parametrize(
    ("asked", "script", "changed"),
    [
        ("-n1", "./stencil", True),
        ("-n2", "srun ./stencil", True),
        ("-n2", "./stencil", False),
        ("-n4 -c7", "./stencil", False),
        ("--ntasks-per-node=2", "./stencil", False),
    ],
)
def test_a_program_without_a_launcher_runs_once_and_keeps_its_threads(
    store: Writer, asked: str, script: str, changed: bool
) -> None:
    """Threads of one of several tasks would be all that the only process has."""
    ranks = {"-n1": 1, "-n4 -c7": 4}.get(asked, 2)
    model(store, "bdw", [response("bdw", 1, ranks, t, f) for t in range(4, 29, 4) for f in FREQS])
    policy(store, axes={"threads": "override"})
    decision = ask(store, f"-N1 --exclusive {asked}", f"#!/bin/bash\n{script}\n")
    assert bool(decision.environment) is changed, decision.reasons
    told = "".join(reason.text for reason in decision.reasons)
    assert ("without a launcher" in told) is not changed
