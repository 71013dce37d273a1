"""What the hooks take of the daemon's answer, and of its message."""

from __future__ import annotations

import json
import os
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.core.protocol import answer_line
from tests.unit.hook_lua.modules import LUAS, message, run

pytestmark = pytest.mark.skipif(not LUAS, reason="lua5.1 is not installed")


FLAT = """\
local json = use("json")
for line in io.lines() do
  local found, words = json.flat(line), {}
  for name, value in pairs(found or {}) do
    words[#words + 1] = json.quote(name) .. ':"' .. value .. '"'
  end
  print(found and "{" .. table.concat(words, ",") .. "}" or "null")
end
"""


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.dictionaries(
            st.text("ab-_:,. {}[]", min_size=1, max_size=6),
            st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.none(),
            max_size=4,
        ),
        min_size=1,
        max_size=30,
    ),
    st.booleans(),
    st.booleans(),
)
def test_a_flat_object_is_taken_apart(
    home: Path, objects: list[dict[str, str | None]], spaces: bool, argv: bool
) -> None:
    last = {"argv": ["a]}", '","x":"y', "b"]} if argv else {}
    separators = (", ", ": ") if spaces else (",", ":")
    lines = [json.dumps({**o, **last}, separators=separators) for o in objects]
    said = run(home, FLAT, "\n".join(lines).encode() + b"\n").decode().split("\n")[:-1]
    assert [json.loads(line) for line in said] == [
        {name: value or "" for name, value in o.items()} for o in objects
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "{",
        '{"a"',
        '{"a":',
        '{"a":"',
        '{"a":"b',
        '{"a":"b"',
        '{"a":"b",}',
        '{"a":"b"}}',
        '{"a":{}}',
        '{"x":["a"]}',
        '{"argv":["a"],"x":"b"}',
        '{"a":"\\"}',
        '{"a\\n":"b"}',
        "{,}",
    ],
)
def test_what_is_no_flat_object_is_not_taken_apart(home: Path, text: str) -> None:
    assert run(home, FLAT, text.encode() + b"\n") == b"null\n"


READ = """\
local json = use("json")
local function show(plan, problem, word)
  if not plan then return tostring(problem) .. " " .. tostring(word) end
  local words = {}
  for _, key in ipairs({ "decision", "stamp", "message", "steps" }) do
    words[#words + 1] = json.quote(key) .. ":" .. json.quote(plan[key] or "")
  end
  words[#words + 1] = '"always":' .. tostring(plan.always)
  for _, key in ipairs({ "options", "env" }) do
    local inner = {}
    for name, value in pairs(plan[key]) do
      inner[#inner + 1] = json.quote(name) .. ":" .. json.quote(value)
    end
    table.sort(inner)
    words[#words + 1] = json.quote(key) .. ":{" .. table.concat(inner, ",") .. "}"
  end
  return "{" .. table.concat(words, ",") .. "}"
end
local decoded = 0
local decode = json.decode
json.decode = function(...) decoded = decoded + 1 return decode(...) end
print(show(use("answer").read(io.read("*a"))))
print(decoded)
"""


ANSWERS = st.fixed_dictionaries(
    {
        "decision": st.text("0123456789abcdef", min_size=15, max_size=17),
        "rewrite": st.dictionaries(
            st.sampled_from(["cpus-per-task", "cpu-freq", "constraint", "nodes", "uid"]),
            st.sampled_from(["1", "12", "0", "1-2", "milan", 'a"b', "", "{}", "\\"]),
            max_size=3,
        ),
        "env": st.dictionaries(
            st.sampled_from(["OMP_NUM_THREADS", "MKL_NUM_THREADS", "GOMAXPROCS", "PATH"]),
            st.sampled_from(["1", "x"]),
            max_size=1,
        ),
        "message": st.text(st.sampled_from('ab"\\{},:é\\n'), max_size=12),
        "to": st.sampled_from(["tty", "always", "nobody"]),
        "stamp": st.text(st.sampled_from('ab"\\{},:é\\n'), max_size=12).map(
            lambda t: f"advisor:{{{t}}}"
        ),
    },
    optional={
        "plan": st.text(st.sampled_from('ab"\\{},:é\\n'), max_size=12).map(
            lambda t: f"1 {'0' * 16} {t}"
        )
    },
)


