"""An earlier sweep's complete run, which a new sweep's run of the job as written is paired with.

It is lent where both sweeps run the same thing at the same place, metered alike. Whether it has the
new run's structure shows event by event as that goes on. Where it has not, the new run goes to its
end and is the complete one of its sweep.
"""

from __future__ import annotations

from pathlib import Path

from advisor.core.program import compare
from advisor.errors import InputError
from advisor.phases.complete import (
    BASE,
    EARLIER,
    STOPS,
    WHOLE,
    copy_complete,
    load_complete,
)
from advisor.schedulers.early import stop_name
from advisor.training.state import CHECK, SweepState, newest_of


def earlier_complete(root: Path, state: SweepState) -> SweepState | None:
    """Return the newest sweep below ``root`` that lends its complete run to another.

    None lends a run that it borrowed itself, nor one whose extrapolations had to be checked.
    """
    if not any(root.glob(f"*/watch/{WHOLE}")):
        return None
    sweeps = newest_of(root, state.subject.application)
    checked = {i for s in sweeps if CHECK in s.stages for i in (s.id, s.settings.earlier)}
    for sweep in sweeps:
        lends = sweep.id not in checked and not has_borrowed(sweep) and same_work(sweep, state)
        if lends and _has_complete_run(sweep.folder / "watch"):
            return sweep
    return None


def has_borrowed(state: SweepState) -> bool:
    """Tell whether a sweep's complete run is another's: its own job as written was ended early."""
    job, stops = state.job("design"), state.folder / "watch" / STOPS
    return any((stops / stop_name(job, 0, n + 1)).is_file() for n in range(job.attempts))


def same_work(sweep: SweepState, other_sweep: SweepState) -> bool:
    """Tell whether two sweeps run the same program with the same input, metered alike.

    A program whose file is not known is the same where nothing else differs: its calls will tell.
    """
    a, b = sweep.subject, other_sweep.subject
    named = ("application", "workload", "baseline", "method", "arguments", "command")
    if any(getattr(a, name) != getattr(b, name) for name in named):
        return False
    settings, other_settings = sweep.settings, other_sweep.settings
    metered = (
        settings.scheduler == other_settings.scheduler
        and settings.energy_from == other_settings.energy_from
    )
    equally_known = bool(a.program) == bool(b.program)
    built = compare([a.program] if a.program else [], b.program) in ("same", "unknown")
    return metered and equally_known and built and _text(a.script) == _text(b.script)


def _text(script: Path | None) -> bytes | None:
    try:
        return None if script is None else script.read_bytes()
    except OSError:
        return None


def _has_complete_run(watch: Path) -> bool:
    run = load_complete(watch / BASE) if (watch / WHOLE).is_file() else None
    return run is not None and not run.why


def lend(earlier: SweepState, state: SweepState) -> None:
    """Copy the complete run, so that the sweep can go on without the earlier one's folder.

    Raises InputError when it cannot be read or written.
    """
    place = state.folder / "watch" / EARLIER
    try:
        place.mkdir(parents=True, exist_ok=True)
        copy_complete(earlier.folder / "watch", place)
    except OSError as error:
        why = f"{error.filename}: {error.strerror}"
        raise InputError(f"the complete run of sweep {earlier.id} is not there: {why}") from error
