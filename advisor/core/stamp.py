"""The stamp: a decision in one short line that travels with the job.

The filter puts it into the job's environment (``ADVISOR_STAMP``), job_submit into the admin
comment, PBS into a resource; ``advisor collect`` reads it back, so that the store's owner needs
nothing from the login nodes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.program import checked

PREFIX = "advisor:"
MAX_LENGTH = 2000
PROGRAM = ("path", "size", "mtime", "build")
_encode = json.JSONEncoder(separators=(",", ":")).encode
_ID = re.compile(r"[0-9a-f]{16}")
_CODE = re.compile(r"[a-z-]{1,40}")


def make_stamp(decision: Decision) -> str:
    """Return the stamp of a decision: ASCII, no quotes that shells or Lua trip over raw."""
    chosen = decision.chosen
    data: dict[str, object] = {
        "v": 1,
        "id": decision.id,
        "at": decision.created_at,
        "app": decision.application,
        "wl": decision.workload,
        "mode": decision.policy.mode,
        "goal": decision.policy.goal,
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
            *_point(decision.baseline), decision.baseline_time_s, decision.baseline_energy_j,
        ]  # fmt: skip
    if chosen is not None:
        data["to"] = _point(chosen.configuration)
        data["t"] = [_round(chosen.time_s), *chosen.time.to_list()]
        data["e"] = [_round(chosen.energy_j), *chosen.energy.to_list()]
    if decision.request is not None and decision.request.program:
        facts = decision.request.program
        data["prog"] = [facts[name] for name in PROGRAM]
    text = PREFIX + _encode(data)
    if len(text) > MAX_LENGTH:
        data.pop("prog", None)
        data["wl"], data["app"] = decision.workload[:80], decision.application[:80]
        text = PREFIX + _encode(data)
    return text


def read_stamp(text: str) -> dict[str, object] | None:
    """Return a decision record (the keys of ``Decision.to_dict``) from a stamp found in ``text``.

    None when there is none or it is torn or forged beyond use; never raises. Whatever was set
    by the user's own environment is data to be checked, not believed.
    """
    start = text.find(PREFIX + "{")
    if start < 0:
        return None
    try:
        data, _ = json.JSONDecoder().raw_decode(text[start + len(PREFIX) :])
        return _record(data)
    except (ValueError, TypeError, KeyError, IndexError):
        return None


def _record(data: Mapping[str, object]) -> dict[str, object]:
    if data["v"] != 1 or not _ID.fullmatch(str(data["id"])):
        raise ValueError("not a stamp of version 1")
    codes = [str(c) for c in _list(data.get("why")) if _CODE.fullmatch(str(c))]
    record: dict[str, object] = {
        "decision": str(data["id"]),
        "created_at": str(data.get("at", ""))[:40],
        "application": str(data.get("app", ""))[:200],
        "workload": str(data.get("wl", ""))[:200],
        "mode": str(data.get("mode", ""))[:10],
        "goal": str(data.get("goal", ""))[:20],
        "policy_version": int(str(data.get("pol", 0))),
        "model_id": int(str(data["m"])) if "m" in data else None,
        "reasons": codes,
        "changed": bool(data.get("chg")),
        "holdout": bool(data.get("ho")),
        "baseline": None,
        "chosen": None,
        "predicted": None,
        "program": _program(data.get("prog")),
    }
    if "base" in data:
        base = _list(data["base"])
        record["baseline"] = {**_configuration(base), "time_s": base[5], "energy_j": base[6]}
    if "to" in data:
        t, e = _list(data["t"]), _list(data["e"])
        record["chosen"] = _configuration(_list(data["to"]))
        record["predicted"] = {
            "time_s": t[0],
            "energy_j": e[0],
            "time_pct": t[1],
            "time_pct_interval": t[2:4],
            "energy_pct": e[1],
            "energy_pct_interval": e[2:4],
            "energy_quality": str(data.get("eq", "missing")),
        }
    return record


def _program(values: object) -> dict[str, object]:
    return checked(dict(zip(PROGRAM, values, strict=False))) if isinstance(values, list) else {}


def _point(c: Configuration) -> list[object]:
    return [c.node_type, c.nodes, c.ranks_per_node, c.threads_per_node, c.freq_khz]


def _configuration(values: Sequence[object]) -> dict[str, str | int]:
    nodes, ranks, threads, freq = (int(str(v)) for v in values[1:5])
    return Configuration(str(values[0]), nodes, ranks, threads, freq).to_dict()


def _round(value: float) -> float:
    return float(f"{value:.6g}")


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value
