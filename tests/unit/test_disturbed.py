"""Options that show a disturbed run: a spike between neighbours, and nothing else."""

from __future__ import annotations

from dataclasses import replace

from advisor.core.configuration import Configuration
from advisor.core.disturbed import disturbed
from advisor.core.option import Option
from advisor.plotting.panels import Lines, Surface, lines, surface


def grid() -> list[Option]:
    """Time 1/threads and 1/frequency, all measured, none confirmed; 5 threads by 3 frequencies."""
    found = []
    for threads in range(1, 6):
        for khz in (1_000_000, 1_500_000, 2_000_000):
            time, energy = 1e8 / threads / khz, 1000.0
            c = Configuration("n", 1, 1, threads, khz)
            found.append(Option(c, time, time, time, energy, energy, energy, measured=True))
    return found


def test_a_smooth_grid_has_none_however_steep() -> None:
    assert disturbed(grid()) == frozenset()
    assert disturbed(grid()[:2]) == frozenset()


def test_a_spike_is_found_unless_a_model_confirmed_it() -> None:
    options = grid()
    options[7] = replace(options[7], time_s=20 * options[7].time_s)
    options[1] = replace(options[1], energy_j=9000.0)  # on the edge: seen along frequency
    assert disturbed(options) == {7, 1}
    assert disturbed([replace(o, confirmed=True) for o in options]) == frozenset()
    assert disturbed([replace(o, measured=False) for o in options]) == frozenset()


def test_no_picture_is_stretched_by_it() -> None:
    options = grid()
    options[7] = replace(options[7], time_s=1e6, energy_j=1e9)
    time = lines("t", options, options[-1]).panels[0]
    assert isinstance(time, Lines)
    assert max(y for line in time.lines for y in line.y) <= 100
    field = surface("t", options, options[-1]).panels[0]
    assert isinstance(field, Surface)
    assert field.z[1][2] != field.z[1][2]  # a gap
