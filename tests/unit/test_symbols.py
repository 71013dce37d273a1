"""Addresses get the names people write, in C, C++ and Fortran."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from advisor.ranking.symbols import look_up

SOURCE = """
#if defined(__cplusplus)
namespace flow { template <class T> struct Grid { T step(T); }; template <class T>
__attribute__((noinline)) T Grid<T>::step(T x) { return x + 1; } template struct Grid<double>; }
extern "C" {
#endif
int __work_MOD_product(void) { return 1; }
int solve_(void) { return 2; }
#if defined(__cplusplus)
}
#endif
int main(void) { return 0; }
"""


@pytest.mark.skipif(
    not (shutil.which("g++") and shutil.which("addr2line")), reason="needs g++ and binutils"
)
def test_names_and_lines(tmp_path: Path) -> None:
    source, program = tmp_path / "names.cc", tmp_path / "names"
    source.write_text(SOURCE)
    subprocess.run(["g++", "-g", "-O1", source, "-o", program], check=True)
    lines = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    at = {name: int(value, 16) for value, _, name in (r.split() for r in lines.splitlines()
          if len(r.split()) == 3)}  # fmt: skip
    wanted = {
        "__work_MOD_product": ("work::product", 7),
        "solve_": ("solve", 8),
        "main": ("main", 12),
        "_ZN4flow4GridIdE4stepEd": ("flow::Grid<double>::step", 4),
    }
    found = look_up(program, [at[name] for name in wanted])
    for name, (function, line) in wanted.items():
        symbol = found[at[name]]
        assert (symbol.raw, symbol.function) == (name, function)
        assert symbol.place == f"names.cc:{line}"


def test_what_cannot_be_looked_up_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    assert look_up(tmp_path / "text", [4096]) == {}
    assert look_up(tmp_path / "none", [4096]) == {}
