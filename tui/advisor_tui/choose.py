"""Choose for one's own jobs: a point, a goal, or to be left alone; see first what comes of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Button, Input, Static

from advisor.core.configuration import Configuration
from advisor.core.policy import GOALS
from advisor.core.units import format_count
from advisor.core.words import describe
from advisor.errors import AdvisorError
from advisor.views import choosing
from advisor.views.choosing import ChoiceKind, ChoiceScope, Outlook, Wish
from advisor_tui.background import begin
from advisor_tui.boxes import Below, Scrolled, SideBySide
from advisor_tui.dialogue import Confirm, Field, Push, painted_diff
from advisor_tui.picks import Picks
from advisor_tui.shell import AppShell, Page
from advisor_tui.stepper import Stepper

_AS_SITE = "as the site says"
_SLOWDOWNS = (_AS_SITE, "0%", "1%", "2%", "3%", "5%", "7%", "10%", "15%", "20%")
_SCOPES: tuple[ChoiceScope, ...] = ("workload", "application", "all")
_SCRIPT = "a job script, to see what changes in it (→ completes)"
_KINDS = (
    ("goal", "aim for a goal"),
    ("off", "stop changing my jobs"),
    ("none", "let the policy decide"),
)


def _scopes(application: str) -> list[tuple[str, str]]:
    """Return what a choice can be for, as key and label."""
    return [
        ("workload", "this workload"),
        ("application", f"all of {application}"),
        ("all", "all my jobs"),
    ]


def show_choose(
    advisor: AppShell,
    application: str,
    workload: str,
    point: Configuration | None,
    requested_baseline: Configuration | None = None,
) -> None:
    """Go where a user chooses for a workload.

    ``point`` is what would be pinned, ``requested_baseline`` what jobs are compared with, if
    somebody said.
    """
    if advisor.session.foreign:
        user = advisor.session.user
        advisor.tell(f"Only {user} can choose for {user}.", "warning")
    else:
        page = advisor.made(ChoosePage)
        page.look_at(application, workload, point, requested_baseline)
        advisor.push_screen(page)


class ChoosePage(Page):
    """A form, and below it what the next submission would get."""

    TITLE = "Choose"
    PLACE = "applications"
    HELP = """\
Your choice holds for your own jobs only, from the next submission
on. It is in your own choices file; nobody else can choose for you.
The site's limits still apply.

pin          run at the point you looked at, whatever the goal
goal         what to aim for, and the largest slowdown you accept
stop         your jobs run as you wrote them
policy       forget what was chosen here

Below you see what the next submission would get, and why. Name a job
script to see its #SBATCH lines and what would change in it.

save   keeps the choice      copy  puts the lines on your clipboard
write  puts the lines into the script, after a question; a copy of
       the old script is kept
