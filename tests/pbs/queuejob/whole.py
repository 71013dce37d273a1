"""A job that has its node for itself, its rewrite, and whether a job stayed as submitted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hooked import Outcome

HOOK = "advisor_queuejob.py"
WHOLE = {"select": "1:ncpus=28:mpiprocs=1:node_type=bdw", "place": "excl", "walltime": "1:00:00"}
REWRITE = {"select": WHOLE["select"] + ":ompthreads=20", "cpu_freq_mhz": "1900"}


def untouched(outcome: Outcome, event: Mapping[str, Any]) -> bool:
    """Whether the job was accepted just as it was submitted."""
    given = event["job"]
    return (
        outcome["answer"] == ["accept", ""]
        and outcome["failure"] is None
        and outcome["exit"] == "0"
        and outcome["resources"] == {k: str(v) for k, v in given["Resource_List"].items()}
        and outcome["variables"] == given["Variable_List"]
    )
