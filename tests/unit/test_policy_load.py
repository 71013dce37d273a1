"""Checking policy files: every mistake at once, with its line, key and what is allowed."""

from __future__ import annotations

import re

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.core import policy as core
from advisor.core.policy import Policy, PolicySet
from advisor.paths import share
from advisor.policy.checks import covers
from tests.unit.policy_text import check, good, problem


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
    assert by_key["axes.thread"].allowed == ("frequency", "threads", "node_type", "gpu", "nodes")
    assert by_key["training.samples"].allowed == ("4 to 1000",)
    assert by_key["training.trust"].allowed == ("own", "account", "all")
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
    [
        ("5%", 0.05),
        ("5 %", 0.05),
        ("0.05", 0.05),
        (".05", 0.05),
        ("0", 0.0),
        ("0%", 0.0),
        ("100%", 1.0),
        ("0.5 %", 0.005),
        ('"7%"', 0.07),
    ],
)
def test_percentages(text: str, value: float) -> None:
    assert good(f"version: 1\nmax_slowdown: {text}\n").base.max_slowdown == pytest.approx(value)


@pytest.mark.parametrize("text", ["5", "1", "1.0", "-1", "50"])
def test_a_bare_number_could_mean_two_things(text: str) -> None:
    found = problem(f"version: 1\nmax_slowdown: {text}\n", "max_slowdown")
    assert f"{text}%" in found.hint


@pytest.mark.parametrize(
    "text",
    ["101%", "-1%", "-0.2", "nan", "nan%", "inf%", "five", "5%%", "%", "true", "{a: 1}", "[5%]"],
)
def test_what_is_no_percentage(text: str) -> None:
    assert (
        problem(
            f"version: 1\nmax_slowdown: {text!r}\n"
            if "%" in text
            else f"version: 1\nmax_slowdown: {text}\n",
            "max_slowdown",
        ).line
        == 2
    )


@pytest.mark.parametrize(
    ("key", "text"),
    [("confidence", "40%"), ("confidence", "100%"), ("holdout", "60%"), ("min_saving", "95%")],
)
def test_ranges_of_percentages(key: str, text: str) -> None:
    assert problem(f"version: 1\n{key}: {text}\n", key).allowed


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("samples", "3"),
        ("samples", "1e3"),
        ("samples", "12.5"),
        ("samples", "many"),
        ("confirm", "-1"),
        ("confirm", "11"),
        ("payback_runs", "0"),
        ("samples", "9" * 5000),
        ("budget_node_hours", "nan"),
        ("budget_node_hours", "1e9"),
        ("budget_node_hours", "x"),
    ],
)
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
