"""Check policy and site files: every mistake at once, each with its line and what is allowed.

A file without mistakes is compiled to plain JSON: the policy to what
``PolicySet.from_compiled`` takes, the site to node types by name, default node types and
applications. Nothing is compiled from a file with a mistake.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path as FilePath
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError

from advisor.core import policy as core
from advisor.errors import InputError
from advisor.policy.checks import warnings_for
from advisor.policy.document import MAX_BYTES, Document, decode, parse
from advisor.policy.fields import UNION_TAGS
from advisor.policy.problems import Path, Problem, did_you_mean, key_text
from advisor.policy.schema import PolicyFile, RuleSection, sections
from advisor.policy.site_schema import FILES, ApplicationSection, SiteFile

DocumentKind = Literal["policy", "site"]

_MAY_BE_EMPTY = {
    *sections(),
    "rules",
    *("node_types", "default_node_types", "applications"),
}
"""Keys of which nothing may be left but comments; they then count as not given."""


def read_file(path: FilePath, kind: DocumentKind) -> tuple[str, list[Problem]]:
    """Return a file's text and its problems. Raises InputError when it cannot be read at all."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        hint = f"advisor {kind} show prints what holds now; save it there to begin"
        raise InputError(f"{path} does not exist", hint=hint) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    return decode(raw, str(path))


def check_text(
    text: str, path: str, kind: DocumentKind
) -> tuple[dict[str, object] | None, list[Problem]]:
    """Check a file's text; return what it compiles to (None if it has a mistake) and its problems.

    The problems are in the order of their lines; warnings alone do not keep it from compiling.
    """
    document = parse(text, path)
    if document.data is None and document.problems:
        return None, document.problems
    if not isinstance(document.data, dict):
        container = "a list" if isinstance(document.data, list) else "a single value"
        hint = "start with the line 'version: 1'"
        document.report((), f"must be keys with values, but it is {container}", hint=hint)
        return None, document.problems
    data = _without_empty(document.data, (), document)
    parsed: BaseModel | None = None
    try:
        parsed = FILES[kind].model_validate(data)
    except ValidationError as error:
        for problem in _translate(error, document, kind):
            document.problems.append(problem)
    document.problems += warnings_for(kind, document)
    ordered = sorted(document.problems, key=lambda p: p.line)
    if parsed is None or any(not p.warning for p in ordered):
        return None, ordered
    return _compile(parsed), ordered


def _without_empty(value: object, path: Path, document: Document) -> Any:
    """Return the data without values left empty; report those that must have one."""
    if isinstance(value, dict):
        filled = {}
        for key, item in value.items():
            if item is not None:
                filled[key] = _without_empty(item, (*path, key), document)
            elif not (key in _MAY_BE_EMPTY and len(path) < 3):
                hint = "give it a value or remove it"
                document.report((*path, key), "has no value", hint=hint)
        return filled
    if isinstance(value, list):
        for index, item in enumerate(value):
            if item is None:
                document.report((*path, index), "is empty", hint="remove the '-'")
        return [
            _without_empty(item, (*path, index), document)
            for index, item in enumerate(value)
            if item is not None
        ]
    return value


def _translate(error: ValidationError, document: Document, kind: DocumentKind) -> Iterator[Problem]:
    known_empty = {p.key for p in document.problems}
    for item in error.errors(include_url=False, include_input=True):
        path: Path = tuple(p for p in item["loc"] if p not in (*UNION_TAGS, "[key]"))
        code, context = item["type"], item.get("ctx", {})
        hint = ""
        allowed: tuple[str, ...] = ()
        if code == "advisor":
            message, hint = str(context["message"]), str(context["hint"])
            allowed = tuple(context["allowed"])
            if context["key"]:
                path = (*path, str(context["key"]))
        elif code == "extra_forbidden":
            message, hint, allowed = _unknown_key(path, kind)
        elif code == "missing":
            message = "is missing"
            hint = _MISSING_HINTS.get(str(path[-1]), "")
            # Of a key that was left empty enough was said.
            if key_text(path) in known_empty:
                continue
        else:
            message = _SHAPES.get(code, item["msg"])
        yield Problem(document.path, document.line(path), key_text(path), message, hint, allowed)


