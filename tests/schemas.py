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


@cache
def validator(name: str, definition: str = "") -> Draft202012Validator:
    """Return what checks a form: that of a file, or one of its definitions."""
    resources = [(n, Resource.from_contents(s)) for n, s in _schemas().items()]
    reference = f"{name}.json" + (f"#/$defs/{definition}" if definition else "")
    registry: Registry[Any] = Registry().with_resources(resources)
    return Draft202012Validator({"$ref": reference}, registry=registry)


def check(answer: dict[str, Any]) -> None:
    """Assert that a verb's answer is what its schema says; one without a schema's name is not."""
    schema = str(answer.get("schema"))
    verb = schema.removeprefix("advisor/").removesuffix("/1")
    assert schema == f"advisor/{verb}/1" and f"{verb}.json" in _schemas(), f"no schema {schema}"
    errors = list(validator(verb).iter_errors(answer))
    assert not errors, f"{schema}: {'; '.join(f'{e.json_path}: {e.message}' for e in errors)}"
