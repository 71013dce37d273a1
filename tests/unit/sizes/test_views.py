"""What is shown of sizes that never ran: options, policies tried, and the daemon's copy."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from advisor.store import seen, visible
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from advisor.views.simulation import simulate
from advisor.views.sized_options import sized_views
from advisor.views.whatif import WhatIf
from tests.unit.sizes.stencil import BASE, ask, snapshot, time_energy


def test_another_policy_is_tried_on_jobs_of_sizes_never_swept(family: Path, tmp_path: Path) -> None:
    shutil.copy(family, path := tmp_path / "advisor.db")
    with Writer(path) as writer:
        for job, n in enumerate((8000000, 8000000, 4000000, 80000000)):
            writer.save_decision(ask(snapshot(path), f"-n {n}"), job_id=f"{job}")
        whatif = WhatIf.load(writer)
        changes = {c.case.workload: c for c in whatif.under("min_energy", 0.1)}
        assert set(changes) == {"-n 4000000", "-n 8000000"}  # the third is too far for any
        new = changes["-n 8000000"]
        assert (new.case.runs, new.case.baseline) == (2, BASE)
        assert new.then is not None and new.then.energy < -0.03
        accept = {
            "base": {
                "mode": "apply",
                "goal": "min_energy",
                "holdout": 0.0,
                "extrapolated": "accept",
            },
            "rules": [],
        }
        tried = simulate(writer, accept, datetime.now(UTC) - timedelta(hours=1))
        assert (tried.decisions, tried.different, dict(tried.undecided)) == (4, 3, {})


def test_the_daemon_shows_families_to_those_who_cannot_read_the_store(
    family: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visible, "_TABLES", 1)  # a page each
    with Reader(family) as reader:

        def ask(request: dict[str, object]) -> dict[str, Any]:
            answer = visible.page(reader, request, "eve", all_jobs=False)
            found: dict[str, Any] = json.loads(json.dumps(answer))
            return found

        copied = tmp_path / "seen.db"
        seen.copy(copied, ask, ("applications", "options"), application="stencil")
        with Reader(copied) as copy:
            ours, theirs = (
                sized_views(r, "stencil", {"n": 8e6}, user="eve") for r in (reader, copy)
            )
            assert len(theirs) == 1 and theirs == ours
            assert [w.name for w in copy.workloads("stencil")] == [
                w.name for w in reader.workloads("stencil")
            ]


@pytest.mark.parametrize("n", ["1.4M", "2.5M", "3.9M", "4.3M", "6M", "8M"])
def test_options_and_predict_say_the_same_of_a_size(
    family: Path, advisor: Callable[..., Any], n: str
) -> None:
    """The same time, no smaller error, and both whether the size is within what was measured."""
    shown = advisor("options", "stencil", "--at", f"n={n}", "--db", family, "--json").json()
    live = advisor("predict", "stencil", "--at", f"n={n}", "--db", family, "--json").json()
    assert bool(shown["beyond"]) == bool(live["beyond"]) == (n in ("4.3M", "6M", "8M"))
    assert shown["shared_error_pct"] > 0.9 * live["shared_error_pct"]

    def point(o: dict[str, Any]) -> tuple[int, int]:
        return o["threads_per_node"], o["freq_khz"]

    forecast = {point(o): o for o in live["options"]}
    for o in shown["options"]:
        assert o["time_s"] == pytest.approx(forecast[point(o)]["time_s"], rel=0.02)
    text = advisor("options", "stencil", "--at", f"n={n}", "--db", family).out
    assert ("predicted within n" in text) == (not shown["beyond"])


def test_options_of_a_size_that_was_not_swept(family: Path, advisor: Callable[..., Any]) -> None:
    data = advisor("options", "stencil", "--at", "n=8M", "--db", family, "--json").json()
    assert data["at"] == {"n": 8e6} and data["beyond"] == {"n": 2.0}
    assert 0 < data["shared_error_pct"] < 30
    (base,) = [o for o in data["options"] if o["baseline"]]
    assert base["time_s"] == pytest.approx(time_energy(8e6, BASE)[0], rel=0.1)
    assert {o["confirmed"] or o["measured"] for o in data["options"]} == {False}
    assert any(o["on_front"] for o in data["options"])
    text = advisor("options", "stencil", "--at", "n=8e6", "--db", family).out
    assert "-n {} at n 8e6" in text and "extrapolated from n 1e6 to 4e6 by physics" in text
    for at, why in (
        ("m=4", "m is not a parameter of"),
        ("n=1e9", "too-far"),
        ("nodes=2", "nodes is no"),
    ):
        result = advisor("options", "stencil", "--at", at, "--db", family)
        assert result.code and why in result.err and result.err.count("\n") == 1
