"""How jobs came out, for Prometheus: savings promised and measured, verdicts, trust."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from advisor.core.openmetrics import Text
from advisor.store.reader import Reader

if TYPE_CHECKING:
    from advisor.loop.report import Report

NEWEST = 100_000
"""Finished jobs that the metrics are about: some seconds of work, however long a site runs."""


def outcome_metrics(path: Path, cluster: str = "") -> str:
    """Return what the store knows of finished jobs, by cluster or of one, as OpenMetrics text with
    its end."""
    from advisor.core.worth import J_PER_KWH
    from advisor.loop.report import by_cluster

    text = Text()
    with Reader(path) as reader:
        totals = [t for t in by_cluster(reader, NEWEST) if cluster in ("", t.cluster)]
        row_counts = reader.rows(
            "SELECT (SELECT count(*) FROM decisions), (SELECT count(*) FROM outcomes),"
            " (SELECT count(*) FROM observations)"
        )[0]
    text.family(
        "jobs",
        "gauge",
        f"the newest {NEWEST} finished jobs by verdict",
        [(_of(t, verdict=name), n) for t in totals for name, n in sorted(t.verdicts.items())],
    )
    text.family(
        "jobs_by_trust",
        "gauge",
        f"the newest {NEWEST} finished jobs by how far their stamp is trusted",
        [
            (_of(t, trust=trust), count)
            for t in totals
            for trust, count in (
                ("verified", t.jobs - t.stamped - t.unverified),
                ("stamped", t.stamped),
                ("unverified", t.unverified),
            )
        ],
    )
    text.family(
        "saved_joules",
        "gauge",
        f"energy of the newest {NEWEST} finished jobs: promised, and "
        "measured against unchanged jobs",
        [
            (_of(t, by=by), None if kwh is None else kwh * J_PER_KWH)
            for t in totals
            for by, kwh in (
                ("promise", t.promised_kwh),
                ("measurement", t.saved_kwh[0] if t.saved_kwh else None),
            )
        ],
        "joules",
    )
    text.family(
        "energy_joules",
        "gauge",
        f"energy of the newest {NEWEST} finished jobs: all that was metered, and what is known of "
        "their GPUs",
        [
            (_of(t, device=device), kwh * J_PER_KWH)
            for t in totals
            for device, kwh in (("all", t.energy_kwh), ("gpu", t.gpu_kwh))
            if kwh is not None
        ],
        "joules",
    )
    text.family(
        "jobs_without_gpu_energy",
        "gauge",
        f"those of the newest {NEWEST} finished jobs with GPUs of which that is not known",
        [(_of(t), sum(g.unknown for g in t.gpus)) for t in totals if t.gpus],
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


def _of(report: Report, **labels: str) -> dict[str, str]:
    """Return a sample's labels; none names the cluster of a site that has one without a name."""
    return {**({"cluster": report.cluster} if report.cluster else {}), **labels}
