"""Which further axes may be lowered for a job, and why the others are kept."""

from __future__ import annotations

from advisor.core.axes import AXES
from advisor.core.configuration import Configuration
from advisor.core.feasible import axis_kept
from advisor.core.reasons import Reason, reason
from advisor.core.requested_configuration import gpus_kept
from advisor.core.units import format_count
from advisor.schedulers.translators import translator, writing_of
from advisor.service.understand import UnderstoodJob
from advisor.store.records import StoredModel


def axes_of(job: UnderstoodJob, model: StoredModel) -> tuple[tuple[str, ...], tuple[Reason, ...]]:
    """Return the axes of a model that may be lowered for a job, and why the others may not."""
    obstacles = {name: _obstacle(name, job, model) for name in model.further_axes}
    free = tuple(name for name, why in obstacles.items() if why is None)
    return free, tuple(why for why in obstacles.values() if why is not None)


def _obstacle(axis: str, job: UnderstoodJob, model: StoredModel) -> Reason | None:
    request, words = job.request, AXES[axis].words
    writing = writing_of(axis, request.scheduler, job.snapshot.axes)
    if writing is None:
        return reason("axis-unwritten", words)
    by_option, by_nodes = job.reading.axes_kept
    why = gpus_kept(request, job.snapshot.inventory.node_types[model.node_type], axis)
    if not why and not model.fitted:
        why = "its runs were others"
    elif not why and writing.nodes:
        why = by_nodes
    elif not why and writing == translator(request.scheduler).AXES.get(axis):
        why = by_option
    if why:
        return reason("axis-bound", f"{words} is kept: {why}")
    return axis_kept(words, job.policy.axes.gpu, request, lower=True)


def other_gpus(job: UnderstoodJob, model: StoredModel, configuration: Configuration) -> str:
    """Return in words how a job's GPUs differ from those of a model's runs, "" where not."""
    request, measured_count = job.request.gpus, model.gpus
    if request is None:
        return ""
    if not measured_count and model.further_axes:  # they took what the node has
        measured_count = job.snapshot.inventory.node_types[model.node_type].gpus.count
    try:
        count = request.on_a_node(configuration)
    except ValueError:  # which keeps their axes
        return ""
    if not measured_count or count == measured_count:
        return ""
    return f"{format_count(count, 'GPU')} a node, where its runs had {measured_count},"


def cap_kept(job: UnderstoodJob, model: StoredModel) -> str:
    """Return why a job with GPUs keeps the frequency of its processors, "" where it may change."""
    if job.request.gpus is None or model.gpus_metered:
        return ""
    return "its model's energies are without its GPUs"
