"""The embedded scheduler: runs on this machine, one child process at a time."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from advisor import plugins
from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.core.launchers import SRUN_FLAGS, SRUN_LETTERS
from advisor.core.script_use import CAP_VARIABLE
from advisor.drafts import write_whole
from advisor.errors import MeterError, SchedulerError, UsageError
from advisor.meters.choose import ChosenMeter, best_meter
from advisor.meters.process import MeasuredCommand, exit_text, measure, start_ticks
from advisor.schedulers import local
from advisor.schedulers.base import (
    HookRequest,
    Hooks,
    PlannedRun,
    RunResult,
    Scheduler,
    SweepJob,
    SweepStatus,
)
from advisor.schedulers.command import CommandProcess, interpreter, session_environment, start
from advisor.schedulers.cpufreq import Cpufreq
from advisor.schedulers.early import ended_early, keep_complete, was_ended
from advisor.schedulers.local.watched import WatchedHere
from advisor.schedulers.results import append_result, rated, read_results
from advisor.schedulers.this_machine import local_node_type
from advisor.schedulers.thread_counter import MARK, counted, counting
from advisor.schedulers.translators import translator

_CORES = "SLURM_CPUS_PER_TASK"
"""In which each run finds the threads of a rank, as in a job of Slurm's."""
_SRUN = r"""#!/bin/bash
# Stands in for srun on a machine without a scheduler: drops its options, runs the command.
tasks=1
while [ $# -gt 0 ]; do
  case $1 in
    --) shift; break ;;
    --ntasks=*) tasks=${1#*=}; shift ;;
    --ntasks | -n) tasks=${2:-1}; shift; [ $# -gt 0 ] && shift ;;
    -n[0-9]*) tasks=${1#-n}; shift ;;
    --*=*) shift ;;
    FLAGS | -[LETTERS]) shift ;;
    --* | -?) shift; [ $# -gt 0 ] && shift ;;
    -*) shift ;;
    *) break ;;
  esac
done
if [ "$tasks" != 1 ]; then
  echo "srun: the local scheduler runs one rank, not $tasks; use mpirun in the script" >&2
  exit 2
fi
exec "$@"
""".replace("FLAGS", " | ".join(f"--{name}" for name in sorted(SRUN_FLAGS))).replace(
    "LETTERS", "".join(re.findall("([A-Za-z])(?:::|(?!:))", SRUN_LETTERS))
)


def _array_task(job: SweepJob) -> dict[str, str]:
    """Return what a script that is a job array finds, whichever scheduler it is written for."""
    languages = map(translator, plugins.names("translators"))
    return {k: v for language in languages for k, v in language.array_task(job.first_task).items()}


