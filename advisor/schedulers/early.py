"""Runs of a sweep that are ended early: what stands beside them, and what is known of them then.

The process beside a run (``advisor.training.beside``) leaves a small file for each run that it
ends. The whole run's time is what that file says, and what starting and ending took in the complete
run; its energy is the complete run's, as the scheduler has it, in the proportion of the two.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from advisor.drafts import write_whole
from advisor.interpreter import own_python
from advisor.schedulers.base import PlannedRun, RunResult, SweepJob
from advisor.schedulers.results import good_run

MODULE = "advisor.training.beside"
IN_ONE = "advisor.training.visiting"
LIBRARY = "watch.so"
_WHOLE = "whole.json"
"""The complete run as the scheduler measured it."""


def role_of(job: SweepJob, run: PlannedRun) -> str:
    """Return how a run is watched: ``complete``, ``paired``, or "" for not at all.

    The first run of the job as written is the complete one. What confirms is never ended.
    ``values``: it stands for all runs of the stage.
    """
    if job.watch is None or run.role == "confirm":
        return ""
    if job.in_one:
        return "values"
    if run.role == "baseline":
        return "complete" if run.seq == 0 else ""
    return "paired"


def beside_words(job: SweepJob, *, metered: bool, root: Path = Path("/sys")) -> list[str]:
    """Return the command that stands beside a run, but for role, name and rings.

    ``metered``: the sweep's energies are measured, so that a run may only be ended where this
    node's meter can be read as it goes on. ``root`` is where that meter is.
    """
    assert job.watch is not None
    words = [
        "--folder",
        str(job.watch.folder),
        "--within",
        f"{job.watch.within:g}",
        "--sys",
        str(root),
        *(["--metered", "--meter", _online_meter(job.meter)] if metered else []),
    ]
    one_thread = [f"{name}=1" for name in _ONE_THREAD]
    if job.in_one:
        words += ["--names", ",".join(stop_name(job, run.seq, 1) for run in job.runs)]
    return ["env", *one_thread, *own_python(IN_ONE if job.in_one else MODULE, *words)]


def driver_lines(job: SweepJob, *, metered: bool, root: Path = Path("/sys")) -> list[str]:
    """Return what a driver begins with: variables, and functions around a run that is watched.

    ``watched ROLE NAME COMMAND`` runs a command, in a process group of its own where ROLE is not
    empty, with the process beside it; ``ended NAME`` tells whether it was ended early. Where one
    stood beside it, ``timed_inside`` sets ``begin`` and ``t`` to when the command began and ended:
    that the other starts first and ends last is no time of the run. ROLE ``none``: a process that
    only starts. The driver defines ``now`` and ``times``, a file.
    """
    if job.watch is None:
        return [_UNWATCHED]
    return [
        f"watch={shlex.quote(str(job.watch.folder))}",
        f"preload={shlex.quote(str(job.watch.preload))}",
        f"beside=({shlex.join(beside_words(job, metered=metered, root=root))})",
        _WATCHED,
    ]


_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_UNWATCHED = r"""
watched() { "${@:3}"; }
timed_inside() { :; }
ended() { false; }
"""
_WATCHED = r"""
watched() {  # role, name, command: runs it with a process beside it, returns its exit code
  local role=$1 name=$2 began= rings= run= stands= waited= code
  shift 2
  [ -n "$role" ] && rings=$(mktemp -d "${TMPDIR:-/tmp}/advisor-watch.XXXXXX" 2> /dev/null)
  if [ -z "$rings" ]; then "$@"; return; fi
  set -m  # a process group of its own: what is ended is the run and nothing else
  "${beside[@]}" "$role" --name "$name" --rings "$rings" > /dev/null 2>&1 < /dev/null &
  stands=$!
  for waited in {1..100}; do  # its meter is read from before the run on
    if [ -e "$rings/ready" ] || ! kill -0 "$stands" 2> /dev/null; then break; fi
    sleep 0.05
  done
  now; began=$t
  (
    export ADVISOR_WATCH="$rings" LD_PRELOAD="$preload${LD_PRELOAD:+ $LD_PRELOAD}"
    "$@"
  ) &
  run=$!
  echo "$run" > "$rings/group"
  set +m
  wait "$run"
  code=$?
  now; printf '%s %s\n' "$began" "$t" > "$times"
  kill "$stands" 2> /dev/null
  wait "$stands"
  rm -rf "$rings"
  return "$code"
}
timed_inside() {
  [ ! -s "$times" ] || read -r begin t < "$times"
  rm -f "$times"
}
ended() { [ -e "$watch/stops/$1" ]; }
"""


def _online_meter(meter: str) -> str:
    """Return the meter to read while a run goes on: an estimate is no meter."""
    return "auto" if meter in ("none", "estimate") else meter


def stop_name(job: SweepJob, seq: int, attempt: int) -> str:
    """Return the name of the file that says of an attempt that it was ended."""
    return f"{job.stage}-{seq}-{attempt}"


def was_ended(job: SweepJob, seq: int, attempt: int) -> bool:
    """Tell whether an attempt was ended early."""
    return job.watch is not None and _read_stop(job, seq, attempt) is not None


def keep_complete(job: SweepJob, result: RunResult) -> None:
    """Keep what the scheduler measured of the complete run, for those that are ended."""
    run = next(r for r in job.runs if r.seq == result.seq)
    if not result.ok or result.time_s is None or role_of(job, run) != "complete":
        return
    assert job.watch is not None
    data = {
        "time_s": result.time_s,
        "energy_j": result.energy_j,
        "meter": result.meter,
        "measured": result.energy_quality == "measured",
    }
    try:
        write_whole(job.watch.folder / _WHOLE, json.dumps(data))
    except OSError:  # a full disk: then no run is paired with it, and all go to their end
        (job.watch.folder / "complete.json").unlink(missing_ok=True)


def ended_early(job: SweepJob, result: RunResult) -> RunResult:
    """Return the result of an attempt that was ended, its whole time and energy extrapolated.

    ``result`` has what it took until then. Without the complete run's own measurement it failed.
    """
    assert job.watch is not None
    stop = _read_stop(job, result.seq, result.attempt)
    complete = _read_json(job.watch.folder / _WHOLE)
    time_s = stop and complete and complete["time_s"] + stop["time_s"] - stop["base_time_s"]
    if not stop or not complete or not time_s or time_s <= 0:
        return replace(result, ok=False, detail="it was ended early, but the complete run is lost")
    errors = {"share": stop["share"], "time": stop["time_half_s"] / time_s}
    energy_j, why = None, f"ended early: {stop['reason']}"
    if complete["measured"]:
        if not stop["energy_j"] or not stop["base_energy_j"]:
            return replace(result, ok=False, detail="it was ended before its energy was known")
        energy_j = complete["energy_j"] * stop["energy_j"] / stop["base_energy_j"]
        errors["energy"] = stop["energy_half_j"] / stop["energy_j"]
    estimate = replace(
        result,
        ok=True,
        time_s=time_s,
        spent_s=result.time_s or stop["elapsed_s"],
        spent_j=stop["spent_j"],
        extrapolated=errors,
        detail=why,
    )
    return good_run(job, estimate, energy_j, str(complete["meter"]), why)


def why_none(job: SweepJob) -> str:
    """Return why nothing can be paired with the complete run; "" where it can, or is not there."""
    complete = None if job.watch is None else _read_json(job.watch.folder / "complete.json")
    return str(complete["why"]) if complete and complete.get("why") else ""


def why_whole(job: SweepJob, run: PlannedRun, attempt: int) -> str:
    """Return why a run went to its end that could have been ended; "" where nobody noted it."""
    if not role_of(job, run) or job.watch is None:
        return ""
    try:
        return (job.watch.folder / "whole" / stop_name(job, run.seq, attempt)).read_text()
    except OSError:
        return ""


def _read_stop(job: SweepJob, seq: int, attempt: int) -> Mapping[str, float] | None:
    assert job.watch is not None
    return _read_json(job.watch.folder / "stops" / stop_name(job, seq, attempt))


def _read_json(path: Path) -> Mapping[str, float] | None:
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    wrong = not isinstance(data, dict) or any(
        isinstance(v, float) and not math.isfinite(v) for v in data.values()
    )
    return None if wrong else data
