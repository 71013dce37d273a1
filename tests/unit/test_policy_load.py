"""Checking policy files: every mistake at once, with its line, key and what is allowed."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.core import policy as core
from advisor.core.policy import Policy, PolicySet
from advisor.paths import share
from advisor.policy.checks import covers
from advisor.policy.document import MAX_BYTES, decode, parse
from advisor.policy.load import check_text
from advisor.policy.problems import Problem
from advisor.policy.render import changes, effective, to_yaml


def check(text: str) -> tuple[dict[str, Any] | None, list[Problem]]:
    return check_text(text, "policy.yaml", "policy")


def good(text: str) -> PolicySet:
    compiled, problems = check(text)
    assert not problems, [str(p) for p in problems]
    assert compiled is not None
    return PolicySet.from_compiled(compiled)


def problem(text: str, key: str) -> Problem:
    """The one problem of a text that must not compile."""
    compiled, problems = check(text)
    assert compiled is None
    assert [p.key for p in problems] == [key], [str(p) for p in problems]
    return problems[0]


def test_the_example_says_the_built_in_defaults() -> None:
    text = share("config/policy.yaml").read_text()
    policies = good(text)
    assert policies.base == Policy()
    assert [r.match for r in policies.rules] == [{"partition": ("debug",)}]
    assert set(yaml.safe_load(text)) == {"version", "rules", *Policy.__slots__}


def test_the_commented_rules_of_the_example_are_good_too() -> None:
    text = share("config/policy.yaml").read_text()
    text = re.sub(r"^#((?:  +)?(?:- )?[a-z_]+:( .*)?)$", r"\1", text, flags=re.MULTILINE)
    assert len(good(text).rules) == 3


def job(**known: str) -> core.JobFacts:
    """Return the facts of a job of which no more is known."""
    return core.JobFacts(**{**dict.fromkeys(core.MATCH_FIELDS, ""), **known})


def test_what_is_compiled_holds_for_jobs() -> None:
    policies = good(
        "version: 1\n"
        "mode: apply\n"
        "max_slowdown: 2.5%\n"
        "axes: {node_type: override}\n"
        "enforce: yes\n"
        "user_limits: {max_slowdown: 0.2}\n"
        "rules:\n"
        "  - {match: {partition: debug}, mode: off}\n"
        '  - {match: {account: climate, application: ["wrf*", icon]}, goal: performance,\n'
        "     training: {trust: account}, axes: {threads: keep}}\n"
    )
    base, rule = policies.for_job(job(partition="work"))
    assert rule is None
    assert base.mode == "apply" and base.enforce is True
    assert base.max_slowdown == pytest.approx(0.025)
    assert base.user_limits == core.UserLimits("apply", 0.2)
    assert policies.for_job(job(partition="debug"))[0].mode == "off"
    climate, rule = policies.for_job(job(account="climate", application="icon"))
    assert rule == 1
    assert climate.goal == "performance"
    assert climate.axes == core.Axes(node_type="override", threads="keep")
    assert climate.training == core.Training(trust="account")


@pytest.mark.parametrize("word", ["off", "Off", "OFF", "no", "false", '"off"', "'off'"])
def test_off_is_off_whatever_yaml_thinks(word: str) -> None:
    policies = good(
        f"version: 1\nmode: {word}\ntraining: {{mode: {word}}}\nuser_limits: {{mode: {word}}}\n"
        f"rules:\n  - match: {{user: x}}\n    mode: {word}\n"
    )
    assert policies.base.mode == policies.base.training.mode == "off"
    assert policies.base.user_limits.mode == "off"
    assert policies.rules[0].overrides == {"mode": "off"}


def test_on_is_no_mode_but_a_flag() -> None:
    found = problem("version: 1\nmode: on\n", "mode")
    assert found.allowed == core.MODES and "which" in found.hint
    assert good("version: 1\nenforce: on\n").base.enforce is True
    assert good("version: 1\nenforce: off\n").base.enforce is False


def test_a_policy_of_an_earlier_version_still_holds() -> None:
    old = {"message": False, "axes": {"nodes": "fill", "threads": "keep"}}
    base = core.PolicySet.from_compiled({"base": old, "rules": []}).base
    assert base.message == "never" and base.axes == core.Axes(threads="keep")
    assert core.PolicySet.from_compiled({"base": {"message": True}}).base.message == "tty"


def test_names_stay_as_written() -> None:
    policies = good(
        "version: 1\nrules:\n"
        "  - match: {account: [no, on, 0123, 1e3, 1_000, 12:30, 2024-01-01, 0x1F, null-ish]}\n"
    )
    assert policies.rules[0].match["account"] == (
        *("no", "on", "0123", "1e3", "1_000", "12:30", "2024-01-01", "0x1F", "null-ish"),
    )


BAD = """\
version: 2
mod: advise
goal: balancd
max_slowdown: 5
min_saving: 300%
confidence: high
axes: {frequency: cup, thread: fill}
training:
  samples: 1
  trust: [own]
  budget_node_hours: -3
