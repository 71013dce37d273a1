"""``advisor run --counters``: from a measured process and its counters to a signature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from advisor.core.configuration import Configuration
    from advisor.core.observation import Scope
    from advisor.core.signature import Signature
    from advisor.meters.counters import CounterReading
    from advisor.meters.process import MeasuredProcess

_MAX_KHZ = Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")


def signature_of(
    measured: MeasuredProcess, reading: CounterReading, configuration: Configuration
) -> tuple[Signature, list[str]]:
    """Return the signature of a run, and what is not in it and why."""
    from advisor.classes.counts import FASTEST_HZ, Counts
    from advisor.classes.counts import signature_of as counted

    threads = configuration.threads_per_node
    counts = Counts(
        time_s=measured.time_s,
        memory_b=reading.traffic_b,
        memory_running=reading.traffic_running,
        cpu_s=reading.cpu_s,
    )
    for name, (value, running) in reading.events.items():
        counts.add(name, value, running)
    try:
        clock_hz = float(_MAX_KHZ.read_text()) * 1e3
    except (OSError, ValueError):
        clock_hz = FASTEST_HZ
    signature, dropped = counted(counts, cpus=threads, clock_hz=clock_hz, source="counters")
    metered = measured.energy_quality == "measured" and measured.energy_j is not None
    return replace(
        signature,
        io_mbs=reading.io_b / measured.time_s / 1e6,
        memory_mb=reading.memory_b / 1e6,
        power_w=(measured.energy_j or 0.0) / measured.time_s if metered else None,
        configuration=configuration,
    ), [*reading.notes, *(f"dropped {text}" for text in dropped)]


def lines(signature: Signature, notes: Sequence[str]) -> list[str]:
    """Return a signature for people: what there is, then what there is not and why."""
    words = {
        "cpi": "CPI {:.3g}",
        "tpi": "TPI {:.3g}",
        "gflops": "{:.4g} GFLOP/s",
        "gbs": "{:.4g} GB/s",
        "io_mbs": "{:.3g} MB/s of input and output",
        "cpu_util": "{:.0f} % of its processors busy",
        "power_w": "{:.0f} W",
    }
    measures = signature.measures()
    parts = [text.format(measures[name]) for name, text in words.items() if name in measures]
    return [f"signature: {', '.join(parts)}", *(f"  not counted: {note}" for note in notes)]


def store(
    path: Path, application: str, workload: str, signatures: Sequence[Signature], scope: Scope
) -> str:
    """Store signatures; return why not where this user may not write the store."""
    from advisor.database import is_writable
    from advisor.derive.worker import deriving
    from advisor.errors import StoreError
    from advisor.store.opening import caller
    from advisor.store.signatures import save_signatures

    user = caller()
    if path.exists() and not is_writable(path):
        return f"{path} may not be written by {user}"
    user_signatures = [replace(s, contributor=user, scope=scope) for s in signatures]
    try:
        with deriving(path, first=application) as writer:
            save_signatures(writer, application, workload, user_signatures)
    except StoreError as error:
        return str(error)
    return ""
