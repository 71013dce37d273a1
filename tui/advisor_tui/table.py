"""A table that asks for the rows it shows: ten thousand cost what twenty do.

Textual's DataTable must be given every row, and its columns neither grow with the screen nor drop
out of a narrow one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click, Resize
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from advisor_tui.ink import ink

PAGE = 20
"""Rows asked for at once: a little more than a small terminal shows."""

_LEAST = 8
"""Cells that a column of text keeps where there is little room."""
_NAME = 10
"""Cells that the first of them keeps as long as others have more than they need."""

Cell = str | tuple[str, str]
"""Text, or text and its role: good, bad, warn, dim, strong."""


_INKS = {
    "good": "$success",
    "bad": "$error",
    "warn": "$warning",
    "dim": "dim",
    "strong": "bold",
}
"""The colour of every role of a cell."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column at least ``width`` cells wide; ``flex`` shares out what room is left.

    ``from_width``: only shown in a table of that width, ``below``: only in a narrower one; ``gap``
    is what keeps it from the column before.
    """

    title: str
    width: int
    flex: int = 0
    right: bool = False
    from_width: int = 0
    below: int = 0
    gap: int = 2


class LazyTable(ScrollView, can_focus=True):
    """Rows by number, the cursor, and messages: what is wanted, where the cursor is, what opens."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("pagedown,space", "page(1)", "page down", show=False),
        Binding("home", "jump(0)", "first", show=False),
        Binding("end", "jump(-1)", "last", show=False),
    ]

    count: reactive[int] = reactive(0)
    cursor: reactive[int] = reactive(0)

    class Wanted(Message):
        """Rows from ``first`` on are shown and not known."""

        def __init__(self, table: LazyTable, first: int, limit: int) -> None:
            super().__init__()
            self.table, self.first, self.limit = table, first, limit

        @property
        def control(self) -> LazyTable:
            """The table."""
            return self.table

    class Moved(Message):
        """The cursor is on another row now."""

        def __init__(self, table: LazyTable, row: int) -> None:
            super().__init__()
            self.table, self.row = table, row

        @property
        def control(self) -> LazyTable:
            """The table."""
            return self.table

    class Headed(Message):
        """The title of a column was clicked."""

        def __init__(self, table: LazyTable, title: str) -> None:
            super().__init__()
            self.table, self.title = table, title

        @property
        def control(self) -> LazyTable:
            """The table."""
            return self.table

    class Opened(Moved):
        """A row was opened, with Enter or a double click."""

    def __init__(
        self, columns: Sequence[Column], *, id: str | None = None, empty: str = ""
    ) -> None:
        super().__init__(id=id)
        self.columns = tuple(columns)
        self.empty = empty
        self._rows: dict[int, Sequence[Cell]] = {}
        self._asked: set[int] = set()
        self.snug = False
        """Whether it is no higher than its rows, so that what is below has the room."""
        self._shared: list[tuple[int, int]] | None = None
        """The columns that are painted, as long as lines of the same size are."""

    # -- rows ------------------------------------------------------------------------------------

    def reset(
        self,
        count: int,
        *,
        cursor: int = 0,
        keep: bool = False,
        first: int = 0,
        rows: Sequence[Sequence[Cell]] = (),
    ) -> None:
        """Begin with a number of rows; with ``keep`` old ones stay until they are replaced.

        ``rows`` from ``first`` on are known already: nobody is asked for them.
        """
        if not keep:
            self._rows.clear()
        self._asked.clear()
        self.count = count
        if rows:
            self.fill(first, rows)
        self.cursor = max(0, min(cursor, count - 1))
        self.virtual_size = Size(1, count + 1)  # lines only: nothing scrolls across
        self.fit()
        self._show_cursor()
        self.refresh()
        self.call_after_refresh(self._want)

    def fit(self) -> None:
        """Be as high as the rows, where that is asked for."""
        if self.snug:
            self.styles.max_height = max(1, self.count) + 1 + self.gutter.height

    def blank(self, columns: Sequence[Column], empty: str) -> None:
        """Show no rows, and the sentence that stands for them."""
        self.columns, self.empty = tuple(columns), empty
        self.reset(0)

    def fill(self, first: int, rows: Sequence[Sequence[Cell]]) -> None:
        """Take over rows that were wanted."""
        for number, row in enumerate(rows, first):
            self._rows[number] = row
        last = first + len(rows)
        pages = range(-(-first // PAGE), -(-last // PAGE) if last >= self.count else last // PAGE)
        self._asked.update(pages)  # as a whole: nobody need ask for them
        self.refresh()

    def set_columns(self, columns: Sequence[Column]) -> None:
        """Show other columns; the rows must follow."""
        self.columns = tuple(columns)
        self.refresh()

    @property
    def room(self) -> int:
        """Cells beside the scrollbar."""
        return self.scrollable_content_region.width

    @property
    def shown_rows(self) -> range:
        """The numbers of the rows on the screen."""
        first = round(self.scroll_y)
        return range(first, min(self.count, first + max(0, self.size.height - 1)))

    def _want(self) -> None:
        rows = self.shown_rows
        if not rows:
            return
        for page in range(rows.start // PAGE, (rows.stop - 1) // PAGE + 1):
            if page not in self._asked:
                self._asked.add(page)
                first = page * PAGE
                self.post_message(self.Wanted(self, first, min(PAGE, self.count - first)))

    # -- moving ----------------------------------------------------------------------------------

    def watch_cursor(self, old: int, new: int) -> None:
        """Keep the cursor on the screen and tell."""
        self._show_cursor()
        self.refresh()
        if self.count:
            self.post_message(self.Moved(self, new))

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Ask for what came into view."""
        super().watch_scroll_y(old_value, new_value)
        self._want()

    def on_resize(self, event: Resize) -> None:
        """Ask for what came into view."""
        self.fit()  # where the terminal grows, a frame may have come
        self._show_cursor()
        self._want()

    def _show_cursor(self) -> None:
        height = self.size.height - 1
        if height < 1:
            return
        top = round(self.scroll_y)
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False, force=True)
        elif self.cursor >= top + height:
            self.scroll_to(y=self.cursor - height + 1, animate=False, force=True)

    def action_move(self, offset: int) -> None:
        """Move the cursor by some rows."""
        if self.count:
            self.cursor = max(0, min(self.count - 1, self.cursor + offset))

    def action_page(self, screens: int) -> None:
        """Move the cursor by a screenful."""
        self.action_move(screens * max(1, self.size.height - 2))

    def action_jump(self, row: int) -> None:
        """Move the cursor to the first or the last row."""
        self.action_move(-self.count if row == 0 else self.count)

    def action_open(self) -> None:
        """Open the row under the cursor."""
        if self.count:
            self.post_message(self.Opened(self, self.cursor))

    def on_click(self, event: Click) -> None:
        """Put the cursor where the mouse is; a double click opens, one on a title tells."""
        place = event.get_content_offset_capture(self)
        row = round(self.scroll_y) + place.y - 1
        if place.y == 0:
            self._head(place.x)
        if place.y < 1 or row >= self.count:
            return
        self.cursor = row
        if event.chain > 1:
            self.action_open()

    def _head(self, x: int) -> None:
        """Tell which column's title is at ``x``, the gap before it included."""
        end = 1
        for number, (i, width) in enumerate(self._widths()):
            end += width + (self.columns[i].gap if number else 0)
            if x < end:
                self.post_message(self.Headed(self, self.columns[i].title))
                return

    # -- painting --------------------------------------------------------------------------------

    def render_lines(self, crop: Region) -> list[Strip]:
        """Paint lines, for which room is shared out once."""
        self._shared = None
        return super().render_lines(crop)

    def _widths(self) -> list[tuple[int, int]]:
        """Return (number of the column, width) of what is shown."""
        if self._shared is None:
            self._shared = self._share()
        return self._shared

    def _share(self) -> list[tuple[int, int]]:
        table_width, total = self.size.width, self.room - 1
        shown = [
            i
            for i, c in enumerate(self.columns)
            if table_width >= c.from_width and (not c.below or table_width < c.below)
        ]
        while len(shown) > 1 and self._spare(shown, total, self._least_width) < 0:
            shown.pop()  # half a figure would be another one
        widths = {i: self.columns[i].width for i in shown}
        spare_cells = self._spare(shown, total, widths.__getitem__)
        weight = sum(self.columns[i].flex for i in shown)
        for i in shown:
            if spare_cells > 0 and self.columns[i].flex:
                share = spare_cells * self.columns[i].flex // weight
                widths[i] += share
                spare_cells -= share
                weight -= self.columns[i].flex
        names = [i for i in shown if self.columns[i].flex][:1]
        for _ in range(-spare_cells):  # from the first text, a name, then where most is left
            spared = [i for i in shown if widths[i] > self._least_width(i)]
            named = [i for i in names if widths[i] > _NAME]
            widths[max(named or spared, key=widths.__getitem__)] -= 1
        return [(i, widths[i]) for i in shown]

    def _least_width(self, i: int) -> int:
        """Return the cells that a column cannot do without."""
        column = self.columns[i]
        return min(_LEAST, column.width) if column.flex else column.width

    def _spare(self, shown: Sequence[int], total: int, width: Callable[[int], int]) -> int:
        """Return the cells that are left over; below 0 those that are missing."""
        return total - sum(map(width, shown)) - sum(self.columns[i].gap for i in shown[1:])

    def render_line(self, y: int) -> Strip:
        """Paint the header, or a row."""
        base = ink(self)
        width = self.size.width
        if y == 0:
            style = ink(self, "bold underline")
            cells: Sequence[Cell] = [c.title for c in self.columns]
            return self._strip(" ", cells, style, roles=False).extend_cell_length(width, style)
        row = round(self.scroll_y) + y - 1
        if row >= self.count:
            text = f" {self.empty}" if not self.count and y == 1 else ""
            dim = ink(self, _INKS["dim"])
            return Strip([Segment(set_cell_size(text, width), dim)], width)
        is_current = row == self.cursor
        style = base
        if is_current and self.has_focus:
            style = ink(self, "bold $background on $primary")
        cells_there = self._rows.get(row)
        if cells_there is None:
            return Strip([Segment(set_cell_size(" …", width), style)], width)
        mark = "▸" if is_current else " "
        strip = self._strip(mark, cells_there, style, roles=not (is_current and self.has_focus))
        return strip.extend_cell_length(width, style)

    def _strip(self, mark: str, cells: Sequence[Cell], style: Style, *, roles: bool) -> Strip:
        segments = [Segment(mark, style)]
        for number, (i, width) in enumerate(self._widths()):
            if number:
                segments.append(Segment(" " * self.columns[i].gap, style))
            cell = cells[i] if i < len(cells) else ""
            text, role = (cell, "") if isinstance(cell, str) else cell
            if cell_len(text) > width and self.columns[i].right:  # ids differ in their ends
                text = "…" + text[len(text) - width + 1 :]
            elif cell_len(text) > width:
                text = set_cell_size(text, max(0, width - 1)) + "…"
            elif self.columns[i].right:
                text = " " * (width - cell_len(text)) + text
            kind = ink(self, _INKS[role]) if role and roles else style
            segments.append(Segment(set_cell_size(text, width), kind))
        return Strip(segments).crop(0, self.size.width)
