"""Axes beyond nodes, threads and frequency cap: what a configuration may have besides.

An axis is data: a name, which is also that of its column in files and of its key in JSON, how its
values are shown, and how a job gets one (:class:`AxisWriting`). All of them are whole numbers. Its
values belong to a configuration (:attr:`advisor.core.configuration.Configuration.extra`) where a
job states them; a job that states none has the highest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

from advisor.core.codec import Record
from advisor.core.keys import Written
from advisor.core.units import format_freq

Extra = tuple[tuple[str, int], ...]
"""Further axes of a configuration: name and value of each, by name."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A further axis: what people call it, the values it may have, and how they are written."""

    name: str
    words: str
    unit: str
    least: int
    most: int
    shown: Callable[[int], str]
    limits_power: bool = False
    """It limits power, and clocks follow; else it is a clock itself."""


AXES: Mapping[str, Axis] = {
    axis.name: axis
    for axis in (
        Axis("gpu_freq_khz", "GPU clock", "kHz", 100_000, 10_000_000, format_freq),
        Axis("gpu_power_w", "GPU power limit", "W", 1, 5000, lambda watts: f"{watts} W", True),
    )
}
"""The axes that there are, by name."""


@dataclass(frozen=True, slots=True)
class AxisWriting(Record):
    """How a job gets a value of an axis: by an option of its scheduler, or by its nodes' prolog.

    ``value`` is the option's, with ``{}`` where the number stands, in units of ``per`` of the
    axis' own. ``nodes``: there is no option; the job's stamp tells its nodes.
    """

    option: Annotated[
        str, Written.WORD, "the long name of the site's own option, without dashes"
    ] = ""
    value: Annotated[str, Written.AXIS_VALUE, "the option's value; {} stands for the number"] = "{}"
    nodes: Annotated[
        bool, "true: Slurm's prolog `advisor-node-cap` sets it on the job's own GPUs"
    ] = False
    per: int = 1

    def text(self, value: int) -> str:
        """Return the option's value for one of the axis."""
        return self.value.replace("{}", str(value // self.per))


def writings_of(site: Mapping[str, object]) -> dict[str, AxisWriting]:
    """Return how the axes of a compiled site file are written, by axis."""
    axes = site.get("axes")
    return {
        str(name): AxisWriting.from_dict(how)
        for name, how in (axes.items() if isinstance(axes, Mapping) else ())
    }


def read_extra(data: object) -> Extra:
    """Read further axes of a record; what is none, or has a value it cannot have, is left out."""
    values = data if isinstance(data, Mapping) else {}
    return tuple(
        (name, value)
        for name, axis in sorted(AXES.items())
        if type(value := values.get(name)) is int and axis.least <= value <= axis.most
    )


def extra_words(extra: Extra) -> str:
    """Return further axes as people read them: ``GPU clock 1.38 GHz, GPU power limit 200 W``."""
    return ", ".join(f"{AXES[name].words} {AXES[name].shown(value)}" for name, value in extra)
