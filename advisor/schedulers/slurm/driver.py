"""The files a sweep takes into its Slurm allocation: a driver, a timing srun, and their logs.

The driver runs the user's own script once per configuration, inside the allocation that the job
asks for: a configuration sets the threads' variables and the frequency cap, and nothing else. For
jobs that share their nodes it stands in for smaller requests instead: it tells the script that
it has fewer CPUs, and every srun. A wrapper named ``srun`` in front of PATH (and as an exported
function, for scripts that change PATH) times the real srun and notes which step it was. Everything
is logged to files by appending whole lines.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Literal

from advisor.core.script_use import CAP_VARIABLE
from advisor.drafts import write_whole
from advisor.schedulers.base import PlannedRun, SweepJob
from advisor.schedulers.command import interpreter
from advisor.schedulers.early import driver_lines, role_of
from advisor.schedulers.slurm.translator import AXES, FOLLOWS, SETTERS, array_task
from advisor.schedulers.thread_counter import MARK, write_counter

RunMode = Literal["steps", "wrap", "whole"]
"""``steps``: the script's sruns are timed; ``wrap``: the whole script is put into one step;
``whole``: the script is timed as it is, without step, cap or metered energy."""

GPUS_ON_NODES = "SLURM_ADVISOR_GPUS"
"""In this variable the hook in the controller finds what a sweep's job has its nodes set on GPUs;
by its beginning it goes with a job whatever --export says."""

_SETTER = f'beside+=(--setter "{SETTERS}/${{SLURMD_NODENAME:-node}}.$SLURM_JOB_ID")'

_DRIVER = r"""
now() { if [ -n "${EPOCHREALTIME:-}" ]; then t=${EPOCHREALTIME/,/.}; else t=$(date +%s.%N); fi; }
log() { local IFS=$'\t'; printf '%s\n' "$*" >> "$folder/events"; }
pause() { read -rt 2 <> <(:); }  # 2 s; a child would be ended by the signal, and the pause with it

@CONFIGURE@

# A script without srun: one step of all the CPUs that the job has there meters and caps it, and the
# script runs once in it, as in a batch job. Steps that something in it starts all the same (an
# mpirun) would wait for that one's end, were it not to overlap.
in_one_step() {
  local given name
  for name in SLURM_NTASKS SLURM_NPROCS SLURM_NTASKS_PER_NODE SLURM_TASKS_PER_NODE \
    SLURM_CPUS_PER_TASK SLURM_CPUS_ON_NODE SLURM_JOB_CPUS_PER_NODE; do
    if [ -n "${!name+set}" ]; then given+=("$name=${!name}")
    else given=(-u "$name" "${given[@]}"); fi
  done
  job=("$folder/bin/srun" $overlap --nodes=1 --ntasks=1 --cpus-per-task="$SLURM_CPUS_ON_NODE"
    env "${given[@]}" "${job[@]}")
}

one() {  # steps, step name, then as configure: the user's script, once
  configure "${@:3}"
  export ADV_SWEEP_STEPS=$1 ADV_SWEEP_NAME=$2 @MARK@=$2
  export ADV_SWEEP_SRUN=$real ADV_SWEEP_EPILOG="$folder/bin/epilog"
  if [ "$mode" != whole ]; then
    export PATH="$folder/bin:$PATH"
    srun() { "$ADV_SWEEP_SHIM" "$@"; }
    export ADV_SWEEP_SHIM="$folder/bin/srun"
    export -f srun
  fi
  [ "$mode" = wrap ] && in_one_step
  [ -n "$limit" ] && job=(timeout --kill-after=30 "$limit" "${job[@]}")
  exec "${job[@]}"
}

