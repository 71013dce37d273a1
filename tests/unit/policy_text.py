"""Policy files as text: what they compile to, or the one problem they have."""

from __future__ import annotations

from typing import Any

from advisor.core.policy import PolicySet
from advisor.policy.load import check_text
from advisor.policy.problems import Problem


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
