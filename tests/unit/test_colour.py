"""Colour marks what saves and what costs, on a terminal alone."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from advisor.cli.colour import painted

SAY = "from advisor.cli.colour import say; say('energy −9.1 %, time +2.0 %')"


def test_less_is_green_and_more_is_yellow() -> None:
    assert painted("a −9.1 % b +2.0 % 3 %") == "a \033[32m−9.1 %\033[0m b \033[33m+2.0 %\033[0m 3 %"


@pytest.mark.parametrize(
    ("environment", "colour"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
    ],
)
def test_a_terminal_has_colour_unless_it_is_not_wanted(
    environment: dict[str, str], colour: bool
) -> None:
    ours, theirs = pty.openpty()
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **environment}
    subprocess.run([sys.executable, "-c", SAY], stdout=theirs, env=env, check=True)
    os.close(theirs)
    assert (b"\033[32m" in os.read(ours, 4096)) is colour
    os.close(ours)


def test_a_pipe_has_none() -> None:
    done = subprocess.run([sys.executable, "-c", SAY], capture_output=True, check=True)
    assert b"\033" not in done.stdout
