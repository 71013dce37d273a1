"""Whether a job runs the program its models were measured with, as far as a hook has looked."""

from __future__ import annotations

from collections.abc import Mapping

from advisor.core import program
from advisor.core.decision import Alternative
from advisor.core.reasons import Reason, reason
from advisor.core.recognise import Recognised
from advisor.core.request import JobRequest
from advisor.store.records import StoredModel

_BY_THE_SITE = frozenset({"application-rule", "application-stated"})
"""Where the site or the user names the application, no other file is another one."""


def reason_against(
    request: JobRequest,
    recognised: Recognised,
    models: Mapping[str, StoredModel],
    model: StoredModel,
    chosen: Alternative,
) -> Reason | None:
    """Return why a choice is not applied, None where the program is the measured one or unknown.

    ``model`` is the baseline's; the choice may be another node type's of ``models``.
    """
    found = [program.compare(p, request.program) for p in _programs(models, model, chosen)]
    if "rebuilt" not in found and "other" not in found:
        return None
    named = any(r.code in _BY_THE_SITE for r in recognised.how)
    code = "other-program" if "other" in found and not named else "program-rebuilt"
    return reason(code, request.program["path"])


def to_look_at(
    request: JobRequest,
    recognised: Recognised | None,
    models: Mapping[str, StoredModel],
    model: StoredModel | None,
    chosen: Alternative | None,
) -> dict[str, str]:
    """Return the file a hook is to look at before it applies a choice, and what should be there."""
    if request.program or recognised is None or model is None or chosen is None:
        return {}
    programs = _programs(models, model, chosen)
    if not programs:
        return {}
    place = program.where(recognised.command, request.script, moved="chdir" in request.options)
    counting = [p for p in programs[0] if all(_has(other, p) for other in programs[1:])]
    return program.expected(counting, place)


def _programs(
    models: Mapping[str, StoredModel], model: StoredModel, chosen: Alternative
) -> list[list[dict[str, object]]]:
    """Return the programs that each of the models behind a choice knows, of those that know any."""
    behind = {m.id: m for m in (model, models.get(chosen.configuration.node_type)) if m}
    found = [program.known(m.stats.get("program")) for m in behind.values()]
    return [programs for programs in found if programs]


def _has(programs: list[dict[str, object]], facts: Mapping[str, object]) -> bool:
    return program.compare(programs, facts) == "same"
