"""What the daemon does, for Prometheus: OpenMetrics text, answered on the socket.

Counters begin at the daemon's start. Standard library only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

BUCKETS_S = (
    0.00002,
    0.00005,
    0.0001,
    0.0002,
    0.0005,
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.25,
)
"""Upper ends of the histogram of answers; a hook waits 0.25 s at most."""

END = "# EOF\n"
Labels = Mapping[str, str]


@dataclass(slots=True)
class AnswerCounts:
    """What is counted while jobs are answered: decisions by what ended them, and times."""

    reasons: Counter[tuple[str, bool]] = field(default_factory=Counter)
    times: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    time_s: float = 0.0

    def answered(self, seconds: float) -> None:
        """Note how long an answer took."""
        self.times[bisect_left(BUCKETS_S, seconds)] += 1
        self.time_s += seconds


@dataclass(slots=True)
class Text:
    """OpenMetrics text in the making."""

    lines: list[str] = field(default_factory=list)

    def family(
        self,
        name: str,
        kind: str,
        help: str,
        samples: Iterable[tuple[Labels, float | None]],
        unit: str = "",
    ) -> None:
        """Add a gauge or counter; what is None is not known and left out."""
        name = f"advisor_{name}"
        self._head(name, kind, help, unit)
        suffix = "_total" if kind == "counter" else ""
        for labels, value in samples:
            if value is not None:
                self.lines.append(f"{name}{suffix}{_labels(labels)} {_number(value)}")

    def histogram(self, name: str, help: str, counts: list[int], total: float) -> None:
        """Add the histogram of answers, in seconds."""
        name, below = f"advisor_{name}", 0
        self._head(name, "histogram", help, "seconds")
        for end, count in zip((*BUCKETS_S, float("inf")), counts, strict=True):
            below += count
            self.lines.append(f'{name}_bucket{{le="{_number(end)}"}} {below}')
        self.lines.append(f"{name}_count {below}")
        self.lines.append(f"{name}_sum {_number(total)}")

    def _head(self, name: str, kind: str, help: str, unit: str) -> None:
        self.lines += [f"# TYPE {name} {kind}", *([f"# UNIT {name} {unit}"] if unit else ())]
        self.lines.append(f"# HELP {name} {_escaped(help)}")

    def text(self) -> str:
        """Return all of it."""
        return "\n".join([*self.lines, END])


def _labels(labels: Labels) -> str:
    inside = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items())
    return f"{{{inside}}}" if inside else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if float(value).is_integer() else repr(float(value))
