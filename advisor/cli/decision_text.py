"""Print a decision for people: what, why, what else there was. Shared by explain and why."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from advisor.cli.output import print_table
from advisor.core.reasons import TEXTS
from advisor.core.units import format_change, format_duration, format_energy, format_freq


def print_decision(record: Mapping[str, Any]) -> None:
    """Print application, baseline, choice, alternatives and reasons."""
    application = record.get("application") or "(not recognised)"
    print(f"application  {application}   workload {record.get('workload') or '-'}")
    print(f"policy       version {record.get('policy_version')}, mode {record.get('mode')}, "
          f"goal {record.get('goal')}")  # fmt: skip
    baseline = record.get("baseline")
    if baseline:
        print(f"asked for    {configuration_text(baseline)}{_cost(baseline)}")
    chosen, predicted = record.get("chosen"), record.get("predicted")
    if chosen and predicted:
        label = "takes       " if record.get("rewrite") else "would take  "
        print(f"{label} {configuration_text(chosen)}{_cost(predicted)}")
        print(f"promised     {effects_text(predicted)}")
    rewrite = record.get("rewrite") or {}
    if rewrite:
        print("rewritten    " + "  ".join(f"--{k}={v}" for k, v in rewrite.items()))
    else:
        print("rewritten    nothing")
    _print_alternatives(record.get("alternatives") or [])
    print("\nwhy")
    for text in explanation(record):
        print(f"  - {text}")


def explanation(record: Mapping[str, Any]) -> list[str]:
    """Return the reasons as sentences; from codes alone when a stamp kept no more."""
    sentences = record.get("explanation")
    if sentences:
        return [str(s) for s in sentences]
    codes = record.get("reasons") or []
    return [TEXTS.get(str(c), str(c)).replace("{0}", "…").replace("{1}", "…") for c in codes]


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


def _print_alternatives(alternatives: Sequence[Mapping[str, Any]]) -> None:
    if not alternatives:
        return
    print("\nweighed")
    rows = []
    for a in alternatives:
        rows.append(
            [
                a["node_type"],
                a["nodes"],
                f"{a['ranks_per_node']}x{a['threads_per_rank']}",
                format_freq(int(a["freq_khz"])),
                format_duration(a["time_s"]),
                format_change(a["time_pct"] / 100),
                format_energy(a["energy_j"]),
                format_change(a["energy_pct"] / 100),
                "confirmed" if a["confirmed"] else "predicted",
            ]
        )
    print_table(["node type", "nodes", "threads", "cap", "time", "", "energy", "", "state"], rows)


def print_rewrite_diff(path: Path, rewrite: Mapping[str, Any]) -> None:
    """Print the script as a diff, as if the rewrite stood in its #SBATCH lines."""
    try:
        old = path.read_text(errors="replace").splitlines()
    except OSError:
        return
    new = rewritten(old, rewrite)
    for line in difflib.unified_diff(old, new, str(path), f"{path} (as run)", lineterm="", n=1):
        sys.stdout.write(line + "\n")


def rewritten(lines: Sequence[str], rewrite: Mapping[str, Any]) -> list[str]:
    """Return a script's lines with the rewritten options as ``#SBATCH`` lines."""
    from advisor.schedulers.slurm_options import read_directives

    kept = []
    last = 0
    for line in lines:
        names = read_directives(line) if line.startswith("#SBATCH") else {}
        if names and set(names) <= set(rewrite):
            continue
        kept.append(line)
        if line.startswith(("#!", "#SBATCH")):
            last = len(kept)
    return [*kept[:last], *(f"#SBATCH --{k}={v}" for k, v in rewrite.items()), *kept[last:]]
