"""Sweeps on Slurm: one exclusive allocation per stage, sequential steps, Slurm's own energy."""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Mapping
from dataclasses import replace

from advisor.core.axes import AxisWriting, extra_words
from advisor.core.delivery import place_mark
from advisor.errors import SchedulerError
from advisor.schedulers.base import (
    JobPhase,
    JobRecord,
    PlannedRun,
    RunResult,
    StepRecord,
    SweepJob,
    SweepStatus,
)
from advisor.schedulers.command import session_environment, submit
from advisor.schedulers.early import ended_early, keep_complete, was_ended, why_whole
from advisor.schedulers.results import append_result, good_run, rated, read_results
from advisor.schedulers.slurm import accounting as sacct
from advisor.schedulers.slurm.control import (
    UNFINISHED,
    ask,
    config_value,
    energy_plugin,
    partition_minutes,
)
from advisor.schedulers.slurm.driver import (
    GPUS_ON_NODES,
    SweepRun,
    job_name,
    mode_of,
    read_log,
    run_mode,
    step_name,
    write_files,
)
from advisor.schedulers.slurm.table import SHAPE
from advisor.schedulers.slurm.translator import (
    AXES,
    NOT_SWEPT,
    PROLOG_SETTINGS,
    nodes_uncapped,
    uncapped_launcher,
)
from advisor.schedulers.thread_counter import counted

SETTLE_S = 30.0
"""How long a step's record may lag behind its end before its energy counts as missing."""
UNMETERED_S = 5.0
"""How long a finished record without energy may still get one."""
QUEUE_S = 5.0
"""Least seconds between two questions to the controller."""
ACCOUNTING_S = 1.0
"""Least seconds between two questions to the accounting."""
START_S = 30.0
"""Time of one run's start and end that is allowed for in the allocation's limit."""


