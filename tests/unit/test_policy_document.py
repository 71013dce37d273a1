"""A policy file as YAML: what cannot be read names its line, aliases included."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.policy.document import MAX_BYTES, decode, parse
from advisor.policy.load import check_text
from tests.unit.policy_text import check, good, problem


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 0, "empty"),
        ("# nothing\n", 0, "empty"),
        ("- mode: off\n", 1, "list"),
        ("\n\njust text\n", 3, "single value"),
        ("version: 1\nmode: [off\n", 2, "not closed"),
        ("version: 1\nmode: 'off\ngoal: edp\n", 2, "quote"),
        ("version: 1\n  mode: off\n", 2, "indentation"),
        ("version: 1\nrules:\n- match: {user: *x}\n", 3, "quotes"),
        ("version: 1\nrules:\n- match:\n    application: *\n", 4, "quotes"),
        ("version: 1\nmax_slowdown: %5\n", 2, "quotes"),
        ("version: 1\nmode: a: b\n", 2, "quotes"),
        ("version: 1\nmode:off\n", 2, "blank after the colon"),
        ("version: 1\n---\nversion: 1\n", 2, "one document"),
        ("version: 1\nmode: !!python/object:os.system x\n", 2, "tag"),
        ("version: 1\nmode: \x07off\n", 2, "control character"),
        ("{" * 3000, 0, "deep"),
    ],
)
def test_what_is_not_a_mapping_in_yaml(text: str, line: int, said: str) -> None:
    compiled, problems = check(text)
    assert compiled is None
    assert problems and problems[0].line == line
    assert said in str(problems[0])


def test_every_tab_is_shown() -> None:
    compiled, problems = check("version: 1\naxes:\n\tnodes: keep\n \tthreads: keep\nmode: off\n")
    assert compiled is None
    assert [(p.line, "tab" in p.message) for p in problems] == [(3, True), (4, True)]


def test_not_utf8_is_shown_with_its_line() -> None:
    text, problems = decode(b"version: 1\ngoal: b\xe4lanced\n", "p.yaml")
    assert not text
    assert problems[0].line == 2 and "0xe4" in problems[0].message
    assert decode("version: 1\n# ä\n".encode("utf-8-sig"), "p")[0] == "version: 1\n# ä\n"
    assert decode(b"#" * (MAX_BYTES + 1), "p")[1]


def test_anchors_aliases_and_merges() -> None:
    policies = good(
        "version: 1\n"
        "axes: &careful {frequency: cap, node_type: keep}\n"
        "rules:\n"
        "  - &first\n    match: {account: a}\n    axes: *careful\n    goal: edp\n"
        "  - {<<: *first, match: {account: b}, goal: ed2p}\n"
        "  - {<<: [*first], match: {account: c}}\n"
    )
    assert [r.overrides["goal"] for r in policies.rules] == ["edp", "ed2p", "edp"]
    assert policies.rules[1].overrides["axes"] == {"frequency": "cap", "node_type": "keep"}


def test_mistakes_behind_an_alias_are_found() -> None:
    compiled, problems = check(
        "version: 1\naxes: &a {frequency: cup}\nrules:\n  - {match: {user: x}, axes: *a}\n"
    )
    assert compiled is None
    assert [p.key for p in problems] == ["axes.frequency", "rules[0].axes.frequency"]


def test_an_alias_bomb_or_loop_is_refused() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)
    )
    compiled, problems = check(bomb)
    assert compiled is None and "expand" in problems[0].message
    compiled, problems = check("version: 1\nrules: &r [*r]\n")
    assert compiled is None and any("itself" in p.message for p in problems)
    compiled, problems = check("version: 1\naxes: {<<: 3}\n")
    assert compiled is None and any("<<" in p.message for p in problems)


def test_keys_that_are_no_text() -> None:
    compiled, problems = check("version: 1\n[1, 2]: x\n{a: b}: y\n")
    assert compiled is None
    assert [(p.line, "plain text" in p.message) for p in problems] == [(2, True), (3, True)]


def test_keys_cannot_write_to_the_terminal() -> None:
    compiled, problems = check('version: 1\n"mo\\e[31m\\nde": off\n')
    assert compiled is None
    assert problems[0].key == r"mo\x1b[31m\nde" and str(problems[0]).isprintable()


def test_a_key_twice_names_both_lines() -> None:
    found = problem("version: 1\nmode: off\ngoal: edp\nmode: apply\n", "mode")
    assert found.line == 4 and "line 2" in found.message


@given(st.text(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_text_is_answered_with_problems_not_errors(text: str) -> None:
    for kind in ("policy", "site"):
        compiled, problems = check_text(text, "x", kind)
        assert (compiled is None) == any(not p.warning for p in problems)
        assert all("\n" not in str(p) for p in problems)


@given(st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_text_or_a_problem(raw: bytes) -> None:
    text, problems = decode(raw, "x")
    assert bool(problems) or raw.removeprefix(b"\xef\xbb\xbf").decode() == text


def test_lines_of_a_document() -> None:
    document = parse("a:\n  - b: 1\n    c: 2\n", "x")
    assert document.line(("a", 0, "c")) == 3
    assert document.line(("a", 0, "missing")) == 2
    assert document.line(("nowhere",)) == 1
