"""Find meters by name and pick the best one this machine has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from advisor import plugins
from advisor.core.inventory import NodeType
from advisor.errors import MeterError
from advisor.meters.base import Meter
from advisor.meters.estimate import EstimateMeter
from advisor.meters.pm_counters import PmCounters
from advisor.meters.rapl import Rapl

ORDER = ("pm_counters", "rapl", "estimate")
"""Best first: the whole node, then packages and memory, then a guess."""


@dataclass(frozen=True, slots=True)
class ChosenMeter:
    """The meter that was picked (None: none), and why each better one was not."""

    meter: Meter | None
    missing: Mapping[str, str]

    @property
    def sentence(self) -> str:
        """Say plainly which meter is used and why the others are not."""
        why = "; ".join(f"{name}: {reason}" for name, reason in self.missing.items())
        if self.meter is None:
            return f"no meter, energy is not known ({why})" if why else "no meter, as asked for"
        said = f"energy measured by {self.meter.NAME}: {self.meter.DESCRIPTION}"
        if isinstance(self.meter, EstimateMeter):
            said = f"energy estimated, not measured: {self.meter.basis}"
        return f"{said} (not used: {why})" if why else said


def _build(name: str, node_type: NodeType | None, root: Path, generic: bool) -> Meter:
    if name == "pm_counters":
        return PmCounters(root)
    if name == "rapl":
        return Rapl(root)
    if name == "estimate":
        return EstimateMeter(node_type, generic=generic)
    return cast(Meter, plugins.load("meters", name)())


def names() -> tuple[str, ...]:
    """Return the names of all meters, a site's own (entry points ``advisor.meters``) first."""
    return (*(n for n in plugins.names("meters") if n not in ORDER), *ORDER)


def best_meter(
    node_type: NodeType | None = None,
    *,
    name: str = "auto",
    root: Path = Path("/sys"),
    generic: bool = False,
) -> ChosenMeter:
    """Pick the best meter of this machine, or the one asked for by name.

    ``auto`` takes the first that works, in the order of :func:`names`; ``none`` takes none. A
    meter asked for by name must work, or MeterError says why not; ``estimate`` by name falls
    back on generic numbers, labelled as such. ``root`` poses another /sys.
    """
    if name == "none":
        return ChosenMeter(None, {})
    if name != "auto":
        meter = _build(name, node_type, root, generic=True)
        if reason := meter.available():
            raise MeterError(f"meter {name} cannot be used: {reason}", hint="or --meter auto")
        return ChosenMeter(meter, {})
    missing: dict[str, str] = {}
    for candidate in names():
        meter = _build(candidate, node_type, root, generic)
        reason = meter.available()
        if reason is None:
            return ChosenMeter(meter, missing)
        missing[candidate] = reason
    return ChosenMeter(None, missing)
