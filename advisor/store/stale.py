"""What is stale: models that follow from something which has changed. Standard library only.

The transaction that changes it marks them, in the same commit; ``advisor/derive`` works them out
afterwards and takes the mark away, unless somebody has marked them anew meanwhile. So a process
that dies in between leaves the mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.core.observation import Scope
from advisor.store.reader import Reader
from advisor.store.records import StaleKind
from advisor.store.signature_groups import JobGroup, Named
from advisor.store.transaction import StoreTransaction


@dataclass(frozen=True, slots=True)
class Stale:
    """One mark of a workload; of a class model it has scope and owner, else both are "".

    ``mark`` is another number each time somebody marks it.
    """

    id: int
    application: str
    workload: str
    kind: StaleKind
    scope: Scope
    owner: str
    mark: int

    @property
    def named(self) -> Named:
        """The workload."""
        return self.application, self.workload

    @property
    def whose(self) -> JobGroup:
        """Whose jobs a class model advises."""
        return self.scope, self.owner


def stale(reader: Reader) -> list[Stale]:
    """Return what is stale, the longest first."""
    sql = (
        "SELECT s.id, w.application, w.name, s.kind, s.scope, s.owner, s.mark"
        " FROM stale AS s JOIN workloads AS w ON w.id = s.workload_id ORDER BY s.since, s.id"
    )
    return [Stale(*row) for row in map(tuple, reader.rows(sql))]


def unchanged(reader: Reader, marks: Sequence[Stale]) -> bool:
    """Tell whether nobody has marked any of these anew, or taken its mark away."""
    sql = "SELECT 1 FROM stale WHERE id = ? AND mark = ?"
    return all(reader.rows(sql, (m.id, m.mark)) for m in marks)


def clear(writer: StoreTransaction, marks: Sequence[Stale]) -> None:
    """Take marks away, inside the transaction that stores what follows now."""
    writer.change_many("DELETE FROM stale WHERE id = ?", [(m.id,) for m in marks])
