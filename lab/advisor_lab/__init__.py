"""The laboratory: application profiles, evaluation, statistics and the study of phases.

Nothing that advises jobs needs it; it is attached by entry points alone.

:func:`frame` is the door for notebooks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

__version__ = "0.3.0"
"""That of the advisor whose modules it imports."""

if TYPE_CHECKING:
    import pandas as pd

    from advisor_lab.frames import FrameKind


def frame(
    kind: FrameKind,
    *files: str | Path,
    application: str | None = None,
    workload: str | None = None,
    node_type: str | None = None,
    user: str | None = None,
    since: str | None = None,
    where: str = "",
    compute: Mapping[str, str] | None = None,
    db: str | Path | None = None,
) -> pd.DataFrame:
    """Return what the store holds, or what files of runs hold, as a tidy table: a row for each.

    ``kind`` is ``runs``, ``options``, ``decisions`` or ``outcomes``. With ``files`` (CSV, or
    HPCProbe's ``summary.yml``, as for ``advisor import``), ``runs`` are those of all files
    together, by ``file``; else the store is read: ``db``, or where the command line would look.
    ``application``, ``workload``, ``node_type``, ``user`` and ``since`` (``30d``, or a date) narrow
    it down where they have a meaning. ``compute`` adds columns from expressions over columns,
    ``where`` then keeps the rows for which an expression is true: both as
    :meth:`pandas.DataFrame.eval` reads them. Units stand in the names of columns; a number that is
    not known is NaN, and a table without rows has its columns. Raises InputError for a column or
    kind that is not known, or a file that cannot be read, StoreError without a store.
    """
    from advisor_lab.frames import FrameRows, read_frame, store_moment

    rows = FrameRows(application, workload, node_type, user, store_moment(since))
    return read_frame(kind, files, rows, where=where, compute=compute or {}, db=db)


def smoothed(
    table: pd.DataFrame, column: str, *, window: int = 5, degree: int = 2, by: Sequence[str] = ()
) -> pd.Series:
    """Return a column smoothed by a polynomial over ``window`` rows (Savitzky and Golay 1964).

    Rows count in their order, evenly spaced: sort them first. ``by`` names columns that a curve has
    each value of; groups of fewer rows than ``window`` stay as they are. Raises InputError for a
    column that is not there, or a window that is no odd number above the ``degree``.
    """
    from advisor_lab.frames import smoothed

    return smoothed(table, column, window=window, degree=degree, by=by)
