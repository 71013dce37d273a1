"""On a real Slurm: a job that carries a plan gets its steps capped, and nothing else of it differs.

The plans are written by hand. Each script runs twice, once under ADVISOR=off, and what its steps'
tasks saw and what the accounting says of the steps is compared: they differ in what the plan names.
"""

from __future__ import annotations

import pwd
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from advised import AdvisedSite
from testbed import NODE_TYPES

from advisor.core.step_plan import PlanEntry, key_of

BDW = NODE_TYPES["bdw"]
LOW, CAP, HIGHEST = BDW.frequencies_khz[0], 1_800_000, BDW.frequencies_khz[-1]
DECISION = "0123456789abcdef"
STAMP = f'advisor:{{"v":1,"id":"{DECISION}"}}'
WHOLE = ("-N1", "--exclusive", "-p", "broadwell", "-w", "bdw1")
TWO_RANKS = ("--ntasks-per-node=2", "--cpus-per-task=14")
APP = """\
#!/bin/bash
read -r highest < /sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq
{ env; echo "HIGHEST=$highest"; } > "$OUT/$TAG.$SLURM_PROCID"
"""
APPTAINER = """\
#!/bin/bash
# Its options, the verb and the image aside, it starts what it is given, as the real one does.
[[ $1 == exec && $2 == --nv ]] || exit 1
[[ $3 == --cleanenv ]] && shift
exec "${@:4}"
"""
NEST = """\
#!/bin/bash
TAG=$TAG.outer app outer
[[ $SLURM_PROCID == 0 ]] || exit 0
TAG=$TAG.inner srun --overlap --mem=0 -n1 app one
TAG=$TAG.child sbatch -Q --wait -N1 -n1 -o /dev/null --wrap "app one"
"""
OF_ONE_RUN = frozenset(
    """
    OUT SLURM_JOB_ID SLURM_JOBID SLURM_STEP_LAUNCHER_PORT SLURM_SRUN_COMM_PORT SLURM_TASK_PID
    SLURM_LAUNCH_NODE_IPADDR SLURM_STEP_ID SLURM_STEPID SLURM_NODELIST SLURM_JOB_NODELIST
    SLURM_STEP_NODELIST SLURMD_NODENAME SLURM_TOPOLOGY_ADDR SLURM_CPU_BIND SLURM_CPU_BIND_LIST
    """.split()  # noqa: SIM905
)
"""Variables that differ between two runs of one script, or hold what is looked at elsewhere."""
WAITED = re.compile(r"^srun: (Job \d+ step creation temporarily|Step created).*\n", re.MULTILINE)
"""What srun says of a step that waited for the end of another one."""
PLANNED = {"HIGHEST", "OMP_NUM_THREADS", "SLURM_CPU_FREQ_REQ"}
"""What a plan may change for the tasks of a step."""
PLANNED_CAP = "1.20G", "1.80G"
FIELDS = "JobName", "NTasks", "NNodes", "NCPUS", "State", "ReqCPUFreqGov"


@dataclass(frozen=True)
class Ran:
    """A job that has ended: what its tasks saw, by tag and rank, and its accounted steps."""

    tasks: dict[str, dict[str, str]]
    steps: list[dict[str, str]]
    output: str

    def seen(self, tag: str) -> set[tuple[str, str, str]]:
        """Return threads, cap asked for and highest frequency, of all tasks of a step."""
        names = ("OMP_NUM_THREADS", "SLURM_CPU_FREQ_REQ", "HIGHEST")
        found = [e for task, e in self.tasks.items() if task.rpartition(".")[0] == tag]
        assert found, (tag, self.output, sorted(self.tasks))
        return {tuple(e.get(name, "") for name in names) for e in found}  # type: ignore[misc]


AS_WRITTEN = {("14", "", str(HIGHEST))}
CAPPED = {("14", f"{LOW}-{CAP}", str(CAP))}
FEWER = {("7", f"{LOW}-{CAP}", str(CAP))}


@pytest.fixture(scope="module", autouse=True)
def programs(site: AdvisedSite) -> Iterator[None]:
    """Put the programs of these scripts where jobs find them."""
    folder = site.testbed.directory / "bin"
    texts = {"app": APP, "other": APP, "wrap": '#!/bin/sh\nexec "$@"\n', "nest": NEST}
    texts["apptainer"] = APPTAINER
    for name, text in texts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    yield
    for name in texts:
        (folder / name).unlink()


def entry(identity: str, ranks: int, threads: int, new: int = 0, khz: int = CAP) -> PlanEntry:
    return PlanEntry(key_of(identity), ranks, threads, False, new, khz)


def plan(*entries: PlanEntry, user: str | None, nodes: int = 1, cpus: int = BDW.cores) -> str:
    """Write the lines by which a script gets a plan and the stamp that belongs to it."""
    uid = 0 if user is None else pwd.getpwnam(user).pw_uid
    text = " ".join([f"1 {DECISION} {uid} {nodes} {cpus}", *(e.text for e in entries), ""])
    text += key_of(text)
    return f"export ADVISOR_PLAN='{text}' ADVISOR_STAMP='{STAMP}'\n"


