"""Choose for one's own jobs: what the choices file would say, and what would come of it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from advisor import plugins
from advisor.choices import entry_of, read, text_of, write
from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.reasons import Reason
from advisor.core.words import change_words
from advisor.edits import Edit, replace
from advisor.errors import AdvisorError, InputError
from advisor.schedulers.submission import SCRIPT_ENDINGS, payload_of, scheduler_of
from advisor.schedulers.translators import translator
from advisor.store.reader import Reader
from advisor.views.applications import home, promise
from advisor.views.decision import why_not
from advisor.views.explain import from_daemon, from_store
from advisor.views.preview import AskingJob, Person, preview, reachable, sample_options
from advisor.views.script import diff, lines_of, rewritten

if TYPE_CHECKING:
    from advisor.views.tradeoff import SeenModels

ChoiceKind = Literal["pin", "goal", "apply", "off", "none"]
ChoiceScope = Literal["workload", "application", "all"]

_DROPPED: dict[ChoiceKind, tuple[str, ...]] = {
    "pin": ("off",),
    "goal": ("off", "pin"),
    "apply": ("off",),
    "off": (),
    "none": ("off", "goal", "max_slowdown", "mode", "pin"),
}


_FROM_STORE = "Decided from the store: queues, limits and free nodes are not known."
_SAMPLE = "Queues, time limits and free nodes are looked at when a job is submitted, not here."


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wanted, and for what: a point, a goal with a slowdown bound, or to be left alone.

    ``apply``: what the policy only advises is applied; ``none`` leaves it to the policy again.
    """

    kind: ChoiceKind
    scope: ChoiceScope = "workload"
    goal: str = ""
    max_slowdown: str = ""
    point: Configuration | None = None

    def words(self, application: str, workload: str) -> str:
        """Say what is wanted, for a notice."""
        what = {
            "pin": "a point is pinned",
            "goal": f"goal {self.goal}" if self.goal else f"at most {self.max_slowdown} slower",
            "apply": "the advice is applied",
            "off": "the advisor leaves it alone",
            "none": "the policy decides",
        }[self.kind]
        return f"{what} for {self.whose(application, workload)}"

    def whose(self, application: str, workload: str) -> str:
        """Name the jobs it is for."""
        return {
            "workload": f"{application} / {workload}",
            "application": f"all of {application}",
            "all": "all your jobs",
        }[self.scope]


def wished(
    choices: Mapping[str, Any], wish: Wish, application: str, workload: str
) -> dict[str, Any]:
    """Return the choices with a wish in them; everything else stays as it is."""
    result = copy.deepcopy(dict(choices))
    entry = entry_of(
        result,
        None if wish.scope == "all" else application,
        workload if wish.scope == "workload" else None,
    )
    for name in _DROPPED[wish.kind]:
        entry.pop(name, None)
    if wish.kind == "off":
        entry["off"] = True
    elif wish.kind == "apply":
        entry["mode"] = "apply"
    elif wish.kind == "pin" and wish.point is not None:
        pinned = wish.point.to_dict()
        pinned.pop("threads_per_rank")
        entry["pin"] = pinned
    elif wish.kind == "goal":
        for name, value in (("goal", wish.goal), ("max_slowdown", wish.max_slowdown)):
            if value:
                entry[name] = value
            else:
                entry.pop(name, None)
    return result


def check(wish: Wish, store: Path, application: str) -> None:
    """Raise AdvisorError for a wish that says nothing, or that the site cannot have."""
    from advisor.views import allowed

    if wish.kind == "goal":
        if not wish.goal and not wish.max_slowdown:
            raise InputError(
                "choose a goal or the largest slowdown you accept",
                hint="or let the policy decide",
            )
        allowed.aims({"goal": wish.goal or None, "max_slowdown": wish.max_slowdown or None})
    if wish.kind == "pin":
        if wish.point is None:
            raise InputError("no point is chosen", hint="choose one on the trade-off page")
        pinned = wish.point.to_dict()
        pinned.pop("threads_per_rank")
        allowed.pin(allowed.Ground.at(store), application, pinned)


