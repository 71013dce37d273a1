"""Conditions as people type them, and the order of a list."""

from __future__ import annotations

import pytest

from advisor.core.configuration import Configuration
from advisor.core.option import Option
from advisor.errors import InputError
from advisor.views.narrow import ORDERS, narrowing, ordered


def option(
    threads: int, khz: int, time_s: float, energy_j: float, *, measured: bool = True
) -> Option:
    c = Configuration("Skl", 2, 1, threads, khz)
    return Option(
        c, time_s, time_s, time_s, energy_j, energy_j, energy_j, measured=measured, in_zone=measured
    )


BASE = option(32, 2_400_000, 100.0, 10_000.0)
OTHER = option(8, 1_800_000, 110.0, 8_000.0, measured=False)


@pytest.mark.parametrize(
    ("text", "base", "other"),
    [
        ("", True, True),
        ("cores<=16", False, True),
        ("threads=8", False, True),
        ("cores > 16  ghz>=2", True, False),
        ("ghz<2GHz", False, True),
        ("time<5%", True, False),
        ("energy<-10%", False, True),
        ("energy<=8kJ", False, True),
        ("time<1.75min", True, False),
        ("node=skl nodes=2", True, True),
        ("node!=skl", False, False),
        ("measured", True, False),
        ("predicted", False, True),
        ("zone MEASURED", True, False),
    ],
)
def test_conditions(text: str, base: bool, other: bool) -> None:
    wanted = narrowing(text)
    assert wanted.holds(BASE, BASE) is base
    assert wanted.holds(OTHER, BASE) is other


@pytest.mark.parametrize(
    "text",
    ["fast", "cores", "cores<", "cores<=many", "time<5W", "watts<3", "node<skl", "a=b=c", "<5"],
)
def test_what_is_no_condition_says_what_is_one(text: str) -> None:
    with pytest.raises(InputError) as caught:
        narrowing(text)
    assert "cores<=16" in str(caught.value)


def test_orders() -> None:
    both = [BASE, OTHER]
    assert {by: ordered(both, [0, 1], by) for by in ORDERS} == {
        "": [0, 1],
        "energy": [1, 0],
        "time": [0, 1],
        "cores": [1, 0],
        "edp": [1, 0],
    }