class Sweeps:
    """Runs sweeps as jobs of the user. The allocation goes on when this process is gone."""

    def __init__(self) -> None:
        self._asked: dict[str, float] = {}
        self._phase: dict[str, tuple[JobPhase, str]] = {}
        self._seen: dict[tuple[str, int, int], float] = {}
        self._records: dict[str, tuple[float, JobRecord | None, str]] = {}

    def energy_source(self, job: SweepJob) -> str:
        """Say which of Slurm's meters the energies come from."""
        mode = mode_of(job)
        stated = job.node_type.base_power_w is not None and job.node_type.core_power_w is not None
        otherwise = "it is estimated from the site file's power" if stated else "it is not known"
        plugin = energy_plugin()
        if mode == "whole":
            return f"energy: {job.launcher or 'the script'} is not metered by Slurm; {otherwise}"
        if not plugin:
            return f"energy: this Slurm meters none (AcctGatherEnergyType); {otherwise}"
        whose = "the GPUs alone in " if plugin == "gpu" else ""
        return f"energy measured by Slurm ({plugin}), of {whose}all steps of a run"

    # -- sweeps --------------------------------------------------------------------------------

    def submit_sweep(self, job: SweepJob) -> str:
        """Submit the runs that are still due; return the ids of their jobs, joined by commas.

        It is one job, but for axes that a whole job gets: then one for each of their values, and
        one after the other. Jobs of this very stage that are still queued or running are taken over
        instead: a process killed right after sbatch leaves them.
        """
        if running := self._ids_in_queue(job):
            return running
        results = read_results(job.folder / "results.jsonl")
        if job.in_one:
            return self._submit_in_one(job)
        due: dict[tuple[tuple[str, int], ...], list[tuple[PlannedRun, int]]] = {}
        for run in job.open_runs(results):
            tries = 1 + sum(r.seq == run.seq for r in results)
            due.setdefault(_of_whole_job(job, run), []).append((run, tries))
        ids: list[str] = []
        try:
            for axes, runs in due.items():
                ids.append(self._submit(job, runs, dict(axes), after_others=bool(ids)))
        except SchedulerError:
            self.cancel(job, ",".join(ids))
            raise
        return ",".join(ids)

    def _submit(
        self,
        job: SweepJob,
        due: list[tuple[PlannedRun, int]],
        axes: Mapping[str, int],
        *,
        after_others: bool,
    ) -> str:
        """Submit one job for runs that share ``axes``; ``after_others``: once they have ended."""
        driver = write_files(_watched_by(job), due, metered=self._metered(job))
        writings = {name: job.axes[name] for name in axes}
        options = {w.option: w.text(axes[n]) for n, w in writings.items() if not w.nodes}
        words = self._options(job, [run for run, _ in due], options)
        # Slurm runs jobs of one name and user one after the other then, however the former ended.
        words += ["--dependency=singleton"] if after_others else []
        on_nodes = {name: axes[name] for name, w in writings.items() if w.nodes}
        return _sbatch([*words, str(driver)], on_nodes)

    def _submit_in_one(self, job: SweepJob) -> str:
        """Submit the job that goes through the values of an axis: the first of its runs is made.

        Its nodes leave what sets them as it runs, the job's own value first.
        """
        assert job.baseline is not None
        driver = write_files(_watched_by(job), [(job.runs[0], 1)], metered=self._metered(job))
        [(name, first)] = job.baseline.extra
        values = [first, *(dict(run.configuration.extra)[name] for run in job.runs)]
        longest = max(job.runs, key=lambda run: job.longest_s(run) or math.inf)
        words = [*self._options(job, [longest]), str(driver)]
        return _sbatch(words, {name: "/".join(map(str, values))})

    @staticmethod
    def axis_kept_in_a_run(writing: AxisWriting, nodes: int) -> str:
        """Return why a further axis stays as it is while a job runs; "" if a sweep may change it.

        The node's prolog leaves what does, on each node for itself.
        """
        if not writing.nodes:
            return "only nodes set it as a job runs (nodes: true)"
        return "" if nodes == 1 else "it would have to change on all nodes at once"

    def axis_kept(self, writing: AxisWriting, launcher: str, nodes: int) -> str:
        """Return why no run of a sweep gets a further axis so, with its GPUs metered."""
        if writing.nodes and (
            why := nodes_uncapped({name: config_value(name) for name in PROLOG_SETTINGS})
        ):
            return why
        if writing in AXES.values() and (why := uncapped_launcher(launcher)):
            return why
        if run_mode(launcher, nodes) == "whole":
            return f"{launcher or 'the script'} is not metered by Slurm"
        plugin = energy_plugin()
        return "" if plugin not in ("", "rapl") else f"Slurm meters {_PARTS[plugin]}"

    @staticmethod
    def _metered(job: SweepJob) -> bool:
        """Tell whether Slurm measures the energy of a run's steps."""
        return mode_of(job) != "whole" and bool(energy_plugin())

    def _options(
        self, job: SweepJob, runs: list[PlannedRun], axis_options: Mapping[str, str] | None = None
    ) -> list[str]:
        """Return sbatch's options: the job's own, all that bear on what is measured.

        Where smaller requests are stood in for, whole nodes take the place of the job's size.
        ``written`` are those by which the job has its further axes.
        """
        options = {k: v for k, v in job.options.items() if k not in NOT_SWEPT}
        if job.method == "request":
            nodes = max(run.configuration.nodes for run in runs)
            options = {k: v for k, v in options.items() if k not in SHAPE}
            options |= {"nodes": f"{nodes}-{nodes}", "exclusive": ""}
            if "mem-per-cpu" in job.options and "mem" not in options:
                options["mem"] = "0"  # all of the node: cores x mem-per-cpu may be more than it has
        options |= {
            "job-name": job_name(job),
            "chdir": str(job.working_folder),
            "output": str(job.folder / "job-%j.log"),
            "no-requeue": "",
        }
        if job.results is not None:
            options["comment"] = place_mark(job.results)
        if job.partition:
            options["partition"] = job.partition
        feature = job.node_type.feature
        if feature and feature not in options.get("constraint", "").split("&"):
            options["constraint"] = feature
        minutes = self._minutes(job, runs)
        if minutes is not None:
            options["time"] = str(minutes)
        return [
            f"--{k}={v}" if v else f"--{k}" for k, v in {**options, **(axis_options or {})}.items()
        ]

    def _minutes(self, job: SweepJob, runs: list[PlannedRun]) -> int | None:
        """Return the allocation's time limit, None for the partition's own.

        Every run gets the time it takes at worst (perfect scaling from the estimate, and half of
        it again), or its own limit, plus its start; never more than the partition allows.
        """
        total = 0.0
        for run in runs:
            bound = job.longest_s(run)
            if bound is None:
                return None
            total += bound + START_S
        minutes = math.ceil(total / 60)
        most = partition_minutes(job.partition)
        return minutes if most is None else min(minutes, most)

    def _ids_in_queue(self, job: SweepJob) -> str:
        try:
            text = ask(
                "squeue",
                "--noheader",
                f"--user={os.getuid()}",
                f"--name={job_name(job)}",
                "--format=%i",
            )
        except SchedulerError:
            return ""
        return ",".join(text.split())

    def poll(self, job: SweepJob, handle: str) -> SweepStatus:
        """Return every settled result so far; ended only when nothing more can come."""
        state, detail = self._ask_queue(job, handle)
        log = read_log(job.folder)  # after the queue: an ended job has written all it will
        results = read_results(job.folder / "results.jsonl")
        settled = {(r.seq, r.attempt) for r in results}
        waiting = 0
        for attempt in log.attempts:
            if job.in_one:
                for point in _points(job, attempt):
                    if (point.seq, point.attempt) not in settled:
                        append_result(job.folder / "results.jsonl", point)
                        results.append(point)
                continue
            if (attempt.seq, attempt.number) in settled:
                continue
            result = self._settled_result(job, attempt)
            if result is not None and result.ok:
                result = self._landed(job, attempt, result, ended=attempt.job_id in log.ended)
            if result is None:
                waiting += 1
                continue
            result = rated(job, result)
            append_result(job.folder / "results.jsonl", result)
            results.append(result)
        if log.ended.issuperset(handle.split(",")):
            state, detail = "ended", ""
        if state == "ended" and not waiting:
            return SweepStatus("ended", tuple(results), log.failure or detail)
        if state == "ended":
            return SweepStatus("running", tuple(results), "waiting for Slurm's accounting")
        return SweepStatus(state, tuple(results), detail)

    def cancel(self, job: SweepJob, handle: str) -> None:
        """Cancel its allocations; a job that has ended already is no error."""
        for number in filter(str.isdecimal, handle.split(",")):
            try:
                ask("scancel", number)
            except SchedulerError as error:
                if "Invalid job id" not in str(error) and "already" not in str(error):
                    raise

    def _ask_queue(self, job: SweepJob, handle: str) -> tuple[JobPhase, str]:
        """Return whether the allocation waits, runs or has ended, asking only now and then."""
        now_s = time.monotonic()
        last = self._phase.get(handle)
        if last is not None and (last[0] == "ended" or now_s - self._asked[handle] < QUEUE_S):
            return last
        self._asked[handle] = now_s
        try:
            text = ask(
                "squeue", "--noheader", f"--jobs={handle}", "--states=all", "--format=%T %r"
            ).strip()
        except SchedulerError as error:
            if "Invalid job id" not in str(error):
                return "running", f"Slurm does not answer: {error}"
            text = ""
        # Reversed, as of equal states the last one set stays: the first one listed.
        states = dict(line.partition(" ")[::2] for line in reversed(text.splitlines()))
        word = next((w for w in states if w in UNFINISHED - {"PENDING"}), "")  # of several jobs
        word = word or next((w for w in states if w == "PENDING"), next(iter(states), ""))
        reason = states.get(word, "")
        phase: tuple[JobPhase, str]
        if word == "PENDING":
            why = "" if reason in ("", "None") else f": {reason}"
            phase = ("queued", f"job {handle} is queued{why}")
        elif word in UNFINISHED:
            phase = ("running", "")
        else:
            how = word or "gone from the queue"
            phase = ("ended", f"allocation {handle} is {how}, see {job.folder}/job-{handle}.log")
        self._phase[handle] = phase
        return phase

    # -- results -------------------------------------------------------------------------------

    def _settled_result(self, job: SweepJob, attempt: SweepRun) -> RunResult | None:
        """Return an attempt's result, None while its energy may still come."""
        mode = mode_of(job)
        time_s = attempt.time_s(mode)
        output = job.output(attempt.seq, attempt.number)
        if attempt.verdict == "early":
            run = RunResult(
                attempt.seq,
                attempt.number,
                False,
                time_s,
                job_id=attempt.job_id,
                account=attempt.account,
            )
            return ended_early(job, run)
        if attempt.verdict != "ok" or time_s <= 0:
            return RunResult(
                attempt.seq,
                attempt.number,
                False,
                time_s,
                job_id=attempt.job_id,
                account=attempt.account,
                detail=f"{_why_failed(job, attempt)}; output in {output}",
                final=attempt.verdict == "late",
            )
        energy_j, why = None, f"{job.launcher} is not metered by Slurm"
        if mode != "whole":
            answer = self._energy(job, attempt)
            if answer is None:
                return None
            energy_j, why = answer
        run = RunResult(
            attempt.seq,
            attempt.number,
            True,
            time_s,
            job_id=attempt.job_id,
            account=attempt.account,
            thread_use=counted(job.folder / f"threads-{attempt.seq}-{attempt.number}"),
        )
        result = good_run(job, run, energy_j, "slurm", why)
        if result.energy_quality == "measured" and energy_plugin() == "gpu":
            result = replace(result, gpu_j=result.energy_j)
        keep_complete(job, result)
        return result

    def _landed(
        self, job: SweepJob, attempt: SweepRun, result: RunResult, *, ended: bool
    ) -> RunResult | None:
        """Return a run's result, failed where its nodes do not say that they set its GPUs as asked.

        They say so when the job has ended; None until then.
        """
        run = next(r for r in job.runs if r.seq == attempt.seq)
        wanted_axes = {n: value for n, value in _of_whole_job(job, run) if job.axes[n].nodes}
        if not wanted_axes:
            return result
        # Below 0, as the same attempt's energy is waited for by its number itself.
        key = (attempt.job_id, attempt.seq, -attempt.number)
        waited = time.monotonic() - self._seen.setdefault(key, time.monotonic()) if ended else 0.0
        record, _ = self._record(attempt.job_id)
        uses = record.gpus if record is not None else ()
        complete = len({use.node for use in uses}) >= run.configuration.nodes
        if not complete and waited < SETTLE_S:
            return None
        if complete and all(
            u.axes.get(n) == value for u in uses for n, value in wanted_axes.items()
        ):
            return result
        words = extra_words(tuple(wanted_axes.items()))
        text = f"{words} was not set on its GPUs: see syslog there, or advisor hook install again"
        return replace(result, ok=False, final=True, detail=text)

    def _energy(self, job: SweepJob, attempt: SweepRun) -> tuple[float | None, str] | None:
        """Return (joules or None, why not), or None while the accounting lags."""
        if attempt.overlapping:
            return None, "its steps overlap, so their energies count a node twice"
        key = (attempt.job_id, attempt.seq, attempt.number)
        waited = time.monotonic() - self._seen.setdefault(key, time.monotonic())
        record, problem = self._record(attempt.job_id)
        steps = _steps_of(job, attempt, record)
        if steps is None:
            if waited < SETTLE_S:
                return None
            return None, problem or f"no record of its steps within {SETTLE_S:.0f} s"
        energy_j = sacct.total_energy_j(steps)
        if energy_j is None and waited < UNMETERED_S:
            self._records.pop(attempt.job_id, None)
            return None
        return energy_j, "" if energy_j is not None else "Slurm metered no energy"

    def _record(self, job_id: str) -> tuple[JobRecord | None, str]:
        now_s = time.monotonic()
        cached = self._records.get(job_id)
        if cached is None or now_s - cached[0] >= ACCOUNTING_S:
            try:
                records_there = [
                    r for r in sacct.records([f"--jobs={job_id}"]) if r.job_id == job_id
                ]
                latest = max(records_there, key=lambda r: r.submitted_at, default=None)
                cached = (now_s, latest, "")
            except SchedulerError as error:
                cached = (now_s, None, str(error))
            self._records[job_id] = cached
        return cached[1], cached[2]


