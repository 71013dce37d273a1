"""A decision for people: what, why, what else there was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from advisor.core.decision import changed
from advisor.core.reasons import TEXTS
from advisor.core.units import format_change, format_duration, format_energy, format_freq
from advisor.schedulers.choose import named
from advisor.schedulers.translators import translator
from advisor.views.tables import table


def decision_lines(record: Mapping[str, Any]) -> list[str]:
    """Return application, baseline, choice, alternatives and reasons as ``explain`` shows them."""
    application = record.get("application") or "(not recognised)"
    lines = [
        f"application  {application}   workload {record.get('workload') or '-'}",
        f"policy       version {record.get('policy_version')}, mode {record.get('mode')}, "
        f"goal {record.get('goal')}",
    ]
    baseline = record.get("baseline")
    if baseline:
        lines.append(f"asked for    {configuration_text(baseline)}{_cost(baseline)}")
    chosen, predicted = record.get("chosen"), record.get("predicted")
    if chosen and predicted:
        label = "takes       " if changed(record) else "would take  "
        lines.append(f"{label} {configuration_text(chosen)}{_cost(predicted)}")
        lines.append(f"promised     {effects_text(predicted)}")
    lines.append(f"rewritten    {rewrite_text(record) or 'nothing'}")
    lines += _alternatives(record.get("alternatives") or [])
    return [*lines, "", "why", *(f"  - {text}" for text in explanation(record))]


def rewrite_text(record: Mapping[str, Any]) -> str:
    """Return the rewritten options and variables as on a command line, "" for none."""
    language = translator(named(record))
    words = [" ".join(w) for w in language.written(record.get("rewrite") or {})]
    words += [f"{name}={value}" for name, value in (record.get("environment") or {}).items()]
    return "  ".join(words)


def explanation(record: Mapping[str, Any]) -> list[str]:
    """Return the reasons as sentences; from codes alone when a stamp kept no more."""
    sentences = record.get("explanation")
    if sentences:
        return [str(s) for s in sentences]
    codes = record.get("reasons") or []
    return [TEXTS.get(str(c), str(c)).replace("{0}", "…").replace("{1}", "…") for c in codes]


_VAGUE = "no-candidates"
_CLEARER = ("unconfirmed", "slowdown", "time-limit", "no-room")
"""Reasons that say more than that nothing is left."""
_NOTHING = "nothing changed"


def why_not(codes: Sequence[str], texts: Sequence[str]) -> str:
    """Return the sentence that says why a decision changes nothing, of all its reasons.

    ``texts`` are the sentences of the ``codes``.
    """
    said = dict(zip(codes, texts, strict=False))
    ended = [(code, text) for code, text in said.items() if text.startswith(_NOTHING)]
    if not ended:
        return "nothing would be changed"
    code, text = ended[-1]
    if code == _VAGUE:
        clearer = next((said[c] for c in _CLEARER if c in said), "")
        return f"{_NOTHING}: {clearer}" if clearer else text
    return text


def configuration_text(c: Mapping[str, Any]) -> str:
    """Return a configuration in words."""
    nodes = int(c["nodes"])
    freq = int(c.get("freq_khz") or 0)
    cap = f", at most {format_freq(freq)}" if freq else ""
    return (
        f"{nodes} node{'s' if nodes > 1 else ''} of {c['node_type']}, "
        f"{c['ranks_per_node']} x {c['threads_per_rank']} threads{cap}"
    )


def effects_text(predicted: Mapping[str, Any]) -> str:
    """Return predicted changes with their intervals."""
    parts = []
    for key, label in (("energy_pct", "energy"), ("time_pct", "time")):
        low, high = (format_change(v / 100) for v in predicted[f"{key}_interval"])
        parts.append(f"{label} {format_change(predicted[key] / 100)} ({low} to {high})")
    quality = predicted.get("energy_quality", "")
    note = "; energy is an estimate" if quality == "estimated" else ""
    return ", ".join(parts) + note


def _cost(values: Mapping[str, Any]) -> str:
    time_s, energy_j = values.get("time_s"), values.get("energy_j")
    if time_s is None:
        return ""
    energy = f", {format_energy(energy_j)}" if energy_j is not None and energy_j == energy_j else ""
    return f": {format_duration(time_s)}{energy}"


def _alternatives(alternatives: Sequence[Mapping[str, Any]]) -> list[str]:
    if not alternatives:
        return []
    rows = [
        [
            a["node_type"],
            a["nodes"],
            f"{a['ranks_per_node']}x{a['threads_per_rank']}",
            format_freq(int(a["freq_khz"])),
            format_duration(a["time_s"]),
            format_change(a["time_pct"] / 100),
            format_energy(a["energy_j"]),
            format_change(a["energy_pct"] / 100),
            "confirmed" if a["confirmed"] else "estimated" if a.get("estimated") else "predicted",
        ]
        for a in alternatives
    ]
    headers = ["node type", "nodes", "threads", "cap", "time", "", "energy", "", "state"]
    return ["", "weighed", *table(headers, rows)]
