"""Radar pictures of classes: no text on another."""

from __future__ import annotations

from itertools import combinations

from advisor.plotting.figure import draw_threads
from advisor.plotting.threads import RadarPanel


def test_no_name_of_a_radar_lies_on_another_or_on_its_title() -> None:
    from matplotlib.figure import Figure  # here: it takes a second

    names = ["F0intOnly[5,64]", "F0intOnly[1,32]", "LSys", "MPIcommVector.sources"]
    names += ["MPIrecvBytes", "MPIrecvMessages", "MPIsentBytes", "MPIsentMessages"]
    figure = Figure(figsize=(16.2, 4.6), layout="constrained")
    figure.suptitle("classes")
    panels = [figure.add_subplot(1, 3, i) for i in (1, 2, 3)]
    for axes in panels:
        draw_threads(axes, RadarPanel("class A", names, [], [1.0] * len(names)))
    figure.draw_without_rendering()
    texts = [text for axes in panels for text in (axes.title, *axes.texts)]
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
    assert len(boxes) == 27
    for (first, one), (second, other) in combinations(boxes, 2):
        assert not one.overlaps(other), (first, second)
    for _, box in boxes:
        assert box.x0 >= 0 and box.x1 <= figure.bbox.width