def read_answer(home: Path, line: bytes) -> tuple[str, int]:
    """Return the plan as JSON text (or what is wrong), and how often JSON was read."""
    plan, decoded = run(home, READ, line).decode().rstrip("\n").rsplit("\n", 1)
    return plan, int(decoded)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ANSWERS)
def test_the_usual_line_reads_as_json_would(home: Path, answer: dict[str, Any]) -> None:
    line = answer_line(answer)[:-1]
    spaced = json.dumps({"v": 1, **answer}).encode()  # is read as JSON
    plan, as_json = read_answer(home, line)[0], read_answer(home, spaced)
    assert as_json[1] == 1
    if len(answer["rewrite"]) > 1 and plan.endswith("garbage"):
        assert as_json[0].endswith("garbage")  # later Luas look at options in any order
    else:
        assert plan == as_json[0]


def test_the_daemons_own_answer_is_the_usual_line(home: Path, tmp_path: Path) -> None:
    from advisor.service.handlers import Handlers
    from advisor.service.peer import Peer
    from advisor.service.snapshot import StoreSource

    request = {
        "v": 1,
        "op": "decide",
        "scheduler": "slurm",
        "hook": "cli_filter",
        "options": {},
        "argv": ["x"],
        "script": "#!/bin/sh\nsrun ./app\n",
    }
    answer = Handlers(StoreSource(tmp_path / "none.db")).answer(
        json.dumps(request).encode(), Peer(1, os.getuid(), 0)
    )
    plan, decoded = read_answer(home, answer[:-1])
    assert decoded == 0
    assert json.loads(plan)["stamp"] == json.loads(answer)["stamp"]


@pytest.mark.parametrize(
    "text", ["advisor: 20 % less", "\u221220 % \u2013 \u201egut\u201c, K\u00f6ln \u4eac", "a" * 500]
)
def test_messages_people_can_read_are_let_through(home: Path, text: str) -> None:
    assert message(home, text) == text


def test_what_steers_a_terminal_is_taken_out_of_messages(home: Path) -> None:
    assert message(home, "a\u009b2J") == "a?2J"
    assert message(home, "a\u202eb\u200bc\u2028d\ufeff") == "a?b?c?d?"
    assert message(home, b'"a\xc2\x9bb\x9b\xe2A\xff"') == "a?b??A?"
    assert message(home, "two\nlines") == ""
    assert message(home, "\U0001f331 grows") == "? grows"
    assert message(home, b'"\\ud83d half"') == "? half"
    assert message(home, "\x1b[2J") == ""


@settings(max_examples=40, deadline=None)
@given(st.text(min_size=1, max_size=60))
def test_no_message_can_steer_a_terminal(home: Path, text: str) -> None:
    shown = message(home, json.dumps(text, ensure_ascii=False).encode("utf-8", "replace"))
    assert all(unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in shown)


