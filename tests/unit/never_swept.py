"""A store with swept applications of one law, and jobs of one that was never swept."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.inventory import NodeType
from advisor.core.observation import Scope
from advisor.core.option import Z90, Option
from advisor.core.signature import Signature
from advisor.derive.worker import derive
from advisor.schedulers.slurm.translator import parse_request, read_arguments, read_directives
from advisor.service.decide import decide
from advisor.service.snapshot import StoreSource
from advisor.store.records import StoredModel
from advisor.store.signatures import save_signatures
from advisor.store.writer import Writer

CORES, TOP = 16, 2_400_000
STEPS = (1_200_000, 1_600_000, 2_000_000, TOP)
THREADS = (4, 8, 12, 16)
NODE_TYPE = NodeType(
    "cpu",
    feature="cpu",
    partitions=("batch",),
    cores=CORES,
    freq_khz=STEPS,
    default_freq_khz=TOP,
    nodes=("n1", "n2"),
    default_partition="batch",
    memory_mb=64000,
)
OWN = Configuration("cpu", 1, 1, CORES, TOP)


def law(memory: float, threads: int, khz: int) -> tuple[float, float]:
    """Time and power of an application that waits for memory for a share ``memory`` of its time."""
    share, clock = threads / CORES, khz / TOP
    time = 100 * ((1 - memory) / (share * clock) + memory)
    return time, 100 + 200 * share * (1 - 0.6 * memory) * clock**2


def swept(memory: float) -> list[Option]:
    made = []
    for threads in THREADS:
        for khz in STEPS:
            t, power = law(memory, threads, khz)
            e, d = t * power, math.exp(Z90 * 0.01)
            where = Configuration("cpu", 1, 1, threads, khz)
            made.append(Option(where, t, t / d, t * d, e, e / d, e * d, confirmed=True))
    return made


def signature(memory: float, **more: object) -> Signature:
    time, power = law(memory, CORES, TOP)
    values = {"configuration": OWN, "source": "ear", "contributor": "ada", "scope": "all"} | more
    return Signature(gbs=200 * memory, power_w=power, time_s=time, **values)  # type: ignore[arg-type]


def sweep(
    writer: Writer, name: str, memory: float, scope: Scope = "all", owner: str = ""
) -> StoredModel:
    save_signatures(writer, name, "default", [signature(memory, job_id=f"s{name}")])
    return writer.save_model(
        name,
        "default",
        "cpu",
        scope=scope,
        owner=owner,
        name="physical",
        energy_quality="measured",
        n_train=12,
        stats={},
        options=swept(memory),
    )


def of(writer: Writer, name: str) -> list[StoredModel]:
    assert derive(writer)
    return writer.find_models(name, "default")


SCRIPT = "#!/bin/bash\nsrun ./new\n"


def policy(writer: Writer, slowdown: float = 0.10, confidence: float = 0.90, **cold: Any) -> None:
    base = {"mode": "apply", "goal": "min_energy", "holdout": 0.0, "max_slowdown": slowdown}
    base |= {"confidence": confidence, "cold_start": cold}
    writer.apply_config(
        "policy", path="p.yaml", text=repr(cold), compiled={"base": base, "rules": []}, by="test"
    )


def ask(
    writer: Writer, script: str = SCRIPT, env: dict[str, str] | None = None, user: str = "ada"
) -> Decision:
    options = read_directives(script) | read_arguments(["-N1", "--exclusive", "--mem=2G", "-t600"])
    request = parse_request(
        {
            "type": "sbatch",
            "options": options,
            "script": script,
            "script_path": "/home/job.sh",
            "argv": ["/home/job.sh"],
            "env": env or {},
        },
        user=user,
        uid=1000,
        choices={},
    )
    assert derive(writer)
    source = StoreSource(Path(writer.path))
    source.refresh()
    found = decide(request, source.snapshot, chance=lambda: 1.0)
    source.close()
    return found
