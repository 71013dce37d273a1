"""A compiled policy is shown so that it can be applied again; changes name their settings."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.core import policy as core
from advisor.policy.render import SettingChange, changes, effective, to_yaml
from tests.unit.policy_text import check

WORD = st.text("abz*09._-", min_size=1, max_size=8)
FRACTION = st.integers(0, 500).map(lambda n: f"{n / 10:g}%")
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "mode": st.sampled_from(core.MODES),
        "goal": st.sampled_from(core.GOALS),
        "max_slowdown": FRACTION,
        "holdout": FRACTION,
        "resources": st.sampled_from(get_args(core.Resources)),
        "axes": st.dictionaries(
            st.sampled_from([f.name for f in fields(core.Axes)]), st.sampled_from(core.AXIS_RULES)
        ),
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


def test_changes_name_the_settings_that_differ() -> None:
    old, _ = check("version: 1\nmode: advise\n")
    new, _ = check("version: 1\nmode: apply\nrules:\n  - {match: {user: a}, max_slowdown: 1%}\n")
    assert old is not None and new is not None
    assert changes("policy", old, new) == [
        SettingChange("mode", "advise", "apply"),
        SettingChange("rules[0].match.user", "", "a"),
        SettingChange("rules[0].max_slowdown", "", "1%"),
    ]