class Local(Scheduler):
    """Runs a sweep on this machine; ``poll`` makes one attempt and returns.

    Every attempt is appended to ``results.jsonl`` in the stage's folder as it ends, so a killed
    sweep goes on where it was. A child that a killed sweep left behind is ended first, by its
    pid and start time.
    """

    NAME: ClassVar[str] = "local"
    LABEL: ClassVar[str] = "this machine"
    DESCRIPTION: ClassVar[str] = "this machine, no scheduler: one run after the other"
    RANK: ClassVar[int] = local.RANK
    WITHOUT_FEATURE: ClassVar[str] = "run anyway"
    POLL_S: ClassVar[float] = 0.0

    def __init__(self, root: Path = Path("/sys")) -> None:
        self._root = root
        self._cpufreq = Cpufreq(root)

    def on_a_node(
        self, node_type: NodeType, argv: Sequence[str], *, limit_s: float, name: str
    ) -> CommandProcess:
        """Start ``argv``: this machine is the node."""
        return start(argv, session_environment())

    def hooks(self, request: HookRequest) -> Hooks:
        """Raise UsageError: a job is advised by ``advisor run``."""
        raise UsageError(
            "this machine has no scheduler, so there is no hook to install",
            hint="advisor run SCRIPT advises and runs a job here",
        )

    def available(self) -> str | None:
        """Return None: a child process can always be run."""
        return None

    def this_machine(self) -> NodeType | None:
        """Return this machine as a node type."""
        return local_node_type(self._root)

    def environment_here(
        self, configuration: Configuration, folder: Path, threads_from: Sequence[str]
    ) -> dict[str, str]:
        """Return what Slurm's variables would say in a job, and a PATH with an srun in ``folder``.

        The srun is written whole or not at all.
        """
        shim = folder / "srun"
        if not shim.exists():
            write_whole(shim, _SRUN, 0o777)
        c = configuration
        threads = str(c.threads_per_rank)
        return {
            **session_environment(),
            "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "ADVISOR": "off",
            **dict.fromkeys(threads_from, threads),
            _CORES: threads,
            "SLURM_NTASKS": str(c.ranks_per_node),
            "SLURM_NPROCS": str(c.ranks_per_node),
            "SLURM_NTASKS_PER_NODE": str(c.ranks_per_node),
            "SLURM_NNODES": "1",
            "SLURM_JOB_NUM_NODES": "1",
            "SLURM_CPUS_ON_NODE": str(c.threads_per_node),
            "SLURM_SUBMIT_DIR": str(Path.cwd()),
        }

    def frequency_kept(self, node_type: NodeType, launcher: str) -> str:
        """Return why this machine's frequency cannot be capped, "" when it can."""
        return self._cpufreq.controllable() or ""

    def _choice(self, job: SweepJob) -> ChosenMeter:
        return best_meter(job.node_type, name=job.meter, root=self._root)

    def gives_whole_nodes(self, partition: str) -> bool:
        """Return True: this machine is its user's own."""
        return True

    def energy_source(self, job: SweepJob) -> str:
        """Say which meter of this machine is used."""
        return self._choice(job).sentence

    def submit_sweep(self, job: SweepJob) -> str:
        """Prepare the folder; the runs themselves are made by :meth:`poll`."""
        self._prepare(job)
        return ""

    def _prepare(self, job: SweepJob) -> Path:
        bin_folder = job.folder / "bin"
        bin_folder.mkdir(parents=True, exist_ok=True)
        (job.folder / "output").mkdir(exist_ok=True)
        return bin_folder

    def poll(self, job: SweepJob, handle: str) -> SweepStatus:
        """Make the next attempt that is due and return all results so far."""
        results = read_results(job.folder / "results.jsonl")
        due = job.open_runs(results)
        if due:
            run = due[0]
            self._clean_up(job)
            attempt = 1 + sum(r.seq == run.seq for r in results)
            result = rated(job, self._attempt(job, run, attempt))
            append_result(job.folder / "results.jsonl", result)
            results.append(result)
            due = job.open_runs(results)
        return SweepStatus("running" if due else "ended", tuple(results))

    def _attempt(self, job: SweepJob, run: PlannedRun, attempt: int) -> RunResult:
        bin_folder = self._prepare(job)
        c = run.configuration
        if job.script is not None:
            argv = (*interpreter(job.script), str(job.script), *job.arguments)
        else:
            argv = job.command
        output = job.output(run.seq, attempt)
        # It says why caps cannot be set, None where they can.
        cap = 0 if self._cpufreq.controllable() else c.freq_khz
        choice = self._choice(job)
        # An estimate says what it is based on, and cannot be read while a run goes on.
        metered = choice.meter is not None and not hasattr(choice.meter, "basis")
        watched = WatchedHere(job, run, attempt, metered=metered, root=self._root)
        counts = bin_folder.parent / f"threads-{run.seq}-{attempt}"
        mark = f"{job.id}-{job.stage}-{run.seq}-{attempt}"
        variables = job.threads_from if run.role == "baseline" else ()
        try:
            with (
                self._cpufreq.capped(cap, job.folder / "cpufreq.json"),
                watched,
                counting(bin_folder, mark, counts, variables, _CORES),
            ):
                command = MeasuredCommand(
                    argv,
                    c.threads_per_node,
                    c.freq_khz,
                    placement=job.placement,
                    environment={
                        **self.environment_here(
                            c, bin_folder, job.threads_from if job.threads_to_set(run) else ()
                        ),
                        MARK: mark,
                        **({CAP_VARIABLE: str(c.freq_khz)} if c.freq_khz else {}),
                        **_array_task(job),
                        **watched.environment,
                    },
                    folder=job.working_folder,
                    output=output,
                    limit_s=job.run_limit_s,
                )
                measured = measure(
                    command,
                    choice.meter,
                    events=job.events,
                    note=job.folder / "running.json",
                    started=watched.start,
                )
        except (SchedulerError, MeterError) as error:
            return RunResult(run.seq, attempt, False, detail=str(error))
        if was_ended(job, run.seq, attempt):
            return ended_early(job, RunResult(run.seq, attempt, False, measured.time_s))
        if measured.timed_out:
            detail = f"stopped after {job.run_limit_s:g} s; output in {output}"
            return RunResult(run.seq, attempt, False, measured.time_s, detail=detail, final=True)
        if measured.exit_code != 0:
            detail = f"{exit_text(measured.exit_code)}; output in {output}"
            return RunResult(run.seq, attempt, False, measured.time_s, detail=detail)
        result = RunResult(
            run.seq,
            attempt,
            True,
            measured.time_s,
            measured.energy_j,
            measured.energy_quality,
            measured.meter,
            detail=measured.detail,
            counters=measured.counters,
            thread_use=counted(counts),
            gpu_j=measured.gpu_j,
        )
        keep_complete(job, result)
        return result

    def _clean_up(self, job: SweepJob) -> None:
        """End the run and lift the cap that a killed process left."""
        note = job.folder / "running.json"
        try:
            process_note = json.loads(note.read_text())
            pid, start = int(process_note["pid"]), str(process_note["start"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        else:
            # By its pid alone it may be another process by now.
            if start and start_ticks(pid) == start:
                with contextlib.suppress(OSError):
                    os.killpg(pid, signal.SIGKILL)
        note.unlink(missing_ok=True)
        self._cpufreq.restore(job.folder / "cpufreq.json")

    def cancel(self, job: SweepJob, handle: str) -> None:
        """End whatever of the sweep still runs."""
        self._clean_up(job)