def run(site: AdvisedSite, script: str, *options: str, user: str | None, off: bool = False) -> Ran:
    """Run a script; its tasks write what they see into a folder of their own."""
    out = Path(tempfile.mkdtemp(dir=site.folder))
    out.chmod(0o777)
    env = {"OUT": str(out), **({"ADVISOR": "off"} if off else {})}
    done = site.testbed.sbatch("-Jsteps", *options, script=script, user=user, env=env)
    site.testbed.wait(done.job_id, timeout=300)
    rows = site.testbed.sacct(done.job_id, timeout=300)
    tasks = {
        path.name: dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)
        for path in out.iterdir()
    }
    output = WAITED.sub("", site.testbed.output(done.job_id))
    shutil.rmtree(out)
    steps = [row for row in rows if row["JobID"].partition(".")[2].isdecimal()]
    return Ran(tasks, steps, output)


def both(site: AdvisedSite, script: str, *options: str, user: str | None = None) -> tuple[Ran, Ran]:
    """Run a script with its plan and under ADVISOR=off; check that nothing but the plan differs."""
    planned = run(site, script, *options, user=user)
    off = run(site, script, *options, user=user, off=True)
    assert (planned.output, planned.tasks.keys()) == (off.output, off.tasks.keys())
    for task, mine in planned.tasks.items():
        theirs = off.tasks[task]
        names = {n for n in {*mine, *theirs} if mine.get(n) != theirs.get(n)}
        names -= {n for n in names if n.startswith(("ADVISOR", "SLURM_ADVISOR"))}
        assert names - OF_ONE_RUN <= PLANNED, (task, names)
    of_steps = [
        sorted(tuple(step[field] for field in FIELDS) for step in ran.steps)
        for ran in (planned, off)
    ]
    assert of_steps[0] == of_steps[1]
    assert not caps(off)[PLANNED_CAP]
    assert caps(planned) - caps(off) <= Counter({PLANNED_CAP: len(planned.steps)})
    return planned, off


def caps(ran: Ran) -> Counter[tuple[str, str]]:
    """Return how many steps the accounting has with which cap."""
    return Counter((step["ReqCPUFreqMin"], step["ReqCPUFreqMax"]) for step in ran.steps)


def seen(ran: Ran, *tags: str) -> list[set[tuple[str, str, str]]]:
    """Return what the tasks of each step saw, each different answer once."""
    answers: list[set[tuple[str, str, str]]] = []
    for tag in tags:
        if (answer := ran.seen(tag)) not in answers:
            answers.append(answer)
    return answers


def test_the_steps_of_a_script_that_nobody_reads(site: AdvisedSite) -> None:
    """Two programs, a loop, a function, variables: at the step they are resolved."""
    user = site.testbed.user
    script = plan(entry("app one", 2, 14, 7), entry("other *", 2, 14), user=user)
    script += """\
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
TAG=first srun app one
TAG=second srun other two
for i in 1 2; do TAG=loop$i srun app one; done
start() { TAG=function srun "$@"; }
start app one
words="-n 2 app"; TAG=variable srun $words $(echo one)
TAG=cores srun -c 14 app one
TAG=jobid srun --jobid=$SLURM_JOB_ID app one
TAG=bound srun --cpu-bind=cores other two
TAG=arguments srun app two
TAG=ranks srun -n1 app one
OMP_NUM_THREADS=13 TAG=threads srun app one
TAG=mine srun --cpu-freq=1500000 app one
ADVISOR=off TAG=refused srun app one
TAG=wrapped srun wrap app one
TIMEFORMAT=; time TAG=timed srun stdbuf -oL app one
TAG=container srun apptainer exec --nv image.sif app one
TAG=cleared srun apptainer exec --nv --cleanenv image.sif app one
TAG=cleared-by APPTAINER_CLEANENV=1 srun apptainer exec --nv image.sif app one
for i in 1 2 3; do TAG=farm$i srun --exact -n1 -c7 app one & done
wait
TAG=last srun app one
"""
    planned, off = both(site, script, *WHOLE, *TWO_RANKS, user=user)
    with_threads = ["first", "loop1", "loop2", "function", "variable", "cores", "jobid", "last"]
    with_threads += ["timed", "container"]
    assert seen(planned, *with_threads) == [FEWER]
    assert seen(planned, "second", "bound") == [CAPPED]
    as_written = ["arguments", "ranks", "refused", "wrapped", "farm1", "farm2", "farm3"]
    as_written += ["cleared", "cleared-by"]
    assert seen(planned, *as_written) == [AS_WRITTEN]
    assert planned.seen("threads") == {("13", "", str(HIGHEST))}
    assert planned.seen("mine") == off.seen("mine")
    assert caps(planned)[PLANNED_CAP] == len(with_threads) + 2


