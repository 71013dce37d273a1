"""Narrow options by conditions as people type them (``cores<=16 time<5%``), and order them."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.core.objectives import MEASURES
from advisor.core.option import Option
from advisor.errors import InputError

EXAMPLE = "cores<=16 ghz>=1.8 time<5% energy<-10% measured"
ORDERS = ("", "energy", "time", "cores", "edp")
"""What a list can be ordered by; "": as the options lie in the picture."""

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
    "!=": operator.ne,
}
_NUMBERS: dict[str, Callable[[Option], float]] = {
    "nodes": lambda o: o.configuration.nodes,
    "ranks": lambda o: o.configuration.ranks_per_node,
    "threads": lambda o: o.configuration.threads_per_node,
    "cores": lambda o: o.configuration.cores,
    "ghz": lambda o: o.configuration.freq_khz / 1e6,
    "time": lambda o: o.time_s,
    "energy": lambda o: o.energy_j,
}
_WORDS: dict[str, Callable[[Option], bool]] = {
    "measured": lambda o: o.measured,
    "predicted": lambda o: not o.measured,
    "confirmed": lambda o: o.confirmed,
    "front": lambda o: o.on_front,
    "zone": lambda o: o.in_zone,
}
_UNITS = {
    "time": {"": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0},
    "energy": {"": 1.0, "j": 1.0, "kj": 1e3, "mj": 1e6},
    "ghz": {"": 1.0, "ghz": 1.0},
}
_CONDITION = re.compile(r"([a-z]+)(<=|>=|!=|<|>|=)([^<>=!]+)")
_VALUE = re.compile(r"([+-]?\d+(?:\.\d+)?)([a-z%]*)")


@dataclass(frozen=True, slots=True)
class Narrowing:
    """Conditions that all must hold; "" lets everything pass."""

    text: str = ""
    conditions: tuple[Callable[[Option, Option], bool], ...] = ()

    def holds(self, option: Option, baseline: Option) -> bool:
        """Tell whether an option is to be listed; percents count against the baseline."""
        return all(condition(option, baseline) for condition in self.conditions)


def narrowing(text: str) -> Narrowing:
    """Return what a typed line asks for. Raises InputError for a word that is no condition.

    Names are nodes, ranks, threads (of a node), cores (of all nodes), ghz, time, energy, node;
    measured, predicted, confirmed, front and zone stand alone. Time and energy take a unit or %.
    """
    words = re.sub(r"\s*(<=|>=|!=|<|>|=)\s*", r"\1", text.lower()).split()
    return Narrowing(" ".join(words), tuple(_condition(word) for word in words))


def _condition(word: str) -> Callable[[Option, Option], bool]:
    if word in _WORDS:
        predicate = _WORDS[word]
        return lambda o, _: predicate(o)
    match = _CONDITION.fullmatch(word)
    if match is None:
        raise InputError(f"{word!r} is not a condition", hint=f"like {EXAMPLE}")
    name, sign, operand = match.groups()
    compare = _COMPARE[sign]
    if name == "node" and sign in ("=", "!="):
        return lambda o, _: compare(o.configuration.node_type.lower(), operand)
    value = _VALUE.fullmatch(operand)
    if name not in _NUMBERS or value is None:
        raise InputError(f"{word!r} is not a condition", hint=f"like {EXAMPLE}")
    number, unit = float(value[1]), value[2]
    quantity = _NUMBERS[name]
    if unit == "%" and name in ("time", "energy"):
        return lambda o, base: compare(100.0 * (quantity(o) / quantity(base) - 1.0), number)
    units = _UNITS.get(name, {"": 1.0})
    if unit not in units:
        raise InputError(f"{word!r}: {name} has no unit {unit!r}", hint=f"like {EXAMPLE}")
    return lambda o, _: compare(quantity(o), number * units[unit])


def ordered(options: Sequence[Option], numbers: Sequence[int], order: str) -> list[int]:
    """Return numbers of options in one of ``ORDERS``; "" leaves them as they are."""
    if not order:
        return list(numbers)
    measure = MEASURES[order]
    return sorted(numbers, key=lambda n: (measure(options[n]), n))