def save(path: Path, wish: Wish, application: str, workload: str) -> Edit:
    """Write a wish into the choices file as it is now. Raises InputError; then nothing changed."""
    return write(path, wished(read(path), wish, application, workload))


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a submission would get.

    ``sentence`` says it; ``lines`` are the options as a script would hold them, ``variables`` what
    is set in the job; ``old`` and ``new`` are the script's lines as they are and would be, empty
    without a script; ``why`` are the reasons, ``of`` names what the script runs; ``unseen`` says
    what the daemon will look at and this did not; ``job`` is how the job is submitted that it
    was decided for, where no script was named.
    """

    sentence: str
    lines: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    old: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    of: str = ""
    unseen: str = ""
    job: str = ""

    def diff(self, name: str) -> list[str]:
        """Return the difference of the script as it is and as it would be written."""
        return diff(self.old, self.new, name, f"{name} (as it would be)")


def for_script(
    script: Path, choices: Mapping[str, Any], *, store: Path, socket: Path, person: Person
) -> Outlook:
    """Return what ``sbatch SCRIPT`` would get with these choices: the daemon's own answer.

    Without a daemon the store is asked. Raises AdvisorError for a script that cannot be read, or
    when there is neither.
    """
    scheduler = scheduler_of(script)
    payload = {
        "scheduler": scheduler,
        **payload_of(script, scheduler=scheduler),
        "choices": text_of(choices),
    }
    unseen = ""
    try:
        decision = from_daemon(socket, payload, timeout_s=3.0)
    except AdvisorError:
        decision = from_store(store, payload, user=person.name, uid=person.uid)
        unseen = _FROM_STORE
    rewrite, environment = decision.rewrite, decision.environment
    old = _lines(script)
    return Outlook(
        _sentence(decision),
        lines_of(rewrite, environment, scheduler),
        environment,
        tuple(old),
        tuple(rewritten(old, rewrite, scheduler, environment)),
        tuple(r.text for r in decision.reasons),
        f"{decision.application} / {decision.workload}",
        unseen,
    )


def for_sample(
    reader: Reader,
    application: str,
    workload: str,
    person: Person,
    point: Configuration | None = None,
    requested_baseline: Configuration | None = None,
) -> Outlook:
    """Return what a job as it was measured would get with the person's choices.

    That is a job on the node type where such jobs land, or as ``requested_baseline``. Where it
    cannot go to the ``point`` that is pinned, it is one that asks for the point's node type, if
    that helps; the lines then ask for it as well. Raises AdvisorError.
    """
    from advisor.views.tradeoff import seen_models

    visible_models = seen_models(reader, application, workload, person)
    if not visible_models.shown:
        return Outlook(f"nothing is measured of {application} / {workload}: jobs run as written")
    inventory = visible_models.snapshot.inventory
    names = {m.node_type for m in visible_models.shown}
    first = home(visible_models.shown, person, inventory).node_type
    if requested_baseline is not None and requested_baseline.node_type in names:
        first = requested_baseline.node_type
    node_type = point.node_type if point is not None else first
    fitted = any(m.node_type == node_type and not m.transferred for m in visible_models.shown)
    outlook, reached = _sample(visible_models, reader, first, person, point, requested_baseline)
    if point is not None and not reached and node_type != first and fitted:
        pinned_outlook, reached = _sample(
            visible_models, reader, node_type, person, point, None, all_options=True
        )
        outlook = pinned_outlook if reached else outlook
    return outlook


def _sample(
    visible_models: SeenModels,
    reader: Reader,
    node_type: str,
    person: Person,
    point: Configuration | None,
    requested_baseline: Configuration | None,
    *,
    all_options: bool = False,
) -> tuple[Outlook, bool]:
    """Return the outlook of a job on a node type, and whether it is then at the point.

    ``all_options``: the lines hold all that the job asks for, not only what is rewritten.
    """
    view, whose = visible_models.view_on(reader, node_type, person, requested_baseline)
    base = view.baseline.configuration
    snapshot = reachable(visible_models.snapshot, base.node_type)
    job = None if snapshot is None else sample_options(snapshot, base)
    decision = preview(
        visible_models.snapshot,
        AskingJob(view.model.application, view.model.workload, base, whose),
    )
    if snapshot is None or job is None or decision is None:
        no_outlook = Outlook(
            f"node type {base.node_type} is not in the inventory: jobs run as written"
        )
        return no_outlook, False
    scheduler = decision.scheduler
    language = translator(scheduler)
    reached = "pinned" in decision.codes
    line_options = {**job, **decision.rewrite} if all_options else decision.rewrite
    outlook = Outlook(
        promise(decision),
        lines_of(line_options, decision.environment, scheduler),
        dict(decision.environment),
        why=tuple(_reasons(decision.reasons)),
        unseen=_SAMPLE,
        job=" ".join((language.SUBMIT, *(w for words in language.written(job) for w in words))),
    )
    return outlook, reached


def _reasons(reasons: Sequence[Reason]) -> list[str]:
    return [r.text for r in reasons if not r.code.startswith("application-")]


def _sentence(decision: Decision) -> str:
    chosen = decision.chosen
    if not decision.changed or chosen is None:
        if "pinned" in decision.codes:
            return "your pin is what the job asks for already"
        return why_not(decision.reasons)
    estimated = decision.energy_quality == "estimated"
    return change_words(chosen.energy.change, chosen.time.change, estimated=estimated)


def _lines(script: Path) -> list[str]:
    try:
        return script.read_bytes().decode("utf-8", "surrogateescape").split("\n")
    except OSError as error:
        raise InputError(f"{script}: {error.strerror}", hint="name a readable job script") from None


def write_script(script: Path, outlook: Outlook) -> Edit:
    """Write the script as it would be, a copy of the old one left beside it.

    Raises InputError when it cannot be written, or was changed since it was looked at.
    """
    if _lines(script) != list(outlook.old):
        raise InputError(f"{script} was changed meanwhile", hint="look at the difference again")
    return replace(script, "\n".join(outlook.new).encode("utf-8", "surrogateescape"), backup=True)


def scripts_in(folder: Path, application: str, limit: int = 50) -> list[Path]:
    """Return the job scripts of a folder, those that name the application first."""
    ranked_scripts = []
    directives = {translator(name).DIRECTIVE.encode() for name in plugins.names("translators")}
    try:
        entries = sorted(p for p in folder.iterdir() if p.is_file())
    except OSError:
        return []
    for path in entries[:2000]:
        if path.suffix not in (*SCRIPT_ENDINGS, ""):
            continue
        try:
            with path.open("rb") as file:
                head = file.read(8192)
        except OSError:
            continue
        if not head.startswith(b"#!") or b"\0" in head:
            continue
        named = application.encode() in head
        directive = any(begin in head for begin in directives)
        if named or directive:
            ranked_scripts.append((not named, not directive, path))
    return [path for _, _, path in sorted(ranked_scripts)][:limit]
