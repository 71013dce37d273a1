"""Whether a job runs the program its models were measured with, as far as a hook has looked."""

from __future__ import annotations

from advisor.core import program
from advisor.core.reasons import Reason, reason
from advisor.core.recognise import Recognised
from advisor.core.request import JobRequest
from advisor.store.records import StoredModel

_LOOKS = "cli_filter"
"""The one hook that runs as the user and can ask again."""
_BY_THE_SITE = frozenset({"application-rule", "application-stated"})
"""Where the site or the user names the application, no other file is another one."""


def reason_against(
    request: JobRequest, recognised: Recognised, model: StoredModel
) -> Reason | None:
    """Return why no choice is applied, None where the program is the measured one or unknown.

    ``model`` is the baseline's: the only one that jobs left as they were can confirm.
    """
    comparison = program.compare(_programs(model), request.program)
    if comparison in ("same", "unknown"):
        return None
    named = any(r.code in _BY_THE_SITE for r in recognised.how)
    code = "other-program" if comparison == "other" and not named else "program-rebuilt"
    return reason(code, request.program["path"])


def to_look_at(
    request: JobRequest, recognised: Recognised | None, model: StoredModel | None
) -> dict[str, str]:
    """Return the file a hook is to look at before it applies a choice, and what should be there."""
    if request.hook != _LOOKS or request.program or recognised is None or model is None:
        return {}
    programs = _programs(model)
    if not programs:
        return {}
    place = program.where(recognised.command, request.script, moved="chdir" in request.options)
    return program.expected(programs, place, request.cwd)


def _programs(model: StoredModel) -> list[dict[str, object]]:
    return program.known(model.stats.get("program"))
