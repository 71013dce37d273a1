"""Read HPCProbe's counter file (``hpcprobe.yml``) and take its counters out of a run's output.

Source: Endrei 2019, appendix A.1.3: ``run`` is about what the program prints, ``post`` about
``postExec``; each section has ``groups`` that cut parts out of the text and ``counters`` that are
looked for in them, all by regular expressions of Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from advisor.errors import InputError

FILES = ("hpcprobe.yml", "hpcprobe.yaml")
"""Beside the experiment file."""
OutputOf = Literal["run", "post"]
PARAMETERS = frozenset(
    {
        "accWaitLi",
        "accCopyLi",
        "execLoopLi",
        "execRegion",
        "threadCount",
        "cpuFrequency",
        "execParam",
        "nodes",
        "ppn",
        "totalPEs",
        "nodePEs",
        "peThreads",
    }
)
"""What ``param`` may name."""
_DATA_PATH = re.compile(r"Experiment data (?:file|directory) written:\s*(\S+)")
_KEYS = {"groups": {"name", "regex", "param"}, "counters": {"name", "regex", "findall", "hide"}}
_MOST_TEXT = 4 << 20
"""Of a longer output the end is searched."""


@dataclass(frozen=True, slots=True)
class CounterGroup:
    """A part of a text: what cuts it out, and the parameter that stands in the expression."""

    name: str
    regex: str
    param: str = ""

    def part(self, text: str, parameters: Mapping[str, object]) -> str | None:
        """Return the part of a text, None where it is not there or its parameter is not given."""
        regex = self.regex
        if self.param:
            value = parameters.get(self.param)
            if value in (None, ""):
                return None
            regex = _with_parameter(regex, self.param, str(value))
        match = re.search(regex, text, re.DOTALL | re.MULTILINE)
        if match is None:
            return None
        return match[1] if match.re.groups and match[1] is not None else match[0]


@dataclass(frozen=True, slots=True)
class CounterRule:
    """A counter: the names of its expression's groups; ``hidden`` ones stay out of summaries."""

    names: tuple[str, ...]
    regex: re.Pattern[str]
    every: bool = False
    hidden: bool = False

    def values(self, text: str) -> Iterator[tuple[str, float | str]]:
        """Yield what the expression finds; of several matches of one name the sum or the last."""
        matches = list(self.regex.finditer(text))
        for match in matches if self.every else matches[:1]:
            named = {k: v for k, v in match.groupdict().items() if v is not None}
            if named:
                yield from ((name, _value(value)) for name, value in named.items())
                continue
            groups = [g for g in match.groups() if g is not None] or [match[0]]
            if len(self.names) < len(groups) == 2:  # the counter's name stands in the text
                yield groups[0], _value(groups[1])
            else:
                yield from zip(self.names, map(_value, groups), strict=False)


@dataclass(frozen=True, slots=True)
class CounterRules:
    """All sections of a counter file, by phase."""

    sections: Mapping[
        OutputOf, tuple[tuple[tuple[CounterGroup, ...], tuple[CounterRule, ...]], ...]
    ]

    def names(self, phase: OutputOf) -> set[str]:
        """Return the names that counters of a phase can have, without those found in the text."""
        return {
            name
            for _, rules in self.sections.get(phase, ())
            for rule in rules
            for name in (*rule.names, *rule.regex.groupindex)
        }

    def read(
        self, phase: OutputOf, text: str, parameters: Mapping[str, object]
    ) -> tuple[dict[str, float | str], set[str]]:
        """Return the counters in a text, and the names of those that are hidden.

        Where a section has several groups, a counter is called ``GROUP.NAME``.
        """
        text = text[-_MOST_TEXT:]
        counters: dict[str, float | str] = {}
        hidden: set[str] = set()
        for groups, rules in self.sections.get(phase, ()):
            parts = [(g.name, g.part(text, parameters)) for g in groups] or [("", text)]
            for group, part in parts:
                if part is None:
                    continue
                for rule in rules:
                    for name, value in rule.values(part):
                        key = f"{group}.{name}" if len(groups) > 1 else name
                        counters[key] = _joined(counters, key, value, every=rule.every)
                        if rule.hidden:
                            hidden.add(key)
        if phase == "run" and "dataPath" not in counters:
            data_path = _DATA_PATH.search(text)  # CrayPAT's own words
            if data_path:
                counters["dataPath"] = data_path[1]
                hidden.add("dataPath")
        return counters, hidden


NO_RULES = CounterRules({})


def beside(experiment: Path) -> Path | None:
    """Return the counter file beside an experiment file, None where there is none."""
    return next((p for n in FILES if (p := experiment.parent / n).is_file()), None)


