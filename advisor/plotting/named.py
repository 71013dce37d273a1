"""Which options a picture names: the recommended, the fastest, that of least energy; the bound."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from advisor.core.option import Option
from advisor.core.words import describe

WRITTEN, RECOMMENDED = "job as written", "recommended"
FASTEST, THRIFTIEST = "fastest", "least energy"


@dataclass(frozen=True, slots=True)
class NamedOptions:
    """Options by what they are called, and the largest slowdown (a fraction; None: no bound)."""

    options: Mapping[str, Option] = field(default_factory=dict)
    max_slowdown: float | None = None

    @classmethod
    def among(
        cls,
        options: Sequence[Option],
        baseline: Option,
        recommended: Option | None,
        max_slowdown: float,
    ) -> NamedOptions:
        """Name options; where none is recommended, that is the job as written (``baseline``)."""
        named = {WRITTEN: baseline, RECOMMENDED: recommended or baseline}
        named[FASTEST] = min(options, key=lambda o: o.time_s)
        metered = [o for o in options if not math.isnan(o.energy_j)]
        if metered:
            named[THRIFTIEST] = min(metered, key=lambda o: o.energy_j)
        return cls(named, max_slowdown)

    @property
    def bound_words(self) -> str:
        """Say what the bound is; "" for none."""
        return "" if self.max_slowdown is None else f"{100 * self.max_slowdown:g} % slower"

    def slowest_s(self, baseline: Option) -> float | None:
        """Return the time (s) at the bound."""
        return None if self.max_slowdown is None else baseline.time_s * (1 + self.max_slowdown)

    def labels(self, options: Sequence[Option]) -> dict[int, str]:
        """Return ``recommended, fastest: 14 threads, 1.9 GHz`` by an option's number.

        Only of these ``options``.
        """
        numbers = {o.configuration: i for i, o in enumerate(options)}
        names: dict[int, list[str]] = {}
        for name, option in self.options.items():
            if option.configuration in numbers:
                names.setdefault(numbers[option.configuration], []).append(name)
        differ = len({o.configuration.nodes for o in options}) > 1

        def words(option: Option) -> str:
            text = describe(option.configuration)
            return text if differ else text.partition(", ")[2] or text

        return {i: f"{', '.join(what)}: {words(options[i])}" for i, what in names.items()}


NO_NAMES = NamedOptions()