_MISSING_HINTS = {
    "version": "start the file with 'version: 1'",
    "match": "say which jobs are meant, like match: {partition: debug}",
}

_SHAPES = {
    "model_type": "must be keys with values",
    "dict_type": "must be keys with values",
    "list_type": "must be a list: one item per line, each with '- '",
    "string_type": "must be a single value",
}


def _unknown_key(path: Path, kind: DocumentKind) -> tuple[str, str, tuple[str, ...]]:
    key = str(path[-1])
    allowed = tuple(_keys_at(FILES[kind], path[:-1]))
    hint = did_you_mean(key, allowed)
    if not hint and kind == "policy":
        hint = _home_of(key, path)
    return "unknown key", hint, allowed


def _home_of(key: str, path: Path) -> str:
    """Say where a key belongs that stands in the wrong place."""
    for section, model in sections().items():
        if key in model.model_fields:
            return f"it belongs under '{section}:'"
    if key in core.MATCH_FIELDS:
        return "it belongs under 'match:'" if path[0] == "rules" else "it belongs into a rule"
    if key in RuleSection.model_fields:
        return "it belongs at the top, or beside 'match:' in a rule"
    return ""


def _keys_at(model: type[BaseModel], path: Path) -> Sequence[str]:
    """Return the keys that may stand at a path."""
    annotation: Any = model
    for part in path:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            field = annotation.model_fields.get(str(part))
            annotation = field.annotation if field else None
        elif get_origin(annotation) in (list, dict):
            annotation = get_args(annotation)[-1]
        else:
            return ()
    for candidate in (annotation, *get_args(annotation)):
        inner = (candidate, *get_args(candidate))
        for inner_type in inner:
            if isinstance(inner_type, type) and issubclass(inner_type, BaseModel):
                return tuple(inner_type.model_fields)
    return ()


def _compile(parsed: BaseModel) -> dict[str, object]:
    if isinstance(parsed, PolicyFile):
        base = parsed.model_dump(exclude_unset=True, exclude={"version", "rules", "retention"})
        retention = parsed.retention.model_dump(exclude_unset=True)
        return {
            **({"retention": retention} if retention else {}),
            "base": base,
            "rules": [
                {
                    "match": rule.match.model_dump(exclude_unset=True),
                    "set": rule.model_dump(exclude_unset=True, exclude={"match"}),
                }
                for rule in parsed.rules
            ],
        }
    assert isinstance(parsed, SiteFile)
    electricity = parsed.electricity.model_dump(exclude_unset=True)
    workers = parsed.workers.model_dump(exclude_unset=True)
    axes = {name: axis.model_dump(exclude_unset=True) for name, axis in parsed.axes.items()}
    return {
        "node_types": {
            name: t.model_dump(exclude_unset=True) for name, t in parsed.node_types.items()
        },
        "default_node_types": dict(parsed.default_node_types),
        **({"default_partition": parsed.default_partition} if parsed.default_partition else {}),
        **({"electricity": electricity} if electricity else {}),
        **({"workers": workers} if workers else {}),
        **({"understood_options": parsed.understood_options} if parsed.understood_options else {}),
        **({"environment_files": parsed.environment_files} if parsed.environment_files else {}),
        **({"axes": axes} if axes else {}),
        "applications": [_application(a) for a in parsed.applications],
    }


def _application(section: ApplicationSection) -> dict[str, object]:
    # that the number of ranks is fixed holds for every application, whether it is written or not
    stated_values = section.model_dump(exclude_unset=True, exclude={"match", "ranks"})
    if isinstance(rate := stated_values.get("rate"), str):
        stated_values["rate"] = {"match": rate}
    first = {key: stated_values.pop(key) for key in ["name", "workload"] if key in stated_values}
    more = {key: value for key, value in stated_values.items() if value}
    return {**first, **section.match.model_dump(exclude_unset=True), **more}
