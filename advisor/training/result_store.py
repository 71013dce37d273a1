"""Where what was measured goes: into the store, or to the daemon that may write it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from advisor import paths
from advisor.core.delivery import (
    FOLDER,
    MAX_RUNS,
    DeliveryKind,
    new_name,
    own_folder,
    write_delivery,
)
from advisor.core.inventory import NodeType
from advisor.core.observation import Observation, Scope
from advisor.core.policy import Trust, scope_of
from advisor.core.protocol import call
from advisor.database import DatabaseAddress
from advisor.derive.worker import derive
from advisor.errors import AdvisorError, RefusedError, StoreError
from advisor.models.fit import FitResult
from advisor.ranking.kernels import SentProfiles
from advisor.ranking.streams import Characterisation
from advisor.store.families import family_models
from advisor.store.profiles import save_kernels
from advisor.store.rankings import save_characterisation
from advisor.store.records import TrainingRequest, TrainingRun
from advisor.store.writer import Writer

TIMEOUT_S = 60.0
"""Seconds that the daemon may take to store a sweep's runs."""
STATUS_S = 5.0
"""Seconds that the daemon may take to say whether it is there."""


def owner_of(scope: Scope, user: str, account: str) -> str:
    """Return the owner of a model of that scope."""
    return {"own": user, "account": account, "all": ""}[scope]


_AGAIN = "the results are kept; try again with advisor train --resume"


class ResultStore:
    """Takes results; what a kind of store has no use for, it ignores.

    ``description`` says where the results go.
    """

    description = ""
    store = ""
    """The file of the store that they are for, "" where it is not known."""
    place: Path | None = None
    """Where they are left for the store's host; a sweep's job says so."""
    by_hand = ""
    """What has to be done where no sweep's job says where the results are, "" for nothing."""

    def know(self, node_type: NodeType) -> None:
        """Add a node type of this machine to the inventory, where that is allowed."""

    def request(self, request: TrainingRequest) -> None:
        """Note the sweep's state."""

    def run(self, run: TrainingRun) -> None:
        """Note one run's state."""

    def observe(
        self, application: str, workload: str, runs: Sequence[Observation], *, fit: bool = True
    ) -> list[int]:
        """Store good runs; return their ids, 0 where nobody knows them.

        ``fit``: whoever fits at the other end does so then.
        """
        raise NotImplementedError

    def model(
        self, application: str, workload: str, node_type: str, fit: FitResult, account: str
    ) -> int | None:
        """Store the fitted model; return its id, None where the daemon fits it itself."""
        return None

    def no_law(self, application: str, workload: str) -> str:
        """Return why no law holds over a family's sizes, "" where one does or nobody knows."""
        return ""

    def characterise(self, characterisation: Characterisation) -> str:
        """Store an application's phases; return what became of them, in a few words."""
        raise NotImplementedError

    def profile(self, sent: SentProfiles) -> str:
        """Store profiles of the user's own kernels; return what became of them."""
        raise NotImplementedError

    def close(self) -> None:
        """Close whatever is open."""


