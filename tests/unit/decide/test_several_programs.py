"""Jobs of several programs that run one after the other, each with a model of its own."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from advisor.core.availability import Availability, JobLimits, PartitionState
from advisor.core.configuration import Configuration
from advisor.core.inventory import Inventory
from advisor.core.job_history import LEAST_JOBS, JobHistory, JobPart, PastJob
from advisor.core.option import Option
from advisor.core.reading import JobReading
from advisor.core.stamp import make_stamp, read_stamp
from advisor.derive.worker import derive
from advisor.loop.execution import Execution
from advisor.loop.match import MatchedJob
from advisor.loop.runs_of_jobs import really_ran
from advisor.service.decide import decide
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from advisor.views.explain import decide_alone
from tests.again import same_again
from tests.unit.decide.site import BDW, FREQS, ask, codes, model, policy, snapshot
from tests.unit.decide.test_node_cap import CAPPING
from tests.unit.decide.test_unset_and_uncapped import ask_pbs
from tests.unit.decide.test_whole_job import ran

TOP = FREQS[-1]
SCRIPT = "#!/bin/bash\n./mesh\n./stencil\n"
THREADS = range(4, 29, 4)


def options(best: int = 20, *, times: float = 1.0) -> list[Option]:
    """Return a program that ``best`` threads make as fast as more do, and that runs so long."""
    return [point(t, 100 * times * best / min(t, best), 90 + 4.5 * t) for t in THREADS]


def point(threads: int, time_s: float, power_w: float) -> Option:
    energy_j, low, high = time_s * power_w, 0.995, 1.005
    return Option(
        Configuration("bdw", 1, 1, threads, TOP),
        time_s,
        low * time_s,
        high * time_s,
        energy_j,
        low * energy_j,
        high * energy_j,
        measured=True,
        confirmed=True,
    )


def mesh(store: Writer, best: int = 20, *, times: float = 1.0, **key: Any) -> int:
    return model(store, "bdw", options(best, times=times), "mesh", **key)


def changed(store: Writer, script: str = SCRIPT, arguments: str = "-N1 --exclusive") -> str:
    """Return the threads that a job gets, "" for none; then it is left for its several steps."""
    decision = ask(store, arguments, script)
    assert decision.changed == ("several-programs" in codes(decision))
    assert decision.changed or "several-steps" in codes(decision)
    assert not decision.rewrite
    return decision.environment.get("OMP_NUM_THREADS", "")


def test_all_programs_get_fewer_threads_that_are_better_for_each(store: Writer) -> None:
    assert changed(store) == ""  # mesh is not known
    mesh(store)
    decision = ask(store, script=SCRIPT)
    assert decision.environment == {"OMP_NUM_THREADS": "20"} and decision.rewrite == {}
    assert decision.baseline == Configuration("bdw", 1, 1, 28, TOP)
    assert decision.model_id is None and decision.energy_quality == "measured"
    assert (decision.application, decision.workload) == ("stencil", "several-programs")
    assert [(p["application"], p["time_share"]) for p in decision.parts] == [
        ("mesh", 0.5),
        ("stencil", 0.5),
    ]
    text = next(r.text for r in decision.reasons if r.code == "several-programs")
    assert "mesh, stencil" in text and "advisor: this job runs on" in decision.message


def test_what_is_promised_is_the_sum(store: Writer) -> None:
    mesh(store, times=3.0)
    alone = [ask(store, script=f"#!/bin/bash\n./{name}\n") for name in ("mesh", "stencil")]
    both = ask(store, script=SCRIPT)
    assert both.chosen is not None and both.baseline_time_s is not None
    for name in ("baseline_time_s", "baseline_energy_j"):
        assert getattr(both, name) == pytest.approx(sum(getattr(d, name) for d in alone))
    chosen = [d.chosen for d in alone if d.chosen]
    assert both.chosen.time_s == pytest.approx(sum(c.time_s for c in chosen))
    assert both.chosen.energy_j == pytest.approx(sum(c.energy_j for c in chosen))
    for kind in ("time", "energy"):
        changes = [getattr(c, kind).change for c in chosen]
        change = getattr(both.chosen, kind).change
        assert change == pytest.approx(changes[0]) or min(changes) <= change <= max(changes)
    assert [p["time_share"] for p in both.parts] == [0.75, 0.25]


def test_one_program_that_needs_them_keeps_the_threads_of_all(store: Writer) -> None:
    mesh(store, best=28, times=0.001)  # however short it is
    assert changed(store) == ""
    mesh(store, best=24)
    assert changed(store) == "24"  # and not the 20 that are best for stencil


@pytest.mark.parametrize("order", ["mesh stencil", "stencil mesh", "mesh stencil mesh"])
def test_order_and_number_of_the_programs_do_not_matter(store: Writer, order: str) -> None:
    mesh(store)
    lines = "".join(f"./{name}\n" for name in order.split())
    assert changed(store, f"#!/bin/bash\n{lines}") == "20"


def test_one_program_in_several_ways_is_known_by_each(store: Writer) -> None:
    script = "#!/bin/bash\n./stencil 1\n./stencil 2\n"
    policy(store, unknown_workload="none")
    assert changed(store, script) == ""
    model(store, "bdw", options(), workload="1")
    assert changed(store, script) == ""
    model(store, "bdw", options(), workload="2")
    assert changed(store, script) == "20"


LEFT = [
    "if [ -e x ]; then ./mesh; fi\n./stencil",
    "./mesh && ./stencil",
    "./mesh &\n./stencil\nwait",
    "for i in 1 2; do ./mesh; done\n./stencil",
    "run() { ./mesh; }\nrun\n./stencil",
    "(./mesh)\n./stencil",
    "./mesh | ./stencil",
    "x=$(./mesh)\n./stencil",
    "source env.sh\n./mesh\n./stencil",
    "eval $CMD\n./mesh\n./stencil",
    "trap ./mesh EXIT\n./mesh\n./stencil",
    "./mesh\n./stencil\n./other",
    "./mesh\n./stencil\nbash more.sh",
    "make\n./mesh\n./stencil",
    "srun ./mesh\n./stencil",
    "srun ./mesh\nsrun ./stencil",
    "export OMP_NUM_THREADS=28\n./mesh\n./stencil",
    "OMP_NUM_THREADS=28 ./mesh\n./stencil",
    "export OMP_NUM_THREADS=$(nproc)\n./mesh\n./stencil",
    "export MKL_NUM_THREADS=4\n./mesh\n./stencil",
    "./mesh --threads 28\n./stencil",
    "taskset -c 0-13 ./mesh\n./stencil",
    "export OMPI_MCA_rmaps_base_mapping_policy=core\n./mesh\n./stencil",
    "timeout 10 ./mesh\n./stencil",
    "(sleep 60; kill $$) &\n./mesh\n./stencil",
    "mpirun -n 2 ./mesh\nmpirun -n 1 ./stencil",
    "mpirun -n 2 ./mesh\n./stencil",
    "torchrun ./mesh\n./stencil",
]


@pytest.mark.parametrize("script", LEFT)
def test_what_leaves_open_what_runs_or_states_threads_is_left(store: Writer, script: str) -> None:
    mesh(store)
    decision = ask(store, script=f"#!/bin/bash\n{script}\n")
    assert not decision.environment and "several-programs" not in codes(decision)


@pytest.mark.parametrize(
    "key",
    [
        {"stats": {}},  # no run with the variable unset used all cores
        {"stats": {"threads_unset": [[1, 1, 20]]}},
        {"energy_quality": "estimated"},
        {"energy_quality": "missing"},
    ],
)
def test_each_program_needs_what_a_job_of_it_alone_would(store: Writer, key: Any) -> None:
    mesh(store, **key)
    assert changed(store) == ""


def test_cores_a_task_that_are_all_of_the_node_need_a_run_that_knew_them(store: Writer) -> None:
    shape = [[1, 1, 28]]
    stated = "-N1 -n1 --exclusive -c 28"
    mesh(store, stats={"threads_unset": shape})
    assert changed(store, arguments=stated) == "" and changed(store) == "20"
    mesh(store, stats={"threads_unset": shape, "threads_of_cores": shape})
    assert changed(store, arguments=stated) == "20"
    assert changed(store, arguments="-N1 -n1 --exclusive -c 14") == ""  # the user's own number


def test_the_site_may_vouch_for_one_and_runs_for_the_other(store: Writer) -> None:
    mesh(store, stats={})
    rule = {"name": "mesh", "executable": ["mesh"], "threads_unset": "all-cores"}
    store.apply_config("site", path="s", text="1", compiled={"applications": [rule]}, by="t")
    assert changed(store) == "20"
    rule = {"name": "mesh", "executable": ["mesh"], "threads_from": ["MESH_THREADS"]}
    store.apply_config("site", path="s", text="2", compiled={"applications": [rule]}, by="t")
    mesh(store)
    assert changed(store) == ""  # another variable


def test_a_rule_by_the_job_s_name_names_none_of_its_programs(store: Writer) -> None:
    mesh(store)
    rule = {"name": "mesh", "job_name": ["mesh*"]}
    store.apply_config("site", path="s", text="1", compiled={"applications": [rule]}, by="t")
    assert changed(store, "#!/bin/bash\n./other\n./stencil\n", "-N1 --exclusive -J mesh1") == ""


@pytest.mark.parametrize(("minutes", "threads"), [(4, "16"), (3, "")])
def test_all_of_them_together_must_end_within_the_limit(
    store: Writer, minutes: int, threads: str
) -> None:
    policy(store, max_slowdown=0.3)
    for name in ("mesh", "stencil"):  # 84 s each as written, 100 s with 16 threads
        model(store, "bdw", [point(28, 84, 240), point(16, 100, 100)], name)
    assert changed(store, f"#!/bin/bash\n#SBATCH -t {minutes}\n./mesh\n./stencil\n") == threads


def test_policy_user_and_holdout_hold(store: Writer) -> None:
    mesh(store)
    assert ask(store, script=SCRIPT, env={"ADVISOR": "off"}).environment == {}
    assert ask(store, script=SCRIPT, env={"OMP_NUM_THREADS": "14"}).environment == {}
    assert ask(store, script=SCRIPT, env={"ADVISOR_APPLICATION": "mesh"}).environment == {}
    pin = {"version": 1, "workloads": {"mesh/*": {"pin": {"threads_per_node": 4}}}}
    assert ask(store, script=SCRIPT, choices=pin).environment == {}
    policy(store, holdout=0.5)
    held = ask(store, script=SCRIPT, chance=lambda: 0.1)
    assert held.holdout and not held.environment
    policy(store, mode="advise")
    shown = ask(store, script=SCRIPT)
    assert shown.chosen is not None and not shown.changed and "mode-advise" in codes(shown)
    rules = [{"match": {"application": ["mesh"]}, "set": {"goal": "min_time"}}]
    policy(store, rules=rules)
    assert ask(store, script=SCRIPT).environment == {}


def test_jobs_that_share_their_nodes_or_have_several_types_are_left(store: Writer) -> None:
    mesh(store)
    assert changed(store, arguments="-n1 -c 4 --mem=1000") == ""
    assert changed(store, arguments="-N1 --exclusive -p mixed") == ""


BUILD = {"path": "/home/stencil", "size": 1, "mtime": 1, "build": "adler:00000001:1"}
OTHER = {"path": "/home/mesh", "size": 1, "mtime": 1, "build": "adler:00000002:1"}
SHAPES = {"threads_unset": [[1, 1, t] for t in THREADS]}


def looking(store: Writer, script: str, **more: Any) -> Any:
    return ask(store, script=script, hook="cli_filter", cwd="/home", **more)


def test_hooks_look_at_one_file_so_that_no_other_may_have_to_be_looked_at(store: Writer) -> None:
    model(store, "bdw", options(), stats={**SHAPES, "program": [BUILD]})
    mesh(store, stats=SHAPES)
    decision = looking(store, SCRIPT)
    assert decision.environment and decision.look_at["build"] == BUILD["build"]
    again = {**BUILD, "build": "adler:00000009:1", "size": "2", "mtime": "2"}
    assert "program-rebuilt" in codes(looking(store, SCRIPT, program=again))
    assert not looking(store, SCRIPT, program=again).environment
    mesh(store, stats={**SHAPES, "program": [OTHER]})
    assert not looking(store, SCRIPT).environment


def test_one_file_must_be_the_build_of_every_model(store: Writer) -> None:
    script = "#!/bin/bash\n./stencil 1\n./stencil 2\n"
    for workload, programs in (("1", [BUILD, OTHER]), ("2", [BUILD])):
        model(store, "bdw", options(), workload=workload, stats={**SHAPES, "program": programs})
    decision = looking(store, script)
    assert decision.environment and decision.look_at["build"] == BUILD["build"]
    model(store, "bdw", options(), workload="2", stats={**SHAPES, "program": [OTHER]})
    assert looking(store, script).environment  # the one that both know
    model(store, "bdw", options(), workload="1", stats={**SHAPES, "program": [BUILD]})
    assert not looking(store, script).environment


def test_a_suspended_model_speaks_for_none(store: Writer) -> None:
    number = mesh(store)
    assert changed(store) == "20"
    store.set_model_state(number, "suspended", "test")
    assert changed(store) == ""


def test_more_programs_than_are_looked_at_are_left(store: Writer) -> None:
    mesh(store)
    assert changed(store, "#!/bin/bash\n" + "./mesh\n./stencil\n" * 6) == "20"
    assert changed(store, "#!/bin/bash\n" + "./mesh\n./stencil\n" * 7) == ""


def test_a_job_worse_than_promised_by_far_keeps_the_next_ones_as_they_are(store: Writer) -> None:
    mesh(store)
    decision = ask(store, script=SCRIPT)
    assert decision.changed
    ran(store, decision, 1, (), elapsed_s=900.0)  # 2 x 100 s were promised
    (outcome,) = store.outcomes("job_id = ?", ("1",))
    assert outcome.verdict == "worse" and outcome.record["judged_model"] is None
    assert derive(store)
    later = ask(store, script=SCRIPT)
    assert not later.changed and {"several-steps", "whole-job-worse"} <= codes(later)
    alone = ask(store, script="#!/bin/bash\n./stencil\n")
    assert alone.environment  # no model rests for it


def test_one_that_comes_out_as_promised_goes_on_and_teaches_no_model(store: Writer) -> None:
    mesh(store)
    for number in (1, 2):
        decision = ask(store, script=SCRIPT)
        assert decision.chosen is not None
        ran(store, decision, number, (), elapsed_s=decision.chosen.time_s)
        (outcome,) = store.outcomes("job_id = ?", (str(number),))
        assert outcome.record["mismatch"] == "" and outcome.verdict != "worse"
        assert derive(store)
    assert ask(store, script=SCRIPT).changed
    match = MatchedJob(ask(store, script=SCRIPT), "verified")
    execution = Execution("bdw", 1, 1, 28, 0, True, 200.0, 1.0, 1000.0)
    assert really_ran(match, execution, Inventory.of([BDW])) is None
    for name in ("stencil", "mesh"):
        assert not store.observations(name, "default")
    assert store.rows("SELECT count(*) FROM signatures")[0][0] == 0


def test_a_stamp_and_a_store_without_daemon_say_the_same(store: Writer) -> None:
    mesh(store)
    decision = ask(store, script=SCRIPT)
    stamped = read_stamp(make_stamp(decision))
    assert stamped is not None and "several-programs" in stamped.codes
    assert decision.request is not None
    with Reader(store.path) as reader:
        again = decide_alone(decision.request, reader)
    assert dict(again.environment) == dict(decision.environment)


@pytest.mark.parametrize("damaged", [5, "x", [5], [{}], [{"apart": []}], [{"application": "a"}]])
def test_a_damaged_record_of_the_programs_is_no_reading(store: Writer, damaged: Any) -> None:
    mesh(store)
    reading = ask(store, script=SCRIPT).reading
    assert reading is not None
    data = reading.to_dict()
    assert JobReading.from_dict(data) is not None and len(reading.apart) == 2
    assert JobReading.from_dict({**data, "apart": damaged}) is None


@pytest.mark.parametrize(("saving", "cap"), [(0.5, True), (0.97, False)])
def test_its_history_s_cap_is_taken_where_it_is_better(
    store: Writer, saving: float, cap: bool
) -> None:
    policy(store, cold_start={"cap_trials": 20})
    script = "#!/bin/bash\n./mesh\n./stencil\n"
    decision = ask(store, script=script)
    assert not decision.changed and decision.identity
    mesh(store)
    whole = PastJob("bdw", 1, 200.0, 0.2, 0, 0, (JobPart("", 0, 0, 1, 200.0, 45_000.0),), 0, True)
    tried_part = JobPart("", 0, 0, 1, 200.0, saving * 45_000.0)
    tried = replace(whole, parts=(tried_part,), freq_khz=FREQS[-2])
    history = JobHistory((whole,) * LEAST_JOBS, tried=(tried,) * LEAST_JOBS, trials=20)
    site = snapshot(store)
    site.histories[decision.identity] = ("", json.dumps(history.to_dict()))
    site.availability = Availability(
        "slurm",
        {},
        {"batch": PartitionState(default=True)},
        limits=JobLimits(enforced=False),
        settings=CAPPING,
    )
    assert decision.request is not None
    chosen = decide(decision.request, site, chance=lambda: 1.0)
    assert chosen.changed and bool(chosen.node_cap_khz) is cap
    assert ("whole-job" if cap else "several-programs") in codes(chosen)
    same_again(chosen, site, lambda: 1.0)


def test_pbs_sets_them_in_the_request_and_caps_nothing(store: Writer) -> None:
    policy(store, axes={"threads": "override"})
    mesh(store)
    decision = ask_pbs(store, "1:ncpus=28", "./mesh\n./stencil")
    assert "several-programs" in codes(decision)
    assert decision.rewrite == {"select": "1:ncpus=28:ompthreads=20"}
    assert not ask_pbs(store, "1:ncpus=28", "./mesh\n./other\n./stencil").rewrite
