"""The trade-off zone of the stencil kernel on 64 nodes: Endrei 2019, listings 5.1 to 5.3."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from advisor.core.pareto import ErrorLimits, trade_off

TABLE = Path(__file__).with_name("stencil64_bspline.csv")
ROWS = list(csv.DictReader(TABLE.open()))
EFFICIENCY = [float(r["mflops_per_joule"]) for r in ROWS]
SPEED = [float(r["mflops_per_second"]) for r in ROWS]
PUBLISHED = tuple(int(r["index"]) for r in ROWS if r["in_published_zone"] == "1")
EXTENDED = (
    (210.024999, 2.696985e6),
    (210.024999, 3.237124e6),
    (209.616948, 3.284022e6),
    (207.011428, 3.309843e6),
    (202.290166, 3.314084e6),
    (182.741915, 3.314084e6),
)


def test_the_printed_front_extended_front_and_zone_come_out() -> None:
    result = trade_off(EFFICIENCY, SPEED)
    assert result.front == (62, 63, 64, 65)
    assert result.extension == (55, 87)
    for (x, y), (gx, gy) in zip(result.extended_front, EXTENDED, strict=True):
        assert x == pytest.approx(gx, rel=1e-6)
        assert y == pytest.approx(gy, rel=1e-6)
    assert len(PUBLISHED) == 37
    assert result.zone == PUBLISHED


def test_the_same_zone_comes_out_of_the_mirrored_table() -> None:
    for sx, sy in ((-1, 1), (1, -1), (-1, -1)):
        result = trade_off(
            [sx * v for v in EFFICIENCY], [sy * v for v in SPEED], max_x=sx > 0, max_y=sy > 0
        )
        assert result.zone == PUBLISHED
        assert result.front == (62, 63, 64, 65)


def test_a_hair_more_error_takes_the_border_row_no_further() -> None:
    """Row 55 marks the border itself: only a wider error that reaches below it lets it in."""
    same = trade_off(
        EFFICIENCY, SPEED, x_limits=ErrorLimits(0.0500001), y_limits=ErrorLimits(0.0500001)
    )
    assert same.zone == PUBLISHED
    wider = trade_off(EFFICIENCY, SPEED, x_limits=ErrorLimits(0.09), y_limits=ErrorLimits(0.09))
    assert set(wider.zone) > {55, *PUBLISHED}
