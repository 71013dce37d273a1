"""What the trade-off page shows of a workload, and where one is in the list."""

from __future__ import annotations

from advisor_tui.session import Session

from advisor.store.reader import Reader
from advisor.views import tradeoff
from advisor.views.preview import Person

LBM = 5
"""Row of lbm / channel 512 in the list."""


def boards(session: Session, application: str, workload: str) -> tradeoff.Boards:
    with Reader(session.store) as reader:
        return tradeoff.load(reader, application, workload, Person("ann"))