def test_what_a_step_gets_goes_no_further(site: AdvisedSite) -> None:
    """A step inside a step, and jobs that a job, or a step of it, submits, are as without us."""
    script = plan(entry("nest", 2, 14, 7), entry("app *", 2, 14), entry("app *", 1, 28), user=None)
    script += """\
export OMP_NUM_THREADS=14
TAG=nest srun nest
TAG=child sbatch -Q --wait -N1 --exclusive -p broadwell -n2 -o /dev/null --wrap 'srun app one'
ADVISOR=off TAG=optout sbatch -Q --wait -N1 --exclusive -p broadwell -n2 -o /dev/null \
  --wrap 'export ADVISOR=on; srun app one'
TAG=last srun app one
"""
    planned, _ = both(site, script, *WHOLE, *TWO_RANKS)
    assert seen(planned, "nest.outer") == [FEWER]
    assert seen(planned, "nest.inner") == [{("14", "", str(CAP))}]  # its cores are the outer step's
    assert seen(planned, "nest.child", "child", "optout") == [AS_WRITTEN]
    assert seen(planned, "last") == [CAPPED]
    for task, variables in planned.tasks.items():
        if task.startswith(("nest.child", "child", "optout")):
            assert "ADVISOR_PLAN" not in variables, task
    assert caps(planned)[PLANNED_CAP] == 2


def test_a_plan_that_is_not_this_job_s_changes_nothing(site: AdvisedSite) -> None:
    app = entry("app one", 2, 14, 7)
    right = plan(app, user=None)
    wrong = {
        "forged": right.replace(",7,", ",6,"),
        "cut": right.replace("' ADV", "", 1).replace("' ADV", "", 1)[:70] + "' ADVISOR_X=1\n",
        "user": plan(app, user=site.testbed.user),
        "nodes": plan(app, user=None, nodes=2),
        "cpus": plan(app, user=None, cpus=40),
        "decision": right.replace('"id":"0', '"id":"1'),
        "empty": "export ADVISOR_PLAN=\n",
        "none": "unset ADVISOR_PLAN\n",
    }
    script = "export OMP_NUM_THREADS=14\n"
    script += "".join(f"{lines}TAG={tag} srun app one\n" for tag, lines in wrong.items())
    script += f"{right}TAG=right srun app one\n"
    planned, _ = both(site, script, *WHOLE, *TWO_RANKS)
    assert seen(planned, *wrong) == [AS_WRITTEN]
    assert seen(planned, "right") == [FEWER]
    assert caps(planned)[PLANNED_CAP] == 1


def test_a_job_of_several_nodes(site: AdvisedSite) -> None:
    script = plan(entry("app one", 4, 14, 7), entry("other *", 2, 28), user=None, nodes=2)
    script += """\
export OMP_NUM_THREADS=14
TAG=all srun app one
TAG=one-node srun -N1 -n4 app one
TAG=named srun -w bdw1 -N1 -n4 app one
TAG=relative srun -r1 -N1 -n4 app one
OMP_NUM_THREADS=28 TAG=one-each srun -n2 other
"""
    whole = ("-N2", "--exclusive", "-p", "broadwell", "-w", "bdw[1-2]", *TWO_RANKS)
    planned, _ = both(site, script, *whole)
    assert seen(planned, "all") == [FEWER]
    assert seen(planned, "one-node", "named", "relative") == [AS_WRITTEN]
    assert seen(planned, "one-each") == [{("28", f"{LOW}-{CAP}", str(CAP))}]


def test_an_array_s_tasks_each_carry_the_plan(site: AdvisedSite) -> None:
    script = plan(entry("app one", 2, 14), user=None)
    script += "export OMP_NUM_THREADS=14\nTAG=task$SLURM_ARRAY_TASK_ID srun app one\n"
    planned = run(site, script, "--array=1-2", "-o", "/dev/null", *WHOLE, *TWO_RANKS, user=None)
    assert seen(planned, "task1", "task2") == [CAPPED]


def test_a_heterogeneous_job_s_steps_run_as_written(site: AdvisedSite) -> None:
    script = plan(entry("app one", 2, 14), user=None)
    script += "export OMP_NUM_THREADS=14\nTAG=first srun app one\n"
    script += "TAG=second srun --het-group=0 app one\n"
    part = ("-N1", "--exclusive", "-p", "broadwell", *TWO_RANKS)
    planned = run(site, script, *part, ":", *part, user=None)
    assert seen(planned, "first", "second") == [AS_WRITTEN]


@pytest.mark.parametrize("off", [{}, {"ADVISOR": "off"}])
def test_the_shell_of_salloc(site: AdvisedSite, off: dict[str, str]) -> None:
    out = Path(tempfile.mkdtemp(dir=site.folder))
    script = plan(entry("app one", 2, 14, 7), user=None)
    script += "TAG=shell srun app one\nTAG=ranks srun -n1 app one\n"
    env = {"OUT": str(out), "OMP_NUM_THREADS": "14", **off}
    command = ["salloc", "-Q", *WHOLE, "-n2", "bash", "-c", script]
    site.testbed.run(command, env=env, timeout=300)
    tasks = {
        path.name: dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)
        for path in out.iterdir()
    }
    shutil.rmtree(out)
    ran = Ran(tasks, [], "")
    assert seen(ran, "shell") == [AS_WRITTEN if off else FEWER]
    assert seen(ran, "ranks") == [AS_WRITTEN]
