"""What ``--view`` shows of runs and of the model fitted to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from advisor.plotting.panels import Panels


@dataclass(frozen=True, slots=True)
class StatisticsTable:
    """A table of a view's figures, the most telling rows first.

    ``in_text``: how many rows people get beside the picture; other forms have all.
    """

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    in_text: int = 0


@dataclass(frozen=True, slots=True)
class StatisticsView:
    """A view as a picture, as plain JSON, and as tables for papers and spreadsheets."""

    picture: Panels
    data: Any
    tables: tuple[StatisticsTable, ...]
