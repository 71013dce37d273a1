"""Submits each shape twice, keeps what the controller took down, and runs what must run.

While the controller starts nothing, all shapes of one site state are submitted without and with
the advisor. Where record, script and environment of both jobs are the same, nothing more can
differ and both are cancelled; all others run to their end, many at once.
"""

from __future__ import annotations

import json
import pwd
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed import TestbedError
from testbed.client import Client

from .cluster import Cluster
from .shapes import Shape

SIDES = ("off", "on")
PLANS = frozenset({"ADVISOR_PLAN", "SLURM_ADVISOR_PLAN"})
CHUNK = 100
#: A job that nothing but its own request keeps from starting has started after so long.
SETTLE_S = 3.0
LIMIT_S = 240.0
#: `sbatch --wait` looks for its job's end ever more seldom: it may notice that so late.
END_S = 90.0
#: A user whom the daemon refuses is at most so long in its debt.
REFUSED_S = 10.0
REFUSED_TRIES = 4
SEPARATOR = "\x1f"
SACCT = (
    "JobIDRaw,JobName,State,ExitCode,NNodes,NCPUS,NTasks,NodeList,AllocTRES,ReqCPUFreqMin,"
    "ReqCPUFreqMax,ReqCPUFreqGov,Submit"
)
Record = dict[str, str]


@dataclass
class Tried:
    """One submission of a shape: what sbatch answered, what was taken down, what ran."""

    shape: Shape
    side: str
    folder: Path
    stamped: bool = False
    """Whether the advisor owes its jobs a stamp: it was asked, and the job has an environment."""
    returncode: int = 0
    stdout: str = ""
    stderr: str = ""
    process: subprocess.Popen[str] | None = None
    submitted: list[Record] = field(default_factory=list)
    """The controller's records before anything ran."""
    environments: list[dict[str, str]] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    ended: list[Record] = field(default_factory=list)
    """The controller's records at the end, children included."""
    steps: list[Record] = field(default_factory=list)
    reports: list[dict[str, Any]] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)

    @property
    def planned(self) -> bool:
        """Whether a job of it carries a plan for its steps: only their run shows what that does."""
        return any(not PLANS.isdisjoint(variables) for variables in self.environments)

    @property
    def has_stamps(self) -> bool:
        """Whether its jobs have the stamps that the advisor owes them."""
        return not self.stamped or all(
            record.get("AdminComment", "").startswith("advisor:") for record in self.submitted
        )

    @property
    def ids(self) -> list[str]:
        """The ids of its jobs, in order."""
        records = self.ended or self.submitted
        return sorted({r["JobId"] for r in records}, key=int)


@dataclass
class Pair:
    """Both submissions of one shape."""

    shape: Shape
    off: Tried
    on: Tried
    ran: bool = False


