"""Take what users left with the daemon, runs and characterisations, into the store.

The files are the daemon's own (``advisor/service/spool.py``): whose they are comes from
the socket's peer and is believed; everything else in them is the user's word and is checked. A
file goes when its content is in the store, and running this twice stores nothing twice.
"""

from __future__ import annotations

import fcntl
import json
import logging
import math
import os
import re
import stat
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast, get_args

from advisor.core.codec import FieldError
from advisor.core.configuration import Configuration, SearchSpace
from advisor.core.delivery import DeliveryKind, move_waiting
from advisor.core.observation import Observation, Quality, RunMethod, Scope, Source
from advisor.core.policy import JobFacts, PolicySet, scope_of
from advisor.core.power import without_impossible
from advisor.errors import AdvisorError, InputError, StoreError
from advisor.paths import beside
from advisor.ranking.kernels import read_sent_profiles
from advisor.ranking.streams import Characterisation, read_sent
from advisor.store.profiles import save_kernels
from advisor.store.rankings import (
    StoredCharacterisation,
    save_characterisation,
)
from advisor.store.rows import check_name
from advisor.store.writer import Writer

log = logging.getLogger("advisor.collect")

Fit = Callable[[Writer, str, str, str, Scope, str], str]
"""Fits one model (application, workload, node type, scope, owner) and says so in one line."""

Ranker = Callable[[Writer, StoredCharacterisation], str]
"""Ranks what was characterised, keeps that, and says in one line what came of it."""

Renewer = Callable[[Writer, str | None], str]
"""Ranks again what a contributor (None: everybody) characterised, and says in one line what came
of it."""

WAIT_S = 60.0
"""Seconds to wait for a lock that another process holds."""
MAX_FILE = 8 << 20
"""Bytes of one file in the spool; larger ones are refused."""
MAX_STORED = 100_000
"""Runs of one user in the store; a sweep has some dozen."""
MAX_STORED_BYTES = 100_000_000
"""Bytes of what one user's runs hold besides the numbers; those of characterisations, too."""
MAX_CHARACTERISATIONS = 1000
"""Characterisations of one user in the store."""
MAX_KERNELS = 10_000
"""Profiles of one user's own kernels in the store."""
TURN_S = 60.0
"""Processor seconds of one user in one pass over the spool; what is left waits for the next."""
BAD_LASTS_S = 30 * 86400.0
"""What was set aside is removed after so long."""
MAX_BAD, MAX_BAD_BYTES = 20, 1_000_000
"""Files of one user that stay set aside, and their bytes: the newest."""
_DRAFT_LASTS_S = 86400.0
"""A file whose writer was killed half-way is removed after so long."""

_DRAFTS = tuple(f".{kind}-" for kind in get_args(DeliveryKind))
_OWNER = re.compile(r"-u(\d+)-n\d+\.json$")

_USERS_SOURCES: tuple[Source, ...] = ("sweep", "confirm", "run")
"""What a user may call a run; imports and jobs are taken over in other ways."""


@dataclass(slots=True)
class Spooled:
    """What was taken from the spool, lines about fits and rankings, and files set aside.

    ``waiting``: files of users who had their turn, which the next pass takes.
    """

    files: int = 0
    observations: int = 0
    characterisations: int = 0
    kernels: int = 0
    fits: list[str] = field(default_factory=list)
    rankings: list[str] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)
    waiting: int = 0

    def add(self, more: Spooled) -> None:
        """Count what was taken later, too."""
        self.files += more.files
        self.observations += more.observations
        self.characterisations += more.characterisations
        self.kernels += more.kernels
        self.fits += more.fits
        self.rankings += more.rankings
        self.bad += more.bad
        self.waiting += more.waiting


@dataclass(frozen=True, slots=True)
class _Delivery:
    """One file's runs, checked."""

    application: str
    workload: str
    contributor: str
    account: str
    fit: bool
    runs: tuple[Observation, ...]