attempt() {  # seq, attempt, then as configure; sets verdict: ok, failed, late or early
  local seq=$1 try=$2 steps="$folder/steps/$1-$2" times="$folder/steps/$1-$2.times"
  local begin code good=1 lines=0 line counter=
  : > "$steps"; : > "$steps.ids"
  case $counted in *" $seq "*)
    "$folder/bin/count-threads" "@MARK@=$name-$seq-$try" "$folder/threads-$seq-$try" $threads_from \
      > /dev/null 2>&1 < /dev/null &
    counter=$!
  esac
  now; begin=$t
  log begin "$seq" "$try" "$begin"
  (
    watched "${roles[seq]:-}" "$stage-$seq-$try" one "$steps" "$name-$seq-$try" "${@:3}"
  ) > "$folder/output/run-$seq-$try.log" 2>&1 < "$input"
  code=$?
  now; timed_inside
  if [ -n "$counter" ]; then kill "$counter" 2> /dev/null; wait "$counter" 2> /dev/null; fi
  if [ "$mode" != whole ]; then
    while IFS=$'\t' read -r _ _ line _; do
      lines=$((lines + 1))
      [ "$line" = 0 ] || good=0
    done < "$steps"
    [ "$lines" -gt 0 ] || good=0
  fi
  if ended "$stage-$seq-$try"; then verdict=early
  elif [ "$code" = 0 ] && [ "$good" = 1 ]; then verdict=ok
  elif [ -n "$limit" ] && { [ "$code" = 124 ] || [ "$code" = 137 ]; }; then verdict=late
  else
    verdict=failed
    pause  # where the allocation is cancelled, its run ends first, and this driver in the pause
  fi
  log end "$seq" "$try" "$begin" "$t" "$code" "$verdict"
}

run() {  # seq, first attempt, then as configure
  local seq=$1 try=$2
  shift 2
  while [ "$try" -le "$attempts" ]; do
    attempt "$seq" "$try" "$@"
    [ "$verdict" = ok ] || [ "$verdict" = early ] && return 0
    [ "$verdict" = late ] && return 1
    try=$((try + 1))
  done
  return 1
}

cd -- "$working" || { log failed "cannot enter $working"; exit 1; }
real=$(type -P srun) || { log failed "there is no srun on the node"; exit 1; }
exact= overlap=
"$real" --help 2>/dev/null | grep -q -e --exact && exact=--exact
"$real" --help 2>/dev/null | grep -q -e --overlap && overlap=--overlap
log job "$SLURM_JOB_ID" "${SLURM_JOB_ACCOUNT:-}"
"""

_CONFIGURE = {
    "variables": r"""
configure() {  # threads per rank, cap in kHz (0: as the job has it), the cap to tell, GPU clock
  local name
  if [ "$1" -gt 0 ]; then for name in $threads_from; do export "$name=$1"; done; fi
  if [ "$2" -gt 0 ]; then export SLURM_CPU_FREQ_REQ="$lowest-$2"; fi
  if [ "$3" -gt 0 ]; then export @CAP@=$3; fi
  if [ -n "${4:-}" ]; then export SLURM_GPU_FREQ=$4; fi
}
""",
    "request": r"""
configure() {  # nodes, ranks per node, threads per rank, cap, the cap to tell, threads in variables
  local nodes=$1 ranks=$2 threads=$3 cap=$4 each= name  # the last three: 0 as the job has them
  [ "$nodes" -gt 1 ] && each="(x$nodes)"
  export SLURM_NNODES=$nodes SLURM_JOB_NUM_NODES=$nodes
  export SLURM_NTASKS=$((nodes * ranks)) SLURM_NPROCS=$((nodes * ranks))
  export SLURM_NTASKS_PER_NODE=$ranks SLURM_TASKS_PER_NODE="$ranks$each"
  export SLURM_CPUS_PER_TASK=$threads SRUN_CPUS_PER_TASK=$threads
  export SLURM_CPUS_ON_NODE=$((ranks * threads)) SLURM_JOB_CPUS_PER_NODE="$((ranks * threads))$each"
  if [ "$6" -gt 0 ]; then for name in $threads_from; do export "$name=$6"; done; fi
  if [ "$cap" -gt 0 ]; then export SLURM_CPU_FREQ_REQ="$lowest-$cap"; fi
  if [ "$5" -gt 0 ]; then export @CAP@=$5; fi
  export ADV_SWEEP_OPTIONS="--nodes=$nodes --ntasks=$((nodes * ranks))"
  ADV_SWEEP_OPTIONS+=" --cpus-per-task=$threads $exact"
}
""",
}

_SHIM = r"""#!/bin/bash
# Stands before srun during a sweep: times the step and notes its id.
unset -f srun
if [ -z "${ADV_SWEEP_STEPS:-}" ]; then exec srun "$@"; fi
now() { if [ -n "${EPOCHREALTIME:-}" ]; then t=${EPOCHREALTIME/,/.}; else t=$(date +%s.%N); fi; }
read -r -a options <<< "${ADV_SWEEP_OPTIONS:-}"  # before the script's own, which win
now
begin=$t
export ADV_SWEEP_TICKET=$$-$begin
SLURM_EPILOG=$ADV_SWEEP_EPILOG "$ADV_SWEEP_SRUN" --job-name="$ADV_SWEEP_NAME" "${options[@]}" "$@"
code=$?
now
printf '%s\t%s\t%s\t%s\n' "$begin" "$t" "$code" "$ADV_SWEEP_TICKET" >> "$ADV_SWEEP_STEPS"
exit "$code"
"""

_EPILOG = r"""#!/bin/bash
# Run by srun after a step: the one place that knows the step's number.
[ -n "${ADV_SWEEP_STEPS:-}" ] && [ -n "${SLURM_STEP_ID:-}" ] &&
  printf '%s\t%s\n' "$ADV_SWEEP_TICKET" "$SLURM_STEP_ID" >> "$ADV_SWEEP_STEPS.ids"
