"""What the hook last saw of a script that ``advisor explain`` reads itself.

A site's own hooks may change a request before the advisor's sees it, and so do options of the
submit command's line; explain sees neither, but the store has what was decided then.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from advisor.core.decision import Decision
from advisor.core.request import JobRequest
from advisor.store.reader import Reader

_FACTS = ("partition", "qos", "nodes", "ntasks", "cpus_per_task", "constraint")
_LOOKED_AT = 200
"""So many of a user's latest decisions are looked through."""


@dataclass(frozen=True, slots=True)
class LastSubmission:
    """What the last submission of a script asked for otherwise than the script does.

    ``differing``: name -> (as it is read here, as the hook saw it), "" for nothing.
    """

    decision: str
    at: str
    differing: dict[str, tuple[str, str]]

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        differing = {n: {"here": a, "seen": b} for n, (a, b) in self.differing.items()}
        return {"decision": self.decision, "at": self.at, "differing": differing}

    def line(self) -> str:
        """Return it as one sentence."""
        pairs = [
            f"{n}={b or '(none)'}, not {a or '(none)'}" for n, (a, b) in self.differing.items()
        ]
        return (
            f"note         the last job of this script ({self.at[:16]}, decision {self.decision}) "
            f"was submitted with {'; '.join(pairs)}: the site's own hooks or options of its "
            "command line changed it before it was decided"
        )


def last_submission(reader: Reader, decision: Decision, path: Path) -> LastSubmission | None:
    """Return what the hook last saw of the same user's script, None where it saw the same."""
    here = decision.request
    if here is None:
        return None
    for past in reader.decisions(user=decision.user, limit=_LOOKED_AT):
        there = past.request
        if there is None or not there.script_path or past.scheduler != decision.scheduler:
            continue
        if Path(there.script_path) == path.absolute():
            differing = _differing(here, there)
            return LastSubmission(past.id, past.created_at, differing) if differing else None
    return None


def _differing(here: JobRequest, there: JobRequest) -> dict[str, tuple[str, str]]:
    pairs = {name: (getattr(here, name), getattr(there, name)) for name in _FACTS}
    if there.written_from:  # PBS: its options say all of that
        names = dict.fromkeys((*here.written_from, *there.written_from))
        options = {n: (here.options.get(n), there.options.get(n)) for n in names}
        pairs = {"partition": pairs["partition"], **options}
    if here.time_limit_s and there.time_limit_s:
        pairs["time limit, s"] = here.time_limit_s, there.time_limit_s
    texts = {name: (str(a or ""), str(b or "")) for name, (a, b) in pairs.items()}
    return {name: pair for name, pair in texts.items() if pair[0] != pair[1]}
