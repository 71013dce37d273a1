"""The scatter of a trade-off: zone, front, options, and what is special among them.

Fixed marks are put into cells once, what follows the cursor when a line is painted. On a terminal
that shows images both are drawn in pixels instead, once the cells rest; words stay text.
"""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.color import Color, ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.events import Click, MouseScrollDown, MouseScrollUp, Resize
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from advisor.errors import AdvisorError
from advisor.plotting import PlotPoint
from advisor.plotting.raster import CharacterCell, Frame
from advisor_tui import axes
from advisor_tui.background import begin, in_thread
from advisor_tui.ink import ink
from advisor_tui.legible import XTERM, Rgb, legible
from advisor_tui.signs import BOUND, FARTHER, ZONE, ChartMarks, Mark, weight

if TYPE_CHECKING:
    from advisor_tui.drawing import ChartPixels, Scale
    from advisor_tui.graphics import Graphics

RESTS_S = 0.1
"""Seconds that the cells rest until they are drawn in pixels."""
_FIXED, _CURSOR = 1, 2
"""The images' numbers."""
_PERCENT = 9
"""Columns of the second scale."""
_TALL = 10
"""Rows from which on there is a second scale below, too."""


_NEAR = (-1, 1, -2, 2)
"""Rows above and below a point where its label may stand, the nearest first."""
_REACH = 24
"""Columns from the cursor's point at which its name may begin: it has the colour of its cross."""

_INKS = {
    "axis": "dim",
    "zone": "$primary-darken-2 on $primary 12%",
    "front": "$primary",
    "predicted": "$foreground",
    "measured": "bold $success",
    "estimated": "$secondary",
    "outside": "$foreground dim",
    "baseline": "bold $error",
    "policy": "bold $warning",
    "yours": "bold $accent",
    "cursor": "bold reverse",
    "bound": "$warning",
    "cross": "$accent",
    "label": "italic $foreground",
}
"""The colour of every role of a mark."""


