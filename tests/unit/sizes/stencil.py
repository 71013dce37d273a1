"""A program whose time follows from its size by a law: its runs, its store, and jobs that ask."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from advisor.core.configuration import Configuration
from advisor.core.count_laws import CountLaws
from advisor.core.decision import Decision
from advisor.core.inventory import NodeType
from advisor.core.observation import Observation, Scope
from advisor.core.option import Option
from advisor.derive.worker import derive
from advisor.schedulers.slurm.translator import parse_request, read_arguments, read_directives
from advisor.service.decide import decide
from advisor.service.snapshot import Snapshot, StoreSource
from advisor.store.count_laws import save_count_laws
from advisor.store.records import StoredModel
from advisor.store.writer import Writer
from tests.again import same_again

FREQS = (1_200_000, 1_700_000, 2_200_000)
BDW = NodeType(
    "bdw",
    feature="broadwell",
    partitions=("batch",),
    sockets=2,
    cores=28,
    freq_khz=FREQS,
    default_freq_khz=2_200_000,
    nodes=tuple(f"bdw{i}" for i in range(40)),
    default_partition="batch",
)
THREADS = (8, 12, 16, 20, 24, 28)
CELLS = [Configuration("bdw", 1, 1, t, f) for t in THREADS for f in FREQS]
BASE = CELLS[-1]
_ONE = ((1.0, "1"),)


def time_energy(n: float, c: Configuration) -> tuple[float, float]:
    """A memory-bound code of work n^1.5: threads saturate at 16, frequency hardly matters."""
    time_s = (
        100
        * (n / 4e6) ** 1.5
        * (16 / min(c.threads_per_node, 16))
        * (2.2e6 / c.freq_khz) ** 0.1
        / c.nodes
    )
    watts = 90 + c.threads_per_node * (1.5 + 3 * (c.freq_khz / 2.2e6) ** 3)
    return time_s, time_s * watts * c.nodes


def _counted(c: Configuration) -> dict[str, Any]:
    """What a sweep counts in a run of the job as written, its variables unset."""
    use = {"unset": True, "threads": [c.threads_per_rank] * c.ranks_per_node}
    return {"thread_use": use} if c.threads_per_node == BASE.threads_per_node else {}


def runs(
    n: float, cells: list[Configuration], scope: Scope = "all", who: str = "", source: Any = "sweep"
) -> list[Observation]:
    rng = random.Random(int(n) + len(cells))
    found = []
    for c in cells:
        time_s, energy_j = time_energy(n, c)
        off = math.exp(rng.gauss(0, 0.004))
        found.append(
            Observation(
                c,
                time_s * off,
                energy_j * off,
                source=source,
                scope=scope,
                contributor=who,
                job_id=f"{who}{n}{c}",
                extra=_counted(c) if source == "sweep" else {},
            )
        )
    return found


def options(n: float, confirmed: bool = True) -> list[Option]:
    found = []
    for c in CELLS:
        t, e = time_energy(n, c)
        around = (t, t * 0.99, t * 1.01, e, e * 0.99, e * 1.01)
        found.append(Option(c, *around, measured=True, confirmed=confirmed, in_zone=True))
    return found


def sweep(
    writer: Writer, n: float, cells: list[Configuration], scope: Scope = "all", who: str = ""
) -> None:
    writer.add_observations("stencil", f"-n {n:.0f}", runs(n, cells, scope, who))


def fit(
    writer: Writer, n: float, scope: Scope = "all", owner: str = "", **more: Any
) -> StoredModel:
    values: dict[str, Any] = {
        "options": options(n),
        "energy_quality": "measured",
        "n_train": 12,
    } | more
    model = writer.save_model(
        "stencil",
        f"-n {n:.0f}",
        "bdw",
        scope=scope,
        owner=owner,
        name="bspline",
        stats={"error": 0.05, "threads_unset": [[1, 1, BASE.threads_per_node]]},
        **values,
    )
    if not writer.in_transaction:
        assert derive(writer)
    return model


def say_counts(writer: Writer, bytes_each: float) -> None:
    """Have profiles say that a run executes n^1.5 instructions and touches so much for each n."""
    laws = CountLaws(("N",), "", {}, ((_ONE, ((1e4, "N^1.5"),)),), ((_ONE, ((bytes_each, "N"),)),))
    save_count_laws(writer, "stencil", laws)
    assert derive(writer)


def make_store(path: Path) -> Writer:
    writer = Writer(path)
    writer.save_node_types([BDW], source="test")
    say_counts(writer, 1024)
    for n in (1e6, 2e6):
        sweep(writer, n, [*CELLS[::6], BASE])
    sweep(writer, 4e6, [*CELLS[::2], BASE])
    fit(writer, 4e6)
    return writer


def snapshot(path: Path, **settings: Any) -> Snapshot:
    source = StoreSource(path)
    source.refresh()
    source.close()
    site = source.snapshot
    base: dict[str, Any] = {
        "mode": "apply",
        "goal": "min_energy",
        "holdout": 0.0,
        "extrapolated": "accept",
    }
    policy = replace(site.policy.base, **(base | settings))
    return replace(site, policy=replace(site.policy, base=policy), choices={}, baselines={})


def ask(
    site: Snapshot,
    arguments: str = "-n 8000000",
    *,
    line: str = "",
    sbatch: str = "",
    user: str = "ada",
    environment: dict[str, str] | None = None,
    chance: Callable[[], float] = lambda: 1.0,
) -> Decision:
    script = f"#!/bin/bash\n{line}\nsrun ./stencil {arguments}\n"
    words = ("-N1 --exclusive " + sbatch).split()
    request = parse_request(
        {
            "type": "sbatch",
            "options": read_directives(script) | read_arguments(words),
            "script": script,
            "script_path": "/home/job.sh",
            "argv": ["/home/job.sh"],
            "env": environment or {},
        },
        user=user,
        uid=1000,
        choices={},
    )
    decision = decide(request, site, chance=chance)
    same_again(decision, site, chance)
    return decision


def without_sizes(site: Snapshot) -> Snapshot:
    site = replace(site, models={i: m for i, m in site.models.items() if not m.of_sizes})
    site.index()
    return site
