"""The counter of a run's threads ends with the run, whatever became of who started it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.core.thread_use import ThreadUse
from advisor.schedulers.thread_counter import MARK, counting, read_counts, write_counter


def quick_counter(folder: Path) -> Path:
    """Return the counter as it is written, with shorter pauses."""
    script = write_counter(folder)
    text, changed = re.subn(
        r"(?m)^for pause in .*; do$", "for pause in 0.1 0.2; do", script.read_text()
    )
    text, changed_too = re.subn(r"wait_s 30$", "wait_s 0.3", text, flags=re.MULTILINE)
    assert (changed, changed_too) == (1, 1)
    script.write_text(text)
    return script


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for at most a minute."""
    end_s = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def is_there(pid: int) -> bool:
    """Tell whether a process lives that somebody else started."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_it_ends_with_the_run_where_whoever_was_to_end_it_is_gone(tmp_path: Path) -> None:
    script, file = quick_counter(tmp_path), tmp_path / "threads"
    run = subprocess.Popen(
        [sys.executable, "-P", "-c", "while True: pass"], env={**os.environ, MARK: tmp_path.name}
    )
    try:
        # The shell is gone before the counter looks for its parent, which is never gone then.
        words = f"'{script}' {MARK}={tmp_path.name} '{file}' OMP_NUM_THREADS"
        starter = f"(sleep 0.3; exec {words}) >&- & echo $!"
        done = subprocess.run(["sh", "-c", starter], stdout=subprocess.PIPE, check=True, timeout=20)
        counter = int(done.stdout)
        wait_until(file.exists)
        time.sleep(1)  # three looks of those that may end it
        assert is_there(counter)
    finally:
        run.kill()
        run.wait()
    wait_until(lambda: not is_there(counter))
    assert {line.split(maxsplit=1)[1] for line in file.read_text().splitlines()} == {"unset 1"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ThreadUse(unset=True, threads=(1,))),
        ({"SLURM_CPUS_PER_TASK": "4"}, ThreadUse(unset=True, threads=(1,), knows_cores=True)),
        ({"SLURM_CPUS_PER_TASK": "4", "N": "4"}, ThreadUse(unset=False, threads=(1,))),
        ({"MY_SLURM_CPUS_PER_TASK": "4", "ON": "4"}, ThreadUse(unset=True, threads=(1,))),
    ],
)
def test_it_says_whether_a_program_knows_its_cores(
    tmp_path: Path, given: dict[str, str], expected: ThreadUse
) -> None:
    mark, file = tmp_path.name, tmp_path / "threads"
    others = {n: v for n, v in os.environ.items() if n not in ("SLURM_CPUS_PER_TASK", "N", "ON")}
    words = [sys.executable, "-P", "-c", "while True: pass"]
    with counting(tmp_path, mark, file, ["N"], "SLURM_CPUS_PER_TASK"):
        run = subprocess.Popen(words, env={**others, **given, MARK: mark})
        try:
            wait_until(lambda: read_counts(file) is not None)
        finally:
            run.kill()
            run.wait()
    assert read_counts(file) == expected
