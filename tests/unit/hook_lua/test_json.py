"""JSON in Lua: what comes back is what went."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.hook_lua.modules import ECHO, LUAS, VALUES, run

pytestmark = pytest.mark.skipif(not LUAS, reason="lua5.1 is not installed")


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(VALUES, min_size=1, max_size=40), st.booleans())
def test_json_comes_back_as_it_went(home: Path, values: list[Any], ascii_only: bool) -> None:
    lines = [json.dumps(v, ensure_ascii=ascii_only) for v in values]
    out = run(home, ECHO, "\n".join(lines).encode() + b"\n")
    assert [json.loads(line) for line in out.decode().split("\n")[:-1]] == values


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1,]",
        '{"a" 1}',
        '{"a":1,}',
        "{a:1}",
        "01x",
        "-",
        "nul",
        "tru",
        "[1 2]",
        '"a',
        '"\\x"',
        '"\\u12"',
        "1 2",
        '{"a":1}}',
        "[" * 99 + "]" * 99,
        '"\x01"',
    ],
)
def test_json_that_is_none_is_said_to_be_none(home: Path, text: str) -> None:
    assert run(home, ECHO, text.encode() + b"\n").startswith(b"!")


@settings(max_examples=20, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_can_be_quoted(home: Path, data: bytes) -> None:
    out = run(home, 'io.write(use("json").quote(io.read("*a")))', data)
    assert json.loads(out.decode("utf-8", "replace")) == data.decode("utf-8", "replace")
