"""C sources compiled into the cache at first use."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.errors import AdvisorError
from advisor.instruments.native import built, compiler


def test_compiled_once_and_again_when_anything_changes(tmp_path: Path) -> None:
    source, header = tmp_path / "a.c", tmp_path / "a.h"
    source.write_text('#include "a.h"\nint main(void) { return CODE; }\n')
    header.write_text("#define CODE 0\n")
    first = built("a", [source], ["-O0"], headers=[header])
    made = first.stat().st_mtime_ns
    assert built("a", [source], ["-O0"], headers=[header]) == first
    assert first.stat().st_mtime_ns == made
    header.write_text("#define CODE 1\n")
    assert built("a", [source], ["-O0"], headers=[header]) != first
    assert built("a", [source], ["-O1"], headers=[header]) != first


def test_what_does_not_compile_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    source = tmp_path / "bad.c"
    source.write_text("int main(void) { return missing; }\n")
    with pytest.raises(AdvisorError, match=r"cannot compile bad: .*bad\.c:1.*missing") as error:
        built("bad", [source], [])
    assert "\n" not in str(error.value)


def test_no_compiler_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(AdvisorError, match="no C compiler"):
        compiler()
