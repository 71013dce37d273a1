"""Names that nothing is stored of: which of them is wrong, and what was probably meant."""

from __future__ import annotations

from advisor.core.nearest import nearest, suggestion
from advisor.core.recognise import clean_name
from advisor.errors import UsageError
from advisor.store.reader import Reader


def meant(store: Reader, application: str) -> str:
    """Return ``did you mean X?`` for an application of which nothing is stored, else ""."""
    applications = {w.application for w in store.workloads()}
    nearest_names = () if application in applications else nearest(application, applications)
    return f"did you mean {nearest_names[0]}?" if nearest_names else ""


def check_measured(
    store: Reader, application: str, workload: str | None = None, node_type: str | None = None
) -> None:
    """Raise UsageError for the first name that the store does not know."""
    workloads = store.workloads()
    applications = {w.application for w in workloads}
    if application not in applications:
        suggested_name = suggestion(application, applications)
        if (stored := clean_name(application)) in applications:
            suggested_name = f"did you mean {stored}?"
        if not applications:
            suggested_name = "advisor train or advisor import measures one"
        raise UsageError(f"nothing is stored for application {application!r}", hint=suggested_name)
    names = {w.name for w in workloads if w.application == application}
    if workload is not None and workload not in names:
        raise UsageError(
            f"{application} has no workload {workload!r}", hint=suggestion(workload, names)
        )
    types = set(store.inventory().node_types)
    types |= {o.observation.configuration.node_type for o in store.observations(application)}
    if node_type is not None and node_type not in types:
        raise UsageError(f"there is no node type {node_type!r}", hint=suggestion(node_type, types))
