"""The files of a sweep on PBS: one job script for each run, and what it writes of its run.

The script runs the user's own once, under PBS's own node file and thread count, and notes begin,
end, exit code and the cap it found. It appears as one small file, whole or not at all, that says
all; PBS's record adds the energy.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from advisor.core.script_use import CAP_VARIABLE
from advisor.drafts import write_whole
from advisor.schedulers.base import PlannedRun, SweepJob
from advisor.schedulers.command import interpreter
from advisor.schedulers.early import driver_lines, role_of, stop_name
from advisor.schedulers.pbs.translator import array_task
from advisor.schedulers.thread_counter import MARK, write_counter

_DRIVER = r"""
now() { if [ -n "${EPOCHREALTIME:-}" ]; then t=${EPOCHREALTIME/,/.}; else t=$(date +%s.%N); fi; }

note() {  # what there is to say of this run, as one line
  local IFS=$'\t' partial="$folder/runs/.$name"
  printf '%s\n' "$*" > "$partial" && mv -f "$partial" "$folder/runs/$name"
}

highest=0
for file in "$sys"/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_max_freq; do
  { read -r khz < "$file"; } 2>/dev/null || continue
  [ "$khz" -gt "$highest" ] && highest=$khz
done
if [ "$cap" -gt 0 ] && { [ "$highest" = 0 ] || [ "$highest" -gt "$cap" ]; }; then
  note "$PBS_JOBID" 0 0 0 uncapped "$highest"
  exit 1
fi
cd -- "$working" || { note "$PBS_JOBID" 0 0 0 lost "$highest"; exit 1; }
[ -n "$limit" ] && job=(timeout --kill-after=30 "$limit" "${job[@]}")
times="$folder/runs/.$name.times"
counter=
if [ -n "$threads_from" ]; then
  "$folder/bin/count-threads" "@MARK@=$@MARK@" "$folder/runs/$name.threads" $threads_from \
    > /dev/null 2>&1 < /dev/null &
  counter=$!
fi
now; begin=$t
(
  export @MARK@
  watched "$role" "$stop" "${job[@]}"
) > "$folder/output/run-$name.log" 2>&1 < /dev/null
code=$?
now; timed_inside
if [ -n "$counter" ]; then kill "$counter" 2> /dev/null; wait "$counter" 2> /dev/null; fi
verdict=ok
[ "$code" = 0 ] || verdict=failed
ended "$stop" && code=0 && verdict=early
[ -n "$limit" ] && { [ "$code" = 124 ] || [ "$code" = 137 ]; } && verdict=late
note "$PBS_JOBID" "$begin" "$t" "$code" "$verdict" "$highest"
exit "$code"
"""


@dataclass(frozen=True, slots=True)
class Noted:
    """What a run's script has noted: seconds since the epoch, exit code, verdict.

    ``verdict`` is ok, early (ended once it was known), failed, late (over its limit), uncapped
    (``highest_khz`` is above the cap, or 0: no cpufreq) or lost (its folder is not there).
    """

    job_id: str
    begin: float
    end: float
    code: int
    verdict: str
    highest_khz: int

    @property
    def time_s(self) -> float:
        """Seconds the user's script took."""
        return self.end - self.begin


def write_script(job: SweepJob, run: PlannedRun, attempt: int, cap_khz: int, root: Path) -> Path:
    """Write the job script of one attempt and return it.

    Every text from outside is quoted by shlex; nothing is evaluated. ``root`` poses another /sys.
    """
    for name in ("runs", "output", "scripts"):
        (job.folder / name).mkdir(parents=True, exist_ok=True)
    write_counter(job.folder / "bin")
    counted = job.threads_from if run.role == "baseline" else ()
    argv = job.command
    if job.script is not None:
        argv = (*interpreter(job.script), str(job.script), *job.arguments)
    limit = "" if job.run_limit_s is None else str(max(1, round(job.run_limit_s)))
    name = f"{run.seq:d}-{attempt:d}"
    text = "\n".join(
        [
            "#!/bin/bash",
            "# One run of a sweep. Made by advisor train.",
            f"folder={shlex.quote(str(job.folder))}",
            f"working={shlex.quote(str(job.working_folder))}",
            f"job=({shlex.join(argv)})",
            f"name={name} cap={cap_khz:d} limit={limit} sys={shlex.quote(str(root))}",
            *(f"export {k}={shlex.quote(v)}" for k, v in array_task(job.first_task).items()),
            # PBS meters the whole job: all wait alike for a process beside them
            f"role={role_of(job, run) or 'none'}",
            f"stop={shlex.quote(stop_name(job, run.seq, attempt))}",
            *driver_lines(job, metered=True, root=root),
            *([f"export {CAP_VARIABLE}={khz:d}"] if (khz := run.configuration.freq_khz) else []),
            f"{MARK}={shlex.quote(f'{job.id}-{job.stage}-{name}')}",
            f"threads_from={shlex.quote(' '.join(counted))}",
            _DRIVER.replace("@MARK@", MARK),
        ]
    )
    script = job.folder / "scripts" / f"{name}.sh"
    write_whole(script, text, 0o700)
    return script


def read_note(folder: Path, seq: int, attempt: int) -> Noted | None:
    """Return what an attempt noted, None while it has not."""
    try:
        text = (folder / "runs" / f"{seq:d}-{attempt:d}").read_text(errors="replace")
        job_id, begin, end, code, verdict, highest = text.rstrip("\n").split("\t")
        return Noted(job_id, float(begin), float(end), int(code), verdict, int(highest))
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Submitted:
    """One attempt at a run, and the job it is."""

    seq: int
    attempt: int
    job_id: str


def note_submitted(folder: Path, seq: int, attempt: int, job_id: str) -> None:
    """Remember which job an attempt is."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "jobs").open("a") as file:
        file.write(f"{seq:d}\t{attempt:d}\t{job_id}\n")


def read_submitted(folder: Path) -> Iterator[Submitted]:
    """Yield what was submitted, the first first; a line torn by a crash is left out."""
    try:
        complete, _, _ = (folder / "jobs").read_text(errors="replace").rpartition("\n")
    except OSError:
        return
    for line in complete.splitlines():
        words = line.split("\t")
        if len(words) == 3 and words[0].isdecimal() and words[1].isdecimal():
            yield Submitted(int(words[0]), int(words[1]), words[2])
