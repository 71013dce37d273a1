"""What the daemon hands on instead of doing itself: what users measured, sweeps to start.

Runs and characterisations become one file each in a spool folder, so that nothing is lost whatever
happens to the child that stores them (``advisor collect --spool``); sweeps are started as the
job's own user. Both happen in one background thread, never on the way of an answer.
"""

from __future__ import annotations

import json
import logging
import math
import os
import pwd
import queue
import shlex
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from advisor.core.decision import Decision
from advisor.core.delivery import (
    DeliveryKind,
    delivered_runs,
    move_waiting,
    own_folder,
    write_spool_file,
)
from advisor.core.inventory import Inventory
from advisor.core.protocol import ProtocolError
from advisor.errors import AdvisorError, InputError
from advisor.interpreter import absolute_only, own_environment, own_python
from advisor.schedulers.translators import translator
from advisor.service.peer import groups_of
from advisor.service.scopes import move_to_scope
from advisor.service.untaken import Untaken

log = logging.getLogger("advisor.serve")

MAX_SWEEPS = 4
"""Sweeps the daemon has under way at once; further ones wait for a later job."""

_PREFIX, _FORGOTTEN_S = "advisor-train-", 7 * 86400.0
"""Folders of sweeps, and when one is nobody's any more."""

_LOOK_S = 30.0
"""How often is looked whether a sweep has ended."""

_AGAIN_S = 3600.0
"""An application whose sweep could not be started is not tried again for so long."""
_MOST_ASKED = 1000
"""Applications whose sweeps are asked for in that time."""