exit 0
"""


@dataclass(frozen=True, slots=True)
class TimedStep:
    """One srun of an attempt: seconds since the epoch, exit code, step number if known."""

    begin: float
    end: float
    code: int
    step_id: str = ""


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One attempt the driver has ended."""

    seq: int
    number: int
    job_id: str
    account: str
    begin: float
    end: float
    code: int
    verdict: str
    steps: tuple[TimedStep, ...] = ()

    def time_s(self, mode: RunMode) -> float:
        """Return the run's time: of its sruns (overlaps once), or of the whole script."""
        if mode == "whole" or not self.steps:
            return self.end - self.begin
        total, reached = 0.0, 0.0
        for step in sorted(self.steps, key=lambda s: s.begin):
            total += max(0.0, step.end - max(step.begin, reached))
            reached = max(reached, step.end)
        return total

    @property
    def overlapping(self) -> bool:
        """Whether sruns ran at the same time: their energies then count a node twice."""
        ordered = sorted(self.steps, key=lambda s: s.begin)
        return any(b.begin < a.end - 0.05 for a, b in pairwise(ordered))


@dataclass(slots=True)
class Log:
    """What the driver has written so far."""

    attempts: list[SweepRun] = field(default_factory=list)
    job_ids: list[str] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)
    failure: str = ""


def mode_of(job: SweepJob) -> RunMode:
    """Return how a sweep's script is timed."""
    return run_mode(job.launcher, max(run.configuration.nodes for run in job.runs))


def run_mode(launcher: str, nodes: int) -> RunMode:
    """Return how a script with this launcher is timed on at most so many nodes."""
    if launcher == "srun":
        return "steps"
    return "wrap" if not launcher and nodes == 1 else "whole"


def step_name(job: SweepJob, seq: int, attempt: int) -> str:
    """Return the job name its steps carry in the accounting."""
    return f"{job_name(job)}-{seq}-{attempt}"


def job_name(job: SweepJob) -> str:
    """Return the name of a sweep's allocation."""
    return f"adv-{job.id}-{job.stage}"


def write_files(
    job: SweepJob, due: Iterable[tuple[PlannedRun, int]], *, metered: bool = False
) -> Path:
    """Write driver, wrapper and epilog for the runs due (each with its next attempt's number).

    Returns the driver. ``metered``: Slurm measures energy. Every text from outside is quoted by
    shlex; nothing is evaluated.
    """
    for name in ("bin", "output", "steps"):
        (job.folder / name).mkdir(parents=True, exist_ok=True)
    _write_program(job.folder / "bin" / "srun", _SHIM)
    _write_program(job.folder / "bin" / "epilog", _EPILOG)
    write_counter(job.folder / "bin", FOLLOWS["cpus-per-task"])
    driver = job.folder / "driver.sh"
    _write_program(driver, driver_text(job, due, metered=metered))
    return driver