samples: 4
enforce: maybe
rules:
  - {match: {partitoin: debug}, mode: off}
  - match: {account: climate}
    goal:
    goal: edp
  - mode: off
  - {match: {}, partition: x}
  - {match: {user: {a: b}, qos: []}}
  - foo
  -
user_limits: [1]
"""


def test_every_mistake_at_once_with_line_and_key() -> None:
    compiled, problems = check(BAD)
    assert compiled is None
    assert [(p.line, p.key) for p in problems] == [
        (1, "version"),
        (2, "mod"),
        (3, "goal"),
        (4, "max_slowdown"),
        (5, "min_saving"),
        (6, "confidence"),
        (7, "axes.frequency"),
        (7, "axes.thread"),
        (9, "training.samples"),
        (10, "training.trust"),
        (11, "training.budget_node_hours"),
        (12, "samples"),
        (13, "enforce"),
        (15, "rules[0].match.partitoin"),
        (17, "rules[1].goal"),
        (18, "rules[1].goal"),
        (19, "rules[2].match"),
        (20, "rules[3].match"),
        (20, "rules[3].partition"),
        (21, "rules[4].match.qos"),
        (21, "rules[4].match.user"),
        (22, "rules[5]"),
        (23, "rules[6]"),
        (24, "user_limits"),
    ]
    by_key = {p.key: p for p in problems}
    assert by_key["version"].allowed == ("1",)
    assert "'mode'" in by_key["mod"].hint and "goal" in by_key["mod"].allowed
    assert "'balanced'" in by_key["goal"].hint and by_key["goal"].allowed == core.GOALS
    assert "5%" in by_key["max_slowdown"].hint and "ambiguous" in by_key["max_slowdown"].message
    assert "90%" in by_key["min_saving"].allowed[0]
    assert by_key["axes.frequency"].allowed == core.AXIS_RULES
    assert by_key["axes.thread"].allowed == (*core.AXES, "nodes")
    assert by_key["training.samples"].allowed == ("4 to 1000",)
    assert by_key["training.trust"].allowed == core.TRUST
    assert "training" in by_key["samples"].hint
    assert by_key["rules[0].match.partitoin"].allowed == core.MATCH_FIELDS
    assert "'partition'" in by_key["rules[0].match.partitoin"].hint
    assert "line 17" in by_key["rules[1].goal"].message
    assert by_key["rules[3].match"].allowed == core.MATCH_FIELDS
    assert "match" in by_key["rules[3].partition"].hint
    for found in problems:
        assert str(found).startswith(f"policy.yaml:{found.line}: {found.key}: ")
        assert "\n" not in str(found)


@pytest.mark.parametrize(
    ("text", "value"),
    [("5%", 0.05), ("5 %", 0.05), ("0.05", 0.05), (".05", 0.05), ("0", 0.0), ("0%", 0.0),
     ("100%", 1.0), ("0.5 %", 0.005), ('"7%"', 0.07)],
)  # fmt: skip
def test_percentages(text: str, value: float) -> None:
    assert good(f"version: 1\nmax_slowdown: {text}\n").base.max_slowdown == pytest.approx(value)


@pytest.mark.parametrize("text", ["5", "1", "1.0", "-1", "50"])
def test_a_bare_number_could_mean_two_things(text: str) -> None:
    found = problem(f"version: 1\nmax_slowdown: {text}\n", "max_slowdown")
    assert f"{text}%" in found.hint


@pytest.mark.parametrize(
    "text",
    ["101%", "-1%", "-0.2", "nan", "nan%", "inf%", "five", "5%%", "%", "true", "{a: 1}", "[5%]"],
)  # fmt: skip
def test_what_is_no_percentage(text: str) -> None:
    assert problem(f"version: 1\nmax_slowdown: {text!r}\n" if "%" in text else
                   f"version: 1\nmax_slowdown: {text}\n", "max_slowdown").line == 2  # fmt: skip


@pytest.mark.parametrize(
    ("key", "text"),
    [("confidence", "40%"), ("confidence", "100%"), ("holdout", "60%"), ("min_saving", "95%")],
)
def test_ranges_of_percentages(key: str, text: str) -> None:
    assert problem(f"version: 1\n{key}: {text}\n", key).allowed


@pytest.mark.parametrize(
    ("key", "text"),
    [("samples", "3"), ("samples", "1e3"), ("samples", "12.5"), ("samples", "many"),
     ("confirm", "-1"), ("confirm", "11"), ("payback_runs", "0"), ("samples", "9" * 5000),
     ("budget_node_hours", "nan"), ("budget_node_hours", "1e9"), ("budget_node_hours", "x")],
)  # fmt: skip
def test_ranges_of_numbers(key: str, text: str) -> None:
    found = problem(f"version: 1\ntraining:\n  {key}: {text}\n", f"training.{key}")
    assert found.line == 3 and found.allowed


def test_the_version_is_needed() -> None:
    assert "version: 1" in problem("mode: off\n", "version").hint
    for text in ("version: 1.0", "version: '2'", "version: one", "version: true"):
        assert problem(f"{text}\n", "version").line == 1
    assert problem("version:\n", "version").message == "has no value"
    assert problem("version: [1]\n", "version").line == 1


def test_sections_of_which_only_comments_are_left_are_fine() -> None:
    policies = good("version: 1\nrules:\n#  - {}\naxes:\ntraining:\n# mode: x\n")
    assert policies == PolicySet()


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


def test_a_rule_that_can_never_match_is_a_warning() -> None:
    compiled, problems = check(
        "version: 1\nrules:\n"
        "  - {match: {partition: 'de*'}, mode: off}\n"
        "  - {match: {partition: debug, user: x}, goal: edp}\n"
        "  - {match: {partition: [debug, work]}, goal: edp}\n"
        "  - {match: {user: x}, goal: edp}\n"
        "  - {match: {user: x, qos: '*'}, goal: edp}\n"
    )
    assert compiled is not None
    assert [(p.line, p.key, p.warning) for p in problems] == [
        (4, "rules[1]", True),
        (7, "rules[4]", True),
    ]
    assert "rules[0] in line 3" in problems[0].message


def test_estimates_where_the_node_type_is_kept_are_a_warning() -> None:
    text = "version: 1\naxes: {node_type: keep}\nestimated_node_types: accept\n"
    _, (found,) = check(text)
    assert (found.key, found.line, found.warning) == ("estimated_node_types", 3, True)
    rules = "rules:\n  - {match: {user: ada}, axes: {node_type: fill}}\n"
    assert check(text + rules)[1] == []
    _, (wrong,) = check(text.replace("accept", "maybe"))
    assert (wrong.key, wrong.line, wrong.warning) == ("estimated_node_types", 3, False)


def test_an_unknown_scheduler_and_no_confirmation_are_warnings() -> None:
    compiled, problems = check(
        "version: 1\ntraining: {confirm: 0}\nrules:\n  - {match: {scheduler: slrum}}\n"
    )
    assert compiled is not None
    assert [(p.key, p.warning) for p in problems] == [
        ("training.confirm", True),
        ("rules[0].match.scheduler", True),
    ]
    assert "'slurm'" in problems[1].hint


GLOB = st.text("ab*?[]!-", max_size=6)


@given(GLOB, GLOB, st.text("ab-", max_size=6))
@settings(max_examples=400, deadline=None)
def test_covers_never_claims_too_much(pattern: str, other: str, name: str) -> None:
    from fnmatch import fnmatchcase

    if covers(pattern, other) and fnmatchcase(name, other):
        assert fnmatchcase(name, pattern)


WORD = st.text("abz*09._-", min_size=1, max_size=8)
FRACTION = st.integers(0, 500).map(lambda n: f"{n / 10:g}%")
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "mode": st.sampled_from(core.MODES),
        "goal": st.sampled_from(core.GOALS),
        "max_slowdown": FRACTION,
        "holdout": FRACTION,
        "resources": st.sampled_from(core.RESOURCES),
        "axes": st.dictionaries(st.sampled_from(core.AXES), st.sampled_from(core.AXIS_RULES)),
        "training": st.fixed_dictionaries(
            {}, optional={"mode": st.just("off"), "samples": st.integers(4, 99)}
        ),
        "enforce": st.booleans(),
    },
)
RULE = st.tuples(
    st.dictionaries(st.sampled_from(core.MATCH_FIELDS), st.lists(WORD, min_size=1), min_size=1),
    SETTINGS,
).map(lambda pair: {"match": pair[0], **pair[1]})


RETENTION = st.fixed_dictionaries(
    {}, optional={"decisions": st.just("400d"), "observations": st.just("90d")}
)


@given(SETTINGS, RETENTION, st.lists(RULE, max_size=3))
@settings(max_examples=60, deadline=None)
def test_what_is_shown_can_be_applied_and_means_the_same(
    base: dict[str, Any], retention: dict[str, str], rules: list[dict[str, Any]]
) -> None:
    file = {"version": 1, **base, "retention": retention, "rules": rules}
    compiled, problems = check(yaml.safe_dump(file))
    assert compiled is not None, [str(p) for p in problems]
    again, _ = check(to_yaml("policy", compiled))
    assert again is not None
    assert again.get("retention") == compiled.get("retention")
    assert effective("policy", again) == effective("policy", compiled)
    assert changes("policy", compiled, again) == []


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


def test_changes_name_the_settings_that_differ() -> None:
    old, _ = check("version: 1\nmode: advise\n")
    new, _ = check("version: 1\nmode: apply\nrules:\n  - {match: {user: a}, max_slowdown: 1%}\n")
    assert old is not None and new is not None
    assert changes("policy", old, new) == [
        ("mode", "advise", "apply"),
        ("rules[0].match.user", "", "a"),
        ("rules[0].max_slowdown", "", "1%"),
    ]


def test_lines_of_a_document() -> None:
    document = parse("a:\n  - b: 1\n    c: 2\n", "x")
    assert document.line(("a", 0, "c")) == 3
    assert document.line(("a", 0, "missing")) == 2
    assert document.line(("nowhere",)) == 1
