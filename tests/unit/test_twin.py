"""``advisor cc``: what is asked for is made untouched, and a twin beside it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import AdvisorError, UsageError
from advisor.instruments.twin import compile_twice, embedded, understand

needs_cc = pytest.mark.skipif(
    not (shutil.which("cc") and shutil.which("objcopy")), reason="needs a C compiler and binutils"
)

PART = "int add(const int *a) { return a[0] + a[1]; }\n"
MAIN = """
int add(const int *);
int main(int argc, char **argv) { int a[2] = {argc, 40}; return add(a) - 41; }
"""


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "part.c").write_text(PART)
    (tmp_path / "main.c").write_text(MAIN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "mode", "inputs", "output"),
    [
        (["-O2", "-c", "a.c"], "compile", ["a.c"], ""),
        (["cc", "-O2", "-c", "a.c", "-o", "b.o"], "compile", ["a.c"], "b.o"),
        (["-ob.o", "-c", "a.c", "-I", "dir.c"], "compile", ["a.c"], "b.o"),
        (["a.o", "b.c", "-lm", "-o", "prog"], "link", ["a.o", "b.c"], "prog"),
        (["-L.", "-lall"], "link", [], ""),
        (["-E", "a.c"], "ask", ["a.c"], ""),
        (["-shared", "a.o", "-o", "a.so"], "ask", ["a.o"], "a.so"),
        (["--version"], "ask", [], ""),
        (["-x", "c", "-"], "ask", [], ""),
    ],
)
@needs_cc
def test_command_lines(words: list[str], mode: str, inputs: list[str], output: str) -> None:
    call = understand(words)
    assert (call.mode, [name for _, name in call.inputs], call.output) == (mode, inputs, output)
    assert Path(call.compiler).is_absolute()


def test_nothing_and_nobody() -> None:
    with pytest.raises(UsageError, match="nothing to compile"):
        understand([])
    with pytest.raises(AdvisorError, match="there is no compiler no-such-cc"):
        understand(["no-such-cc", "-c", "a.c"])


@needs_cc
def test_objects_archives_and_dependency_files(sources: Path) -> None:
    """The twin travels inside the object, through an archive, to the linker."""
    assert compile_twice(["-O2", "-MD", "-MF", "part.d", "-c", "part.c"]) == (0, "")
    assert "part.o: part.c" in (sources / "part.d").read_text()
    assert len(embedded((sources / "part.o").read_bytes())) == 1
    subprocess.run(["ar", "rcs", "libpart.a", "part.o"], check=True)
    (sources / "part.o").unlink()
    assert compile_twice(["-O2", "-c", "main.c", "-o", "start.o"]) == (0, "")
    for link in (
        ["start.o", "libpart.a"],
        ["start.o", "-L", ".", "-lpart"],
        ["main.c", "libpart.a"],
    ):
        assert compile_twice([*link, "-o", "prog"]) == (0, "")
        plain, traced = sources / "prog", sources / "prog.traced"
        assert b"__tsan_read4" in traced.read_bytes()
        assert b"__tsan" not in plain.read_bytes() and b"AVTWIN1" not in plain.read_bytes()
        assert [subprocess.run([p]).returncode for p in (plain, traced)] == [0, 0]
        plain.unlink()
        traced.unlink()


@needs_cc
def test_what_fails_fails_as_ever(sources: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (sources / "bad.c").write_text("int main(void) { return nothing; }\n")
    assert compile_twice(["-c", "bad.c"]) == (1, "")
    assert "nothing" in capfd.readouterr().err
    assert not (sources / "bad.o").exists()


@needs_cc
def test_a_twin_that_cannot_be_made_is_a_warning(
    sources: Path, monkeypatch: pytest.MonkeyPatch, advisor: Callable[..., Any]
) -> None:
    subprocess.run(["cc", "-c", "main.c", "part.c"], check=True)
    done = advisor("cc", "main.o", "part.o", "-o", "prog")
    assert done.code == 0
    assert done.err == (
        "advisor cc: no traced twin of prog: none of its objects was compiled with advisor cc\n"
    )
    assert (sources / "prog").exists() and not (sources / "prog.traced").exists()


@needs_cc
def test_every_word_is_the_compilers(advisor: Callable[..., Any]) -> None:
    assert advisor("cc", "--version").code == 0
    assert advisor("cc", "--db", "x.c").code != 0  # an option the compiler does not know