def driver_text(
    job: SweepJob, due: Iterable[tuple[PlannedRun, int]], *, metered: bool = False
) -> str:
    """Return the driver script for the runs due; ``metered``: Slurm measures their energy."""
    argv: Sequence[str] = job.command
    if job.script is not None:
        argv = [*interpreter(job.script), str(job.script), *job.arguments]
    job_input = job.options.get("input", "")
    # patterns name the job's id
    source = job_input if job_input and "%" not in job_input else "/dev/null"
    steps = job.node_type.freq_khz
    limit = "" if job.run_limit_s is None else str(max(1, round(job.run_limit_s)))
    head = [
        "#!/bin/bash",
        "# Runs the configurations of one sweep one after the other. Made by advisor train.",
        f"folder={shlex.quote(str(job.folder))}",
        f"working={shlex.quote(str(job.working_folder))}",
        f"input={shlex.quote(source)}",
        f"job=({shlex.join(argv)})",
        f"name={shlex.quote(job_name(job))}",
        f"mode={mode_of(job)} attempts={job.attempts:d} limit={limit}",
        f"lowest={steps[0] if steps else 0:d}",
        f"threads_from={shlex.quote(' '.join(job.threads_from))}",
        f"stage={shlex.quote(job.stage)}",
        f"counted=' {' '.join(f'{r.seq:d}' for r in job.runs if r.role == 'baseline')} '",
        f"roles=({' '.join(f'[{r.seq:d}]={role_of(job, r)}' for r in job.runs)})",
        *driver_lines(job, metered=metered),
        *([_SETTER] if job.in_one else []),
        f"unset {GPUS_ON_NODES}  # jobs that the script submits are none of the sweep",
        *(f"export {name}={value}" for name, value in array_task(job.first_task).items()),
    ]
    calls = []
    for run, attempt in due:
        call = f"run {run.seq:d} {attempt:d} {_numbers(job, run)}"
        # without the job as it is, the others are worth nothing
        is_needed = run == job.runs[0] and run.role == "baseline"
        calls.append(f'{call} || {{ log done "$SLURM_JOB_ID"; exit 1; }}' if is_needed else call)
    driver = (
        _DRIVER.replace(
            "@CONFIGURE@", _CONFIGURE["request" if job.method == "request" else "variables"].strip()
        )
        .replace("@CAP@", CAP_VARIABLE)
        .replace("@MARK@", MARK)
    )
    return "\n".join([*head, driver, *calls, 'log done "$SLURM_JOB_ID"', "exit 0", ""])


def _numbers(job: SweepJob, run: PlannedRun) -> str:
    """Return what ``configure`` takes."""
    if job.method == "request":
        c = run.configuration
        place = f"{c.nodes:d} {c.ranks_per_node:d} {c.threads_per_rank:d}"
        # without a step, nothing but variables keeps a run to the CPUs that the job would have
        threads = c.threads_per_rank if mode_of(job) == "whole" else job.threads_to_set(run)
        return f"{place} {job.cap_to_set(run):d} {c.freq_khz:d} {threads:d}"
    cap = f"{job.cap_to_set(run):d} {run.configuration.freq_khz:d}"
    clock = "".join(
        job.axes[name].text(value)
        for name, value in job.axes_to_set(run).items()
        if job.axes[name] == AXES.get(name)
    )
    return f"{job.threads_to_set(run):d} {cap} {clock}".rstrip()


def _write_program(path: Path, text: str) -> None:
    write_whole(path, text, 0o700)


def read_log(folder: Path) -> Log:
    """Return what the drivers of a stage have logged; lines still being written are left."""
    log = Log()
    job_id = account = ""
    for words in _rows(folder / "events"):
        match words:
            case ["job", job_id, account]:
                log.job_ids.append(job_id)
            case ["end", seq, number, begin, end, code, verdict]:
                try:
                    attempt = SweepRun(
                        int(seq),
                        int(number),
                        job_id,
                        account,
                        float(begin),
                        float(end),
                        int(code),
                        verdict,
                        _steps(folder / "steps" / f"{int(seq)}-{int(number)}"),
                    )
                except ValueError:
                    continue
                log.attempts.append(attempt)
            case ["done", ended]:
                log.ended.add(ended)
            case ["failed", why]:
                log.failure = why
    return log


def _steps(path: Path) -> tuple[TimedStep, ...]:
    ids = {words[0]: words[1] for words in _rows(Path(f"{path}.ids")) if len(words) == 2}
    return tuple(
        TimedStep(float(begin), float(end), int(code), ids.get(ticket, ""))
        for begin, end, code, ticket in (words for words in _rows(path) if len(words) == 4)
    )


def _rows(path: Path) -> list[list[str]]:
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return []
    # What no line break ends is still being written.
    complete, _, _ = text.rpartition("\n")
    return [line.split("\t") for line in complete.splitlines()]
