"""Take options away: a file of the listed ones, or the picture."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from textual import on
from textual.widget import Widget
from textual.widgets import Input

from advisor.edits import Edit, replace
from advisor.errors import InputError, MissingExtraError
from advisor_tui.background import begin
from advisor_tui.dialogue import Dialogue, Field

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from advisor.views.tradeoff import TradeOffView
    from advisor_tui.shell import Page


class ExportDialogue(Dialogue[str]):
    """Asks for the file's name; its ending says what is written."""

    KEYS = "Enter writes it.  Esc closes"

    def __init__(self, name: str) -> None:
        super().__init__("Export the listed options: .csv or .json is the table, .svg the picture")
        self._file_name = name

    def body(self) -> Iterable[Widget]:
        """Yield the file's name."""
        yield Field(self._file_name, id="file", compact=True, select_on_focus=False)

    def on_mount(self) -> None:
        """Begin with the name."""
        self.set_focus(self.query_one("#file", Field))

    @on(Input.Submitted)
    def _name_entered(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())


def export(page: Page, board: TradeOffView, numbers: Sequence[int]) -> None:
    """Ask for a file's name, and write options or their picture into it."""
    m, steps = board.view.model, list(numbers)
    name = re.sub(r"[^\w.=-]+", "-", f"{m.application}-{m.workload}").strip("-")
    picture = page.app.export_screenshot

    async def begun(path: Path) -> None:
        edit = await page.ask(lambda: write(path, board, steps, picture))
        if edit is not None:
            page.advisor.changed(f"the file {path.name}", edit)
            page.advisor.tell(f"Written: {path}; press u to remove it.")

    def named(name: str | None) -> None:
        if name:
            path = page.session.folder / Path(name).expanduser()
            begin(page, begun, path, group="export", exclusive=True)

    page.app.push_screen(ExportDialogue(f"{name}.csv"), named)


def copied(board: TradeOffView, number: int, *, row: bool) -> str:
    """Return the command that chooses an option, or its ``row``."""
    from advisor.views import export as views

    if not row:
        return views.choose_command(board, number)
    return "\t".join(str(v) for v in views.rows(board, [number])[0].values())


def write(
    path: Path, board: TradeOffView, numbers: Sequence[int], screen: Callable[[], str]
) -> Edit:
    """Write options, or their picture, into a new file; ``screen`` returns the screen as SVG.

    The picture is matplotlib's where that is installed, else the screen. Raises InputError for a
    file that is there already, or whose ending says nothing.
    """
    from advisor.views import export as views

    kind = path.suffix.lower()
    if path.exists():
        raise InputError(f"{path} is there already", hint="take another name")
    records = views.rows(board, numbers)
    if kind == ".csv":
        return replace(path, views.as_csv(records).encode())
    if kind == ".json":
        return replace(path, views.as_json(board, records).encode())
    if kind != ".svg":
        raise InputError(f"{path.name}: unknown kind of file", hint="end it in .csv, .json or .svg")
    from advisor.plotting.figure import save
    from advisor.views.options import scene

    try:
        save(scene(board.view), path)
    except MissingExtraError:
        return replace(path, screen().encode())
    return Edit(path, None, path.read_bytes())