EACH = """\
for line in io.lines() do
  local plan, problem, word = use("answer").read(line)
  print(plan and "plan" or word, problem)
end
"""
OPTION, VARIABLE = {"cpus-per-task": "2"}, {"OMP_NUM_THREADS": "2"}
PROGRAM = {"path": "/x", "size": "1", "mtime": "-1", "build": "adler:0000000a:1 0af"}
STEPS = "1 0123456789abcdef 1000 1 28 b6aa07da,2,14,u,7,1800000 444edccf"
PLANS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "nothing of the environment": {"env": None},
    "options": {"rewrite": {"cpus-per-task": "999999", "constraint": "9a_.-Z", "cpu-freq": "0-0"}},
    "the greatest cap": {"rewrite": {"cpu-freq": "1200000-20000000"}},
    "one frequency": {"rewrite": {"cpu-freq": "1200000-1200000"}},
    "as long a value as may be": {"rewrite": {"constraint": "x" * 64}},
    "threads": {"env": {"OMP_NUM_THREADS": "1", "GOMAXPROCS": "2", "A0_NUM_THREADS": "3"}},
    "as long a name as may be": {"env": {"X" * 52 + "_NUM_THREADS": "1"}},
    "as long a message as may be": {"message": "x" * 500},
    "no message": {"message": None, "to": None},
    "for all": {"message": "x", "to": "always"},
    "as long a stamp as may be": {"stamp": "advisor:{" + "x" * 1990 + "}"},
    "no stamp": {"stamp": None},
    "a plan for its steps": {"plan": STEPS},
    "as long a plan as may be": {"plan": STEPS + "x" * (2000 - len(STEPS))},
    "a plan and a program": {"plan": STEPS, "program": PROGRAM},
    "a program": {"program": PROGRAM},
    "a program's long path": {"program": {**PROGRAM, "path": "/" + "x" * 3999}},
}
NO_PLANS: dict[str, dict[str, Any]] = {
    "version 2": {"v": 2},
    "no version": {"v": None},
    "a text as version": {"v": "1"},
    "no decision": {"decision": None},
    "a number": {"decision": 1234567812345678},
    "15 digits": {"decision": "0" * 15},
    "17 digits": {"decision": "0" * 17},
    "no digit before": {"decision": "x" + "0" * 15},
    "no digit behind": {"decision": "0" * 15 + "x"},
    "no rewrite": {"rewrite": None},
    "a text as rewrite": {"rewrite": "x"},
    "a list of rewrites": {"rewrite": ["x"]},
    "a text as variables": {"env": "x"},
    "another option": {"rewrite": {**OPTION, "nodes": "1"}},
    "an option's value is a number": {"rewrite": {"cpus-per-task": 2}},
    "an option's value is a table": {"rewrite": {"constraint": {"a": "b"}}},
    "no cores": {"rewrite": {"cpus-per-task": "0"}},
    "many cores": {"rewrite": {"cpus-per-task": "1000000"}},
    "cores with more behind": {"rewrite": {"cpus-per-task": "2x"}},
    "cores with more before": {"rewrite": {"cpus-per-task": " 2"}},
    "an expression": {"rewrite": {"constraint": "a|b"}},
    "an expression before": {"rewrite": {"constraint": "|b"}},
    "an expression behind": {"rewrite": {"constraint": "a&"}},
    "a long value": {"rewrite": {"constraint": "x" * 65}},
    "a cap with a governor": {"rewrite": {"cpu-freq": "1-2:Performance"}},
    "a cap with more before": {"rewrite": {"cpu-freq": "x1-2"}},
    "one number": {"rewrite": {"cpu-freq": "1200000"}},
    "turned round": {"rewrite": {"cpu-freq": "1200001-1200000"}},
    "too great a cap": {"rewrite": {"cpu-freq": "1200000-20000001"}},
    "endless cap": {"rewrite": {"cpu-freq": "1-0000000002"}},
    "another variable": {"env": {**VARIABLE, "PATH": "1"}},
    "a long name": {"env": {"X" * 53 + "_NUM_THREADS": "1"}},
    "more before a name": {"env": {"a_NUM_THREADS": "1"}},
    "more before all": {"env": {" X_NUM_THREADS": "1"}},
    "more behind a name": {"env": {"X_NUM_THREADS ": "1"}},
    "no threads": {"env": {"OMP_NUM_THREADS": "0"}},
    "a number of threads": {"env": {"OMP_NUM_THREADS": 4}},
    "threads with more": {"env": {"OMP_NUM_THREADS": "4;reboot"}},
    "a long message": {"message": "x" * 501},
    "two lines": {"message": "a\nb"},
    "a steering message": {"message": "a\x1b[2J"},
    "a deleting message": {"message": "a\x7f"},
    "nul": {"message": "a\0"},
    "a number to say": {"message": 7},
    "for nobody": {"to": "nobody"},
    "for a number": {"to": 1},
    "a long stamp": {"stamp": "advisor:{" + "x" * 1991 + "}"},
    "a stamp of two lines": {"stamp": "advisor:{}\nx"},
    "a stamp of no form": {"stamp": "advisor:x"},
    "a stamp with more before": {"stamp": "xadvisor:{}"},
    "a number as stamp": {"stamp": 7},
    "a stamp that is not ASCII": {"stamp": "advisor:{\u00e9}"},
    "a stamp in two lines": {"stamp": "advisor:{\n}"},
    "a long plan": {"plan": STEPS + "x" * (2001 - len(STEPS))},
    "no plan": {"plan": ""},
    "a number as plan": {"plan": 1},
    "a plan of nothing": {"plan": STEPS[:19]},
    "the plan of another decision": {"plan": STEPS.replace("f ", "e ", 1)},
    "a plan of another form": {"plan": "2" + STEPS[1:]},
    "a plan with more before": {"plan": "x" + STEPS},
    "a plan that is not ASCII": {"plan": STEPS + "\u00e9"},
    "a plan of two lines": {"plan": STEPS + "\n"},
    "a text as program": {"program": "x"},
    "no path": {"program": {**PROGRAM, "path": ""}},
    "too long a path": {"program": {**PROGRAM, "path": "x" * 4001}},
    "a path of two lines": {"program": {**PROGRAM, "path": "a\nb"}},
    "no size": {"program": {k: v for k, v in PROGRAM.items() if k != "size"}},
    "a size with more": {"program": {**PROGRAM, "size": "1x"}},
    "a size with more before": {"program": {**PROGRAM, "size": "x1"}},
    "a time with more": {"program": {**PROGRAM, "mtime": "1x"}},
    "a time with more before": {"program": {**PROGRAM, "mtime": "x1"}},
    "a build of no form": {"program": {**PROGRAM, "build": "x;"}},
    "a build with more": {"program": {**PROGRAM, "build": "0a%"}},
    "a build with more before": {"program": {**PROGRAM, "build": "%0a"}},
    "more facts": {"program": {**PROGRAM, "uid": "0"}},
}