undo   (u) takes the last change back
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "back"),
        Binding("s", "save", "save", tooltip="save the choice"),
        Binding("y", "copy", "copy lines", tooltip="copy the lines to the clipboard"),
        Binding("w", "write", "write script", tooltip="write the lines into the script"),
        Binding("slash", "script", "script", tooltip="name a job script"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.application = self.workload = ""
        self.point: Configuration | None = None
        self.asked: Configuration | None = None
        self.outlook: Outlook | None = None
        self._outlook_of: tuple[Wish, Path | None] | None = None
        """What the form held when that was read."""

    # -- the form --------------------------------------------------------------------------------

    def body(self) -> Iterable[Widget]:
        """Yield form, preview and buttons."""
        yield Static("", id="choose-title", classes="title")
        with Below(classes="form"):
            yield Picks(_KINDS, id="kind")
            with SideBySide(classes="row", id="aims"):
                yield Stepper("goal", (_AS_SITE, *GOALS), id="aim")
                yield Stepper("slower at most", _SLOWDOWNS, id="slower")
            yield Static("", id="problem")
            with SideBySide(classes="row"):
                yield Static("for", classes="label")
                yield Picks(_scopes("it"), row=True, id="scope")
            with SideBySide(classes="row"):
                yield Static("script", classes="label")
                yield Field(placeholder=_SCRIPT, id="script", compact=True)
        with Scrolled(id="preview") as preview:
            preview.border_title = "what a job would get"
            yield Static("", id="outlook")
        with SideBySide(classes="row buttons"):
            yield Push("Save (s)", id="save", variant="primary")
            yield Push("Copy lines (y)", id="copy")
            yield Push("Write into script (w)", id="write")

    def look_at(
        self,
        application: str,
        workload: str,
        point: Configuration | None,
        requested_baseline: Configuration | None = None,
    ) -> None:
        """Have the page choose for a workload; see :func:`show_choose`."""
        self.application, self.workload, self.point = application, workload, point
        self.asked = requested_baseline

    def on_mount(self) -> None:
        """Begin with what to choose."""
        self.set_focus(self.query_one("#kind", Picks))

    def opened(self) -> None:
        """Show what holds now, and look for job scripts."""
        title = Content(f"Choose for {self.application} / {self.workload}")
        self.query_one("#choose-title", Static).update(title)
        if self.point is not None:
            pin = ("pin", f"pin {describe(self.point, node_type=True)}")
            self.query_one("#kind", Picks).offer((pin, *_KINDS))
        self.query_one("#scope", Picks).offer(_scopes(self.application))
        self._show_aims()
        self._show_problem("")
        self._read()

    def blank(self) -> None:
        """Show the form as nobody has filled it."""
        self.outlook = self._outlook_of = None
        self.query_one("#kind", Picks).offer(_KINDS)
        for name in ("aim", "slower"):
            self.query_one(f"#{name}", Stepper).begin_at(_AS_SITE)
        self.query_one("#script", Field).blank(_SCRIPT)
        self.query_one("#outlook", Static).update("")
        self.query_one("#preview", Scrolled).scroll_home(animate=False)
        self.set_focus(self.query_one("#kind", Picks))

    def _read(self) -> None:
        begin(self, self._look_for_scripts, group="scripts")
        self.preview()

    async def _look_for_scripts(self) -> None:
        folder, application = self.session.folder, self.application
        scripts = await self.ask(lambda: choosing.scripts_in(folder, application))
        self.query_one("#script", Field).suggest(folder, scripts or [])

    @property
    def wish(self) -> Wish:
        """What the form says."""
        kind, scope = (self.query_one(f"#{name}", Picks).key for name in ("kind", "scope"))
        aim, slower = (self.query_one(f"#{name}", Stepper).value for name in ("aim", "slower"))
        kinds: dict[str, ChoiceKind] = {"pin": "pin", "goal": "goal", "off": "off", "none": "none"}
        return Wish(
            kinds.get(kind, "none"),
            next((s for s in _SCOPES if s == scope), "workload"),
            "" if aim == _AS_SITE else aim,
            "" if slower == _AS_SITE else slower,
            self.point,
        )

    @property
    def script(self) -> Path | None:
        """The job script that is named."""
        name = self.query_one("#script", Input).value.strip()
        return (self.session.folder / Path(name).expanduser()) if name else None

    @on(Picks.Changed)
    def _aim_picked(self) -> None:
        self._show_aims()
        self._show_problem("")
        self.preview()

    @on(Stepper.Changed)
    def _stepped(self) -> None:
        self._show_problem("")
        self.preview()

    @on(Input.Changed, "#script")
    def _typed(self) -> None:
        self.preview()

    @on(Input.Submitted, "#script")
    def _script_entered(self) -> None:
        self.set_focus(self.query_one("#save", Button))

    def _show_aims(self) -> None:
        self.query_one("#aims").display = self.wish.kind == "goal"

    def _show_problem(self, text: str) -> None:
        """Say beside the fields why nothing was saved."""
        line = self.query_one("#problem", Static)
        line.display = bool(text)
        line.update(Content.styled(f"not saved: {text}", "$error"))

    # -- what comes of it ------------------------------------------------------------------------

    def preview(self) -> None:
        """Show what the next submission would get."""
        begin(self, self._preview, group="outlook", exclusive=True)
        self.hold()

    async def _current(self) -> Outlook | None:
        """Return what comes of the form as it is now; None where nobody can say.

        A key may be pressed before the preview of what was changed last is there.
        """
        if self._outlook_of == (self.wish, self.script):
            return self.outlook
        return await self._read_outlook()

    async def _preview(self) -> None:
        await self._read_outlook()

    async def _read_outlook(self) -> Outlook | None:
        session, wish, script = self.session, self.wish, self.script
        application, workload, requested_baseline = self.application, self.workload, self.asked
        pinned = self.point if wish.kind == "pin" else None

        def work() -> Outlook:
            choices = choosing.wished(session.chosen(), wish, application, workload)
            if script is not None:
                return choosing.for_script(
                    script,
                    choices,
                    store=session.store,
                    socket=session.socket,
                    person=session.person(),
                )
            with session.reader() as reader:
                return choosing.for_sample(
                    reader,
                    application,
                    workload,
                    session.person(choices),
                    pinned,
                    requested_baseline,
                )

        outlook = None
        try:
            outlook = await self.advisor.ask(work)
        except AdvisorError as error:
            self.query_one("#outlook", Static).update(Content(str(error)))
        self.outlook, self._outlook_of = outlook, (wish, script)
        if outlook is not None:
            self._paint(outlook, script)
        return outlook

    def _paint(self, outlook: Outlook, script: Path | None) -> None:
        what = f"sbatch {script.name}" if script is not None else "A job as written"
        parts: list[str | Content] = [
            Content.styled(f"{what} would get: ", "bold"),
            Content(outlook.sentence),
            "\n",
        ]
        if outlook.of not in ("", f"{self.application} / {self.workload}"):
            warning = (
                f"\nThis script runs {outlook.of}: what is chosen here is for another workload.\n"
            )
            parts.append(Content.styled(warning, "$warning"))
        if script is not None and outlook.lines:
            parts += ["\n", painted_diff(outlook.diff(script.name))]
        elif outlook.lines:
            parts += ["\n", *(Content.styled(f"{line}\n", "$success") for line in outlook.lines)]
        if outlook.why:
            parts += ["\nwhy\n", *(f"  - {text}\n" for text in outlook.why)]
        if outlook.unseen:
            parts += ["\n", outlook.unseen]
        if outlook.job:
            parts += ["\nAs written: ", outlook.job]
        if self.advisor.daemon.startswith("no daemon"):
            parts += ["\nNo daemon answers now: until it does, jobs run as written."]
        self.query_one("#outlook", Static).update(Content.assemble(*parts))

    # -- doing it --------------------------------------------------------------------------------

    @on(Button.Pressed)
    async def _button(self, event: Button.Pressed) -> None:
        if event.button.id in ("save", "copy", "write"):
            await self.run_action(event.button.id)

    def action_save(self) -> None:
        """Save the choice and go back."""
        begin(self, self._save, group="save", exclusive=True)

    async def _save(self) -> None:
        session, wish = self.session, self.wish
        application, workload = self.application, self.workload
        try:
            await self.advisor.ask(lambda: choosing.check(wish, session.store, application))
        except AdvisorError as error:
            self._show_problem(str(error))
            return
        edit = await self.ask(lambda: choosing.save(session.choices, wish, application, workload))
        if edit is None:
            return
        words = wish.words(application, workload)
        self.advisor.changed(words, edit)
        self.dismiss()  # the page below says it, for this one is gone
        self.advisor.tell(f"Saved: {words}. It holds from the next submission on; press u to undo.")

    def action_copy(self) -> None:
        """Put the lines on the clipboard."""
        begin(self, self._copy, group="lines", exclusive=True)

    async def _copy(self) -> None:
        outlook = await self._current()
        if outlook is None or not outlook.lines:
            self.advisor.tell("There are no lines to copy: nothing would be changed.", "warning")
            return
        count = format_count(len(outlook.lines), "line")
        self.advisor.copy_to_clipboard("\n".join(outlook.lines) + "\n", count)

    def action_write(self) -> None:
        """Ask, then write the lines into the script."""
        begin(self, self._ask_to_write, group="lines", exclusive=True)

    async def _ask_to_write(self) -> None:
        script, outlook = self.script, await self._current()
        if script is None:
            self.advisor.tell("Name a job script first.", "warning")
            self.set_focus(self.query_one("#script", Input))
            return
        if outlook is None or not outlook.lines:
            self.advisor.tell("There is nothing to write: nothing would be changed.", "warning")
            return

        def answered(yes: bool | None) -> None:
            if yes:
                begin(self, self._write, script, outlook, group="save", exclusive=True)

        self.app.push_screen(
            Confirm(
                f"Write this into {script}? A copy of it is kept beside it.",
                painted_diff(outlook.diff(script.name)),
                "Write",
            ),
            answered,
        )

    async def _write(self, script: Path, outlook: Outlook) -> None:
        edit = await self.ask(lambda: choosing.write_script(script, outlook))
        if edit is None:
            return
        self.advisor.changed(f"the lines written into {script.name}", edit)
        backup = edit.backup.name if edit.backup is not None else ""
        self.advisor.tell(f"Written: {script.name}; the old one is {backup}; press u to undo.")
        self.preview()

    def action_script(self) -> None:
        """Go to the script's name."""
        self.set_focus(self.query_one("#script", Input))

    def action_back(self) -> None:
        """Leave without a choice; out of the script's name first."""
        if self.query_one("#script", Input).has_focus:
            self.set_focus(self.query_one("#kind", Picks))
        else:
            self.dismiss()

    def files_changed(self) -> None:
        """Show what the choices file says now."""
        self.preview()
