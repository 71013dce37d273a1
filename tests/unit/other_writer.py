"""Another process that writes the store, runs to write, and the one line that an error is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.errors import StoreError

C = Configuration("hsw", 1, 1, 4, 0)
PRELUDE = """
import sys
from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.store.writer import Writer
C = Configuration("hsw", 1, 1, 4, 0)
path = sys.argv[1]
def say(word):
    print(word, flush=True)
"""


def start(code: str, path: Path) -> subprocess.Popen[str]:
    """Start another process that says one word when it is ready."""
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


def finish(process: subprocess.Popen[str]) -> None:
    process.communicate("go\n", timeout=60)
    assert process.returncode == 0


def runs(count: int) -> list[Observation]:
    return [Observation(C, n + 1.0, extra={"text": "x" * 200}) for n in range(count)]


def one_line(caught: pytest.ExceptionInfo[StoreError], path: Path) -> str:
    text = str(caught.value)
    assert "\n" not in text
    assert str(path) in text
    assert caught.value.hint
    return text
