"""What every meter offers, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

EnergyQuality = Literal["measured", "estimated"]


@dataclass(frozen=True, slots=True)
class Load:
    """What is about to run on this machine: cores it may use, frequency cap (kHz, 0: none)."""

    threads: int = 1
    freq_khz: int = 0


@dataclass(frozen=True, slots=True)
class EnergyReading:
    """The energy of one run: joules of this node, how far to trust them, and what told them.

    ``meter`` is the name to store; ``detail`` says for people what it covers.
    """

    energy_j: float
    quality: EnergyQuality
    meter: str
    detail: str = ""


class Meter(Protocol):
    """A meter of one node: ``start`` before a run, ``stop`` after it.

    NAME and DESCRIPTION drive the command line. ``available`` returns None when the meter can be
    read here and now, else the reason with what to do about it. ``stop`` raises MeterError when
    the energy of this run cannot be told.
    """

    NAME: ClassVar[str]
    DESCRIPTION: ClassVar[str]

    def available(self) -> str | None:
        """Return why this meter cannot be used here, or None."""

    def start(self, load: Load) -> None:
        """Begin to count."""

    def stop(self) -> EnergyReading:
        """End counting and return what was used since :meth:`start`."""