_compact = json.JSONEncoder(separators=(",", ":")).encode
_PARTS = {"": "no energy", "rapl": "the processors alone (rapl)"}
"""What Slurm meters where its plugin sees no GPUs."""


def _sbatch(words: list[str], on_nodes: Mapping[str, int | str]) -> str:
    """Submit a sweep's job and return its id. ``on_nodes``: what its nodes set on its GPUs.

    Raises SchedulerError.
    """
    for_nodes = {GPUS_ON_NODES: _compact(on_nodes)} if on_nodes else {}
    listed = submit(["sbatch", "--parsable", *words], {**_environment(), **for_nodes})
    job_number = re.match(r"\s*(\d+)", listed)
    if job_number is None:
        raise SchedulerError(f"sbatch refused the sweep: {' '.join(listed.split())}")
    return job_number[1]


def _of_whole_job(job: SweepJob, run: PlannedRun) -> tuple[tuple[str, int], ...]:
    """Return the further axes for which a run needs a job of its own, by name.

    Slurm's own option for clocks works for each step.
    """
    axes = job.axes_to_set(run).items()
    return tuple((name, value) for name, value in axes if job.axes[name] != AXES.get(name))


def _watched_by(job: SweepJob) -> SweepJob:
    """Return the job with what its runs are watched by: energies of GPUs alone by their meter.

    What another run takes of them is reckoned by that meter's proportion.
    """
    alone = job.axes and job.meter == "auto" and energy_plugin() == "gpu"
    return replace(job, meter="nvml") if alone else job


