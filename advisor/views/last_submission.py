"""What the hook last saw of a script that ``advisor explain`` reads itself.

A site's own hooks may change a request before the advisor's sees it, and so do options of the
submit command's line; explain sees neither, but the store has what was decided then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, NamedTuple

from advisor.core.codec import JsonForm
from advisor.core.decision import Decision
from advisor.core.request import JobRequest
from advisor.store.reader import Reader

_FACTS = ("partition", "qos", "nodes", "ntasks", "cpus_per_task", "constraint")
_APART = frozenset({"queue", "walltime"})
"""Options of PBS that stand for themselves; all others make up one request for nodes."""
_LOOKED_AT = 200
"""So many of a user's latest decisions are looked through."""


class DifferingOption(NamedTuple):
    """An option as it is read here and as the hook saw it, "" for nothing."""

    here: str
    seen: str


@dataclass(frozen=True, slots=True)
class LastSubmission(JsonForm):
    """What the last submission of a script asked for otherwise than the script does.

    ``taken`` (PBS): those of ``differing``, with the values that the hook saw, which another
    submission of the script as it stands would get again as far as is known.
    """

    decision: str
    at: str
    differing: dict[str, DifferingOption]
    taken: Annotated[
        dict[str, str],
        "PBS: options that this decision takes from the last submission; an empty value is none",
    ] = field(default_factory=dict)

    def over(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return a script's options with what is taken of the last submission put over them."""
        return {n: v for n, v in {**options, **self.taken}.items() if v or n not in self.taken}

    def line(self) -> str:
        """Return it as one sentence."""
        pairs = [
            f"{n}={b or '(none)'}, not {a or '(none)'}" for n, (a, b) in self.differing.items()
        ]
        # Values of another submission, maybe of another user: no terminal takes them for orders.
        shown = "".join(c if c.isprintable() else "?" for c in "; ".join(pairs))
        text = (
            f"note         the last job of this script ({self.at[:16]}, decision {self.decision}) "
            f"was submitted with {shown}: the site's own hooks or options of its "
            "command line changed it before it was decided"
        )
        if not self.taken:
            return text
        return (
            f"{text}. This answer takes {', '.join(self.taken)} from that job; --as-written "
            "explains the script as it stands"
        )


def last_submission(
    reader: Reader,
    decision: Decision,
    path: Path,
    options: Mapping[str, str],
    command_line_names: Collection[str] = (),
) -> LastSubmission | None:
    """Return what the hook last saw of the same user's script, None where it saw none of it.

    ``decision`` is that for the script as it stands with ``options``, of which those in
    ``command_line_names`` are never taken from the last submission.
    """
    request = decision.request
    if request is None:
        return None
    for past in reader.decisions(user=decision.user, limit=_LOOKED_AT):
        past_request = past.request
        if (
            past_request is None
            or not past_request.script_path
            or past.scheduler != decision.scheduler
        ):
            continue
        if Path(past_request.script_path) != path.absolute():
            continue
        if not (request.written_from or past_request.written_from or past_request.script_options):
            return LastSubmission(past.id, past.created_at, _differing(request, past_request))
        differing = _differing_options(request, past_request, options)
        script_unchanged = not past_request.fingerprint and _older(path, past.created_at)
        adopted_options = {
            name: past_value
            for name, (value, past_value) in differing.items()
            if name not in command_line_names
            and (script_unchanged or past_request.script_options.get(name) == value)
        }
        shape = {*request.written_from, *past_request.written_from, *differing} - _APART
        if shape & ({*command_line_names} | differing.keys() - adopted_options.keys()):
            # half of one request for nodes and half of another make none
            adopted_options = {
                name: past_value for name, past_value in adopted_options.items() if name in _APART
            }
        return LastSubmission(past.id, past.created_at, differing, adopted_options)
    return None


def _older(path: Path, moment: str) -> bool:
    """Tell whether a file is as it was at a time (ISO 8601)."""
    try:
        return path.stat().st_ctime < datetime.fromisoformat(moment).timestamp()
    except (OSError, ValueError):
        return False


def _differing_options(
    request: JobRequest, past_request: JobRequest, options: Mapping[str, str]
) -> dict[str, DifferingOption]:
    """Return which of PBS's options differ, of those that are kept with a decision."""
    names = dict.fromkeys(
        (*request.written_from, *past_request.written_from, *past_request.script_options)
    )
    pairs = {name: (options.get(name, ""), past_request.options.get(name, "")) for name in names}
    pairs["queue"] = options.get("queue", "").partition("@")[0], past_request.partition
    if pairs.get("walltime", ("", ""))[1] == "" and "walltime" not in past_request.script_options:
        pairs.pop("walltime", None)  # a decision of an earlier release does not have it
    elif request.time_limit_s == past_request.time_limit_s and all(pairs.get("walltime", ())):
        del pairs["walltime"]  # 1:00:00 and 01:00:00
    return {name: DifferingOption(*pair) for name, pair in pairs.items() if pair[0] != pair[1]}


def _differing(request: JobRequest, past_request: JobRequest) -> dict[str, DifferingOption]:
    pairs = {name: (getattr(request, name), getattr(past_request, name)) for name in _FACTS}
    if request.time_limit_s and past_request.time_limit_s:
        pairs["time limit, s"] = request.time_limit_s, past_request.time_limit_s
    texts = {n: DifferingOption(str(a or ""), str(b or "")) for n, (a, b) in pairs.items()}
    return {name: text for name, text in texts.items() if text.here != text.seen}
