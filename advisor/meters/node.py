"""A node's energy from several meters that each see a part of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import cast

from advisor.errors import MeterError
from advisor.meters.base import EnergyReading, Load, Meter


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
