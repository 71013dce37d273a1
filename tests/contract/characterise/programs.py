"""Programs that ``advisor lab characterise`` runs, and the phases and streams of its answer."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor import paths
from advisor.instruments import valgrind

Run = Callable[..., Any]
KERNELS = paths.share("examples/kernels")

NEEDS_CC = pytest.mark.skipif(
    not (shutil.which("cc") and shutil.which("objcopy")), reason="needs a C compiler and binutils"
)
with_valgrind = pytest.param(
    "valgrind",
    marks=pytest.mark.skipif(not valgrind.installed(), reason="needs valgrind"),
)
WAYS = ["cc", with_valgrind]


def characterise(advisor: Run, *command: object, way: str = "cc", threads: int = 2) -> Any:
    """Every region is a phase, however little of the time it took on a busy machine."""
    words = ("--json", "--threads", threads, "--trace", way, "--min-weight", "0.001%")
    done = advisor("characterise", *words, "--", *command)
    assert done.code == 0, done.err
    assert done.err == ""
    return done.json()


def phase_of(result: Any, function: str) -> Any:
    (found,) = [p for p in result["phases"] if p["name"].split(" ")[0] == function]
    return found


def streams_of(phase: Any) -> list[tuple[float, int, int, str]]:
    shown = ("size_kb", "stride_b", "dtype_b", "access")
    return sorted((tuple(s[k] for k in shown) for s in phase["streams"]), key=str)


def same(
    found: list[tuple[float, int, int, str]], truth: list[tuple[float, int, int, str]]
) -> None:
    """Strides, elements and sharing are exact, sizes are within 5 %."""
    assert sorted(f[1:] for f in found) == sorted(t[1:] for t in truth)
    for at, size in enumerate(sorted(f[0] for f in found)):
        assert size == pytest.approx(sorted(t[0] for t in truth)[at], rel=0.05)


def source(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


PLAIN = """
#include <stdlib.h>
int main(int argc, char **argv) {
    const long n = 100000;
    volatile double sum = 0;
    float *a = malloc(n * sizeof *a);
    for (long i = 0; i < n; i++) a[i] = i;
    for (int r = 0; r < 9; r++)
        for (long i = 0; i < n; i += 8) sum += a[i];
    if (argc > 1) abort();
    return 0;
}
"""
