"""Mistakes that are not in one value: rules that can never match, settings without effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from advisor import plugins
from advisor.policy.document import Document
from advisor.policy.problems import Path, Problem, did_you_mean, key_text


def warnings_for(kind: str, document: Document) -> list[Problem]:
    """Return the warnings of a document; parts whose shape is wrong are passed over."""
    data = document.data
    if not isinstance(data, dict):
        return []
    if kind == "policy":
        return [*_shadowed(document, "rules"), *_policy(data, document)]
    return [*_shadowed(document, "applications"), *_executables(document)]


def covers(pattern: str, other: str) -> bool:
    """Tell whether every text that ``other`` matches is surely matched by ``pattern`` too.

    Errs on the side of False: character classes and ``?`` are compared as they stand.
    """
    if pattern in (other, "*"):
        return True
    if any(c in pattern for c in "?[") or "[" in other:
        return False
    return fnmatchcase(other, pattern)


def _patterns(value: object) -> tuple[str, ...] | None:
    values: list[object] = value if isinstance(value, list) else [value]
    texts = tuple(v for v in values if isinstance(v, str))
    return texts if texts and len(texts) == len(values) else None


def _matches(item: object) -> Mapping[str, tuple[str, ...]] | None:
    """Return an item's conditions, None when they are not of the right shape."""
    match = item.get("match") if isinstance(item, dict) else None
    if not isinstance(match, dict) or not match:
        return None
    patterns = {key: _patterns(value) for key, value in match.items()}
    return None if None in patterns.values() else {k: v for k, v in patterns.items() if v}


def _implied(earlier: Mapping[str, tuple[str, ...]], later: Mapping[str, tuple[str, ...]]) -> bool:
    """Tell whether whatever meets ``later`` also meets ``earlier``."""
    for key, patterns in earlier.items():
        if key not in later:
            return False
        if key == "arguments":
            if not set(patterns) <= set(later[key]):
                return False
        elif not all(any(covers(p, o) for p in patterns) for o in later[key]):
            return False
    return True


def _shadowed(document: Document, section: str) -> Iterator[Problem]:
    items = document.data.get(section) if isinstance(document.data, dict) else None
    if not isinstance(items, list):
        return
    matches = [_matches(item) for item in items]
    for index, later in enumerate(matches):
        for earlier_index, earlier in enumerate(matches[:index]):
            if later and earlier and _implied(earlier, later):
                name = f"{section}[{earlier_index}]"
                line = document.line((section, earlier_index))
                yield _warning(
                    document,
                    (section, index),
                    f"can never match: {name} in line {line} already takes every such job",
                    "the first match wins: move the special case up",
                )
                break


def _policy(data: Mapping[str, object], document: Document) -> Iterator[Problem]:
    rules = data.get("rules")
    scheduler_names = plugins.names("schedulers")
    for index, rule in enumerate(rules if isinstance(rules, list) else []):
        path: Path = ("rules", index, "match", "scheduler")
        for name in (_matches(rule) or {}).get("scheduler", ()):
            if not any(fnmatchcase(s, name) for s in scheduler_names):
                hint = did_you_mean(name, scheduler_names)
                yield _warning(
                    document, path, f"no scheduler is called {name!r}", hint, scheduler_names
                )
    axes = data.get("axes")
    if (
        isinstance(axes, dict)
        and axes.get("node_type") == "keep"
        and data.get("estimated_node_types") == "accept"
        and not (
            isinstance(rules, list) and any(isinstance(r, dict) and "axes" in r for r in rules)
        )
    ):
        yield _warning(
            document,
            ("estimated_node_types",),
            "accept has no effect: axes.node_type is keep, so no job changes its node type",
            "write axes: {node_type: fill}, or leave this line out",
        )
    training = data.get("training")
    if isinstance(training, dict) and training.get("confirm") == "0":
        yield _warning(
            document,
            ("training", "confirm"),
            "0 leaves every sweep unconfirmed, and only confirmed configurations are applied",
            "write 1",
        )


def _executables(document: Document) -> Iterator[Problem]:
    items = document.data.get("applications") if isinstance(document.data, dict) else None
    for index, item in enumerate(items if isinstance(items, list) else []):
        for pattern in (_matches(item) or {}).get("executable", ()):
            if "/" in pattern:
                path: Path = ("applications", index, "match", "executable")
                hint = f"write {pattern.rsplit('/', 1)[1] or '*'!r}"
                yield _warning(
                    document,
                    path,
                    f"{pattern!r} names a folder, and only the file name is compared",
                    hint,
                )


def _warning(
    document: Document, path: Path, message: str, hint: str = "", allowed: tuple[str, ...] = ()
) -> Problem:
    line, key = document.line(path), key_text(path)
    return Problem(document.path, line, key, message, hint, allowed, warning=True)
