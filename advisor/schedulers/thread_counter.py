"""Counts the threads that work in a run of a sweep, on its first node.

A script in bash, because nothing else is sure to be on a node. It stands beside the run of the job
as written, finds the run's processes by a variable in their environment (``MARK``), and reads their
processor times in /proc (``schedstat``), first often, later every half minute. Each look adds one
line to a file; what counts is the look that saw most threads, of those in the second half of the
work. Whatever used a hundredth of what the busiest used, works: threads that only wait (of MPI, of
a runtime) do not count.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from advisor.core.launchers import LAUNCHERS
from advisor.core.thread_use import ThreadUse
from advisor.drafts import write_whole

MARK = "ADV_SWEEP_RUN"
"""Variable whose value tells a run's processes from all others."""
NAME = "count-threads"
_SHELLS = frozenset({"bash", "csh", "dash", "env", "ksh", "sh", "tcsh", "time", "timeout", "zsh"})
_COMM = 15
"""Characters of a process's name that Linux keeps."""

_COUNTER = r"""#!/bin/bash
# MARK FILE VARIABLE...: looks again and again at the processes whose environment has the word MARK.
# A line of FILE: ns of processor time of all of them, "set" where a VARIABLE is in the environment
# of one that works, else "cores" where one has the number of cores that its request states for a
# task, else "unset", and of each process that works how many of its threads do.
mark=$1 file=$2
shift 2
variables=$(IFS='|'; printf '%s' "$*")
exec {never}<> <(:)  # to wait without a child

look() {
  local environ name stats=() ours=() given cores
  running=
  while IFS= read -r environ; do
    running=yes
    IFS= read -r name < "${environ%/environ}/comm" || continue
    case $name in @STARTERS@) continue ;; esac  # it starts what works, and waits
    stats+=("${environ%/environ}"/task/[0-9]*/schedstat)
    ours+=("$environ")
  done < <(grep -slzFx -e "$mark" /proc/[0-9]*/environ)
  [ "${#ours[@]}" -gt 0 ] || return
  given=$(grep -slzE -e "^($variables)=" "${ours[@]}" | tr -d '\n')
  cores=$(grep -slzE -e "^@CORES@=" "${ours[@]}" | tr -d '\n')
  grep -sH '' "${stats[@]}" | awk -v given="$given" -v cores="$cores" '
    {
      split($0, path, "/")
      pid = path[3]
      sub(/^[^:]*:/, "")
      all += $1
      of[pid] += $1
      if ($1 > most[pid]) most[pid] = $1
      if (of[pid] > busiest) busiest = of[pid]
      count[pid]++
      thread[pid, count[pid]] = $1
    }
    END {
      if (!all) exit
      for (pid in of) {
        if (of[pid] * 100 < busiest) continue
        working = 0
        for (i = 1; i <= count[pid]; i++)
          if (thread[pid, i] * 100 >= most[pid]) working++
        line = line " " working
        if (index(given, "/proc/" pid "/environ")) set = 1
        if (index(cores, "/proc/" pid "/environ")) knows = 1
      }
      printf "%.0f %s%s\n", all, set ? "set" : knows ? "cores" : "unset", line
    }' >> "$file"
}

wait_s() {
  read -rt "$1" -u "$never"
  [ -d "/proc/$PPID" ] || exit 0  # whoever started it was killed, and can end it no more
}

for pause in 0.1 0.2 0.3 0.5 1 2 4 8 15; do
  wait_s "$pause"
  look
done
while :; do
  wait_s 30
  look
  # The run is over and nobody ended this: whoever was to was killed before this had its number, or
  # another process bears that now.
  [ "$running" ] || exit 0
done
"""


def write_counter(folder: Path, cores_variable: str = "") -> Path:
    """Write the script into a folder and return it.

    ``cores_variable`` tells a program how many cores its job's request states for a task, "" where
    no variable of the scheduler does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / NAME
    names = "|".join(sorted(name[:_COMM] for name in LAUNCHERS | _SHELLS))
    text = _COUNTER.replace("@STARTERS@", names).replace("@CORES@", cores_variable)
    write_whole(script, text, 0o700)
    return script


@contextmanager
def counting(
    folder: Path, mark: str, file: Path, variables: Sequence[str], cores_variable: str = ""
) -> Iterator[None]:
    """Count the threads of the processes on this machine that have ``mark``, until the end.

    Without ``variables`` nothing is counted, and where that cannot be done nothing is known.
    """
    if not variables:
        yield
        return
    words = [str(write_counter(folder, cores_variable)), f"{MARK}={mark}", str(file), *variables]
    nowhere = subprocess.DEVNULL
    try:
        counter = subprocess.Popen(words, stdin=nowhere, stdout=nowhere, stderr=nowhere)
    except OSError:  # no bash
        yield
        return
    try:
        yield
    finally:
        counter.terminate()
        counter.wait()


def counted(path: Path) -> dict[str, object]:
    """Return what the look that saw most found, as a run's result keeps it; {} where none did."""
    use = read_counts(path)
    return {} if use is None else use.to_dict()


def read_counts(path: Path) -> ThreadUse | None:
    """Return what the looks at a run found, the most threads first; None where none saw any.

    Early looks see a program that still starts, the last one may see threads that end.
    """
    try:
        complete, _, _ = path.read_text(errors="replace").rpartition("\n")
    except OSError:
        return None
    looks: list[tuple[int, ThreadUse]] = []
    for line in complete.splitlines():
        words = line.split()  # ns, set, cores or unset, threads of each process
        if len(words) < 3 or not all(w.isdecimal() for w in (words[0], *words[2:])):
            continue
        threads = sorted(map(int, words[2:]), reverse=True)
        state = {"unset": words[1] in ("unset", "cores"), "knows_cores": words[1] == "cores"}
        use = ThreadUse.from_dict({**state, "threads": threads})
        if use is not None:
            looks.append((int(words[0]), use))
    most_ns = max((ns for ns, _ in looks), default=0)
    late = [use for ns, use in looks if 2 * ns >= most_ns]
    return max(late, key=lambda use: sum(use.threads), default=None)