@contextmanager
def held(folder: Path, name: str, wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold a lock in a folder for this process. Raises AdvisorError when another keeps it."""
    try:
        file = (folder / name).open("a")
        give(folder / name)
    except OSError as error:
        raise StoreError(
            f"{folder / name}: {error.strerror}",
            hint=f"run this as root, or as the owner of {folder}",
        ) from None
    deadline = time.monotonic() + wait_s
    with file:
        while True:  # flock() by itself would wait without end
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise AdvisorError(
                        "another advisor collect is running",
                        hint="it stores the same; wait for it to end",
                    ) from None
            time.sleep(0.1)
        yield


def give(path: Path) -> None:
    """As root, give what was made to the owner of the folder it lies in: the daemon's user.

    Else that user could not go on where root has collected once. What that user may have put
    there in its place, a link to a file of root's, is never given away. Raises OSError.
    """
    above = path.parent.stat()
    if os.geteuid() != 0 or above.st_uid == 0 or path.is_symlink():
        return
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        single = stat.S_ISDIR(status.st_mode) or (
            stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        )
        if status.st_uid == 0 and single:
            os.fchown(handle, above.st_uid, above.st_gid if status.st_gid == 0 else -1)
    finally:
        os.close(handle)


def move_spool(store: Path, other: Path) -> None:
    """Move what users left for a store to where the daemon of another one leaves it.

    Raises AdvisorError where that is not possible.
    """
    old, new = spool_folder(store), spool_folder(other)
    if not any(old.glob("*.json")):
        return
    try:
        for folder in (new.parent, new):
            if not folder.exists():
                folder.mkdir(mode=0o700, parents=True)
                give(folder)
    except OSError as error:
        raise AdvisorError(f"{new}: {error.strerror}") from None
    move_waiting(old, new)


def spool_folder(store: Path) -> Path:
    """Return where the daemon of a store leaves users' runs."""
    return beside(store) / "spool"


def take_spool(writer: Writer, folder: Path, fit: Fit, rank: Ranker, renew: Renewer) -> Spooled:
    """Take every file of the folder into the store, oldest first.

    Users have turns, so that nobody waits for all that another one has left, and a user who took
    ``TURN_S`` of the processor waits for the next pass. A file that makes no sense is moved to
    ``bad`` in the folder and named; what the store refuses for reasons of its own (StoreError)
    leaves the file where it is. What was set aside is removed once it is old.
    """
    result = Spooled()
    if not folder.is_dir():
        return result
    with held(folder, ".lock"):
        _tidy(folder)
        policies = writer.policy()
        spent: defaultdict[str, float] = defaultdict(float)
        owner, begun = "", time.process_time()
        for path in in_turns(_files(folder)):
            now_s = time.process_time()
            spent[owner] += now_s - begun
            owner, begun = owner_of(path), now_s
            if spent[owner] > TURN_S:
                result.waiting += 1
                continue
            try:
                data = _load(path, folder)
                if path.name.startswith("phases-"):
                    stored = _characterised(writer, data, policies)
                    result.characterisations += 1
                    result.rankings.append(rank(writer, stored))
                elif path.name.startswith("profiles-"):
                    count, scope = _profiled(writer, data, policies)
                    result.kernels += count
                    whose = None if scope == "all" else str(data["contributor"])
                    result.rankings += filter(None, [renew(writer, whose)])
                else:
                    delivery = _read_runs(data, path.name)
                    runs, new = _store(writer, delivery, policies)
                    result.observations += new
                    if delivery.fit:
                        result.fits += _fit_lines(writer, delivery, runs, fit)
            except InputError as error:
                result.bad.append(_set_aside(path, str(error)))
                continue
            result.files += 1
            path.unlink(missing_ok=True)
        if result.bad:
            _tidy(folder)
    return result


def _files(folder: Path) -> list[Path]:
    """Return what waits in a spool folder, of each kind the oldest first."""
    return [
        path for kind in get_args(DeliveryKind) for path in sorted(folder.glob(f"{kind}-*.json"))
    ]


def owner_of(path: Path) -> str:
    """Return the user id in a file's name, "" for a file of an older daemon."""
    match = _OWNER.search(path.name)
    return match[1] if match else ""


def in_turns(paths: Iterable[Path]) -> list[Path]:
    """Return files so that each user's come in their order, and users one after the other."""
    turn_of_user: Counter[str] = Counter()
    turns: list[tuple[int, int, Path]] = []
    for path in paths:
        owner = owner_of(path)
        turns.append((turn_of_user[owner], len(turns), path))
        turn_of_user[owner] += 1
    return [path for *_, path in sorted(turns)]


def _tidy(folder: Path) -> None:
    """Remove what was set aside long ago or is too much of one user's, and old drafts."""
    now_s = time.time()
    drafts = [p for p in folder.glob(".*-*") if p.name.startswith(_DRAFTS)]
    expired = [p for p in drafts if now_s - _changed_at_s(p) > _DRAFT_LASTS_S]
    of_user: Counter[str] = Counter()
    size_of_user: Counter[str] = Counter()
    for path in sorted((folder / "bad").glob("*"), key=_changed_at_s, reverse=True):
        owner = owner_of(path)
        of_user[owner] += 1
        with suppress(OSError):
            size_of_user[owner] += path.lstat().st_size
        too_much = of_user[owner] > MAX_BAD or size_of_user[owner] > MAX_BAD_BYTES
        if too_much or now_s - _changed_at_s(path) > BAD_LASTS_S:
            expired.append(path)
    for path in expired:
        with suppress(OSError):
            path.unlink()
    if expired:
        log.warning("event=spool-tidied files=%d", len(expired))


def _changed_at_s(path: Path) -> float:
    """Return when a file got its name here; that of one that is gone does not matter."""
    try:
        return path.lstat().st_ctime
    except OSError:
        return 0.0


def waiting_files(folder: Path) -> tuple[int, int]:
    """Return how many files wait in a spool folder and how many were set aside."""
    return len(_files(folder)), len(list((folder / "bad").glob("*")))


def _load(path: Path, folder: Path) -> Mapping[str, Any]:
    status = path.lstat()
    if not path.is_file() or path.is_symlink():
        raise InputError("it is not an ordinary file")
    if status.st_uid not in (0, folder.stat().st_uid):
        raise InputError("it is not the daemon's")
    if status.st_size > MAX_FILE:
        raise InputError(f"it is larger than {MAX_FILE >> 20} MB")
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"it cannot be read: {error}") from None
    if not isinstance(data, Mapping):
        raise InputError("it is not a file of measurements")
    return data