class Trial:
    """Tries shapes on a cluster.

    With `blank` both submissions are without the advisor and all run to their end: what differs
    then is the trial's own fault.
    """

    def __init__(self, cluster: Cluster, *, blank: bool = False) -> None:
        self.cluster, self.testbed, self.blank = cluster, cluster.testbed, blank

    def run(self, shapes: Iterable[Shape]) -> list[Pair]:
        """Submit each shape twice and return both, in the order of `shapes`.

        All are one user's, of whom the daemon refuses to decide more in a moment than its processor
        allows. Such a job goes unadvised and tells nothing: it is tried again once that is over.
        """
        wanted = list(shapes)
        refusals = self.cluster.site.refusals()
        pairs = self._run(wanted)
        for _ in range(REFUSED_TRIES):
            unstamped = [number for number, pair in enumerate(pairs) if not pair.on.has_stamps]
            before, refusals = refusals, self.cluster.site.refusals()
            if not unstamped or refusals == before:
                break
            time.sleep(REFUSED_S)
            again = self._run([wanted[number] for number in unstamped])
            for number, pair in zip(unstamped, again, strict=True):
                pairs[number] = pair
        return pairs

    def _run(self, wanted: Sequence[Shape]) -> list[Pair]:
        order = {id(shape): at for at, shape in enumerate(wanted)}
        by_state: dict[str, list[Shape]] = {}
        for shape in wanted:
            by_state.setdefault(shape.state, []).append(shape)
        pairs: list[Pair] = []
        for state, members in sorted(by_state.items()):
            self.cluster.enter(state)
            for chunk in chunks(s for s in members if not s.alone):
                pairs += self._at_once(chunk)
            pairs += [self._in_turn(shape) for shape in members if shape.alone]
        return sorted(pairs, key=lambda pair: order[id(pair.shape)])

    def _at_once(self, shapes: Sequence[Shape]) -> list[Pair]:
        from .compare import same_records

        folders = [self._folder() for shape in shapes]
        every = self._queue(
            [(s, f / side) for s, f in zip(shapes, folders, strict=True) for side in SIDES]
        )
        pairs = [
            Pair(s, off, on) for s, off, on in zip(shapes, every[::2], every[1::2], strict=True)
        ]
        for pair in pairs:
            accepted = pair.off.returncode == pair.on.returncode == 0
            needed = self.blank or pair.shape.always or pair.on.planned
            needed = needed or not same_records(pair.off, pair.on)
            pair.ran = accepted and needed
        idle = [i for pair in pairs if not pair.ran for t in (pair.off, pair.on) for i in t.ids]
        self._cancel(idle)
        self._finish([tried for pair in pairs if pair.ran for tried in (pair.off, pair.on)])
        return pairs

    def _in_turn(self, shape: Shape) -> Pair:
        """Try a shape that others beside it would change: one side ends before the other begins.

        A script that waits for nodes while it has some could wait for another such job, a job it
        submits could wait behind one that never starts, and `-N 1-4` takes the nodes that are free.
        """
        folder = self._folder()
        sides = []
        for side in SIDES:
            self._wait_for_nodes()
            sides += self._queue([(shape, folder / side)])
            self._finish(sides[-1:])
        off, on = sides
        return Pair(shape, off, on, ran=off.returncode == on.returncode == 0)

    def _folder(self) -> Path:
        folder = Path(tempfile.mkdtemp(dir=self.cluster.work, prefix="shape-"))
        folder.chmod(0o755)
        return folder

    def _queue(self, wanted: Sequence[tuple[Shape, Path]]) -> list[Tried]:
        """Submit while nothing starts; return what was taken down of each, in order.

        What started all the same, as a controller does that stood still, has nodes in its record,
        which are no difference: then all are submitted once more, and compared as they are.
        """
        from .compare import nodes_of

        for again in (False, True):
            self.cluster.pause()
            every = [self._submit(shape, folder) for shape, folder in wanted]
            self._wait_for_queue(every)
            self._take_down(every)
            started = any(nodes_of(record) for tried in every for record in tried.submitted)
            if again or not started:
                for tried in every:
                    self._then(tried)
                break
            self._cancel([i for tried in every for i in tried.ids])
            self._wait_for_nodes()
            for tried in every:
                if tried.process is not None:
                    tried.process.communicate()
            # a job is known by its folder, and those that were cancelled are still known
            fresh = {folder.parent: self._folder() for _, folder in wanted}
            wanted = [(shape, fresh[folder.parent] / folder.name) for shape, folder in wanted]
        return every

    def _finish(self, run: Sequence[Tried]) -> None:
        """Let what is queued run to its end."""
        self.cluster.resume()
        self._wait_for_end(run)
        self._collect(run)

    # Submission

    def _submit(self, shape: Shape, folder: Path) -> Tried:
        side = folder.name
        folder.mkdir()
        account = pwd.getpwnam(shape.user)
        for name in (".reports", "job.sh"):
            (folder / name).touch()
        (folder / "job.sh").write_text(script_text(shape))
        (folder / "job.sh").chmod(0o755)
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, account.pw_uid, account.pw_gid)
        left_out = self.blank or shape.blocking or ":" in shape.options
        asked = side == "on" and not left_out
        tried = Tried(shape, side, folder, stamped=asked)
        command, text = command_of(shape)
        process = subprocess.Popen(
            command,
            env=self._environment(shape, side),
            cwd=folder,
            text=True,
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        if shape.blocking:
            assert process.stdin is not None
            process.stdin.close()
            process.stdin = None
            tried.process = process
        else:
            tried.stdout, tried.stderr = process.communicate(text, timeout=60)
            tried.returncode = process.returncode
        return tried

    def _environment(self, shape: Shape, side: str) -> dict[str, str]:
        """The environment of a user who has set nothing but what the shape says."""
        known = self.testbed.env(shape.user)
        kept = {n: known[n] for n in ("SLURM_CONF", "PATH", "HOME", "USER", "LOGNAME")}
        off = {"ADVISOR": "off"} if side == "off" or self.blank else {}
        own = self.cluster.environment(shape.state)
        return {**kept, "LANG": "C.UTF-8", **own, **shape.environment, **off}

    def _wait_for_queue(self, every: Sequence[Tried]) -> None:
        """Wait until each command that stays with its job has brought it to the controller."""
        end = time.monotonic() + 30
        waiting = [tried for tried in every if tried.process is not None]
        while waiting and time.monotonic() < end:
            jobs = self._jobs()
            waiting = [
                t
                for t in waiting
                if t.process is not None and t.process.poll() is None and not _own(jobs, t)
            ]
            if waiting:
                time.sleep(0.1)

    def _take_down(self, every: Sequence[Tried]) -> None:
        jobs = self._jobs()
        kept = {p.name: p for p in self.testbed.directory.glob("state/hash.*/job.*")}
        for tried in every:
            tried.submitted = _own(jobs, tried)
            for number in tried.ids:
                folder = kept.get(f"job.{number}")
                if folder is None:  # srun's and salloc's have neither environment nor script there
                    continue
                words = (folder / "environment").read_bytes()[4:].split(b"\0")
                lines = [w.decode(errors="replace") for w in words if b"=" in w]
                tried.environments.append(dict(line.split("=", 1) for line in lines))
                tried.scripts.append((folder / "script").read_text(errors="replace"))

    def _then(self, tried: Tried) -> None:
        for command in tried.shape.then:
            words = command.replace("JOB", (tried.ids or ["0"])[0]).split()
            done = self.testbed.run(words, check=False, user=tried.shape.user)
            tried.stderr += done.stderr

    # The end

    def _jobs(self) -> list[Record]:
        done = self.testbed.run(["scontrol", "show", "job", "-d", "-o"], check=False)
        return [_record(line) for line in done.stdout.splitlines() if line.startswith("JobId=")]

    def _cancel(self, ids: Sequence[str]) -> None:
        for at in range(0, len(ids), 500):
            self.testbed.run(["scancel", *ids[at : at + 500]], check=False)

    def _queued(self) -> str:
        """Return the users' jobs that hold or want nodes: number, state and reason of each."""
        users = f"--user={','.join(self.cluster.users)}"
        return self.testbed.run(["squeue", "-h", "-r", "-o", "%i %T %r", users]).stdout

    def _wait_for_nodes(self) -> None:
        """Wait until the jobs before, cancelled where they had no end, have given back all."""
        end = time.monotonic() + END_S
        while queue := self._queued().strip():
            if time.monotonic() > end:
                raise TestbedError(f"jobs that do not end:\n{queue}")
            time.sleep(0.1)

    def _wait_for_end(self, run: Sequence[Tried]) -> None:
        """Wait until all have ended, or only such wait as nothing that runs keeps from starting."""
        end = time.monotonic() + LIMIT_S
        before, since = "", time.monotonic()
        while time.monotonic() < end:
            queue = self._queued()
            if not queue.strip() and all(
                t.process is None or t.process.poll() is not None for t in run
            ):
                return
            if queue != before:
                before, since = queue, time.monotonic()
            moving = re.search("RUNNING|COMPLETING|CONFIGURING|None$|BeginTime", queue, re.M)
            if time.monotonic() - since > (30.0 if moving else SETTLE_S):
                return
            time.sleep(0.2)
        raise TestbedError(f"jobs without an end:\n{before}")

    def _collect(self, run: Sequence[Tried]) -> None:
        jobs = self._jobs()
        for tried in run:
            tried.ended = _own(jobs, tried)
        ids = sorted({i for tried in run for i in tried.ids}, key=int)
        self._cancel(ids)
        for tried in run:
            if tried.process is not None:
                try:
                    tried.stdout, tried.stderr = tried.process.communicate(timeout=END_S)
                except subprocess.TimeoutExpired:
                    tried.process.kill()
                    tried.stdout, tried.stderr = tried.process.communicate()
                tried.returncode = tried.process.returncode
        rows = accounting(self.testbed, [r for tried in run for r in tried.ended])
        for tried in run:
            mine = {record["JobId"] for record in tried.ended}
            tried.steps = [row for row in rows if row["JobIDRaw"].split(".")[0] in mine]
            tried.reports = [
                json.loads(line)
                for line in (tried.folder / ".reports").read_text().splitlines()
                if line.startswith("{")
            ]
            paths = {r.get("StdOut", "") for r in tried.ended if r.get("BatchFlag") == "1"}
            tried.outputs = [
                Path(p).read_text(errors="replace") for p in sorted(paths) if Path(p).is_file()
            ]


def accounting(testbed: Client, ended: Sequence[Record]) -> list[Record]:
    """Return the rows of jobs and steps, once there is the end of each that ran.

    The accounting may have the end of a job before that of its steps.
    """
    if not ended:
        return []
    ids = ",".join(sorted({record["JobId"] for record in ended}))
    command = ["sacct", "-n", "-P", f"--delimiter={SEPARATOR}", "-j", ids, "-o", SACCT]
    ran = {r["JobId"] for r in ended if r["JobState"] != "PENDING"}
    end = time.monotonic() + 30
    while True:
        done = testbed.run(command)
        rows = [
            dict(zip(SACCT.split(","), line.split(SEPARATOR), strict=True))
            for line in done.stdout.splitlines()
        ]
        going_on = {
            r["JobIDRaw"].split(".")[0] for r in rows if r["State"] in ("RUNNING", "PENDING")
        }
        complete = ran <= {r["JobIDRaw"] for r in rows} and not ran & going_on
        if complete or time.monotonic() > end:
            return rows
        time.sleep(0.3)


def chunks(shapes: Iterable[Shape]) -> list[list[Shape]]:
    """Cut shapes into what is tried at once."""
    every = list(shapes)
    return [every[at : at + CHUNK] for at in range(0, len(every), CHUNK)]


def _record(line: str) -> Record:
    """Return the fields of one line of `scontrol show job -o`; a stamp may hold what looks so."""
    stamp = re.search(r" AdminComment=(advisor:.*?\}) +(?=[A-Z][A-Za-z]+=)", line)
    if stamp:
        line = line.replace(stamp[0], " ")
    fields = dict(re.findall(r"(?:^| )([A-Za-z_/:]+)=(.*?) *(?= [A-Za-z_/:]+=|$)", line))
    return {**fields, "AdminComment": stamp[1] if stamp else fields.get("AdminComment", "")}


def _own(jobs: Iterable[Record], tried: Tried) -> list[Record]:
    found = [j for j in jobs if Path(j.get("WorkDir", "/")).is_relative_to(tried.folder)]
    return sorted(found, key=lambda j: int(j["JobId"]))


def script_text(shape: Shape) -> str:
    """Return the text of a shape's job script."""
    lines = [f"#!{shape.script.shell}"]
    if shape.via == "directives":
        lines += [f"#SBATCH {option}" for option in shape.options]
    return "\n".join([*lines, shape.script.text, ""])


def command_of(shape: Shape) -> tuple[list[str], str]:
    """Return the command that submits a shape, and what it reads from its standard input."""
    options, arguments = list(shape.options), list(shape.arguments)
    if shape.via == "file":
        return ["sbatch", *options, "job.sh", *arguments], ""
    if shape.via == "directives":
        return ["sbatch", "job.sh", *arguments], ""
    if shape.via == "stdin":
        return ["sbatch", *options], script_text(shape)
    if shape.via == "wrap":
        return ["sbatch", *options, f"--wrap={shape.script.text}"], ""
    if shape.via == "merged":
        submit = shlex.join(["sbatch", "--parsable", *options, "job.sh"])
        after = "sbatch --parsable -n1 -C broadwell --dependency=afterany:$jobid --wrap='srun post'"
        return ["sh", "-c", f'jobid=$({submit} 2>&1); echo "$jobid"; {after}'], ""
    if shape.via == "srun":
        words = shlex.split(shape.script.text)
        return ["srun", *options, *(words[1:] if words[0] == "srun" else words)], ""
    if shape.via == "salloc":
        return ["salloc", *options, "./job.sh", *arguments], ""
    raise ValueError(shape.via)