class LocalResults(ResultStore):
    """Writes into the store directly. ``trust`` decides whose jobs the results advise."""

    def __init__(self, writer: Writer, *, user: str, trust: Trust) -> None:
        self._writer = writer
        self._user = user
        self._trust = trust
        self.description = f"store {writer.path}"
        self.store = str(writer.path.absolute())

    def know(self, node_type: NodeType) -> None:
        """Add a node type the inventory does not have; never change one it has."""
        if node_type.name not in self._writer.inventory().node_types:
            self._writer.save_node_types([node_type], source="local")

    def request(self, request: TrainingRequest) -> None:
        """Upsert the request."""
        self._writer.save_training_request(request)

    def run(self, run: TrainingRun) -> None:
        """Upsert the run."""
        self._writer.save_training_run(run)

    def observe(
        self, application: str, workload: str, runs: Sequence[Observation], *, fit: bool = True
    ) -> list[int]:
        """Add the observations in one transaction; those of this sweep already there are kept."""
        stored_ids = {}
        for stored in self._writer.observations(application, workload):
            extra = stored.observation.extra
            if "sweep" in extra:
                stored_ids[extra["sweep"], extra.get("seq")] = stored.id
        new = [o for o in runs if (o.extra.get("sweep"), o.extra.get("seq")) not in stored_ids]
        ids = iter(self._writer.add_observations(application, workload, new))
        return [
            stored_ids.get((o.extra.get("sweep"), o.extra.get("seq"))) or next(ids) for o in runs
        ]

    def model(
        self, application: str, workload: str, node_type: str, fit: FitResult, account: str
    ) -> int | None:
        """Store the model as the current one of its scope."""
        scope = scope_of(self._trust, account)
        model = self._writer.save_model(
            application,
            workload,
            node_type,
            scope=scope,
            owner=owner_of(scope, self._user, account),
            name=fit.model,
            energy_quality=fit.energy_quality,
            n_train=fit.n_train,
            stats=fit.stats,
            options=fit.options,
        )
        derive(self._writer, first=application)
        return model.id

    def no_law(self, application: str, workload: str) -> str:
        """Return what the family's model says where it is of no use."""
        for model in family_models(self._writer, application, workload):
            about = model.about_sizes
            if about.get("answer") != "ok":
                return ": ".join([str(about.get("answer")), *(about.get("notes") or [])[-1:]])
        return ""

    def characterise(self, characterisation: Characterisation) -> str:
        """Store the phases; no account is known of them. Raises InputError on bad names."""
        save_characterisation(
            self._writer,
            characterisation.application,
            characterisation.workload,
            characterisation.node_type,
            characterisation.to_dict(),
            contributor=self._user,
            scope=scope_of(self._trust, ""),
        )
        return f"stored in {self._writer.path}"

    def profile(self, sent: SentProfiles) -> str:
        """Store the profiles beside the suite's. Raises InputError where they do not fit."""
        scope = scope_of(self._trust, "")
        save_kernels(self._writer, sent.to_dict(), contributor=self._user, scope=scope)
        return f"stored in {self._writer.path} {_audience(scope, self._user)}"

    def close(self) -> None:
        """Close the store."""
        self._writer.close()


def _audience(scope: Scope, user: str) -> str:
    return "for everybody's jobs" if scope == "all" else f"for jobs of {user}"


