"""The results of a sweep's stage as a file of JSON lines, one per finished attempt."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, fields
from pathlib import Path

from advisor.errors import SchedulerError
from advisor.schedulers.base import RunResult


def append_result(path: Path, result: RunResult) -> None:
    """Append one result as a line and see it to the disk."""
    with path.open("a") as file:
        file.write(json.dumps(asdict(result)) + "\n")
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
    known = {f.name for f in fields(RunResult)}
    results = []
    for line in lines:
        try:
            data = json.loads(line)
            results.append(RunResult(**{k: v for k, v in data.items() if k in known}))
        except (ValueError, TypeError, AttributeError):
            continue
    return results
