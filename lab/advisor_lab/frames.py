"""Runs, options, decisions and outcomes as tidy pandas tables, from the store or from files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from scipy.signal import savgol_filter

from advisor import paths
from advisor.core.configuration import Configuration
from advisor.core.decision import Alternative, Decision
from advisor.core.observation import Observation
from advisor.core.option import Option
from advisor.core.policy import Policy
from advisor.core.worth import J_PER_KWH
from advisor.errors import InputError, UnknownNameError
from advisor.loop import clock
from advisor.store.csvfile import Terms, read_csv
from advisor.store.reader import Reader
from advisor.store.records import Outcome, StoredModel, StoredObservation
from advisor_lab.importers.hpcprobe import ENDINGS, Objectives, read_summary

FrameKind = Literal["runs", "options", "decisions", "outcomes"]
KINDS: tuple[FrameKind, ...] = ("runs", "options", "decisions", "outcomes")
_PAGE = 10_000
"""Decisions read from the store at once."""


@dataclass(frozen=True, slots=True)
class FrameRows:
    """Which rows of the store there are to be; None: all."""

    application: str | None
    workload: str | None
    node_type: str | None
    user: str | None
    since: str
    """In the store's form, "" for all."""

    def applications(self, reader: Reader) -> list[str]:
        """Return the application, or all that the store has."""
        if self.application is not None:
            return [self.application]
        return list(dict.fromkeys(w.application for w in reader.workloads()))

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Tell whether a row is wanted, by the columns it has."""
        conditions = {
            "application": self.application,
            "workload": self.workload,
            "node_type": self.node_type,
            "user": self.user,
        }
        return all(v is None or row.get(name, v) == v for name, v in conditions.items())


def store_moment(since: str | None) -> str:
    """Return a date or a span (``30d``) in the store's form, "" for none. Raises InputError."""
    return "" if since is None else clock.form(clock.since(since))


def read_frame(
    kind: str,
    files: Sequence[str | Path],
    rows: FrameRows,
    *,
    where: str,
    compute: Mapping[str, str],
    db: str | Path | None,
) -> pd.DataFrame:
    """Return a table as :func:`advisor_lab.frame` says."""
    if kind not in KINDS:
        raise UnknownNameError(
            f"no table is called {kind!r}", hint=f"choose from: {', '.join(KINDS)}"
        )
    if files and kind != "runs":
        raise InputError(f"files hold runs, not {kind}", hint='frame("runs", *files)')
    if files:
        table = _table(kind, [row for f in files for row in _of_file(Path(f), rows.node_type)])
    else:
        path = paths.whole_store(None if db is None else str(db))
        with Reader(path) as reader:
            table = _table(kind, list(_FROM_STORE[kind](reader, rows)))
    for name, expression in compute.items():
        table[name] = _evaluated(table, expression, f"compute {name}")
    if where:
        table = table[_evaluated(table, where, "where").astype(bool)].reset_index(drop=True)
    return table


def _evaluated(table: pd.DataFrame, expression: str, what: str) -> Any:
    try:
        return table.eval(expression, engine="python")
    except Exception as error:
        raise InputError(
            f"{what}: {expression!r}: {' '.join(str(error).split())}",
            hint=f"columns: {', '.join(map(str, table.columns))}",
        ) from None


