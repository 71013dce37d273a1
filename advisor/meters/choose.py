"""Find meters by name and pick the best one this machine has."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from advisor import plugins
from advisor.core.inventory import NodeType
from advisor.errors import InputError, MeterError
from advisor.meters.base import Covers, EnergyReading, Load, Meter, MeteredNode


@dataclass(frozen=True, slots=True)
class ChosenMeter:
    """The meter that was picked (None: none), and why each better one was not.

    Meters of accelerators that the node has, but that cannot be read, are among the missing.
    """

    meter: Meter | None
    missing: Mapping[str, str]

    @property
    def sentence(self) -> str:
        """Say plainly which meter is used and why the others are not."""
        why = "; ".join(f"{name}: {reason}" for name, reason in self.missing.items())
        if self.meter is None:
            return f"no meter, energy is not known ({why})" if why else "no meter, as asked for"
        sentence = f"energy measured by {self.meter.NAME}: {self.meter.DESCRIPTION}"
        if basis := getattr(self.meter, "basis", ""):
            sentence = f"energy estimated, not measured: {basis}"
        return f"{sentence} (not used: {why})" if why else sentence


def best_meter(
    node_type: NodeType | None = None,
    *,
    name: str = "auto",
    root: Path = Path("/sys"),
) -> ChosenMeter:
    """Pick the best meter of this machine, or the one asked for by name.

    ``auto`` takes the first that works, in the order of RANK, and leaves out a package that does
    not load; ``none`` takes none. A meter asked for by name must work, or MeterError says why
    not; ``estimate`` by name falls back on generic numbers, labelled as such. ``root`` stands in
    for /sys.
    """
    if name == "none":
        return ChosenMeter(None, {})
    if name != "auto":
        meter = _kind(name)(MeteredNode(root, node_type, generic=True))
        if reason := meter.available():
            raise MeterError(f"meter {name} cannot be used: {reason}", hint="or --meter auto")
        return ChosenMeter(meter, {})
    absences: dict[str, str] = {}
    candidates: dict[str, type[Meter]] = {}
    for candidate in plugins.names("meters"):
        try:
            candidates[candidate] = _kind(candidate)
        except InputError as error:
            absences[candidate] = str(error)
    by_rank = sorted(candidates.items(), key=lambda item: getattr(item[1], "RANK", 0))
    meters = {name: kind(MeteredNode(root, node_type)) for name, kind in by_rank}
    added = {n: m for n, m in meters.items() if _covers(m) == "accelerators"}
    for candidate, meter in meters.items():
        if candidate in added:
            continue
        reason = meter.available()
        if reason is None:
            # A meter of the whole node has the accelerators in it already.
            parts = _readable(added, absences) if _covers(meter) == "processors" else []
            return ChosenMeter(node_meter([meter, *parts]), absences)
        absences[candidate] = reason
    return ChosenMeter(None, absences)


def _kind(name: str) -> type[Meter]:
    """Return a meter's class; what a site's own leaves out is as the protocol has it."""
    kind: type[Meter] = plugins.load("meters", name)
    if not hasattr(kind, "UPDATE_S"):
        kind.UPDATE_S = Meter.UPDATE_S
    return kind


def _covers(meter: Meter) -> Covers:
    covers: Covers = getattr(meter, "COVERS", "node")
    return covers


def _readable(meters: Mapping[str, Meter], absences: dict[str, str]) -> list[Meter]:
    """Return the meters of accelerators that the node has; ``absences`` takes what has none."""
    readable = []
    for name, meter in meters.items():
        if not getattr(meter, "present", lambda: True)():
            continue
        if reason := meter.available():
            absences[name] = reason
        else:
            readable.append(meter)
    return readable


def node_meter(meters: Sequence[Meter]) -> Meter:
    """Return the meter of all that these see: a single one stays as it is."""
    return meters[0] if len(meters) == 1 else cast(Meter, NodeMeter(meters))


class NodeMeter:
    """The sum of a meter of processors and meters of accelerators, read together.

    Its parts are named in every reading. If one of them fails, the node's energy is not known.
    It has ``so_far_j`` and ``basis`` where its parts have.
    """

    basis: str
    so_far_j: Callable[[], float]

    def __init__(self, meters: Sequence[Meter]) -> None:
        self._meters = tuple(meters)
        self.NAME = "+".join(m.NAME for m in meters)
        self.DESCRIPTION = "; ".join(m.DESCRIPTION for m in meters)
        self.UPDATE_S = max(m.UPDATE_S for m in meters)
        if basis := getattr(meters[0], "basis", ""):
            self.basis = f"{basis}, and {'; '.join(m.DESCRIPTION for m in meters[1:])}"
        readers: list[Callable[[], float]] = [m.so_far_j for m in meters if hasattr(m, "so_far_j")]
        if len(readers) == len(meters):
            self.so_far_j = lambda: sum(reader() for reader in readers)

    def available(self) -> str | None:
        """Return why one of the parts cannot be read, or None."""
        return next(filter(None, (m.available() for m in self._meters)), None)

    def start(self, load: Load) -> None:
        """Begin to count. Raises MeterError when one of the parts cannot be read."""
        running_meters: list[Meter] = []
        try:
            for meter in self._meters:
                meter.start(load)
                running_meters.append(meter)
        except MeterError:
            for meter in running_meters:
                with contextlib.suppress(MeterError):
                    meter.stop()
            raise

    def stop(self) -> EnergyReading:
        """End counting. Raises MeterError when one of the parts failed; all are ended."""
        readings: list[EnergyReading] = []
        problems: list[str] = []
        for meter in self._meters:
            try:
                readings.append(meter.stop())
            except MeterError as error:
                problems.append(str(error))
        if problems:
            raise MeterError("; ".join(problems))
        parts = [part for r in readings for part in r.parts or ((r.meter, r.energy_j),)]
        return EnergyReading(
            sum(r.energy_j for r in readings),
            "estimated" if any(r.quality == "estimated" for r in readings) else "measured",
            "+".join(r.meter for r in readings),
            "; ".join(r.detail for r in readings if r.detail),
            tuple(parts),
        )
