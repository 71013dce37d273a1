"""What the laboratory adds: the distribution ``hpc-advisor-lab``, of which a site needs nothing.

It registers all of it by entry points, as any other package may. What it adds is listed here so
that the names answer where it is not installed, with one line that says how to get it.
"""

from __future__ import annotations

from typing import Any, Literal

from advisor import plugins
from advisor.errors import LaboratoryError

VERBS = {
    "phases": "find iterations and phases, and when a run could end early",
    "profile": "extrapolate the profiles of an application's threads",
    "evaluate": "compare models with a fully measured grid",
    "pareto": "find the Pareto front and the trade-off zone of any table",
}
"""Its verbs, each with one line of help."""
IMPORTERS = ("perf", "likwid", "papi", "extrap", "hpcprobe")
"""Formats of other programs that it reads: ``advisor import --from``."""
MODELS = ("formula",)
"""Models that ``fit --model`` takes beside the advisor's own."""
PANELS = ("phases", "statistics")
"""What it shows on request: of a sweep's program in the TUI, of fitted runs with ``fit --view``."""

AFTER_RUN = ("hpcprobe",)
"""What it does after each run of a sweep: HPCProbe's experiments ask for it."""

_NAMES = {
    "verbs": tuple(VERBS),
    "importers": IMPORTERS,
    "models": MODELS,
    "panels": PANELS,
    "after_run": AFTER_RUN,
}
HOW = "pip install hpc-advisor[lab]"


def load(
    kind: Literal["verbs", "importers", "models", "panels", "after_run"], name: str, words: str
) -> Any:
    """Return what is registered under a name, by whichever package; ``words`` ask for it.

    Raises LaboratoryError for what the laboratory has where it is not installed, else as
    :func:`advisor.plugins.load` does.
    """
    if name in _NAMES[kind] and name not in plugins.names(kind):
        raise LaboratoryError(f"{words}: part of the laboratory", hint=HOW)
    return plugins.load(kind, name)


def installed() -> bool:
    """Tell whether its verbs are there."""
    return VERBS.keys() <= set(plugins.names("verbs"))
