"""The plan that a job carries: what each of its steps gets, looked up where the step starts.

At submission a script is only read; at a step its program, arguments, ranks and threads are known.
So the daemon puts into the job's environment what the programs that its user is known to run would
get, and the hook at the step (hooks/slurm/advisor/step.lua) looks its program up, asking nobody.
docs/design.md has the form; this module is the one definition of it. Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, NamedTuple

from advisor.core.codec import AtLeast, Count, Record, wire
from advisor.core.recognise import clean_name
from advisor.core.script_use import THREAD_VARIABLES

MAX_PLAN = 2000
"""Bytes of a plan: entries that would go beyond are left out, the last ones."""
ANY = "*"
"""In place of a step's arguments: whatever they are, where no entry names them. No cleaned
arguments have it."""
StepChange = Annotated[
    tuple[float, float, float],
    "of such a step, in percent, with its 90 % interval; null where it is left",
]
_FIRST, _TIMES, _PRIME = 5381, 33, 4294967291
"""Of the hash: what it begins with, its factor, and its modulus."""
_OMP = THREAD_VARIABLES[0]
_COUNT = r"[1-9]\d{0,6}"
_KHZ = r"0|[1-9]\d{3,7}"
_PLAN = re.compile(
    rf"1 ([0-9a-f]{{16}}) (0|[1-9]\d{{0,9}}) ({_COUNT}) ({_COUNT})((?: [!-~]+)+) ([0-9a-f]{{8}})"
)
_ENTRY = re.compile(
    rf"([0-9a-f]{{8}}),({_COUNT}),({_COUNT}),([u-]),(0|{_COUNT}),({_KHZ})"
    r"(?:,([A-Z][A-Z0-9_]{0,63})?(?:,([0-9a-f]{8}))?)?"
)


def digest(data: bytes, start: int = _FIRST) -> int:
    """Return the hash of bytes: h times 33 plus the byte, modulo the largest prime below 2^32.

    Every step of it is exact in the doubles that Lua counts in.
    """
    h = start
    for byte in data:
        h = (h * _TIMES + byte) % _PRIME
    return h


@lru_cache(maxsize=4096)
def key_of(text: str) -> str:
    """Return the hash of a program's identity, or of its build, as entries have it."""
    return f"{digest(text.encode()):08x}"


def step_identity(program: str, arguments: str) -> str:
    """Return what a step runs: its program's name, and behind it its cleaned arguments, if any."""
    return f"{clean_name(program)} {arguments}" if arguments else clean_name(program)


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """What a step gets that runs one program in one shape, as the variable has it.

    ``ranks`` are those of all nodes together and ``threads`` those of each rank, as the step is
    written; ``unset``: it also holds where the variable of threads is unset. ``threads_new`` and
    ``cap_khz`` are 0 for what is left. ``build`` is the hash of the program's build, "" for any.
    """

    key: str
    ranks: int
    threads: int
    unset: bool
    threads_new: int = 0
    cap_khz: int = 0
    variable: str = _OMP
    build: str = ""

    @property
    def text(self) -> str:
        """The entry's word."""
        words = [self.key, str(self.ranks), str(self.threads), "u" if self.unset else "-"]
        words += [str(self.threads_new), str(self.cap_khz)]
        if self.variable != _OMP or self.build:
            words.append("" if self.variable == _OMP else self.variable)
        return ",".join([*words, self.build] if self.build else words)


@dataclass(frozen=True, slots=True)
class PlanText:
    """A plan as the variable has it, with whose and which job's it is."""

    decision: str
    uid: int
    nodes: int
    cpus: int
    entries: tuple[PlanEntry, ...]


def read_plan(text: str) -> PlanText | None:
    """Return what a plan says, None for a text that is none: cut, forged or of another form."""
    match = _PLAN.fullmatch(text) if len(text) <= MAX_PLAN else None
    if match is None or key_of(text[: match.start(6)]) != match[6]:
        return None
    entries = []
    for word in match[5].split():
        entry = _ENTRY.fullmatch(word)
        if entry is None:
            return None
        key, ranks, threads, unset, new, khz, variable, build = entry.groups("")
        # No plan of ours gives a step more threads than it has.
        if int(new) >= int(threads):
            return None
        counts = int(ranks), int(threads), unset == "u", int(new), int(khz)
        entries.append(PlanEntry(key, *counts, variable or _OMP, build))
    plan = PlanText(match[1], int(match[2]), int(match[3]), int(match[4]), tuple(entries))
    words = " ".join(entry.text for entry in entries)
    return plan if words == match[5].strip() else None  # one way to write each entry


