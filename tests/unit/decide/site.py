"""A store with a model of stencil on two node types, and questions to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.inventory import NodeType
from advisor.core.option import Option
from advisor.schedulers.slurm.translator import parse_request, read_arguments, read_directives
from advisor.service.decide import decide
from advisor.service.snapshot import Snapshot, StoreSource
from advisor.store.writer import Writer
from tests.again import same_again
from tests.unset import as_measured

FREQS = tuple(range(1_200_000, 2_300_000, 100_000))


BDW = NodeType(
    "bdw",
    feature="broadwell",
    partitions=("batch", "mixed"),
    sockets=2,
    cores=28,
    memory_mb=64_000,
    freq_khz=FREQS,
    default_freq_khz=2_200_000,
    nodes=("bdw1", "bdw2", "bdw3", "bdw4"),
    default_partition="batch",
)


SKL = NodeType(
    "skl",
    feature="skylake",
    partitions=("mixed",),
    sockets=2,
    cores=40,
    memory_mb=96_000,
    nodes=("skl1", "skl2"),
    weight=10,
)


SCRIPT = "#!/bin/bash\nsrun ./stencil\n"


def response(node_type: str, nodes: int, ranks: int, threads: int, freq: int) -> Option:
    """A memory-bound application: threads saturate at 20, frequency hardly matters."""
    time_s = 100 * (20 / min(threads, 20)) * (2.2e6 / freq) ** 0.2 / nodes
    energy = nodes * time_s * (90 + threads * (1.5 + 3 * (freq / 2.2e6) ** 3))
    if node_type == "skl":
        time_s, energy = time_s * 0.9, energy * 0.6
    c = Configuration(node_type, nodes, ranks, threads, freq)
    return Option(
        c,
        time_s,
        time_s * 0.995,
        time_s * 1.005,
        energy,
        energy * 0.995,
        energy * 1.005,
        measured=True,
        confirmed=True,
        in_zone=True,
    )


def policy(writer: Writer, **settings: Any) -> None:
    rules = settings.pop("rules", [])
    base = {"mode": "apply", "goal": "min_energy", "holdout": 0.0, **settings}
    writer.apply_config(
        "policy",
        path="p.yaml",
        text=repr(settings),
        compiled={"base": base, "rules": rules},
        by="test",
    )


def model(
    writer: Writer,
    node_type: str,
    options: list[Option],
    application: str = "stencil",
    workload: str = "default",
    **key: Any,
) -> int:
    settings = {
        "scope": "all",
        "owner": "",
        "energy_quality": "measured",
        "stats": as_measured(options),
        **key,
    }
    return writer.save_model(
        application,
        workload,
        node_type,
        name="bspline",
        n_train=12,
        options=options,
        **settings,
    ).id


def snapshot(writer: Writer) -> Snapshot:
    source = StoreSource(Path(writer.path))
    source.refresh()
    source.close()
    return source.snapshot


def ask(
    writer: Writer,
    arguments: str = "-N1 --exclusive",
    script: str | None = SCRIPT,
    *,
    chance: Callable[[], float] = lambda: 1.0,
    choices: dict[str, Any] | None = None,
    user: str = "ada",
    hours: int = 10,
    **payload: Any,
) -> Decision:
    """Decide for a job; one that states no time limit gets ``hours``, or, of 0, states none."""
    limit = {"time": f"{60 * hours}"} if hours else {}
    options = (
        limit | (read_directives(script) if script else {}) | read_arguments(arguments.split())
    )
    request = parse_request(
        {
            "type": "sbatch",
            "options": options,
            "script": script,
            "script_path": "/home/job.sh",
            "argv": ["/home/job.sh"],
            **payload,
        },
        user=user,
        uid=1000,
        choices=choices or {},
    )
    site = snapshot(writer)
    decision = decide(request, site, chance=chance)
    same_again(decision, site, chance)
    return decision


def codes(decision: Decision) -> set[str]:
    return {r.code for r in decision.reasons}