def _profiled(writer: Writer, data: Mapping[str, Any], policies: PolicySet) -> tuple[int, Scope]:
    """Store profiles of a user's own kernels; return how many, and for whose jobs."""
    contributor = _text(data, "contributor")
    try:
        sent = read_sent_profiles(data)
    except FieldError as error:
        raise InputError(f"{error.key}: {error}") from None
    facts = JobFacts.measured(
        user=contributor, account="", application="", workload="", node_type=sent.node_type
    )
    trust = policies.for_job(facts)[0].training.trust
    scope = scope_of(trust, "")
    condition, value = _contributor_condition(contributor)
    (stored,) = writer.rows(f"SELECT count(*) AS n FROM profiles WHERE {condition}", value)
    if stored["n"] + len(sent.profiles) > MAX_KERNELS:
        raise InputError(
            f"{contributor} has {stored['n']} profiles of kernels stored; the limit is "
            f"{MAX_KERNELS}"
        )
    save_kernels(writer, sent.to_dict(), contributor=contributor, scope=scope)
    return len(sent.profiles), scope


def _characterised(
    writer: Writer, data: Mapping[str, Any], policies: PolicySet
) -> StoredCharacterisation:
    """Store what a user characterised, for whom the policy trusts it to advise; return it.

    No account is known of it, so that where accounts are trusted it advises its user alone.
    """
    contributor = _text(data, "contributor")
    try:
        characterisation = read_sent(data.get("characterisation"))
    except FieldError as error:
        raise InputError(f"characterisation.{error.key}: {error}") from None
    _check_room(writer, contributor, characterisation)
    trust = policies.for_job(
        JobFacts.measured(
            user=contributor,
            account="",
            application=characterisation.application,
            workload=characterisation.workload,
            node_type=characterisation.node_type,
        )
    )[0].training.trust
    return save_characterisation(
        writer,
        characterisation.application,
        characterisation.workload,
        characterisation.node_type,
        characterisation.to_dict(),
        contributor=contributor,
        scope=scope_of(trust, ""),
    )


def _contributor_condition(contributor: str) -> tuple[str, tuple[str, ...]]:
    """Return the condition in SQL for a contributor, with its values.

    User ids without a name count together: one person may own many such numbers.
    """
    if contributor.isdecimal():
        return "contributor <> '' AND ltrim(contributor, '0123456789') = ''", ()
    return "contributor = ?", (contributor,)


