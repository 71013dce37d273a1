"""The stamp: a decision in one short line that travels with the job.

The filter puts it into the job's environment (``ADVISOR_STAMP``), job_submit into the admin
comment, PBS into a resource; ``advisor collect`` reads it back, so that the store's owner needs
nothing from the login nodes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from advisor.core.axes import read_extra
from advisor.core.configuration import Configuration
from advisor.core.decision import FROM_STAMP, Alternative, Decision, Effect, number, read_policy
from advisor.core.program import checked
from advisor.core.protocol import MAX_STAMP
from advisor.core.reasons import BY_CLASS, ESTIMATED, EXTRAPOLATED, Reason

PREFIX = "advisor:"
PROGRAM = ("path", "size", "mtime", "build")
NAME_CUT = 80
"""Characters of the names of application and workload in a stamp that would be too long."""
_encode = json.JSONEncoder(separators=(",", ":")).encode
_ID = re.compile(r"[0-9a-f]{16}")
_CODE = re.compile(r"[a-z-]{1,40}")


def make_stamp(decision: Decision) -> str:
    """Return the stamp of a decision: ASCII, no quotes that shells or Lua trip over raw."""
    # Keys are short: a stamp has MAX_STAMP bytes, and stands in the job's environment and comment.
    chosen = decision.chosen
    data: dict[str, object] = {
        "v": 1,
        "id": decision.id,
        "at": decision.created_at,
        "app": decision.application,
        "wl": decision.workload,
        "mode": decision.mode,
        "goal": decision.goal,
        "pol": decision.policy_version,
        "why": [r.code for r in decision.reasons],
        "chg": int(decision.changed),
        "ho": int(decision.holdout),
    }
    if decision.model_id is not None:
        data["m"] = decision.model_id
        data["eq"] = decision.energy_quality
    if decision.baseline is not None:
        data["base"] = [
            *_point(decision.baseline),
            decision.baseline_time_s,
            decision.baseline_energy_j,
        ]
    if chosen is not None:
        data["to"] = _point(chosen.configuration)
        data["t"] = [_round(chosen.time_s), *chosen.time.to_list()]
        data["e"] = [_round(chosen.energy_j), *chosen.energy.to_list()]
        if chosen.configuration.extra:
            data["ax"] = dict(chosen.configuration.extra)
    if decision.node_cap_khz:
        data["cap"] = decision.node_cap_khz
    if decision.node_axes:
        data["gpus"] = dict(decision.node_axes)
    if decision.program:
        data["prog"] = [decision.program[name] for name in PROGRAM]
    text = PREFIX + _encode(data)
    if len(text) > MAX_STAMP:
        data.pop("prog", None)
        data["wl"], data["app"] = decision.workload[:NAME_CUT], decision.application[:NAME_CUT]
        text = PREFIX + _encode(data)
    return text


def read_stamp(text: str) -> Decision | None:
    """Return the decision of a stamp found in ``text``, as far as a stamp keeps it.

    None when there is none or it is torn or forged beyond use; never raises. Whatever was set
    by the user's own environment is data to be checked, not believed.
    """
    # Anywhere in it: a site's own hooks may write into the same comment.
    start = text.find(PREFIX + "{")
    if start < 0:
        return None
    try:
        data, _ = json.JSONDecoder().raw_decode(text[start + len(PREFIX) :])
        return _decision(data)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        return None


def node_cap_khz(text: str) -> int:
    """Return the cap that the stamp in ``text`` has the job's nodes set, kHz; 0 for none."""
    stamp = read_stamp(text) if '"cap":' in text else None
    return stamp.node_cap_khz if stamp else 0


def _decision(data: Mapping[str, object]) -> Decision:
    if data["v"] != 1 or not _ID.fullmatch(str(data["id"])):
        raise ValueError("not a stamp of version 1")
    base, chosen, codes = _list(data.get("base", [])), None, _list(data.get("why", []))
    reasons = tuple(Reason(str(c)) for c in codes if _CODE.fullmatch(str(c)))
    if "to" in data:
        (time_s, *t), (energy_j, *e) = _list(data["t"]), _list(data["e"])
        chosen = Alternative(
            replace(_configuration(_list(data["to"])), extra=read_extra(data.get("ax"))),
            number(time_s),
            number(energy_j),
            Effect.of_percent(*t),
            Effect.of_percent(*e),
            estimated=any(r.code in (ESTIMATED, BY_CLASS, EXTRAPOLATED) for r in reasons),
        )
    cost = [None if math.isnan(v) else v for v in map(number, (*base[5:7], None, None)[:2])]
    return Decision(
        id=str(data["id"]),
        created_at=str(data.get("at", ""))[:40],
        scheduler="",
        hook="stamp",
        user="",
        account="",
        policy=read_policy(str(data.get("mode", ""))[:10], str(data.get("goal", ""))[:20]),
        application=str(data.get("app", ""))[:200],
        workload=str(data.get("wl", ""))[:200],
        baseline=_configuration(base) if base else None,
        chosen=chosen,
        reasons=reasons,
        holdout=bool(data.get("ho")),
        model_id=int(str(data["m"])) if "m" in data else None,
        energy_quality=str(data.get("eq", "missing")),
        policy_version=int(str(data.get("pol", 0))),
        baseline_time_s=cost[0],
        baseline_energy_j=cost[1],
        program=_program(data.get("prog")),
        node_cap_khz=int(str(data.get("cap", 0))),
        node_axes=read_extra(data.get("gpus")),
        stamped_change=bool(data.get("chg")),
        origin=FROM_STAMP,
    )


def _program(values: object) -> dict[str, object]:
    return checked(dict(zip(PROGRAM, values, strict=False))) if isinstance(values, list) else {}


def _point(c: Configuration) -> list[object]:
    return [c.node_type, c.nodes, c.ranks_per_node, c.threads_per_node, c.freq_khz]


def _configuration(values: Sequence[object]) -> Configuration:
    # By their texts: true and 1.5, which int() takes, are no numbers of nodes.
    nodes, ranks, threads, freq = (int(str(v)) for v in values[1:5])
    return Configuration(str(values[0]), nodes, ranks, threads, freq)


def _round(value: float) -> float:
    # More digits than any meter has, in a stamp that is short.
    return float(f"{value:.6g}")


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value
