"""What application profiles say of an application's sizes, as the laboratory found it.

Standard library only.
"""

from __future__ import annotations

import json

from advisor.core.count_laws import CountLaws
from advisor.store import rows as _rows
from advisor.store.reader import Reader
from advisor.store.transaction import StoreTransaction


def save_count_laws(writer: StoreTransaction, application: str, laws: CountLaws | None) -> None:
    """Keep what the profiles say from now on; families of sizes are fitted by that."""
    with writer.transaction() as db:
        _rows.check_name("application", application)
        text = json.dumps(None if laws is None else laws.to_dict())
        db.execute(
            "INSERT OR REPLACE INTO count_laws (application, laws, created_at) VALUES (?, ?, ?)",
            (application, text, _rows.now()),
        )
        sql = "SELECT name FROM workloads WHERE application = ? AND hidden = 0"
        for row in writer.rows(sql, [application]):
            writer.touch(application, row[0], "sizes")


def count_laws(reader: Reader, application: str) -> CountLaws | None:
    """Return what an application's profiles say of its sizes, None where they say nothing."""
    for row in reader.rows("SELECT laws FROM count_laws WHERE application = ?", [application]):
        return CountLaws.from_dict(json.loads(row[0]))
    return None
