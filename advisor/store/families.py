"""Families of sizes in the store: workloads that differ in their numbers only, and their models."""

from __future__ import annotations

from advisor.core.parameters import ParameterLine, parameters_of
from advisor.core.recognise import MAX_NAME
from advisor.store.reader import Reader
from advisor.store.records import StoredModel

PREFIX = "{sizes} "
"""Before a family's name in the table of workloads: no workload of a job has braces."""


def line_of(workload: str) -> ParameterLine | None:
    """Return a workload's family and size, None where its name may have been cut."""
    return parameters_of(workload) if len(workload) < MAX_NAME - len(PREFIX) else None


def family_models(reader: Reader, application: str, workload: str) -> list[StoredModel]:
    """Return the models of a workload's family, if there are any."""
    line = line_of(workload)
    models = reader.size_models(application) if line is not None else []
    return [m for m in models if line is not None and m.about_sizes.get("family") == line.family]
