"""Records as tests put them into a store."""

from __future__ import annotations

import math

from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.option import Option
from advisor.store.records import StoredModel
from advisor.store.writer import Writer

C = Configuration("hsw", 2, 4, 24, 2_400_000)


def options(*times: float, node_type: str = "hsw") -> list[Option]:
    return [
        Option(
            Configuration(node_type, 1, 1, n + 1, 0), t, t / 1.1, t * 1.1, math.nan, math.nan, 9.0
        )
        for n, t in enumerate(times)
    ]


def save(store: Writer, application: str = "stencil", **changes: object) -> StoredModel:
    terms: dict[str, object] = {
        "scope": "all",
        "owner": "",
        "name": "bspline",
        "energy_quality": "missing",
        "n_train": 12,
        "stats": {"time": {"r2": 0.99}},
        "options": options(1.0, 2.0),
        **changes,
    }
    return store.save_model(application, "default", "hsw", **terms)  # type: ignore[arg-type]


def decision(number: str, at: str = "2026-01-01T00:00:00Z", **more: object) -> Decision:
    return Decision.from_dict({"decision": number, "created_at": at, "user": "ann", **more})
