"""Options to take away: as a table for other programs, and as the command that pins one."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Sequence

from advisor.core.units import format_freq
from advisor.views.tradeoff import TradeOffView

_OF_OPTION = (
    "time_s",
    "time_lo_s",
    "time_hi_s",
    "energy_j",
    "energy_lo_j",
    "energy_hi_j",
    "measured",
    "confirmed",
    "in_zone",
    "on_front",
)


def rows(board: TradeOffView, numbers: Sequence[int]) -> list[dict[str, object]]:
    """Return some options, a record each: s, J, kHz, changes against the job as written in %.

    What is not known is None.
    """
    records = []
    for number in numbers:
        o = board.options[number]
        energy, time = board.view.change(o)
        record: dict[str, object] = {
            **o.configuration.to_dict(),
            **{name: getattr(o, name) for name in _OF_OPTION},
            "time_pct": round(100 * time, 2),
            "energy_pct": round(100 * energy, 2),
            "baseline": number == board.baseline,
            "policy": number == board.policy_at,
            "yours": number == board.yours_at,
        }
        records.append({k: None if v != v else v for k, v in record.items()})
    return records


def as_csv(records: Sequence[dict[str, object]]) -> str:
    """Return records as CSV with a header; an empty cell is what is not known."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]) if records else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def as_json(board: TradeOffView, records: Sequence[dict[str, object]]) -> str:
    """Return records as one JSON object that names their model."""
    m = board.view.model
    head = {"application": m.application, "workload": m.workload, "options": list(records)}
    return json.dumps(head, indent=2, allow_nan=False) + "\n"


def choose_command(board: TradeOffView, number: int) -> str:
    """Return the command that pins an option for one's own jobs."""
    m, c = board.view.model, board.options[number].configuration
    words = [
        "advisor",
        "choose",
        m.application,
        "--workload",
        m.workload,
        "--node-type",
        c.node_type,
        "--threads",
        str(c.threads_per_node),
    ]
    if c.freq_khz:
        words += ["--freq", format_freq(c.freq_khz).replace(" ", "")]
    return shlex.join(words)
