"""Shapes in pixels: how much of each they cover, and what stays clear."""

from __future__ import annotations

import math

import numpy as np
import pytest

from advisor.plotting.pixels import Canvas, Colour

RED: Colour = (200, 10, 20)


def pixels(canvas: Canvas) -> np.ndarray:
    return np.frombuffer(canvas.rgba(), np.uint8).reshape(canvas.height, canvas.width, 4)


def covered(canvas: Canvas) -> float:
    return float(pixels(canvas)[..., 3].sum()) / 255


def test_nothing_is_drawn_on_a_new_canvas() -> None:
    assert not pixels(Canvas(3, 2)).any()


@pytest.mark.parametrize(
    ("corners", "area"),
    [
        ([(2, 2), (8, 2), (8, 5), (2, 5)], 18.0),
        ([(2, 5), (8, 5), (8, 2), (2, 2)], 18.0),  # the other way round
        ([(2.25, 2), (7.75, 2), (7.75, 5), (2.25, 5)], 16.5),
        ([(1, 1), (9, 1), (1, 9)], 32.0),
        ([(-5, -5), (5, -5), (5, 5), (-5, 5)], 25.0),  # of which a quarter is in the picture
        ([(20, 20), (30, 20), (30, 30)], 0.0),
        ([(1, 1), (5, 5)], 0.0),
    ],
)
def test_a_polygon_covers_its_area(corners: list[tuple[float, float]], area: float) -> None:
    canvas = Canvas(10, 10)
    canvas.fill(corners, RED)
    assert covered(canvas) == pytest.approx(area, abs=0.3)


def test_a_hollow_corner_stays_clear() -> None:
    canvas = Canvas(12, 12)
    canvas.fill([(1, 1), (11, 1), (11, 11), (6, 6), (1, 11)], RED)
    found = pixels(canvas)
    assert found[2, 6, 3] == 255 and found[10, 6, 3] == 0


def test_a_disc_a_line_and_a_ring_cover_what_they_should() -> None:
    disc, line, ring = Canvas(40, 40), Canvas(40, 40), Canvas(40, 40)
    disc.stroke([(20, 20)], 16, RED)
    line.stroke([(10, 10), (30, 10), (30, 30)], 2, RED)
    ring.ring((20, 20), 10, 2, RED)
    assert covered(disc) == pytest.approx(math.pi * 64, rel=0.02)
    assert covered(line) == pytest.approx(2 * 40 + math.pi - 1, rel=0.05)
    assert covered(ring) == pytest.approx(2 * math.pi * 10 * 2, rel=0.03)
    assert pixels(ring)[20, 20, 3] == 0 and tuple(pixels(disc)[20, 20]) == (*RED, 255)


def test_a_later_shape_covers_an_earlier_one_and_a_clear_one_takes_it_away() -> None:
    canvas = Canvas(20, 20)
    canvas.fill([(0, 0), (20, 0), (20, 20), (0, 20)], RED, 0.5)
    assert tuple(pixels(canvas)[5, 5]) == (*RED, 128)
    canvas.stroke([(10, 10)], 8, (0, 0, 255))
    canvas.stroke([(10, 10)], 4, None)
    found = pixels(canvas)
    assert found[10, 10, 3] == 0 and tuple(found[10, 7]) == (0, 0, 255, 255)


def test_what_lies_outside_is_left_out() -> None:
    canvas = Canvas(8, 8)
    canvas.stroke([(-40, -40), (-20, 50)], 3, RED)
    canvas.ring((100, 100), 4, 2, RED)
    assert not pixels(canvas).any()