class Chart(Widget, can_focus=True):
    """A picture, the cursor on one of its points, and a window that can be zoomed."""

    cursor: reactive[int | None] = reactive(None)

    class Picked(Message):
        """A point was clicked."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._picture: ChartMarks | None = None
        self._window: tuple[PlotPoint, PlotPoint] | None = None
        self._message = ""
        self._cells: dict[CharacterCell, Mark] = {}
        self._shade: set[CharacterCell] = set()
        self._texts: dict[CharacterCell, str] = {}
        self._cursors: tuple[int, dict[CharacterCell, str]] | None = None
        """The cursor's point, and the cells of its name."""
        self._taken: dict[int, set[int]] = {}
        """The columns of every row in which one of those is."""
        self._frame: Frame | None = None
        self._drawn: Size | None = None
        """The size it is drawn for; None while it is to be drawn."""
        self._styles: dict[tuple[str, bool], Style] = {}
        self._arranged = 0
        """How often it was put into cells."""
        self._wanted: object = None
        """What is being drawn in pixels."""
        self._imaged: tuple[object, Scale] | None = None
        """What was drawn so last."""
        self._ringed: object = None
        """The cursor that was drawn so last."""

    # -- what is shown ---------------------------------------------------------------------------

    def show(self, picture: ChartMarks | None, message: str = "", *, keep: bool = False) -> None:
        """Show a picture, or a sentence instead; with ``keep`` the zoom stays on the same axes."""
        old = self._picture
        if old is None or picture is None or old.limits != picture.limits:
            keep = False  # the same options in other numbers lie elsewhere
        self._picture, self._message = picture, message
        if picture is None or not keep or self._window is None:
            self._window = picture.window if picture else None
        self._draw()

    def blank(self) -> None:
        """Show nothing, and no place of the cursor."""
        self.set_reactive(Chart.cursor, None)
        self.show(None)

    @property
    def picture(self) -> ChartMarks | None:
        """What is shown."""
        return self._picture

    @property
    def window(self) -> tuple[PlotPoint, PlotPoint] | None:
        """The part that is shown, (low, high) of each axis."""
        return self._window

    def watch_cursor(self, number: int | None) -> None:
        """Keep the cursor's point in the window."""
        frame = self._current_frame()
        if self._picture is not None and frame is not None and number is not None:
            point = self._picture.points[number]
            if frame.cell(point) is None:
                moved = frame.holding(point)
                self._window = moved.x, moved.y
                self._draw()
        self.refresh()

    def zoom(self, factor: float, centre: PlotPoint | None = None) -> None:
        """Zoom by a factor (below 1: nearer) around a point, the cursor's by default."""
        frame = self._current_frame()
        if self._picture is None or frame is None:
            return
        if centre is None:
            number = self.cursor
            middle = frame.point((frame.columns // 2, frame.rows // 2))
            centre = middle if number is None else self._picture.points[number]
        zoomed = frame.zoomed(factor, centre, self._picture.limits)
        self._window = zoomed.x, zoomed.y
        self._draw()

    def fit(self) -> None:
        """Show what matters again; when that is shown already, everything."""
        if self._picture is not None:
            shows_usual = self._window == self._picture.window
            self._window = self._picture.limits if shows_usual else self._picture.window
            self._draw()

    def on_resize(self, event: Resize) -> None:
        """Draw for the room there is, unless it was painted there already."""
        if event.size != self._drawn:
            self._draw()

    # -- the mouse -------------------------------------------------------------------------------

    def on_click(self, event: Click) -> None:
        """Tell which point is nearest to the mouse."""
        picture, frame = self._picture, self._current_frame()
        place = event.get_content_offset_capture(self)
        if picture is None or frame is None:
            return
        column, row = place.x - self._gutter, place.y

        def distance(number: int) -> float:
            cell = frame.cell(picture.points[number])
            if cell is None:
                return float("inf")
            return (cell[0] - column) ** 2 + 4 * (cell[1] - row) ** 2

        def rank(number: int) -> tuple[float, bool, int]:
            sign_weight = 9 if number in picture.special else weight(picture.marks[number])
            return distance(number), number not in picture.steps, -sign_weight

        drawn = (n for n in range(len(picture.points)) if n not in picture.hidden)
        self.post_message(self.Picked(min(drawn, key=rank)))

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """Zoom in around the mouse."""
        self._zoom_at(event, 0.8)

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """Zoom out around the mouse."""
        self._zoom_at(event, 1.25)

    def _zoom_at(self, event: MouseScrollUp | MouseScrollDown, factor: float) -> None:
        event.stop()
        frame, place = self._current_frame(), event.get_content_offset_capture(self)
        if frame is not None:
            self.zoom(factor, frame.point((place.x - self._gutter, place.y)))

    # -- drawing ---------------------------------------------------------------------------------

    def _draw(self) -> None:
        """Have it painted: once, for the size that it has by then."""
        self._drawn = None
        self.refresh()

    def _current_frame(self) -> Frame | None:
        """Return the frame of what is to be seen; None where nothing is drawn."""
        if self.size != self._drawn:
            self._arrange()
        return self._frame

    def _arrange(self) -> None:
        """Put everything but the cursor into cells."""
        self._cells, self._shade, self._texts, self._frame = {}, set(), {}, None
        self._taken, self._cursors = {}, None
        self._arranged += 1
        picture, window = self._picture, self._window
        self._drawn = self.size
        if picture is None or window is None or self.size.width < 20 or self.size.height < 4:
            return
        scales = picture.whole is not None
        self._below = 2 if scales and self.size.height > _TALL else 1
        self._right = _PERCENT if scales and self.size.width >= 60 else 0
        rows = self.size.height - self._below
        x_usual, y_usual = picture.usual or (picture.window[0][1], picture.window[1][1])
        self._titles = axes.title(picture.x_axis, x_usual), axes.title(picture.y_axis, y_usual)
        self._y_ticks = axes.labels(picture.y_axis, window[1], max(2, rows // 2), y_usual)
        self._gutter = max((len(text) for _, text in self._y_ticks), default=0) + 2
        frame = Frame(window[0], window[1], self.size.width - self._gutter - self._right, rows)
        self._frame = frame
        room = max(2, frame.columns // 12)
        self._x_ticks = axes.labels(picture.x_axis, window[0], room, x_usual)
        if picture.polygon:
            self._shade = frame.covered(picture.polygon)
        line = frame.traced([picture.points[i] for i in picture.front])
        self._cells = {cell: Mark(char, "front") for cell, char in line.items()}
        if picture.bound is not None:
            for row in range(rows):
                cell = frame.cell((picture.bound, frame.point((0, row))[1]))
                if cell is not None:
                    self._cells.setdefault(cell, Mark(BOUND, "bound"))
        usual = window == picture.window
        for number, (point, mark) in enumerate(zip(picture.points, picture.marks, strict=True)):
            cell = frame.cell(point)
            if number in picture.special or number in picture.hidden:
                continue
            if cell is None and usual:
                cell, way = frame.edge(point)
                self._cells.setdefault(cell, Mark(FARTHER[way], "outside"))
            elif cell is not None:
                old = self._cells.get(cell)
                if old is None or weight(mark) >= weight(old):
                    self._cells[cell] = mark
        for number, mark in picture.special.items():
            cell = frame.cell(picture.points[number])
            if cell is not None:
                self._cells[cell] = mark
        for number, text in picture.labels.items():
            self._label(frame, picture.points[number], text)
        for column, row in (*self._cells, *self._shade, *self._texts):
            self._taken.setdefault(row, set()).add(column)

    def _label(self, frame: Frame, point: PlotPoint, text: str) -> None:
        """Write a text beside a point, where nothing is drawn; nowhere if there is no room."""
        label_cells = self._beside(frame, point, text)
        taken_columns = {
            c for c, y in (*self._cells, *self._shade, *self._texts, *label_cells) if y == 0
        }
        top = any(row == 0 for _, row in label_cells)
        if not top or self._title_start(frame, taken_columns) is not None:
            self._texts.update(label_cells)
            for label_cell in label_cells:
                self._cells.pop(label_cell, None)

    def _is_free(self, cell: CharacterCell) -> bool:
        """Tell whether a word may stand in a cell; a bit of the limit's long line is no loss."""
        mark = self._cells.get(cell)
        return cell not in self._texts and (mark is None or mark.role == "bound")

    def _beside(
        self, frame: Frame, point: PlotPoint, text: str, reach: int = 0
    ) -> dict[CharacterCell, str]:
        """Return the cells of a text beside a point, where nothing is drawn; none without room.

        Next to the point a cell stays free for the cursor's brackets. Where there is no room near
        it, ``reach`` is how many columns farther to the right the text may begin.
        """
        cell = frame.cell(point)
        if cell is None:
            return {}
        column, row = cell
        left = column - len(text)
        for start, line in (
            (column + 3, row),
            (left - 2, row),
            *((start, row + below) for below in _NEAR for start in (column + 1, left, column + 3)),
            *(
                (start, row + below)
                for below in _NEAR
                for start in (column - len(text) // 2, left - 3)
            ),
        ):
            places = [(start + i, line) for i in range(-1, len(text) + 1)]
            if (
                0 <= line < frame.rows
                and start > 0
                and start + len(text) < frame.columns
                and all(self._is_free(place) for place in places)
            ):
                return dict(zip(places[1:-1], text, strict=True))
        return {}

    def _cursor_label(self, frame: Frame, picture: ChartMarks) -> dict[CharacterCell, str]:
        """Return the cells of what is written beside the cursor's point, unless it has a label."""
        number = self.cursor
        if number is None or picture.name is None or number in picture.labels:
            return {}
        if self._cursors is None or self._cursors[0] != number:
            text = picture.name(number)
            self._cursors = number, self._beside(frame, picture.points[number], text, _REACH)
        return self._cursors[1]

    def render_lines(self, crop: Region) -> list[Strip]:
        """Paint lines, for the size that the layout has just given; styles are looked up once."""
        self._current_frame()
        self._styles.clear()
        if (graphics := self._graphics) is not None:
            self._tend_images(graphics)
        return super().render_lines(crop)

    # -- in pixels -------------------------------------------------------------------------------

    @property
    def _graphics(self) -> Graphics | None:
        """What shows images; None where the terminal shows none."""
        return getattr(self.app, "graphics", None)

    @property
    def _is_pictured(self) -> bool:
        """Whether images show what the cells would."""
        if self._graphics is None or self._graphics.owner is not self or self._imaged is None:
            return False
        return self._imaged[0] == self._look()

    def _look(self) -> object:
        """Return what is another value once images show something else than the cursor, too."""
        return self._arranged, self.content_region, self.app.theme

    def _tend_images(self, graphics: Graphics) -> None:
        """Have the images follow what is shown: the cursor's at once, the other when it rests."""
        if self._is_pictured:
            self._show_cursor(graphics)
            return
        if graphics.owner is self:
            graphics.clear()
        look = self._look()
        if self._frame is not None and self.app.screen is self.screen and self._wanted != look:
            self._wanted = look
            begin(self, self._show_images, graphics, look, group="look", exclusive=True)

    async def _show_images(self, graphics: Graphics, look: object) -> None:
        await asyncio.sleep(RESTS_S)
        picture, frame = self._picture, self._frame
        colours, words = {role: self._rgb(role) for role in _INKS}, list(self._texts)

        def work(picture: ChartMarks, frame: Frame) -> tuple[Scale, ChartPixels]:
            from advisor_tui.drawing import Scale, draw
            from advisor_tui.graphics import cell_pixels

            scale = Scale.of(frame, cell_pixels())
            return scale, draw(picture, scale, colours, words)

        if picture is not None and frame is not None and look == self._look():
            try:
                scale, image = await in_thread(lambda: work(picture, frame))
            except AdvisorError:
                return  # it stays in cells, and is not tried again
            if look == self._look() and self.app.screen is self.screen:
                graphics.clear()
                graphics.owner, self._imaged, self._ringed = self, (look, scale), None
                graphics.show(_FIXED, image, *self._origin())
                self._show_cursor(graphics)
                self.refresh()
        if self._wanted == look:
            self._wanted = None

    def _show_cursor(self, graphics: Graphics) -> None:
        """Show the ring around the cursor's point, and its interval."""
        number, picture, frame = self.cursor, self._picture, self._frame
        if number is None or picture is None or frame is None or self._imaged is None:
            return
        if number == self._ringed:
            return
        from advisor_tui.drawing import draw_cursor

        self._ringed = number
        spread = picture.spreads[number] if picture.spreads else None
        words = [*self._texts, *self._cursor_label(frame, picture)]
        scale, colour = self._imaged[1], self._rgb("cross")
        image = draw_cursor(picture.points[number], spread, scale, colour, words)
        graphics.show(_CURSOR, image, *self._origin())

    def _origin(self) -> tuple[int, int]:
        """Return column and row of the screen where the frame begins."""
        region = self.content_region
        return region.x + self._gutter, region.y

    def _rgb(self, role: str) -> Rgb:
        """Return the colour of a role as it is painted."""
        colour = legible(self._style(role), ColorSystem.TRUECOLOR).color or Color.default()
        red, green, blue = colour.get_truecolor(XTERM)
        return red, green, blue

    def on_hide(self) -> None:
        """Leave no image where something else is shown."""
        if self._graphics is not None and self._graphics.owner is self:
            self._graphics.clear()

    on_unmount = on_hide

    # -- in cells --------------------------------------------------------------------------------

    def _style(self, role: str, *, shaded: bool = False) -> Style:
        """Return the style of a role on the chart's ground, or on the zone's."""
        style = self._styles.get((role, shaded))
        if style is None:
            words = f"{_INKS[role]} on $primary 12%" if shaded else _INKS[role]
            style = self._styles[role, shaded] = ink(self, words)
        return style

    def render_line(self, y: int) -> Strip:
        """Paint one line."""
        base, width = ink(self), self.size.width
        frame, picture = self._frame, self._picture
        if frame is None or picture is None:
            lines = textwrap.wrap(self._message, max(8, width - 4))
            text = lines[y - 1] if 1 <= y <= len(lines) else ""
            return Strip([Segment(f"  {text}"[:width], base)]).extend_cell_length(width, base)
        axis = self._style("axis")
        is_pictured = self._is_pictured
        if y == frame.rows:
            return self._x_line(frame, axis)
        if y > frame.rows:
            return self._percent_line(frame, picture, axis)
        place = None
        if self.cursor is not None:
            place = frame.cell(picture.points[self.cursor])
        segments = [Segment(self._margin(frame, y, place), axis)]
        run, run_style = "", base
        cross = {} if is_pictured else self._cross(frame, picture, place)
        name = self._cursor_label(frame, picture)
        title = self._y_title(frame, place, name) if y == 0 else {}
        taken_columns = self._taken.get(y, set()) | {c for c, row in (*cross, *name) if row == y}
        if place is not None and place[1] == y:
            taken_columns |= {place[0] - 1, place[0], place[0] + 1}
        end = 0
        for column in sorted(taken_columns.union(title)):
            if not 0 <= column < frame.columns:
                continue
            if is_pictured:
                char, style = self._char_over_image((column, y), base)
            else:
                char, style = self._styled_char((column, y), place, cross, base)
            if (column, y) in name:
                shaded = (column, y) in self._shade and not is_pictured
                char, style = name[column, y], self._style("cross", shaded=shaded)
            elif column in title:
                char, style = title[column], axis
            if column > end and run_style is not base:
                segments.append(Segment(run, run_style))
                run, run_style = "", base
            run += " " * (column - end)
            end = column + 1
            if style is not run_style and style != run_style:
                if run:
                    segments.append(Segment(run, run_style))
                run, run_style = "", style
            run += char
        segments.append(Segment(run, run_style))
        segments.append(Segment(" " * (frame.columns - end), base))
        segments.append(Segment(self._percent_at(frame, picture, y), axis))
        return Strip(segments).adjust_cell_length(width, base)

    def _y_title(
        self, frame: Frame, place: CharacterCell | None, name: Collection[CharacterCell]
    ) -> dict[int, str]:
        """Return the y axis' title by column: where the top line is empty, first to the left."""
        text = f"{self._titles[1]} ↑"
        taken_columns = self._taken.get(0, set()) | {c for c, row in name if row == 0}
        if place is not None and place[1] == 0:
            taken_columns |= {place[0] - 1, place[0], place[0] + 1}
        start = self._title_start(frame, taken_columns)
        return {} if start is None else dict(enumerate(text, start))

    def _title_start(self, frame: Frame, taken_columns: set[int]) -> int | None:
        """Return where the y axis' title has room in the top line; None where it has none."""
        length = len(f"{self._titles[1]} ↑")
        starts = range(1, frame.columns - length)
        return next(
            (s for s in starts if taken_columns.isdisjoint(range(s - 1, s + length + 1))), None
        )

    def _cross(
        self, frame: Frame, picture: ChartMarks, place: CharacterCell | None
    ) -> dict[CharacterCell, str]:
        """Return the interval of the point under the cursor: a line across and one upwards."""
        number = self.cursor
        spread = picture.spreads[number] if picture.spreads and number is not None else None
        if place is None or spread is None:
            return {}
        (left, right), (low, high) = spread
        columns, rows = (
            [round(share * (count - 1)) for share in shares]
            for shares, count in zip(
                frame.shares((left, high), (right, low)), (frame.columns, frame.rows), strict=True
            )
        )
        cross = {
            (c, place[1]): "─"
            for c in range(max(0, columns[0]), min(frame.columns, columns[1] + 1))
        }
        for row in range(max(0, rows[0]), min(frame.rows, rows[1] + 1)):
            cross[place[0], row] = "│"
        return cross

    def _styled_char(
        self,
        cell: CharacterCell,
        place: CharacterCell | None,
        cross: Mapping[CharacterCell, str],
        base: Style,
    ) -> tuple[str, Style]:
        shaded = cell in self._shade
        mark = self._cells.get(cell)
        if place is not None and cell[1] == place[1] and abs(cell[0] - place[0]) <= 1:
            style = self._style("cursor")
            if cell == place:
                return self._under_cursor(), style
            return ("[" if cell[0] < place[0] else "]"), style
        if mark is not None and (cell not in cross or mark.role not in ("front", "bound")):
            return mark.char, self._style(mark.role, shaded=shaded)
        if cell in self._texts:  # whole, also where the interval lies
            return self._texts[cell], self._style("label", shaded=shaded)
        if cell in cross:
            return cross[cell], self._style("cross", shaded=shaded)
        if shaded:
            return (ZONE if self._on_edge(cell) else " "), self._style("zone")
        return " ", base

    def _char_over_image(self, cell: CharacterCell, base: Style) -> tuple[str, Style]:
        """Return what stays text where all else is pixels: words, and arrows at the edge."""
        if cell in self._texts:
            return self._texts[cell], self._style("label", shaded=cell in self._shade)
        mark = self._cells.get(cell)
        if mark is not None and mark.char in FARTHER.values():
            return mark.char, self._style(mark.role)
        return " ", base

    def _under_cursor(self) -> str:
        """Return the sign of the cursor's own point: others may share its cell."""
        picture, number = self._picture, self.cursor
        if picture is None or number is None:
            return "+"
        return picture.special.get(number, picture.marks[number]).char

    def _on_edge(self, cell: CharacterCell) -> bool:
        column, row = cell
        return not {(column - 1, row), (column + 1, row), (column, row - 1), (column, row + 1)} <= (
            self._shade
        )

    def _margin(self, frame: Frame, y: int, place: CharacterCell | None) -> str:
        """Return the y axis' part of a line: a number where there is one, and the cursor's mark."""
        text_by_row = {}
        for value, text in self._y_ticks:
            cell = frame.cell((frame.x[0], value))
            if cell is not None:
                text_by_row[cell[1]] = text
        edge = "┤" if y in text_by_row else "│"
        if place is not None and place[1] == y:
            edge = "▸"
        return f"{text_by_row.get(y, ''):>{self._gutter - 1}}{edge}"

    def _percent_at(self, frame: Frame, picture: ChartMarks, y: int) -> str:
        """Return the second scale's part of a line: percent of the job as it is."""
        if picture.whole is None or not self._right:
            return ""
        scale = axes.percents(frame.y, picture.whole[1], max(2, frame.rows // 3))
        text_by_row = {cell[1]: text for v, text in scale if (cell := frame.cell((frame.x[0], v)))}
        return f" {text_by_row.get(y, ''):>{_PERCENT - 1}}"

    def _percent_line(self, frame: Frame, picture: ChartMarks, style: Style) -> Strip:
        if picture.whole is None or self._below == 1:  # a line too many: about to be drawn again
            return Strip.blank(self.size.width, ink(self))
        scale = axes.percents(frame.x, picture.whole[0], max(2, frame.columns // 12))
        return self._scale(frame, " ", scale, "", style)

    def _x_line(self, frame: Frame, style: Style) -> Strip:
        return self._scale(frame, "└", self._x_ticks, f" {self._titles[0]} →", style)

    def _scale(
        self,
        frame: Frame,
        corner: str,
        values: Sequence[tuple[float, str]],
        title: str,
        style: Style,
    ) -> Strip:
        """Return a line below the picture: texts where their values lie, and a title."""
        line = [" "] * frame.columns
        room = frame.columns - len(title)
        for value, text in values:
            cell = frame.cell((value, frame.y[0]))
            if cell is None:
                continue
            start = max(0, cell[0] - len(text) // 2)
            end = start + len(text)
            if end <= room and all(c == " " for c in line[max(0, start - 1) : end + 1]):
                line[start:end] = text
        line[room:] = title
        text = " " * (self._gutter - 1) + corner + "".join(line)
        return Strip([Segment(text, style)]).adjust_cell_length(self.size.width, style)