def _check_room(writer: Writer, contributor: str, new: Characterisation) -> None:
    """Raise InputError where a user has too many characterisations, or too large ones.

    The one that the new one takes the place of does not count.
    """
    condition, value = _contributor_condition(contributor)
    (stored,) = writer.rows(
        "SELECT count(*) AS n, total(length(c.record)) AS bytes FROM characterisations AS c"
        f" JOIN workloads AS w ON w.id = c.workload_id WHERE {condition}"
        " AND NOT (w.application = ? AND w.name = ? AND c.node_type = ? AND contributor = ?)",
        (*value, new.application, new.workload, new.node_type, contributor),
    )
    size = stored["bytes"] + len(json.dumps(new.to_dict()))
    if stored["n"] >= MAX_CHARACTERISATIONS or size > MAX_STORED_BYTES:
        raise InputError(
            f"{contributor} has {stored['n']} characterisations stored, {stored['bytes']:.0f} "
            f"bytes; the limit is {MAX_CHARACTERISATIONS} and {MAX_STORED_BYTES // 1_000_000} MB"
        )


def _read_runs(data: Mapping[str, Any], name: str) -> _Delivery:
    if not isinstance(data.get("observations"), list):
        raise InputError("it holds no observations")
    application, workload, contributor = (
        _text(data, key) for key in ("application", "workload", "contributor")
    )
    account = str(data.get("account") or "")[:200]
    runs = tuple(
        _with_space(_run(number, run, contributor, name), data.get("space"))
        for number, run in enumerate(data["observations"])
    )
    if not runs:
        raise InputError("it holds no observations")
    return _Delivery(application, workload, contributor, account, bool(data.get("fit")), runs)


def _with_space(run: Observation, space: object) -> Observation:
    """Return a run with its sweep's grid; what a sweep of an earlier version sent has none."""
    if space is None:
        return run
    try:
        return replace(run, space=SearchSpace.from_dict(run.configuration.node_type, space))
    except ValueError as error:
        raise InputError(f"space: {error}") from None


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    if not isinstance(value, str):
        raise InputError(f"{key} is missing")
    check_name(key, value)
    return value


def _run(number: int, run: object, contributor: str, file: str) -> Observation:
    """Return one run; its configuration may stand in a mapping of its own or beside the rest."""
    if not isinstance(run, Mapping):
        raise InputError(f"run {number} is not a mapping")
    place = run.get("configuration")
    try:
        configuration = Configuration.from_dict(place if isinstance(place, Mapping) else run)
        time_s = _positive(run.get("time_s"))
        energy_j = _positive(run.get("energy_j"))
        fom = _positive(run.get("fom"))
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise InputError(f"run {number}: {error}") from None
    if time_s is None:
        raise InputError(f"run {number}: time_s must be above 0")
    quality, source = run.get("energy_quality"), run.get("source")
    if quality not in get_args(Quality) or energy_j is None:
        quality = "estimated" if energy_j is not None else "missing"
    if quality == "missing":
        energy_j = None
    extra = run.get("extra")
    return Observation(
        configuration,
        time_s,
        energy_j,
        fom,
        energy_quality=cast(Quality, quality),
        meter=str(run.get("meter") or "")[:80],
        source=cast(Source, source if source in _USERS_SOURCES else "run"),
        contributor=contributor,
        job_id=str(run.get("job_id") or "")[:40],
        extra={**(extra if isinstance(extra, Mapping) else {}), "spool": f"{file}:{number}"},
        method=_method(run),
    )


def _method(run: Mapping[str, Any]) -> RunMethod:
    """Return how a run's threads were set; a sweep of an earlier version does not say.

    Those made their jobs smaller, or, without a scheduler (no job), set variables.
    """
    if run.get("source") not in ("sweep", "confirm"):
        return ""
    method = run.get("method")
    if method in get_args(RunMethod):
        return cast(RunMethod, method)
    return "request" if run.get("job_id") else "variables"


def _positive(value: object) -> float | None:
    """Return a positive number; None for nothing, blank and 0, which all mean missing."""
    if value is None or value == "" or isinstance(value, bool):
        return None
    number = float(str(value))
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"{value!r} is not valid")
    return number or None


