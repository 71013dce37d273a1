"""A point pinned in the TUI is what the next submission runs at, on a real Slurm."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from advised import AdvisedSite
from advisor_tui.app import AdvisorApp
from advisor_tui.session import Session
from test_end_to_end import khz, programs, write_grid
from testbed import NODE_TYPES

BDW = NODE_TYPES["bdw"]


def pin(session: Session, steps: int) -> dict[str, Any]:
    """Open the only workload, walk along its front, pin the point there; return the point."""
    points = []

    async def act() -> None:
        app = AdvisorApp(session)
        async with app.run_test(size=(80, 24)) as pilot:

            async def settle() -> None:
                await pilot.pause()
                waited = [w for w in app.workers if w.group != "look"]
                await app.workers.wait_for_complete(waited)
                await pilot.pause()

            await settle()
            for key in ("enter", *["left"] * steps):
                await pilot.press(key)
                await settle()
            page: Any = app.screen
            points.append(page.board.options[page.current].configuration.to_dict())
            for key in ("c", "s"):
                await pilot.press(key)
                await settle()

    asyncio.run(act())
    found: dict[str, Any] = points[0]
    return found


def test_a_point_pinned_in_the_tui_is_what_runs(
    site: AdvisedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = site.folder / "stencil.csv"
    write_grid(grid, "stencil")
    workload = "--kernel stencil"
    site.advisor(
        "import",
        grid,
        "--application",
        "simapp",
        "--workload",
        workload,
        "--node-type",
        BDW.feature,
    )
    site.counted()
    site.advisor("fit", "simapp", "--workload", workload)
    site.settle()
    script = site.script(
        "stencil.sh",
        f"srun simapp {workload}",
        "-N 1",
        "--exclusive",
        "-p broadwell",
        "-t 10",
        f"-o {site.folder}/%j.out",
    )
    before = site.json("explain", script)

    for name, value in site.environment().items():
        monkeypatch.setenv(name, value)
    point = pin(Session.here(), 3)
    choices = json.loads((site.folder / "xdg" / "advisor" / "choices.json").read_text())
    pinned = choices["workloads"][f"simapp/{workload}"]["pin"]
    assert pinned == {k: v for k, v in point.items() if k != "threads_per_rank"}
    assert (before["chosen"] or {}) != point

    job = site.testbed.sbatch(str(script), env={"XDG_CONFIG_HOME": str(site.folder / "xdg")})
    assert "your pin" in job.stderr, job.stderr
    site.testbed.wait(job.job_id)
    step = next(r for r in site.testbed.sacct(job.job_id) if r["JobID"].endswith(".0"))
    assert step["State"] == "COMPLETED"
    assert int(step["NCPUS"]) == BDW.cores  # the allocation stays
    (printed,) = programs(site, job.job_id)
    assert printed["threads_per_node"] == str(point["threads_per_node"])
    assert point["freq_khz"] == BDW.max_khz or khz(step["ReqCPUFreqMax"]) == point["freq_khz"]
    site.advisor("collect")
    told = site.json("why", job.job_id)
    assert "pinned" in told["decision"]["reasons"]
    assert told["decision"]["chosen"] == point