@pytest.mark.parametrize("usual", [True, False], ids=["usual", "json"])
def test_a_plan_is_taken_whole_or_not_at_all(home: Path, usual: bool) -> None:
    """Both readers, of the usual line and of any JSON, take and refuse the same."""
    base = {
        "v": 1,
        "decision": "0123456789abcdef",
        "rewrite": {},
        "env": {},
        "message": "",
        "to": "tty",
        "stamp": "advisor:{}",
    }

    separators = (",", ":") if usual else (", ", ": ")

    def line(changes: dict[str, Any]) -> bytes:
        data = {k: v for k, v in {**base, **changes}.items() if v is not None}
        return json.dumps(data, separators=separators).encode() + b"\n"

    lines = [line(changes) for changes in (*PLANS.values(), *NO_PLANS.values())]
    lines += [b"\n", b"x\n", b"[]\n", b"17\n", b'{"v":1,"error":"busy"}\n']
    said = run(home, EACH, b"".join(lines)).decode().splitlines()
    assert len(said) == len(lines)
    words = [text.split("\t")[0] for text in said]
    assert dict(zip((*PLANS, *NO_PLANS), words, strict=False)) == {
        **dict.fromkeys(PLANS, "plan"),
        **dict.fromkeys(NO_PLANS, "garbage"),
    }
    assert words[-5:] == ["garbage"] * 4 + ["error"]
    assert said[-1].endswith("the daemon says: busy")