def read_rules(path: Path) -> CounterRules:
    """Read a counter file. Raises InputError that names file and line of the first mistake."""
    try:
        root = yaml.compose(path.read_text(encoding="utf-8-sig"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: {error.reason}") from None
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise InputError(
            f"{path}{where}: not YAML: {getattr(error, 'problem', None) or 'nested too deeply'}"
        ) from None
    if root is None:
        return NO_RULES
    sections: dict[OutputOf, Any] = {}
    for key, node in _pairs(path, root, "the file"):
        if key.value not in ("run", "post"):
            raise _wrong(path, key, f"{key.value!r} is not known; known: run, post")
        phase: OutputOf = "run" if key.value == "run" else "post"
        sections[phase] = tuple(
            _section(path, section) for _, section in _pairs(path, node, key.value)
        )
    return CounterRules(sections)


def _section(
    path: Path, node: yaml.Node
) -> tuple[tuple[CounterGroup, ...], tuple[CounterRule, ...]]:
    groups: list[CounterGroup] = []
    rules: list[CounterRule] = []
    for key, items in _pairs(path, node, "a section"):
        if key.value not in _KEYS:
            raise _wrong(path, key, f"{key.value!r} is not known; known: groups, counters")
        if not isinstance(items, yaml.SequenceNode):
            raise _wrong(path, items, f"{key.value} must be a list")
        for item in items.value:
            pairs = _pairs(path, item, f"an entry of {key.value}")
            values = {name.value: value for name, value in pairs}
            for name, _ in pairs:
                if name.value not in _KEYS[key.value]:
                    valid_keys = ", ".join(sorted(_KEYS[key.value]))
                    raise _wrong(path, name, f"{name.value!r} is not known; known: {valid_keys}")
            if "regex" not in values:
                raise _wrong(path, item, f"an entry of {key.value} has no regex")
            if key.value == "groups":
                groups.append(_group(path, values, len(groups)))
            else:
                rules.append(_rule(path, values))
    return tuple(groups), tuple(rules)


def _group(path: Path, values: Mapping[str, yaml.Node], number: int) -> CounterGroup:
    node, param = values["regex"], values.get("param")
    name = param.value if param is not None else ""
    if param is not None and name not in PARAMETERS:
        parameters = ", ".join(sorted(PARAMETERS))
        raise _wrong(path, param, f"param {name!r} is not known; known: {parameters}")
    regex = str(node.value)
    _compiled(path, node, _with_parameter(regex, name, "1") if name else regex)
    name_node = values.get("name")
    return CounterGroup(
        str(name_node.value) if name_node is not None else str(number + 1), regex, name
    )


def _rule(path: Path, values: Mapping[str, yaml.Node]) -> CounterRule:
    regex = _compiled(path, values["regex"], str(values["regex"].value))
    node = values.get("name")
    names: tuple[str, ...] = ()
    if isinstance(node, yaml.SequenceNode):
        names = tuple(str(name_node.value) for name_node in node.value)
    elif node is not None:
        names = (str(node.value),)
    if not names and not regex.groupindex and regex.groups != 2:
        raise _wrong(path, values["regex"], "the counter has no name")
    return CounterRule(names, regex, _true(values.get("findall")), _true(values.get("hide")))


def _with_parameter(regex: str, name: str, value: str) -> str:
    escaped = re.escape(value)
    for place in (f"%({name})s", f"{{{name}}}", "{0}", "{}", "%s", "%d"):
        if place in regex:
            return regex.replace(place, escaped)
    return regex


def _compiled(path: Path, node: yaml.Node, regex: str) -> re.Pattern[str]:
    try:
        return re.compile(regex, re.MULTILINE)
    except re.error as error:
        raise _wrong(path, node, f"{regex!r} is not a regular expression: {error}") from None


def _pairs(path: Path, node: yaml.Node, what: str) -> list[tuple[yaml.Node, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        raise _wrong(path, node, f"{what} must be keys and values")
    return [(key, value) for key, value in node.value]


def _true(node: yaml.Node | None) -> bool:
    return node is not None and str(node.value).lower() in ("true", "yes", "1", "on")


def _wrong(path: Path, node: yaml.Node, message: str) -> InputError:
    return InputError(f"{path}, line {node.start_mark.line + 1}: {message}")


def _value(text: str) -> float | str:
    plain = text.strip().replace(",", "")
    try:
        return float(plain)
    except ValueError:
        return text.strip()


def _joined(
    counters: Mapping[str, float | str], key: str, value: float | str, *, every: bool
) -> float | str:
    earlier = counters.get(key)
    if every and isinstance(earlier, float) and isinstance(value, float):
        return earlier + value
    return value