def _points(job: SweepJob, attempt: SweepRun) -> list[RunResult]:
    """Return what one run that went through several values tells of each; each has its part of it.

    What it does not tell is not tried again so.
    """
    took_s = attempt.time_s(mode_of(job))
    known = [was_ended(job, run.seq, attempt.number) for run in job.runs]
    points = []
    for run, is_known in zip(job.runs, known, strict=True):
        part_s = took_s / (sum(known) or len(known)) if is_known or not any(known) else 0.0
        point = RunResult(
            run.seq,
            attempt.number,
            False,
            part_s,
            job_id=attempt.job_id,
            account=attempt.account,
            final=True,
        )
        why = why_whole(job, run, attempt.number) or _why_failed(job, attempt)
        points.append(ended_early(job, point) if is_known else replace(point, detail=why))
    return points


def _steps_of(
    job: SweepJob, attempt: SweepRun, record: JobRecord | None
) -> list[StepRecord] | None:
    """Return the finished records of an attempt's steps, None until all are there.

    Steps are known by number; where a script has an epilog of its own, by name.
    """
    if record is None:
        return None
    step_ids = [s.step_id for s in attempt.steps]
    if all(step_ids):
        steps = [s for s in record.steps if s.step_id in step_ids]
    else:
        name = step_name(job, attempt.seq, attempt.number)
        steps = [s for s in record.steps if s.name == name and s.numbered]
    if len(steps) < len(step_ids) or any(s.state in UNFINISHED for s in steps):
        return None
    return steps


def _why_failed(job: SweepJob, attempt: SweepRun) -> str:
    if attempt.verdict == "late":
        return f"stopped after its limit of {job.run_limit_s:.0f} s"
    if attempt.code != 0:
        return f"exit code {attempt.code}"
    failed = [s.code for s in attempt.steps if s.code != 0]
    if failed:
        return f"an srun ended with exit code {failed[0]}"
    return "no srun of the script was seen: it must call srun by that name, not by a path"


def _environment() -> Mapping[str, str]:
    """Return the environment of sbatch: this session's, with the advisor's own hook off."""
    # sbatch takes options from its variables, too: these would make the sweep an array, cap it, or
    # have sbatch wait for its end.
    dropped = {
        "SBATCH_ARRAY_INX",
        "SBATCH_CPU_FREQ_REQ",
        "SBATCH_GPU_FREQ",
        "SBATCH_REQUEUE",
        "SBATCH_WAIT",
    }
    passed_on = {
        name: value
        for name, value in session_environment().items()
        if name not in dropped and (not name.startswith("SLURM_") or name == "SLURM_CONF")
    }
    return {**passed_on, "ADVISOR": "off"}
