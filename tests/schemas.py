"""Holds JSON answers against config/schemas."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

FOLDER = Path(__file__).resolve().parent.parent / "config" / "schemas"


@cache
def _schemas() -> dict[str, Any]:
    return {path.name: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def closed(schema: Any, *, inner: bool = False) -> Any:
    """Return a schema whose inner objects have no keys but those it lists.

    The files leave them open, so that programs go on when a later version adds a key; an answer of
    this version is held against all that is written. Objects that others are made of stay open.
    """
    if isinstance(schema, list):
        return [closed(s, inner=inner) for s in schema]
    if not isinstance(schema, dict):
        return schema
    made = {k: v if k in _OF_OTHERS else closed(v, inner=True) for k, v in schema.items()}
    bounded = {"additionalProperties", "unevaluatedProperties"} & schema.keys()
    if inner and not bounded and isinstance(schema.get("properties"), dict) and "type" in schema:
        made["unevaluatedProperties"] = False
    return made


_OF_OTHERS = ("allOf", "anyOf", "oneOf", "$defs")
"""Where a schema has what other objects are made of."""


@cache
def validator(name: str, definition: str = "", *, strict: bool = False) -> Draft202012Validator:
    """Return what checks a form: that of a file, or one of its definitions; see :func:`closed`."""
    reference = f"{name}.json" + (f"#/$defs/{definition}" if definition else "")
    return Draft202012Validator({"$ref": reference}, registry=_registry(strict=strict))


@cache
def _registry(*, strict: bool) -> Registry[Any]:
    """Return all files' schemas by name, read and looked through once for all validators."""
    forms = {n: closed(s) if strict else s for n, s in _schemas().items()}
    resources = [(n, Resource.from_contents(s)) for n, s in forms.items()]
    registry: Registry[Any] = Registry().with_resources(resources)
    return registry.crawl()


def check_request(request: dict[str, Any]) -> None:
    """Assert that a request as a hook sends it is what protocol.json says, without other keys."""
    form = f"{request['op']}_request"
    validator("protocol", form).validate(request)
    listed = _schemas()["protocol.json"]["$defs"][form]["properties"]
    assert request.keys() <= listed.keys(), f"{form} of config/schemas/protocol.json lacks a key"


def check(answer: dict[str, Any]) -> None:
    """Assert that a verb's answer is what its schema says; one without a schema's name is not."""
    schema = str(answer.get("schema"))
    verb = schema.removeprefix("advisor/").removesuffix("/1")
    assert schema == f"advisor/{verb}/1" and f"{verb}.json" in _schemas(), f"no schema {schema}"
    errors = list(validator(verb).iter_errors(answer))
    assert not errors, f"{schema}: {'; '.join(f'{e.json_path}: {e.message}' for e in errors)}"
