"""Which further axes may be lowered for a job, and why the others are kept."""

from __future__ import annotations

from advisor.core.axes import AXES, AxisWriting
from advisor.core.configuration import Configuration
from advisor.core.feasible import axis_kept
from advisor.core.reasons import Reason, reason
from advisor.core.requested_configuration import bound
from advisor.core.units import format_count
from advisor.schedulers.translators import translator
from advisor.service.understand import UnderstoodJob
from advisor.store.records import StoredModel


def writing_of(axis: str, job: UnderstoodJob) -> AxisWriting | None:
    """Return how an axis is written into a job: as the site may say, else as its scheduler does."""
    language = translator(job.request.scheduler)
    own = language.AXES.get(axis)
    return job.snapshot.axes.get(axis, own) if language.SITE_AXES else own


def axes_of(job: UnderstoodJob, model: StoredModel) -> tuple[tuple[str, ...], tuple[Reason, ...]]:
    """Return the axes of a model that may be lowered for a job, and why the others may not."""
    obstacles = {name: _obstacle(name, job, model) for name in model.further_axes}
    free = tuple(name for name, why in obstacles.items() if why is None)
    return free, tuple(why for why in obstacles.values() if why is not None)


def _obstacle(axis: str, job: UnderstoodJob, model: StoredModel) -> Reason | None:
    request, writing, words = job.request, writing_of(axis, job), AXES[axis].words
    if writing is None:
        return reason("axis-unwritten", words)
    by_option, by_nodes = job.reading.axes_kept
    why = ""
    if request.gpus is None:
        why = "the job asks for no GPUs"
    elif request.gpus.unclear:
        why = request.gpus.unclear
    elif not model.fitted:
        why = "its runs were others"
    elif not job.snapshot.inventory.node_types[model.node_type].gpus.steps(axis):
        why = f"the inventory lists none for {model.node_type}"
    elif writing.nodes:
        why = by_nodes
    elif writing == translator(request.scheduler).AXES.get(axis):
        why = by_option
    why = why or bound(request, axis)
    if why:
        return reason("axis-bound", f"{words} is kept: {why}")
    return axis_kept(words, job.policy.axes.gpu, request, lower=True)


def other_gpus(job: UnderstoodJob, model: StoredModel, configuration: Configuration) -> str:
    """Return in words how a job's GPUs differ from those of a model's runs, "" where not."""
    asked, had = job.request.gpus, model.gpus
    if asked is None:
        return ""
    if not had and model.further_axes:  # they took what the node has
        had = job.snapshot.inventory.node_types[model.node_type].gpus.count
    try:
        count = asked.on_a_node(configuration)
    except ValueError:  # which keeps their axes
        return ""
    if not had or count == had:
        return ""
    return f"{format_count(count, 'GPU')} a node, where its runs had {had},"


def cap_kept(job: UnderstoodJob, model: StoredModel) -> str:
    """Return why a job with GPUs keeps the frequency of its processors, "" where it may change."""
    if job.request.gpus is None or model.gpus_metered:
        return ""
    return "its model's energies are without its GPUs"
