"""Sweeps on PBS: each run is a job of its own on whole nodes, metered by the execution hook."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from advisor.core.cluster_name import cluster_name
from advisor.core.inventory import NodeType
from advisor.errors import SchedulerError
from advisor.schedulers import pbs
from advisor.schedulers.accounting_lines import DamagedLines
from advisor.schedulers.base import (
    Health,
    HookRequest,
    Hooks,
    JobHere,
    JobPhase,
    JobRecord,
    PlannedRun,
    RunResult,
    Scheduler,
    SweepJob,
    SweepStatus,
    Watched,
)
from advisor.schedulers.cluster import Cluster
from advisor.schedulers.command import SubmissionRefusedError, session_environment, submit
from advisor.schedulers.early import ended_early, keep_complete
from advisor.schedulers.pbs import accounting as pbs_records
from advisor.schedulers.pbs import availability
from advisor.schedulers.pbs import control as pbs_control
from advisor.schedulers.pbs.accounting_file import is_record, read_log, stream_log
from advisor.schedulers.pbs.chunks import Place, has_host_alone
from advisor.schedulers.pbs.driver import (
    Noted,
    Submitted,
    note_submitted,
    read_note,
    read_submitted,
    write_script,
)
from advisor.schedulers.pbs.inventory import hosts_of, read_cluster, read_hosts
from advisor.schedulers.pbs.qsub import default_variables
from advisor.schedulers.pbs.submit import SWEEP, cap_khz, qsub_words
from advisor.schedulers.pbs.translator import FREQ
from advisor.schedulers.results import append_result, good_run, rated, read_results
from advisor.schedulers.thread_counter import counted

AT_ONCE = 4
"""Jobs of one sweep that wait or run at the same time."""
ASK_S = 15.0
"""Least seconds between two questions about a job whose run has not ended."""
SETTLE_S = 60.0
"""How long PBS's record may lag behind a run's end before its energy counts as missing."""
VANISH_S = 10.0
"""How long a run's note may lag behind its job's end: shared file systems are late."""


class Pbs(Scheduler):
    """Runs sweeps as jobs of the user. A run that was submitted goes on without this process."""

    NAME: ClassVar[str] = "pbs"
    LABEL: ClassVar[str] = "PBS"
    DESCRIPTION: ClassVar[str] = "PBS: a job for each run, energy by the execution hook"
    RANK: ClassVar[int] = pbs.RANK
    WITHOUT_FEATURE: ClassVar[str] = "wait for ever"
    POLL_S: ClassVar[float] = 2.0
    ACCOUNTING: ClassVar[str] = "pbs"
    YEAR_COMMAND: ClassVar[str] = "cat /var/spool/pbs/server_priv/accounting/2025* > year.txt"
    ENERGY_ADVICE: ClassVar[Mapping[str, str]] = {
        "shared": "they shared nodes; submit with -l place=excl",
        "meter": "pbs_mom's log says why the hook advisor_exec measured nothing; it needs "
        "pm_counters or RAPL on the node",
    }
    SETUID_COMMANDS: ClassVar[bool] = True  # pbs_iff

    def __init__(self, root: Path = Path("/sys")) -> None:
        self._root = root
        self._asked: dict[str, float] = {}
        self._states: dict[str, JobRecord | None] = {}
        self._since: dict[tuple[int, int], float] = {}
        self._defaults: str | None = None

    # -- what there is -------------------------------------------------------------------------

    def installed(self) -> bool:
        """Tell whether PBS's commands are here."""
        return pbs.installed()

    def job_here(self) -> JobHere | None:
        """Return the job of PBS that this process runs in, or None."""
        return pbs_control.PbsJobHere.find()

    def watched(self) -> Watched:
        """Return what reads nodes, queues and limits."""
        return availability

    def health(self) -> Health:
        """Return what checks PBS's settings and hooks."""
        from advisor.schedulers.pbs import health

        return health

    def hooks(self, request: HookRequest) -> Hooks:
        """Return the hooks of PBS."""
        from advisor.schedulers.pbs.hook_side import PbsHooks

        return PbsHooks(request)

    def available(self) -> str | None:
        """Return why no job can be submitted from here, or None."""
        for program in ("qsub", "qstat", "qdel"):
            try:
                pbs_control.program(program)
            except SchedulerError as error:
                return error.message
        try:
            state = str(pbs_control.server().get("server_state", ""))
        except SchedulerError as error:
            return error.message
        return None if state in ("Active", "Scheduling", "Idle", "") else f"the server is {state}"

    def cluster(self) -> Cluster:
        """Return the complex's nodes and queues."""
        return read_cluster()

    def cluster_name(self) -> str:
        """Return the server's name."""
        try:
            return cluster_name(pbs_control.server().get("name"))
        except SchedulerError:
            return ""

    def of_cluster(self, name: str) -> None:
        """Have PBS's commands ask another server."""
        os.environ |= dict.fromkeys(pbs_control.SERVERS, name)

    def frequency_kept(self, node_type: NodeType, launcher: str) -> str:
        """Return why frequency cannot be capped: the resource and its hook are not there."""
        try:
            resources = pbs_control.custom_resources()
        except SchedulerError as error:
            return f"PBS does not tell its resources: {error.message}"
        return "" if FREQ in resources else f"PBS has no resource {FREQ} (advisor hook install)"

    def gives_whole_nodes(self, partition: str) -> bool:
        """Tell whether a queue's jobs have their hosts alone where they do not say.

        By the default place of the queue, or else of the server, and the sharing of its hosts.
        """
        try:
            server = pbs_control.server()
            queues = pbs_control.ask_json("qstat", "-Q", "-f").get("Queue", {})
            hosts = read_hosts(pbs_control.ask_json("pbsnodes", "-a", "-v"))
            name = partition or str(server.get("default_queue", ""))
            inside = hosts_of(name, queues, hosts)
            defaults = (a.get("resources_default", {}) for a in (queues.get(name, {}), server))
            place = Place.parse(next((str(d["place"]) for d in defaults if d.get("place")), ""))
        except (SchedulerError, ValueError):
            return False
        return bool(inside) and all(
            has_host_alone(place, host.sharings, parted=host.parted)
            for host in hosts
            if host.name in inside
        )

    def energy_source(self, job: SweepJob) -> str:
        """Say where the energies come from."""
        stated = job.node_type.base_power_w is not None and job.node_type.core_power_w is not None
        otherwise = "it is estimated from the site file's power" if stated else "it is not known"
        try:
            resources = pbs_control.custom_resources()
            history = pbs_control.server().get("job_history_enable", "False")
        except SchedulerError as error:
            return f"energy: PBS cannot be asked ({error.message}); else {otherwise}"
        if "energy_j" not in resources:
            return f"energy: the execution hook is not installed; {otherwise}"
        if not pbs_control.truthy(history):
            return f"energy: PBS forgets finished jobs (job_history_enable); {otherwise}"
        return "energy measured by the execution hook (energy_j), of all nodes of a run"

    # -- sweeps --------------------------------------------------------------------------------

    def submit_sweep(self, job: SweepJob) -> str:
        """Submit what is due first, the job as it is; return that job's id.

        An attempt that is queued or running already is taken over instead.
        """
        results = read_results(job.folder / "results.jsonl")
        self._adopt_unnoted_jobs(job)
        open_attempts = self._open_attempts(job, results) or self._submit_due(job, results)
        return open_attempts[-1].job_id if open_attempts else "-"

    def poll(self, job: SweepJob, handle: str) -> SweepStatus:
        """Settle the attempts that ended, submit what is due next, return all results so far."""
        results = read_results(job.folder / "results.jsonl")
        state: JobPhase = "running"
        detail = ""
        waiting = 0
        pending = self._open_attempts(job, results)
        for attempt in pending:
            result, note = self._settled_result(job, attempt)
            if result is not None:
                result = rated(job, result)
                append_result(job.folder / "results.jsonl", result)
                results.append(result)
            elif note:
                waiting += 1
                detail = note
        self._submit_due(job, results)
        if not job.open_runs(results) or self._is_hopeless(job, results):
            return SweepStatus("ended", tuple(results))
        if pending and waiting == len(pending):
            state = "queued"
        return SweepStatus(state, tuple(results), detail)

    def cancel(self, job: SweepJob, handle: str) -> None:
        """Delete the jobs that have not ended; what they finished stays."""
        self._adopt_unnoted_jobs(job)
        results = read_results(job.folder / "results.jsonl")
        for attempt in self._open_attempts(job, results):
            try:
                pbs_control.ask("qdel", attempt.job_id)
            except SchedulerError as error:
                if "has finished" not in error.message and "Unknown Job Id" not in error.message:
                    raise

    def _open_attempts(self, job: SweepJob, results: Sequence[RunResult]) -> list[Submitted]:
        """Return the attempts that were submitted and are not settled."""
        settled = {(r.seq, r.attempt) for r in results}
        submitted = {(s.seq, s.attempt): s for s in read_submitted(job.folder)}
        return [s for key, s in submitted.items() if key not in settled]

    def _is_hopeless(self, job: SweepJob, results: Sequence[RunResult]) -> bool:
        """Tell whether the job as it is does not run: then the others are worth nothing."""
        first = job.runs[0]
        return first.role == "baseline" and job.given_up(first, results)

    def _submit_due(self, job: SweepJob, results: Sequence[RunResult]) -> list[Submitted]:
        """Submit attempts as far as they may be at work at once; the job as it is goes first."""
        pending = self._open_attempts(job, results)
        due = job.open_runs(results)
        first = job.runs[0]
        if first.role == "baseline" and first in due:
            due = [first]
        if self._is_hopeless(job, results):
            due = []
        busy = {s.seq for s in pending}
        for run in due:
            if run.seq in busy or len(pending) >= AT_ONCE:
                continue
            attempt = 1 + sum(r.seq == run.seq for r in results)
            job_id = self._qsub(job, run, attempt)
            note_submitted(job.folder, run.seq, attempt, job_id)
            pending.append(Submitted(run.seq, attempt, job_id))
        return pending

    def _adopt_unnoted_jobs(self, job: SweepJob) -> None:
        """Find jobs of this stage that a process killed right after qsub did not note."""
        noted_ids = {s.job_id for s in read_submitted(job.folder)}
        if not (job.folder / "submitting").exists():
            return
        for job_id, attributes in pbs_records.read_jobs().items():
            words = pbs_records.variables(attributes).get(SWEEP, "").split("/")
            if words[:2] != [job.id, job.stage] or len(words) != 4 or job_id in noted_ids:
                continue
            if words[2].isdecimal() and words[3].isdecimal():
                note_submitted(job.folder, int(words[2]), int(words[3]), job_id)
        (job.folder / "submitting").unlink(missing_ok=True)

    def _qsub(self, job: SweepJob, run: PlannedRun, attempt: int) -> str:
        script = write_script(job, run, attempt, cap_khz(job, run), self._root)
        argv = [
            pbs_control.program("qsub"),
            *qsub_words(job, run, attempt, self._default_variables()),
            *("-o", str(job.folder / "output" / f"job-{run.seq}-{attempt}.log")),
            str(script),
        ]
        # Until its id is noted: after a kill in between, _adopt_unnoted_jobs looks for the job.
        (job.folder / "submitting").touch()
        try:
            return submit(argv, _environment()).split()[0]
        except SubmissionRefusedError:
            (job.folder / "submitting").unlink(missing_ok=True)
            raise

    def _default_variables(self) -> str:
        """Return what the server passes to a job without ``-v``, and a sweep's ``-v`` would keep
        from its runs. Raises SchedulerError where that cannot be known."""
        if self._defaults is None:
            try:
                self._defaults = default_variables(pbs_control.server())
            except ValueError as error:
                raise SchedulerError(str(error), hint="advisor doctor says what to do") from None
        return self._defaults

    # -- results -------------------------------------------------------------------------------

    def _settled_result(self, job: SweepJob, attempt: Submitted) -> tuple[RunResult | None, str]:
        """Return an attempt's result, or None and why it waits ("" when it runs)."""
        noted = read_note(job.folder, attempt.seq, attempt.attempt)
        record = self._record(attempt, eager=noted is not None)
        has_ended = record is None or record.finished
        key = (attempt.seq, attempt.attempt)
        if noted is None:
            if not has_ended:
                assert record is not None
                queued = record.state == "PENDING"
                return (
                    None,
                    f"job {attempt.job_id} is queued{_comment_of(record)}" if queued else "",
                )
            if time.monotonic() - self._since.setdefault(key, time.monotonic()) < VANISH_S:
                return None, ""
            why = f"job {attempt.job_id} ended without a run{_comment_of(record)}"
            return _failed_result(job, attempt, None, why), ""
        if not has_ended or record is None:
            waited = time.monotonic() - self._since.setdefault(key, time.monotonic())
            if waited < SETTLE_S and not (record is None and self._forgets_jobs()):
                return None, ""
        if noted.verdict == "early":
            run = RunResult(
                attempt.seq, attempt.attempt, False, noted.time_s, job_id=attempt.job_id
            )
            return ended_early(job, run), ""
        if noted.verdict != "ok" or noted.time_s <= 0:
            return _failed_result(job, attempt, noted, _why_failed(job, attempt, noted)), ""
        result = _good_result(job, attempt, noted, record)
        keep_complete(job, result)
        return result, ""

    def _record(self, attempt: Submitted, *, eager: bool) -> JobRecord | None:
        """Return what PBS says of a job, asked now and then; None when it knows nothing."""
        now_s = time.monotonic()
        last = self._asked.get(attempt.job_id, -math.inf)
        last_record = self._states.get(attempt.job_id)
        if last_record is not None and (
            last_record.finished or (not eager and now_s - last < ASK_S)
        ):
            return last_record
        if last_record is None or now_s - last >= min(1.0, ASK_S):
            self._asked[attempt.job_id] = now_s
            self._states[attempt.job_id] = pbs_records.job(attempt.job_id)
        return self._states[attempt.job_id]

    def _forgets_jobs(self) -> bool:
        """Tell whether the server keeps no finished jobs."""
        return not pbs_control.truthy(pbs_control.server().get("job_history_enable", "False"))

    # -- accounting ----------------------------------------------------------------------------

    def read_accounting(self, path: Path, text: str) -> tuple[list[JobRecord], int]:
        """Return the jobs of an accounting log."""
        return read_log(path, text)

    def writes_accounting(self, first_line: str) -> bool:
        """Tell whether a line is a record of PBS's log."""
        return is_record(first_line)

    def stream_accounting(self, path: Path, damaged: DamagedLines) -> Iterator[JobRecord]:
        """Yield the jobs of an accounting log's E records."""
        return stream_log(path, damaged)

    def finished_jobs(self, since: str) -> list[JobRecord]:
        """Return the jobs that ended since a time."""
        if self._forgets_jobs():
            raise SchedulerError(
                "PBS forgets jobs as they end", hint='qmgr -c "set server job_history_enable=True"'
            )
        return pbs_records.finished_jobs(since)

    def unfinished_jobs(self) -> list[JobRecord]:
        """Return the jobs that wait or run."""
        return pbs_records.unfinished_jobs()

    def job(self, job_id: str) -> JobRecord | None:
        """Return one job's record, None when unknown."""
        return pbs_records.job(job_id)