class PlanForm(NamedTuple):
    """A plan but for its decision: the ``tail`` behind it, its hash alone, and the power of the
    hash's factor by which what stands before it counts."""

    tail: str
    sum_of_tail: int
    power: int

    def text(self, decision: str) -> str:
        """Return the plan for the decision of one job."""
        head = f"1 {decision} "
        total = (digest(head.encode()) * self.power + self.sum_of_tail) % _PRIME
        return f"{head}{self.tail}{total:08x}"


@dataclass(frozen=True, slots=True)
class PlannedStep(Record):
    """What steps of one program in one shape get, as a decision keeps it; see :class:`PlanEntry`.

    ``arguments`` are cleaned, ``build`` is the program's own. ``time_pct`` and ``energy_pct`` are
    the predicted change of the step with its 90 % interval; None of an entry that leaves the step
    as it is written, which stands there so that none behind it holds.
    """

    program: Annotated[str, "the file's name"]
    arguments: Annotated[str, '"*": any that no other entry names']
    application: str
    workload: str
    ranks: Annotated[int, AtLeast(1), "of all nodes together"]
    threads: Annotated[int, AtLeast(1), "of each rank, as written"]
    unset: Annotated[bool, "it also holds where the variable is unset"]
    threads_new: Annotated[int, AtLeast(0), "0: as written"] = 0
    cap_khz: Annotated[int, AtLeast(0), "0: as written"] = 0
    variable: Annotated[str, "of the threads; OMP_NUM_THREADS if absent"] = field(
        default=_OMP, metadata=wire(omit=True)
    )
    build: Annotated[str, "of the program; any if absent"] = field(
        default="", metadata=wire(omit=True)
    )
    time_pct: StepChange | None = None
    energy_pct: StepChange | None = None

    @property
    def changes(self) -> bool:
        """Whether such a step is changed."""
        return bool(self.threads_new or self.cap_khz)

    @property
    def entry(self) -> PlanEntry:
        """The step as the variable has it."""
        return PlanEntry(
            key_of(step_identity(self.program, self.arguments)),
            self.ranks,
            self.threads,
            self.unset,
            self.threads_new,
            self.cap_khz,
            self.variable,
            key_of(self.build) if self.build else "",
        )


@dataclass(frozen=True, slots=True)
class StepPlan(Record):
    """The plan of a job of ``nodes`` nodes with ``cpus`` CPUs each, the first that fits counts."""

    uid: Count
    nodes: Annotated[int, AtLeast(1), "of the job"]
    cpus: Annotated[int, AtLeast(1), "of each node"]
    steps: tuple[PlannedStep, ...]

    @property
    def least_time(self) -> float:
        """What a step takes at least of its time as written, by the lower ends: 1 at most."""
        return min([1.0, *(1 + step.time_pct[1] / 100 for step in self.steps if step.time_pct)])

    def form(self) -> PlanForm:
        """Return what writes the plan for one job after the other."""
        words = [str(self.uid), str(self.nodes), str(self.cpus)]
        tail = " ".join([*words, *(step.entry.text for step in self.steps), ""])
        return PlanForm(tail, digest(tail.encode(), 0), pow(_TIMES, len(tail), _PRIME))

    def text(self, decision: str) -> str:
        """Return the plan as the variable has it, for the decision of one job."""
        return self.form().text(decision)

    def bounded(self) -> StepPlan:
        """Return the plan with as many of its steps as there is room for.

        Without one that holds for any arguments where steps before it are left out: these might be
        what a step should be left as it is for.
        """
        room = MAX_PLAN - len(f"1 {'0' * 16} {self.uid} {self.nodes} {self.cpus} {'0' * 8}")
        steps = tuple(_fitting(self.steps, room))
        if len(steps) < len(self.steps):
            steps = tuple(step for step in steps if step.arguments != ANY)
        return replace(self, steps=steps)


def _fitting(steps: tuple[PlannedStep, ...], room: int) -> Iterator[PlannedStep]:
    for step in steps:
        room -= len(step.entry.text) + 1
        if room < 0:
            return
        yield step