class Spool:
    """A folder of files to be taken into the store, and a thread that sees to it."""

    def __init__(self, folder: Path, store: Path, socket: Path, config: Path | None = None) -> None:
        self.folder = folder
        self._untaken = Untaken(folder)
        self._store = store
        self._config = config
        self._socket = socket
        self._places = threading.Lock()
        """Held by who leaves a file, and while all of them move."""
        self._work: queue.Queue[tuple[str, dict[str, object]]] = queue.Queue(maxsize=1000)
        self._asked: dict[tuple[str, str], float] = {}
        self._collects = False
        """A collection is asked for that has not begun: it takes all that waits."""
        self._sweeps: list[_AutoSweep] = []
        threading.Thread(target=self._run_jobs, name="spool", daemon=True).start()

    def follow(self, folder: Path, store: Path) -> None:
        """Go on in another folder, for the store that this one's was moved to."""
        with self._places:
            former, self._store = self.folder, store
            try:
                move_waiting(former, own_folder(folder))
            except AdvisorError as error:  # they stay where they are, and so does what comes
                log.error("event=spool-stays error=%r", str(error))
                return
            self.folder, self._untaken = folder, Untaken(folder)
        self._put_job("collect", {})

    @property
    def waiting(self) -> int:
        """Files that wait to be taken."""
        return self._untaken.waiting()

    def put_runs(self, request: Mapping[str, object], contributor: str, uid: int) -> int:
        """Keep a user's measured runs; return how many.

        Raises ProtocolError on bad ones, and AdvisorError where too many of this user wait.
        """
        data = delivered_runs(request, contributor)
        runs = data["observations"]
        assert isinstance(runs, list)
        self._keep_delivery(data, "runs", uid, len(runs))
        return len(runs)

    def put_phases(
        self, request: Mapping[str, object], contributor: str, uid: int, inventory: Inventory
    ) -> None:
        """Keep what a user characterised. Raises AdvisorError where it makes no sense.

        Its node type must be one of the site's, if those are known.
        """
        from advisor.core.codec import FieldError
        from advisor.ranking.streams import at_site, read_sent
        from advisor.store.rows import check_name

        try:
            characterisation = read_sent(request.get("characterisation"))
        except FieldError as error:
            key = f"characterisation.{error.key}".rstrip(".")
            raise ProtocolError(f"{key}: {error}") from None
        for what in ("application", "workload", "node_type"):
            check_name(what.replace("_", " "), getattr(characterisation, what))
        try:
            characterisation = at_site(characterisation, inventory)
        except InputError as error:
            raise ProtocolError(f"{error.message}; {error.hint}") from None
        data = {"contributor": contributor, "characterisation": characterisation.to_dict()}
        self._keep_delivery(data, "phases", uid, 1)

    def put_profiles(
        self, request: Mapping[str, object], contributor: str, uid: int, inventory: Inventory
    ) -> None:
        """Keep profiles of a user's own kernels. Raises AdvisorError where they make no sense.

        Their node type must be one of the site's, if those are known.
        """
        from advisor.core.codec import FieldError
        from advisor.ranking.kernels import read_sent_profiles
        from advisor.store.rows import check_name

        try:
            sent = read_sent_profiles(request)
        except FieldError as error:
            raise ProtocolError(f"{error.key}: {error}".removeprefix(": ")) from None
        check_name("node type", sent.node_type)
        if inventory.node_types and inventory.resolve(sent.node_type) is None:
            raise ProtocolError(f"the site has no node type {sent.node_type}")
        self._keep_delivery({"contributor": contributor, **sent.to_dict()}, "profiles", uid, 1)

    def _keep_delivery(
        self, data: Mapping[str, object], kind: DeliveryKind, uid: int, count: int
    ) -> None:
        text = json.dumps(data)
        with self._places:
            self._untaken.check(uid, count, len(text))
            path = write_spool_file(self.folder, text, kind, f"-u{uid}-n{count}")
            self._untaken.add(path.name, len(text))
        if not self._collects:
            self._collects = True
            self._put_job("collect", {})

    def want_training(self, decision: Decision, request: Mapping[str, object], uid: int) -> None:
        """Start a sweep for a job's application as the job's user, if that is possible."""
        key = (decision.application, decision.workload)
        now = time.monotonic()
        job_request = decision.request
        if job_request is None or now - self._asked.get(key, -math.inf) < _AGAIN_S:
            return
        self._asked = {k: asked_s for k, asked_s in self._asked.items() if now - asked_s < _AGAIN_S}
        if len(self._asked) >= _MOST_ASKED:
            log.warning("event=no-training reason=too-many-asked user=%s", decision.user)
            return
        self._asked[key] = now
        if os.geteuid() not in (0, uid):
            log.warning("event=no-training reason=not-root user=%s", decision.user)
            return
        # What was not sent whole, or came through qsub's client with its options in front, is read
        # by the user's own process, where it lies.
        lies_there = job_request.script_truncated or job_request.fingerprint
        script = None if lies_there else job_request.script
        job: dict[str, object] = {
            "scheduler": decision.scheduler,
            "script": script,
            "path": job_request.script_path,
            "arguments": list(job_request.command[1:]),
            "options": _sweep_options(decision.scheduler, request.get("options")),
            "uid": uid,
            "cwd": str(request.get("cwd") or "/"),
        }
        self._put_job("train", job)

    def _put_job(self, kind: str, job: dict[str, object]) -> None:
        try:
            self._work.put_nowait((kind, job))
        except queue.Full:
            log.error("event=spool-busy kind=%s", kind)

    def _run_jobs(self) -> None:
        remove_forgotten()
        while True:
            try:
                kind, job = self._work.get(timeout=_LOOK_S)
            except queue.Empty:
                kind, job = "look", {}
            try:
                self._sweeps = [sweep for sweep in self._sweeps if sweep.runs()]
                if kind == "collect":
                    self._collects = False
                    self._collect()
                elif kind == "train":
                    self._train(job)
            except (OSError, KeyError, subprocess.SubprocessError) as error:
                log.error("event=spool-failed kind=%s error=%r", kind, str(error))

    def _collect(self) -> None:
        command = own_python(
            "advisor",
            "collect",
            "--spool",
            "--db",
            str(self._store.absolute()),
            *([] if self._config is None else ["--config-dir", str(self._config.absolute())]),
        )
        with subprocess.Popen(
            command,
            cwd="/",
            env=own_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        ) as process:
            _move(process, "collect", 0)
            try:
                # What one that is ended did not store lies there for the next.
                _, errors = process.communicate(timeout=600)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        if process.returncode not in (0, 3):  # 3: there was nothing to take
            log.error("event=collect-failed error=%r", errors.strip()[-500:])

    def _train(self, job: Mapping[str, Any]) -> None:
        if len(self._sweeps) >= MAX_SWEEPS:
            log.warning("event=no-training reason=too-many-sweeps running=%d", len(self._sweeps))
            return
        uid = int(str(job["uid"]))
        entry = pwd.getpwuid(uid)
        if any(sweep.user == entry.pw_name for sweep in self._sweeps):
            log.warning("event=no-training reason=one-at-a-time user=%s", entry.pw_name)
            return
        gid, groups = groups_of(uid)
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        script = folder / "job.sh" if job["script"] is not None else Path(job["path"])
        if job["script"] is not None:
            script.write_text(job["script"], encoding="utf-8", errors="surrogateescape")
        environment = {
            # Nothing of the daemon's own environment: it would change what is measured, and some
            # of it may not be for users.
            "HOME": entry.pw_dir,
            "USER": entry.pw_name,
            "LOGNAME": entry.pw_name,
            "PATH": absolute_only(os.environ.get("PATH", "")) or "/usr/bin:/bin",
            "ADVISOR_SOCKET": str(self._socket),
        }
        settings = translator(job["scheduler"]).SETTINGS
        environment |= {name: os.environ[name] for name in settings if name in os.environ}
        command = own_python(  # goes into the user's folder once it is the user: that is their word
            "advisor",
            "train",
            str(script),
            "--yes",
            "--complete",  # nobody has agreed to files that end early
            "--scheduler",
            job["scheduler"],
            f"--options={job['options']}",
            "--for-daemon",  # the store is closed to its user, who may have another
            "--",
            *job["arguments"],
            folder=str(job["cwd"]),
        )
        as_user: dict[str, Any] = {}
        if os.geteuid() == 0:
            as_user = {"user": uid, "group": gid, "extra_groups": groups}
        output = (folder / "train.log").open("w+b")
        if os.geteuid() == 0:  # the folder last: once it is theirs, links may lie in it
            for path in (*folder.iterdir(), folder):
                os.chown(path, uid, gid)
        try:
            process = subprocess.Popen(
                command,
                env=environment,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # A signal to the daemon's group must not end a user's sweep.
                start_new_session=True,
                **as_user,
            )
        except (OSError, subprocess.SubprocessError):
            output.close()
            _remove_folder(folder, as_user)
            raise
        _move(process, "train", uid)
        log.info("event=training-started user=%s log=%s", entry.pw_name, folder / "train.log")
        self._sweeps.append(_AutoSweep(process, folder, output, as_user, entry.pw_name))