def _good_result(
    job: SweepJob, attempt: Submitted, noted: Noted, record: JobRecord | None
) -> RunResult:
    account, energy_j, why = "", None, "PBS keeps no record of it"
    if record is not None:
        account, energy_j, why = record.account, record.energy_j, "no energy_j of all its nodes"
    run = RunResult(
        attempt.seq,
        attempt.attempt,
        True,
        noted.time_s,
        job_id=attempt.job_id,
        account=account,
        thread_use=counted(job.folder / "runs" / f"{attempt.seq}-{attempt.attempt}.threads"),
    )
    return good_run(job, run, energy_j, "pbs", why)


def _failed_result(job: SweepJob, attempt: Submitted, noted: Noted | None, why: str) -> RunResult:
    late = noted is not None and noted.verdict in ("late", "uncapped")
    return RunResult(
        attempt.seq,
        attempt.attempt,
        False,
        noted.time_s if noted is not None else None,
        job_id=attempt.job_id,
        detail=why,
        final=late,
    )


def _why_failed(job: SweepJob, attempt: Submitted, noted: Noted) -> str:
    if noted.verdict == "uncapped":
        has = f"at most {noted.highest_khz} kHz held" if noted.highest_khz else "it has no cpufreq"
        return f"the node did not take the cap ({has}): is the execution hook installed?"
    if noted.verdict == "lost":
        return f"the node cannot enter {job.working_folder}"
    output = job.output(attempt.seq, attempt.attempt)
    if noted.verdict == "late":
        return f"stopped after its limit of {job.run_limit_s:.0f} s; output in {output}"
    return f"exit code {noted.code}; output in {output}"


def _comment_of(record: JobRecord | None) -> str:
    return f": {record.comment}" if record is not None and record.comment else ""


def _environment() -> dict[str, str]:
    """Return qsub's environment: this session's, without what only belongs to a job."""
    session = session_environment()
    return {k: v for k, v in session.items() if not k.startswith("PBS_O_") and k != "PBS_JOBID"}