class DaemonResults(ResultStore):
    """Sends results to the daemon, which stores them, and fits or ranks what follows.

    The daemon takes the contributor from the socket's peer and the scope from its policy, and fits
    once it has the observations. The sweep's own state stays in its folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.description = f"daemon at {path}"
        self.store = str((_status_of(path) or {}).get("store") or "")

    def observe(
        self, application: str, workload: str, runs: Sequence[Observation], *, fit: bool = True
    ) -> list[int]:
        """Send the observations; with ``fit`` the daemon fits then. Raises StoreError."""
        sent = _observe_message(application, workload, runs, fit=fit)
        self._send({"v": 1, "op": "observe", **sent}, _AGAIN)
        return [0] * len(runs)

    def characterise(self, characterisation: Characterisation) -> str:
        """Send the phases (op ``characterise``). Raises StoreError."""
        self._send(
            {"v": 1, "op": "characterise", "characterisation": characterisation.to_dict()}, ""
        )
        return f"handed to the {self.description}, which stores and ranks it"

    def profile(self, sent: SentProfiles) -> str:
        """Send the profiles (op ``profile``). Raises StoreError."""
        self._send({"v": 1, "op": "profile", **sent.to_dict()}, "")
        return f"handed to the {self.description}, which stores them and ranks again"

    def _send(self, message: dict[str, object], hint: str) -> None:
        """Send results and wait until they are taken. Raises StoreError."""
        try:
            call(self._path, message, TIMEOUT_S)
        except AdvisorError as error:
            raise StoreError(f"the results are not stored: {error.message}", hint=hint) from error


class LeftResults(ResultStore):
    """Leaves results in a folder of the user's own, where the daemon of this host only reads.

    ``advisor collect`` on the store's host takes them as that user, and fits or ranks what follows.
    It knows the folder from the jobs of the user's sweeps.
    """

    def __init__(self, place: Path, user: str) -> None:
        self.place = own_folder(place).resolve()
        self.description = (
            f"{self.place}, where `advisor collect` on the store's host takes them "
            "(the daemon of this host only reads)"
        )
        self.by_hand = (
            f"results in {self.place} are taken with those of your next sweep; for sooner, have "
            f"your admin run, on the store's host: advisor collect --left {user}:{self.place}"
        )

    def observe(
        self, application: str, workload: str, runs: Sequence[Observation], *, fit: bool = True
    ) -> list[int]:
        """Keep the observations in files of at most MAX_RUNS. Raises StoreError."""
        for start in range(0, len(runs), MAX_RUNS):
            part = runs[start : start + MAX_RUNS]
            last = start + MAX_RUNS >= len(runs)
            sent = _observe_message(application, workload, part, fit=fit and last)
            self._leave_delivery("runs", sent, _AGAIN)
        return [0] * len(runs)

    def characterise(self, characterisation: Characterisation) -> str:
        """Keep the phases. Raises StoreError."""
        self._leave_delivery("phases", {"characterisation": characterisation.to_dict()}, "")
        return f"not stored yet; {self.by_hand}"

    def profile(self, sent: SentProfiles) -> str:
        """Keep the profiles. Raises StoreError."""
        self._leave_delivery("profiles", sent.to_dict(), "")
        return f"not stored yet; {self.by_hand}"

    def _leave_delivery(self, kind: DeliveryKind, data: dict[str, object], hint: str) -> None:
        assert self.place is not None
        try:  # a new folder would lie below the mount, where nobody looks
            write_delivery(self.place, new_name(kind), json.dumps(data), make=False)
        except AdvisorError as error:
            mount_hint = "" if self.place.is_dir() else "; is its file system mounted?"
            raise StoreError(
                f"the results are not stored: {error.message}{mount_hint}", hint=hint
            ) from error


def _observe_message(
    application: str, workload: str, runs: Sequence[Observation], *, fit: bool
) -> dict[str, object]:
    """Return runs as daemon and collect take them."""
    return {
        "application": application,
        "workload": workload,
        "account": next((o.account for o in runs if o.account), ""),
        "space": next((o.space.to_dict() for o in runs if o.space is not None), None),
        "observations": [observation_json(o) for o in runs],
        "fit": fit,
    }


def observation_json(observation: Observation) -> dict[str, object]:
    """Return an observation as the socket protocol carries it."""
    return {
        "configuration": observation.configuration.to_dict(),
        "time_s": observation.time_s,
        "energy_j": observation.energy_j,
        "fom": observation.fom,
        "energy_quality": observation.energy_quality,
        "meter": observation.meter,
        "source": observation.source,
        "account": observation.account,
        "job_id": observation.job_id,
        "method": observation.method,
        "extra": dict(observation.extra),
    }


def results_here(
    db: str | None, *, user: str, trust: Trust, folder: Path | None = None, of_daemon: bool = False
) -> LocalResults | DaemonResults | LeftResults:
    """Return where results can go from here; ``db`` is the store named on the command line.

    ``folder`` is one of the user's that other hosts see, None for the usual. ``of_daemon``: to the
    daemon, even where the user has a store.
    """
    if of_daemon:
        return DaemonResults(paths.socket_path())
    return open_results(
        paths.store_path(db),
        paths.socket_path(),
        explicit=bool(db or os.environ.get("ADVISOR_DB")),
        user=user,
        trust=trust,
        left_folder=(folder or paths.state_dir()) / FOLDER,
    )


def open_results(
    store: Path, daemon: Path, *, explicit: bool, user: str, trust: Trust, left_folder: Path
) -> LocalResults | DaemonResults | LeftResults:
    """Return where results can go, tried before anything is run.

    A store that was named (``explicit``) and can be written is used; else a daemon that listens
    and takes results; where it only reads, ``left_folder``; without a daemon the user's own
    store. The store that such a daemon answers from is a published copy: nobody writes into it,
    whoever may. Raises RefusedError when there is no place.
    """
    answer = _status_of(daemon)
    takes = answer is not None and answer.get("takes_results") is not False
    if answer is not None and not takes and str(store.absolute()) == answer.get("store"):
        return _left_results(left_folder, user)
    if not explicit and answer is not None and not _writable(store):
        return DaemonResults(daemon) if takes else _left_results(left_folder, user)
    try:
        if store.exists() and not _writable(store):
            raise StoreError(f"{store} may not be written by {user}")
        return LocalResults(Writer(store), user=user, trust=trust)
    except AdvisorError as error:
        if answer is not None:
            return DaemonResults(daemon) if takes else _left_results(left_folder, user)
        raise RefusedError(
            f"there is no place for the results: {error.message}",
            hint="name a store you may write with --db, or start the daemon",
        ) from error


def _left_results(folder: Path, user: str) -> LeftResults:
    try:
        return LeftResults(folder, user)
    except AdvisorError as error:
        raise RefusedError(
            "there is no place for the results: the daemon of this host only reads, and "
            f"{error.message}",
            hint=error.hint or "choose another --work-dir, or do this on the store's host",
        ) from error


def _writable(store: Path) -> bool:
    """Tell whether a store can be written: opening it for writing alone would not show it."""
    if isinstance(store, DatabaseAddress):
        return True
    return store.exists() and os.access(store, os.W_OK) and os.access(store.parent, os.W_OK)


def _status_of(daemon: Path) -> dict[str, object] | None:
    """Return how a daemon says it does, None when there is none."""
    try:
        return call(daemon, {"op": "status"}, STATUS_S)
    except AdvisorError:
        return None