@dataclass(slots=True)
class _AutoSweep:
    """A sweep under way as its user, with a folder for its script and its log."""

    process: subprocess.Popen[bytes]
    folder: Path
    output: BinaryIO
    as_user: Mapping[str, Any]
    user: str

    def runs(self) -> bool:
        """Tell whether it still runs; once it has ended, say how it ended and remove its folder.

        Its results were sent before it ended. The log is read where it was opened: another file
        may lie in its place by now.
        """
        code = self.process.poll()
        if code is None:
            return True
        with self.output as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 500))
            lines = file.read(500).decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        log.log(
            logging.WARNING if code else logging.INFO,
            "event=training-ended user=%s code=%d last=%r",
            self.user,
            code,
            last,
        )
        _remove_folder(self.folder, self.as_user)
        return False


def remove_forgotten() -> None:
    """Remove folders of sweeps that outlived their daemon, a week after anything changed there."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError, KeyError):
            status = folder.lstat()
            if not stat.S_ISDIR(status.st_mode) or time.time() - status.st_mtime < _FORGOTTEN_S:
                continue
            as_user: dict[str, Any] = {}
            if os.geteuid() == 0:
                gid, groups = groups_of(status.st_uid)
                as_user = {"user": status.st_uid, "group": gid, "extra_groups": groups}
            if os.geteuid() in (0, status.st_uid):
                _remove_folder(folder, as_user)


def _remove_folder(folder: Path, as_user: Mapping[str, Any]) -> None:
    """Empty a sweep's folder as the user it belongs to: nothing of anybody else's can go."""
    try:
        subprocess.run(
            ["rm", "-rf", "--one-file-system", "--", str(folder)],
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
            **as_user,
        )
        with suppress(FileNotFoundError):
            folder.rmdir()
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("event=not-removed folder=%s error=%r", folder, str(error))


def _move(process: subprocess.Popen[Any], purpose: str, uid: int) -> None:
    why_not = move_to_scope(process.pid, purpose, uid)
    if why_not:
        log.warning("event=no-scope of=%s uid=%d error=%r", purpose, uid, why_not[-200:])


def _sweep_options(scheduler: str, options: object) -> str:
    """Return those of a job's own options that bear on what its sweep measures, as typed."""
    if not isinstance(options, Mapping):
        return ""
    language = translator(scheduler)
    # a script states its own variables
    left_out = language.NOT_SWEPT - {language.TIME_LIMIT} | {"variables"}
    own_options = {k: v for k, v in options.items() if k not in left_out and isinstance(v, str)}
    words = [w for words in language.written(own_options) for w in words]
    return shlex.join(w.removesuffix("=") if w.startswith("--") else w for w in words)
