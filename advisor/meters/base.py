"""What every meter offers, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from advisor.core.inventory import NodeType

EnergyQuality = Literal["measured", "estimated"]
Covers = Literal["node", "processors", "accelerators"]
"""What a meter sees: the whole node, its processors with their memory, or its accelerators."""
ACCELERATOR = "GPU "
"""How the name of an accelerator's part of a reading begins; its number and model follow."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is about to run on this machine: cores it may use, frequency cap (kHz, 0: none)."""

    threads: int = 1
    freq_khz: int = 0


@dataclass(frozen=True, slots=True)
class EnergyReading:
    """The energy of one run: joules of this node, how far to trust them, and the meter.

    ``meter`` is the name to store; ``detail`` says for people what it covers, and what not.
    ``parts`` are the joules by part of the node, as far as the meter knows them apart.
    """

    energy_j: float
    quality: EnergyQuality
    meter: str
    detail: str = ""
    parts: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class MeteredNode:
    """The node a meter is made for: its /sys, its type as far as it is known.

    ``generic``: numbers that hold for no node in particular may stand in for unknown ones.
    """

    root: Path = Path("/sys")
    node_type: NodeType | None = None
    generic: bool = False


class Meter(Protocol):
    """A meter of one node: ``start`` before a run, ``stop`` after it.

    NAME and DESCRIPTION drive the command line; of the meters that work here the one with the
    lowest RANK is taken (without one: 0, before all of the advisor's own). COVERS says what it sees
    (without one: the whole node): to a meter of processors those of accelerators are added, which
    never stand for a node by themselves (:mod:`advisor.meters.choose`). ``available`` returns
    None when the meter can be read here and now, else the reason with what to do about it.
    ``stop`` raises MeterError when the energy of this run is not known. A meter that also has
    ``so_far_j()``, a counter of joules, can be read while a run goes on: without it no run that it
    meters is ended early. UPDATE_S is the time between two steps of its counters (0: not known, and
    so where a site's own meter leaves it out): runs of a few steps are marked as inexact.
    """

    NAME: ClassVar[str]
    DESCRIPTION: ClassVar[str]
    RANK: ClassVar[int]
    UPDATE_S: ClassVar[float] = 0.0

    def __init__(self, node: MeteredNode) -> None:
        """Make a meter of this node; nothing is read yet."""

    def available(self) -> str | None:
        """Return why this meter cannot be used here, or None."""

    def start(self, load: Load) -> None:
        """Begin to count."""

    def stop(self) -> EnergyReading:
        """End counting and return what was used since :meth:`start`."""
