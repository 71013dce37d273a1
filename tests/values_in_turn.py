"""Programs that iterate, drawn, with whoever goes through the values of a setting as they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from advisor.phases.metered import Metered
from advisor.phases.pairing import Baseline, RunEvents
from advisor.phases.visits import Visits

PERIOD_S = 0.1


@dataclass(frozen=True)
class Program:
    """One that iterates: what an iteration takes at a value of 0 to 1, against its own."""

    iterations: int = 600
    iteration_s: float = 0.05
    around_s: float = 1.0
    scatter: float = 0.02
    drift: float = 0.0
    grows: float = 0.0
    time: Callable[[float], float] = lambda f: 0.3 / f + 0.7
    power: Callable[[float], float] = lambda f: 100 + 250 * f**2.5


class Running:
    """A run under way: events and readings, and whoever follows it sets its value."""

    def __init__(
        self, program: Program, seed: int, values: tuple[float, ...], launch: float = 0.0
    ) -> None:
        """``launch``: relative standard deviation of one run's time from launch to launch."""
        self.program, self.values, self.random = program, values, Random(seed)
        self.launch = self.random.gauss(1, launch)
        self.now = self.joules = self.read = 0.0
        self.value = values[0]
        self.events: list[tuple[float, str]] = []
        self.readings = [(0.0, 0.0)]

    def spend(self, seconds: float) -> None:
        end, watts = self.now + seconds, self.program.power(self.value)
        while self.read + PERIOD_S <= end:
            self.read += PERIOD_S
            joules = self.joules + watts * (self.read - self.now)
            self.readings.append((self.read, round(joules, 2)))
        self.joules += watts * seconds
        self.now = end

    def go(self, visits: Visits | None = None, late_s: float = 0.1, site: str = "halo") -> None:
        program, fed, told = self.program, 0, 0
        due: list[tuple[float, float]] = []
        standing: int | None = None

        def called(name: str) -> bool:
            nonlocal fed, told, standing
            self.events.append((self.now, name))
            if visits is None:
                return False
            while told < len(self.readings) and self.readings[told][0] <= self.now:
                visits.read(*self.readings[told])
                told += 1
            visits.feed(self.now, name)
            if visits.wanted is not None and visits.wanted != standing:
                standing = visits.wanted
                due.append((self.now + late_s, self.values[standing]))
                visits.changed(self.now + late_s)
            return visits.done or bool(visits.reason)

        called("begin")
        self.spend(program.around_s)
        for i in range(program.iterations):
            while due and due[0][0] <= self.now:
                self.value = due.pop(0)[1]
            if called("step"):
                return
            part = self.launch * program.iteration_s * program.time(self.value)
            part *= 1 + program.drift * i / program.iterations
            part *= 1 + program.grows * i / program.iterations
            self.spend(0.4 * part * self.random.gauss(1, program.scatter))
            called(site)
            self.spend(0.6 * part * self.random.gauss(1, program.scatter))
        self.spend(program.around_s)
        if visits is None:
            called("end")
        else:
            visits.ended()


VALUES = (1.0, 0.93, 0.86, 0.79, 0.71, 0.64, 0.57)


def complete(program: Program, seed: int = 1, launch: float = 0.0, value: float = 1.0) -> Baseline:
    """Return a complete run at one value."""
    run = Running(program, seed, (value,), launch)
    run.go()
    meter = Metered()
    for reading in run.readings:
        meter.feed(*reading)
    times, sites = zip(*run.events, strict=True)
    return Baseline(RunEvents(times, sites), meter)


def visited(
    program: Program, seed: int = 2, *, base: Program | None = None
) -> tuple[Visits, Running]:
    run = Running(program, seed, VALUES)
    visits = Visits(complete(base or program), len(VALUES))
    run.go(visits)
    return visits, run


def truth(program: Program, f: float) -> tuple[float, float]:
    """Seconds and joules of a whole run at a value."""
    loop_s = program.iterations * program.iteration_s * program.time(f)
    loop_s *= 1 + program.grows / 2
    seconds = loop_s + 2 * program.around_s * program.time(f)
    return seconds, seconds * program.power(f)
