"""A picture file of a trade-off: SVG, PNG or PDF, with matplotlib (the extra ``plot``)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from advisor.errors import AdvisorError, InputError, MissingExtraError
from advisor.plotting import Scene
from advisor.plotting.panels import Panels

SUFFIXES = (".svg", ".png", ".pdf")


def check(path: Path) -> None:
    """Raise InputError or AdvisorError when a picture of that name cannot be made here."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"{path}: unknown kind of picture", hint=f"end it in {', '.join(SUFFIXES)}"
        )
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}")
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise MissingExtraError(
            "pictures need matplotlib, which is not installed",
            hint="pip install 'hpc-advisor[plot]'",
        ) from None


def save(scene: Scene | Panels, path: Path) -> None:
    """Write the picture in one step; the kind follows the file's ending."""
    check(path)
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from advisor.plotting.draw_panels import draw_panel

    if isinstance(scene, Scene):
        figure = Figure(figsize=(7.0, 4.6), layout="constrained")
        _draw(figure.add_subplot(), scene)
    else:
        count = len(scene.panels)
        figure = Figure(figsize=(5.4 * count, 4.6), layout="constrained")
        figure.suptitle(scene.title, fontsize=10)
        for i, panel in enumerate(scene.panels, 1):
            draw_panel(figure, figure.add_subplot(1, count, i), panel)
    kind = path.suffix.lower()[1:]
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    try:
        with mpl.rc_context({"svg.hashsalt": "advisor", "svg.fonttype": "none"}):
            figure.savefig(draft, format=kind, dpi=160, metadata=dated)
        draft.replace(path)
    except OSError as error:
        raise AdvisorError(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        draft.unlink(missing_ok=True)


def _draw(axes: Any, scene: Scene) -> None:
    def coordinates(rows: Any) -> tuple[list[float], list[float]]:
        return [scene.points[i][0] for i in rows], [scene.points[i][1] for i in rows]

    special = {*scene.front, *scene.zone, scene.baseline}
    others = [i for i in range(len(scene.points)) if i not in special]
    if scene.polygon:
        axes.fill(*zip(*scene.polygon, strict=True), color="#dce9f5", zorder=0, lw=0)
    axes.scatter(*coordinates(others), s=12, color="#9aa5b1", label="other", zorder=1)
    zone = [i for i in scene.zone if i not in set(scene.front)]
    axes.scatter(
        *coordinates(zone), s=26, facecolor="white", edgecolor="#1f6fb2", label="trade-off zone",
        zorder=2,
    )  # fmt: skip
    axes.plot(*coordinates(scene.front), color="#1f6fb2", lw=1, zorder=2)
    axes.scatter(*coordinates(scene.front), s=30, color="#1f6fb2", label="front", zorder=3)
    if scene.baseline is not None:
        axes.scatter(
            *coordinates([scene.baseline]), s=60, marker="D", color="#c2410c", label="baseline",
            zorder=4,
        )  # fmt: skip
    for limits, (low, high) in zip((axes.set_xlim, axes.set_ylim), scene.window(), strict=True):
        limits(low - 0.04 * (high - low), high + 0.04 * (high - low))
    axes.set_xlabel(scene.x_label)
    axes.set_ylabel(scene.y_label)
    axes.set_title(scene.title, fontsize=10)
    axes.legend(fontsize=8, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
