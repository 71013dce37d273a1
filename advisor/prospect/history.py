"""A store's history in Parquet files as jobs: years that the accounting may no longer have.

It holds the jobs that the advisor decided about, also those pruned since, as they ran: what they
were changed by is not counted as a saving once more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from advisor.errors import InputError
from advisor.loop.execution import IMPOSSIBLE
from advisor.schedulers.base import JobUse, StepUse

HISTORY = "history"
"""What ``--from`` calls it."""
COMMAND = "advisor store history --to FOLDER"
_PAGE = 4096
"""Rows that are held at once."""
_COLUMNS = (
    "rowid, job_id, user, account, state, nodes, node_list, energy_j, freq_requested_khz, time_s"
)
_OF_RECORD = (
    "name",
    "partition",
    "ended_at",
    "elapsed_s",
    "cpus",
    "application",
    "parts[0].program",
    "ran.ranks_per_node",
    "ran.threads_per_node",
    "ran.whole_nodes",
    "ran.energy_note",
)


def stream_history(folder: Path) -> Iterator[JobUse]:
    """Yield the jobs of a folder of any size.

    Raises StoreError where it cannot be read, InputError where it has no jobs.
    """
    from advisor.store import parquet

    folder = parquet.check_folder(folder)
    paths = ", ".join(f"'$.{name}'" for name in _OF_RECORD)
    jobs = 0
    with closing(parquet.connect(folder)) as connection:
        for path in parquet.month_files(folder, "outcomes").values():
            parquet.check_file(connection, path, "outcomes")
            sql = (
                f"SELECT {_COLUMNS}, to_json(json_extract(record, [{paths}]))::VARCHAR"
                f" FROM {parquet.read([path])} WHERE rowid > ? ORDER BY rowid LIMIT {_PAGE}"
            )
            last = -1
            while rows := parquet.run(connection, path, sql, (last,)):
                jobs, last = jobs + len(rows), rows[-1][0]
                yield from map(_job, rows)
    if not jobs:
        raise InputError(f"{folder} has no jobs", hint=f"write it with {COMMAND}")


def _job(row: Sequence[Any]) -> JobUse:
    _, job_id, user, account, state, nodes, node_list, energy_j, cap_khz, time_s, record = row
    (name, partition, ended_at, elapsed_s, cpus, application, program, *run) = json.loads(record)
    ranks, threads, whole_nodes, note = run
    step = StepUse(
        application or program or "",
        time_s or 0.0,
        nodes,
        (ranks or 0) * nodes,
        (threads or 0) * nodes,
        energy_j,
        note == IMPOSSIBLE,
        cap_khz,
    )
    return JobUse(
        job_id,
        name or "",
        user,
        account,
        partition or "",
        state,
        ended_at or "",
        elapsed_s or 0.0,
        nodes,
        cpus or 0,
        node_list,
        energy_j,
        cap_khz,
        steps=(step,),
        whole_nodes=whole_nodes,
    )