def _store(
    writer: Writer, delivery: _Delivery, policies: PolicySet
) -> tuple[list[Observation], int]:
    """Add the runs that are not stored yet.

    Returns all of them, with scope and account as believed, and how many were new.
    """
    account = delivery.account if _has_account(writer, delivery) else ""
    stored_keys = _stored_keys(writer, delivery)
    runs = []
    for run in delivery.runs:
        trust = policies.for_job(
            JobFacts.measured(
                user=delivery.contributor,
                account=account,
                application=delivery.application,
                workload=delivery.workload,
                node_type=run.configuration.node_type,
            )
        )[0].training.trust
        runs.append(replace(run, account=account, scope=scope_of(trust, account)))
    condition, value = _contributor_condition(delivery.contributor)
    (stored,) = writer.rows(
        f"SELECT count(*) AS n, total(length(extra)) AS bytes FROM observations WHERE {condition}",
        value,
    )
    size = stored["bytes"] + sum(len(json.dumps(run.extra)) for run in runs)
    if stored["n"] + len(runs) > MAX_STORED or size > MAX_STORED_BYTES:
        raise InputError(
            f"{delivery.contributor} has {stored['n']} runs stored, {stored['bytes']:.0f} bytes; "
            f"the limit is {MAX_STORED} and {MAX_STORED_BYTES // 1_000_000} MB"
        )
    types = writer.inventory().node_types
    runs = [without_impossible(r, types.get(r.configuration.node_type)) for r in runs]
    new = [r for r in runs if not {_sweep_key(r.extra), ("", r.extra["spool"])} & stored_keys]
    if new:
        writer.add_observations(delivery.application, delivery.workload, new)
    return runs, len(new)


def _has_account(writer: Writer, delivery: _Delivery) -> bool:
    """Tell whether accounting has shown a job of this user under this account.

    A user may claim any account, and with it advise the jobs of people they do not work with.
    """
    if not delivery.account:
        return False
    rows = writer.rows(
        "SELECT 1 FROM outcomes WHERE user = ? AND account = ? LIMIT 1",
        (delivery.contributor, delivery.account),
    )
    return bool(rows)


def _stored_keys(writer: Writer, delivery: _Delivery) -> set[tuple[str, object]]:
    """Return what of this contributor is stored: by sweep and number, and by spool file."""
    rows = writer.rows(
        "SELECT o.extra FROM observations AS o JOIN workloads AS w ON w.id = o.workload_id"
        " WHERE w.application = ? AND w.name = ? AND o.contributor = ? AND o.extra <> '{}'",
        (delivery.application, delivery.workload, delivery.contributor),
    )
    keys: set[tuple[str, object]] = set()
    for row in rows:
        extra = json.loads(row["extra"])
        keys.add(_sweep_key(extra))
        keys.add(("", str(extra.get("spool", ""))))
    return keys - {("", "")}


def _sweep_key(extra: Mapping[str, object]) -> tuple[str, object]:
    if not extra.get("sweep"):
        return "", ""
    return str(extra["sweep"]), str(extra.get("seq"))


def _fit_lines(writer: Writer, delivery: _Delivery, runs: list[Observation], fit: Fit) -> list[str]:
    """Fit again what the new runs advise; a fit that fails is a line, not a failure."""
    lines = []
    owners = dict.fromkeys((o.configuration.node_type, o.scope, o.account) for o in runs)
    for node_type, scope, account in owners:
        owner = {"own": delivery.contributor, "account": account, "all": ""}[scope]
        try:
            lines.append(
                fit(writer, delivery.application, delivery.workload, node_type, scope, owner)
            )
        except InputError as error:
            lines.append(f"{delivery.application} on {node_type} is not fitted: {error}")
            log.warning(
                "event=not-fitted application=%r error=%r", delivery.application, str(error)
            )
    return lines


def _set_aside(path: Path, why: str) -> str:
    line = f"{path.name}: {why}"
    log.error("event=spool-bad file=%s error=%r", path.name, why)
    try:
        (path.parent / "bad").mkdir(exist_ok=True)
        path.replace(path.parent / "bad" / path.name)
    except OSError as error:
        raise StoreError(f"{path}: cannot be moved aside: {error.strerror}") from None
    return line