USUAL = (
    '{"v":1,"decision":"0123456789abcdef","rewrite":{"cpus-per-task":"2"},'
    '"env":{"OMP_NUM_THREADS":"2"},"message":"m","to":"tty","stamp":"advisor:{}",'
    f'"plan":"{STEPS}",'
    '"program":{"path":"/x","size":"1","mtime":"-1","build":"adler:0000000a:1"}}'
)
BROKEN = [
    ('{"v"', 'x{"v"'),
    ('{"v"', ' x {"v"'),
    ('1"}}', '1"}}x'),
    ('1"}}', '1"}'),
    ('1"}}', '1"}}}'),
    ('"2"},"env"', '"2",},"env"'),
    ('"2"},"env"', '"2"x},"env"'),
    ('"2"},"env"', '"2"},,"env"'),
    ('"cpus-per-task":"2"', ","),
    ('"cpus-per-task":"2"', '"cpus-per-task""2"'),
    ('"cpus-per-task":"2"', 'x"cpus-per-task":"2"'),
    ('"cpus-per-task":"2"', '"cpus-per-task":"2""constraint":"a"'),
    ('"cpus-per-task":"2"', '"cpus-per-task":"2",x,"constraint":"a"'),
    ('"OMP_NUM_THREADS":"2"', '"OMP_NUM_THREADS":"2",'),
    ('"OMP_NUM_THREADS":"2"', '"OMP"'),
    ('advisor:{}"', 'advisor:{"}"'),
    ('advisor:{}"', 'advisor:{\\n}"'),
    ('advisor:{}"', 'x{}"'),
    ('444edccf"}', '444edccf"}x'),
    ('444edccf"}', '444edccf"}}'),
    ('"plan":"1', '"plan":1,"x":"1'),
    ('"plan":"1', '"plan":"\\x1'),
    ('"plan":"1', '"plan":"x'),
    ('advisor:{}"}', 'advisor:{}"}x'),
    ('advisor:{}"', 'advisor:{\\}"'),
    ('advisor:{}"', 'advisor:{\\"}""'),
    ('"m"', '"m\\"'),
    ('"m"', '"\\u001b[2J"'),
    ('"m"', '"\\n"'),
    ('"m"', '"\\u00"'),
    ('"m"', '"\\x"'),
    ('"path":"/x"', '"path":"/x",,'),
    ('"path":"/x"', '"path":"/x"x'),
    ('"path":"/x",', ""),
    ('"mtime":"-1"', '"mtime":"-1x"'),
    ('"tty"', '"nobody"'),
    ('"v":1', '"v":11'),
]
"""What stands in the usual line, and what makes the whole of it no plan."""


@pytest.mark.parametrize("last", ["program", "plan", "stamp"])
def test_a_line_that_is_only_nearly_usual_is_no_plan(home: Path, last: str) -> None:
    behind = {"program": "~", "plan": ',"program"', "stamp": ',"plan"'}[last]
    usual = USUAL[:-1].partition(behind)[0] + "}"
    cases = [case for case in BROKEN if case[0] in usual]
    lines = [usual, *(usual.replace(was, text, 1) for was, text in cases)]
    said = run(home, EACH, "".join(f"{line}\n" for line in lines).encode()).decode().splitlines()
    assert [text.split("\t")[0] for text in said] == ["plan"] + ["garbage"] * len(cases), said


def test_the_steps_of_an_answer_are_its_own(home: Path) -> None:
    code = "for line in io.lines() do print(use('answer').read(line).steps) end"
    without = USUAL.replace(f'"plan":"{STEPS}",', "", 1)
    lines = [USUAL, without, json.dumps(json.loads(USUAL)), json.dumps(json.loads(without))]
    said = run(home, code, "".join(f"{line}\n" for line in lines).encode()).decode().splitlines()
    assert said == [STEPS, "nil"] * 2


def test_a_character_is_written_as_utf_8(home: Path) -> None:
    codes = [
        1,
        0x7E,
        0x7F,
        0x80,
        0x81,
        0xBF,
        0xC0,
        0x7FF,
        0x800,
        0x801,
        0xFFF,
        0x1000,
        0xD7FF,
        0xE000,
        0xFFFF,
        0x10000,
        0x10001,
        0x1F331,
        0x3FFFF,
        0x40000,
        0x10FFFF,
    ]
    code = 'for line in io.lines() do print(use("answer").utf8(tonumber(line))) end'
    text = run(home, code, "".join(f"{code}\n" for code in codes).encode()).decode()
    assert text == "".join(f"{chr(code)}\n" for code in codes)
    assert run(home, code, b"55296\n57343\n") == b"nil\nnil\n"


@pytest.mark.parametrize("text", ["caf\u00e9", "\u4eac \u2013", "a\\u0041"])
def test_a_message_with_escapes_is_read_in_the_usual_line(home: Path, text: str) -> None:
    escaped = json.dumps(text)
    plan, decoded = read_answer(home, USUAL.replace('"m"', escaped, 1).encode())
    assert json.loads(plan)["message"] == text
    assert decoded == ("\\\\" in escaped)


def test_half_a_character_is_not_read_in_the_usual_line(home: Path) -> None:
    plan, decoded = read_answer(home, USUAL.replace('"m"', '"\\ud83d half"', 1).encode())
    assert (json.loads(plan)["message"], decoded) == ("? half", 1)
