"""The results of a sweep's stage as a file of JSON lines, one per finished attempt."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

from advisor.core.power import is_possible
from advisor.core.rate import read_rate
from advisor.errors import SchedulerError
from advisor.meters.estimate import estimate_j
from advisor.schedulers.base import RunResult, SweepJob


def good_run(
    job: SweepJob,
    run: RunResult,
    energy_j: float | None,
    meter: str,
    why: str,
) -> RunResult:
    """Return the result of a run that went well: its energy as the scheduler's ``meter`` has it.

    ``run`` holds all else. Without ``energy_j`` it is estimated from the node type's stated power,
    where there is one, and ``why`` is the detail.
    """
    assert run.time_s is not None
    c = next(r.configuration for r in job.runs if r.seq == run.seq)
    if energy_j is not None and not is_possible(energy_j, run.time_s, c.nodes, job.node_type):
        energy_j, why = None, f"{meter} says {energy_j:.4g} J, which is impossible"
    if energy_j is not None:
        return replace(run, energy_j=energy_j, energy_quality="measured", meter=meter)
    energy_j = estimate_j(
        job.node_type,
        nodes=c.nodes,
        busy_cores=c.threads_per_node,
        freq_khz=c.freq_khz,
        time_s=run.time_s,
    )
    if energy_j is None:
        return replace(run, energy_quality="missing", detail=why)
    return replace(run, energy_j=energy_j, energy_quality="estimated", meter="estimate", detail=why)


def rated(job: SweepJob, result: RunResult) -> RunResult:
    """Return a run's result with the rate that the program printed; without one it has failed."""
    if job.rate is None or not result.ok:
        return result
    output = job.output(result.seq, result.attempt)
    try:
        with output.open("rb") as file:
            value, why = read_rate(job.rate, file)
    except OSError as error:
        value, why = None, f"its output cannot be read: {error.strerror}"
    if value is None:
        return replace(result, ok=False, final=True, detail=f"{why}; output in {output}")
    return replace(result, rate=value)


def append_result(path: Path, result: RunResult) -> None:
    """Append one result as a line and see it to the disk."""
    with path.open("a") as file:
        file.write(json.dumps(result.to_dict()) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_results(path: Path) -> list[RunResult]:
    """Return the results in a file; a line torn by a crash is dropped."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SchedulerError(f"cannot read {path}: {error.strerror}") from error
    results = []
    for line in lines:
        try:
            results.append(RunResult.from_dict(json.loads(line)))
        except ValueError:
            continue
    return results