def _table(kind: str, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows as a table in which a number that is not known is NaN, not an object."""
    table = pd.DataFrame(rows) if rows else pd.DataFrame(columns=_columns(kind))
    for name, column in table.items():
        numbers = all(type(v) in (int, float) for v in column.dropna())
        if pd.api.types.is_object_dtype(column) and numbers:
            table[name] = column.astype(float)
    return table


def _of_file(path: Path, node_type: str | None) -> Iterator[dict[str, Any]]:
    terms = Terms(node_type or "", "file")
    if path.suffix.lower() in ENDINGS:
        runs = read_summary(path, terms, Objectives(), {}, workloads=True).observations
    else:
        runs = read_csv(path, terms).observations
    for o in runs:
        yield {"file": path.stem, "energy_quality": o.energy_quality, **_run(o)}


def _place(c: Configuration) -> dict[str, Any]:
    return {**c.to_dict(), "cores": c.cores}


def _run(o: Observation) -> dict[str, Any]:
    metered = o.energy_j is not None
    return {
        **_place(o.configuration),
        "time_s": o.time_s,
        "energy_j": o.energy_j,
        "power_w": o.energy_j / o.time_s if o.energy_j is not None else None,
        "rate": o.fom,
        "rate_per_joule": o.fom * o.time_s / o.energy_j
        if metered and o.fom is not None and o.energy_j
        else None,
        "node_hours": o.configuration.nodes * o.time_s / 3600,
        **{k: v for k, v in o.extra.items() if isinstance(v, str | int | float)},
    }


def _runs(reader: Reader, selection: FrameRows) -> Iterator[dict[str, Any]]:
    for application in selection.applications(reader):
        for r in reader.observations(application, selection.workload, selection.node_type):
            row = _stored_run(r)
            if selection.holds(row) and r.created_at >= selection.since:
                yield row


def _stored_run(r: StoredObservation) -> dict[str, Any]:
    o = r.observation
    return {
        "application": r.application,
        "workload": r.workload,
        "user": o.contributor,
        "source": o.source,
        "scope": o.scope,
        "created_at": r.created_at,
        "energy_quality": o.energy_quality,
        **_run(o),
    }


def _options(reader: Reader, selection: FrameRows) -> Iterator[dict[str, Any]]:
    for application in selection.applications(reader):
        for m in reader.find_models(application, selection.workload, selection.node_type):
            if m.state != "replaced":
                yield from (_option(m, o) for o in m.options())


def _option(m: StoredModel, o: Option) -> dict[str, Any]:
    return {
        "application": m.application,
        "workload": m.workload,
        "scope": m.scope,
        "owner": m.owner,
        "model": m.name,
        "state": m.state,
        **_place(o.configuration),
        **{
            n: getattr(o, n)
            for n in ("time_s", "time_lo_s", "time_hi_s", "energy_j", "energy_lo_j", "energy_hi_j")
        },
        "power_w": o.energy_j / o.time_s,
        **{n: getattr(o, n) for n in ("measured", "confirmed", "estimated", "in_zone", "on_front")},
    }


def _decisions(reader: Reader, selection: FrameRows) -> Iterator[dict[str, Any]]:
    offset = 0
    while page := reader.decisions(user=selection.user, offset=offset, limit=_PAGE):
        offset += len(page)
        for d in page:
            row = _decision(d)
            if d.created_at >= selection.since and selection.holds(row):
                yield row


def _decision(d: Decision) -> dict[str, Any]:
    baseline = d.baseline
    return {
        "decision": d.id,
        "job": d.job_id,
        "created_at": d.created_at,
        "scheduler": d.scheduler,
        "user": d.user,
        "account": d.account,
        "application": d.application,
        "workload": d.workload,
        "mode": d.mode,
        "goal": d.goal,
        "changed": d.changed,
        "holdout": d.holdout,
        "reasons": " ".join(d.codes),
        "node_type": baseline.node_type if baseline else None,
        **_prefixed("baseline", baseline),
        **_prefixed("chosen", d.chosen.configuration if d.chosen else None),
        **_promise(d.chosen),
    }


def _prefixed(name: str, c: Configuration | None) -> dict[str, Any]:
    axes = ("nodes", "ranks_per_node", "threads_per_node", "freq_khz")
    return {f"{name}_{axis}": getattr(c, axis) if c else None for axis in axes}


def _promise(chosen: Alternative | None) -> dict[str, Any]:
    predicted = chosen.predicted() if chosen else {}
    return {
        f"promised_{name}": predicted.get(name)
        for name in ("time_s", "energy_j", "time_pct", "energy_pct")
    }


def _outcomes(reader: Reader, selection: FrameRows) -> Iterator[dict[str, Any]]:
    for o in reader.outcomes("submitted_at >= ?", (selection.since,)):
        row = _outcome(o)
        if selection.holds(row):
            yield row


def _outcome(o: Outcome) -> dict[str, Any]:
    return {
        "job": o.job_id,
        "submitted_at": o.submitted_at,
        "state": o.state,
        "verdict": o.verdict,
        "nodes": o.nodes,
        "time_s": o.time_s,
        "energy_j": o.energy_j,
        "energy_kwh": None if o.energy_j is None else o.energy_j / J_PER_KWH,
        "energy_quality": o.energy_quality,
        "freq_observed_khz": o.freq_observed_khz,
        **{k: v for k, v in _decision(o.decision).items() if k not in ("job", "created_at")},
        "user": o.user,
        "account": o.account,
    }


_FROM_STORE = {"runs": _runs, "options": _options, "decisions": _decisions, "outcomes": _outcomes}


def _columns(kind: str) -> list[str]:
    """Return the columns that a kind of table has even where it has no rows."""
    place, no = Configuration("", 1, 1, 1, 0), ""
    if kind == "runs":
        row = _stored_run(StoredObservation(0, no, no, Observation(place, 1, None), no))
    elif kind == "options":
        model = StoredModel(
            0, no, no, no, "all", no, 0, no, "fitted", no, "missing", 0, {}, b"", no, no
        )
        row = _option(model, Option(place, 1, 1, 1, 1, 1, 1))
    elif kind == "decisions":
        row = _decision(Decision(no, no, no, no, no, no, Policy(), no, no, None, None))
    else:
        names = (no,) * 8
        row = _outcome(Outcome(*names, 0, no, None, None, "missing", None, None, no, {}, no))
    return list(row)


def smoothed(
    table: pd.DataFrame, column: str, *, window: int = 5, degree: int = 2, by: Sequence[str] = ()
) -> pd.Series:
    """Return a column smoothed over rows in their order, as :func:`advisor_lab.smoothed` says."""
    for name in (column, *by):
        if name not in table.columns:
            raise InputError(
                f"there is no column {name!r}",
                hint=f"columns: {', '.join(map(str, table.columns))}",
            )
    if not (0 <= degree < window and window % 2):
        raise InputError(
            f"window {window}, degree {degree}: the window is an odd number above the degree"
        )

    def filtered(values: pd.Series) -> pd.Series:
        if len(values) < window:
            return values
        return pd.Series(savgol_filter(values, window, degree), index=values.index)

    values = table[column].astype(float)
    if not by:
        return filtered(values)
    return values.groupby([table[name] for name in by], group_keys=False).apply(filtered)
