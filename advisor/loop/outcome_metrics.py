"""How jobs came out, for Prometheus: savings promised and measured, verdicts, trust."""

from __future__ import annotations

from pathlib import Path

from advisor.core.openmetrics import Text
from advisor.store.reader import Reader

NEWEST = 100_000
"""Finished jobs that the metrics are about: some seconds of work, however long a site runs."""


def outcome_metrics(path: Path) -> str:
    """Return what the store knows of finished jobs as OpenMetrics text, with its end."""
    from advisor.core.worth import J_PER_KWH
    from advisor.loop.report import report

    text = Text()
    with Reader(path) as reader:
        totals = report(reader, since="", newest=NEWEST)
        row_counts = reader.rows(
            "SELECT (SELECT count(*) FROM decisions), (SELECT count(*) FROM outcomes),"
            " (SELECT count(*) FROM observations)"
        )[0]
    text.family(
        "jobs",
        "gauge",
        f"the newest {NEWEST} finished jobs by verdict",
        [({"verdict": verdict}, n) for verdict, n in sorted(totals.verdicts.items())],
    )
    text.family(
        "jobs_by_trust",
        "gauge",
        f"the newest {NEWEST} finished jobs by how far their stamp is trusted",
        [
            ({"trust": "verified"}, totals.jobs - totals.stamped - totals.unverified),
            ({"trust": "stamped"}, totals.stamped),
            ({"trust": "unverified"}, totals.unverified),
        ],
    )
    saved = totals.saved_kwh[0] * J_PER_KWH if totals.saved_kwh else None
    text.family(
        "saved_joules",
        "gauge",
        f"energy of the newest {NEWEST} finished jobs: promised, and "
        "measured against unchanged jobs",
        [({"by": "promise"}, totals.promised_kwh * J_PER_KWH), ({"by": "measurement"}, saved)],
        "joules",
    )
    text.family(
        "store_rows",
        "gauge",
        "rows of the store",
        [
            ({"table": name}, n)
            for name, n in zip(("decisions", "outcomes", "observations"), row_counts, strict=True)
        ],
    )
    return text.text()
