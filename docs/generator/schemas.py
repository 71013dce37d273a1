"""Write config/schemas from types: what programs may rely on of ``--json`` and of the protocol.

``decision.json`` is made of :mod:`docs.generator.decision_form`, ``protocol.json`` of
:mod:`advisor.core.operations`. For the others a verb's module says what it answers: a dataclass
such as ``ReportAnswer``, or ``ANSWERS``, of which it prints one. The docstring of the answer is
what the schema says of it; ``Annotated`` has what there is to say of a field.
"""

from __future__ import annotations

import ast
import inspect
import json
import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import numpy as np

from advisor import cli
from advisor.core.codec import Above, AtLeast, AtMost, JsonForm, Matches, Wire, wire_of
from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.operations import OPERATIONS, RefusedReply
from advisor.core.protocol import VERSION
from advisor.core.step_plan import PlannedStep
from advisor.loop.compare import MeasuredChange
from advisor.views.worth import Worth
from docs.generator.decision_form import (
    AlternativeForm,
    BaselineForm,
    ConfigurationForm,
    DecisionForm,
    PredictionForm,
    WorthForm,
)

COLUMNS = 100
"""Of the files, at most, where a value is no longer."""
FOLDER = Path(__file__).resolve().parents[2] / "config" / "schemas"
NAMES = tuple(sorted({p.stem for p in FOLDER.glob("*.json")} - {"decision", "protocol"}))
"""Of the answers."""
MODULES = {
    "bench": "advisor.cli.bench_answers",
    "characterise": "advisor.cli.characterise_output",
    "error": "advisor.cli.output",
    "import": "advisor.cli.import_answers",
    "run": "advisor.cli.run_answers",
    "evaluate": "advisor_lab.cli.evaluate",
    "jobs": "advisor.views.recent",
    "note": "advisor.views.recent",
    "models": "advisor.cli.fit",
    "refit": "advisor.cli.fit",
    "phases": "advisor_lab.cli.phases",
    "policy-simulate": "advisor.views.simulated_words",
    "prospect": "advisor.views.prospect",
    "pareto": "advisor_lab.cli.pareto",
    "profile": "advisor_lab.cli.profile",
    "train": "advisor.cli.train_output",
}
"""Of a verb, and of its actions, whose answers do not lie in ``advisor.cli`` under its name."""
TITLES = {name.split()[-1]: f"advisor {name}" for name in cli.VERBS}
TITLES |= {"error": "an error with --json", "models": "advisor fit --list-models"}
TITLES |= {"refit": "advisor fit --all"}
"""Of a verb that has two words, both."""
SHARED = {
    Decision: "decision.json",
    PlannedStep: "decision.json#/$defs/planned_step",
    Worth: "decision.json#/$defs/worth",
    Configuration: "decision.json#/$defs/configuration",
    MeasuredChange: "decision.json#/$defs/change",
    BaselineForm: "decision.json#/$defs/point",
    PredictionForm: "decision.json#/$defs/prediction",
    AlternativeForm: "decision.json#/$defs/alternative",
}
"""Types that the schema of decisions defines."""
_SCALARS = {np.float64: float, np.intp: int, np.int64: int, np.bool_: bool}
"""Of arrays."""
CLOSED = {"unevaluatedProperties": False}
"""Of objects: a schema names all keys of its version. A later version may have more."""
_MOST = {"array": "maxItems", "string": "maxLength"}
"""What bounds a value of a type."""
_PLAIN = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
}


def files() -> dict[Path, str]:
    """Return the generated schemas by their files."""
    schemas = {name: schema(name) for name in NAMES}
    schemas |= {"decision": decision_schema(), "protocol": protocol_schema()}
    return {FOLDER / f"{name}.json": text(schemas[name]) + "\n" for name in sorted(schemas)}


def text(data: Any, indent: str = "", taken_columns: int = 0) -> str:
    """Return JSON of which every part is on one line that fits behind ``taken_columns``."""
    line = json.dumps(data, ensure_ascii=False)
    if len(indent) + taken_columns + len(line) < COLUMNS or not isinstance(data, dict | list):
        return line
    deeper = f"{indent}  "
    if isinstance(data, list):
        parts = [text(part, deeper) for part in data]
    else:
        keys = {key: f"{json.dumps(key)}: " for key in data}
        parts = [keys[k] + text(v, deeper, len(keys[k])) for k, v in data.items()]
    left, right = "[]" if isinstance(data, list) else "{}"
    lines = f",\n{deeper}".join(parts)
    return f"{left}\n{deeper}{lines}\n{indent}{right}"


def decision_schema() -> dict[str, Any]:
    """Return the schema of decisions, with what other schemas refer to.

    Objects that others are made of, or that a later version may add to, are open.
    """
    definitions = {
        "planned_step": record(PlannedStep),
        "worth": {"anyOf": [opened(typed_dict(WorthForm)), {"type": "null"}]},
        "configuration": opened(typed_dict(ConfigurationForm)),
        "point": opened(typed_dict(BaselineForm)),
        "prediction": opened(typed_dict(PredictionForm)),
        "alternative": opened(typed_dict(AlternativeForm)),
        "change": {"anyOf": [opened(record(MeasuredChange)), {"type": "null"}]},
    }
    form = opened(typed_dict(DecisionForm))
    return head("decision", "A decision", summary(DecisionForm)) | form | {"$defs": definitions}


def protocol_schema() -> dict[str, Any]:
    """Return the schema of the socket protocol, open throughout: either side may be the newer."""
    definitions: dict[str, Any] = {}
    for name, (request, answer) in OPERATIONS.items():
        definitions[f"{name}_request"] = message(request, {"op": {"const": name}})
        definitions[f"{name}_answer"] = message(answer)
    definitions["explain_answer"] = {"allOf": [{"$ref": "decision.json"}]} | definitions[
        "explain_answer"
    ]
    definitions["error"] = message(RefusedReply)
    description = (
        "One JSON object a line each way. Each operation has a request and an answer; what cannot"
        " be answered gets an error."
    )
    return head("protocol", "Socket protocol 1", description) | {
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in definitions],
        "$defs": definitions,
    }


def message(kind: Any, keys: Mapping[str, object] = MappingProxyType({})) -> dict[str, Any]:
    """Return the schema of a line of the protocol, which has ``keys`` besides those of its type."""
    form = opened_throughout(typed_dict(kind))
    first = {"v": {"const": VERSION}, **keys}
    return {
        "type": "object",
        "description": summary(kind),
        "properties": first | form["properties"],
        "required": [*first, *form["required"]],
    }


def opened(form: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object which may have further keys."""
    return {key: part for key, part in form.items() if key not in CLOSED}


def opened_throughout(form: Any) -> Any:
    """Return a schema all of whose objects may have further keys."""
    if isinstance(form, list):
        return [opened_throughout(part) for part in form]
    if not isinstance(form, dict):
        return form
    return {key: opened_throughout(part) for key, part in opened(form).items()}


def head(name: str, title: str, description: str) -> dict[str, Any]:
    """Return what a schema's file begins with."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{name}.json",
        "title": title,
        "description": description,
    }


def schema(name: str) -> dict[str, Any]:
    """Return the schema of one answer's name."""
    verb, _, action = name.partition("-")
    room = MODULES.get(verb, f"advisor.cli.{verb}")
    module = import_module(MODULES.get(name, f"{room}_{action}" if action else room))
    answer = getattr(module, f"{verb.title()}{action.title()}Answer")
    answers = getattr(module, "ANSWERS", (answer,))
    first = head(name, f"{TITLES[verb]} {action}".rstrip(), summary(answer)) | {"type": "object"}
    forms = [answer_form(name, answer) for answer in answers]
    return first | (forms[0] if len(forms) == 1 else {"oneOf": forms})


def answer_form(name: str, answer: type) -> dict[str, Any]:
    """Return the schema of one answer, which has no other keys."""
    form = record(answer)
    form["properties"] = {"schema": {"const": f"advisor/{name}/1"}} | form["properties"]
    form["required"] = ["schema", *form["required"]]
    return form


def summary(kind: type) -> str:
    """Return the first paragraph of a class's docstring on one line."""
    return " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())


def record(kind: type) -> dict[str, Any]:
    """Return the schema of a dataclass's JSON form."""
    hints, parts = hints_of(kind), {f.name: f for f in fields(kind)}
    properties: dict[str, Any] = {}
    required, inline, more = [], [], CLOSED
    for name in getattr(kind, "JSON", ()) or parts:
        part = parts.get(name)
        form = wire_of(part) if part else Wire()
        hint = hints[name] if part else hints_of(getattr(kind, name).fget)["return"]
        if form.inline:
            part_form = value(hint)
            if "$ref" in part_form:
                inline.append(part_form)
            elif "additionalProperties" in part_form:
                more = {"additionalProperties": part_form["additionalProperties"]}
            else:
                properties |= part_form["properties"]
                required += part_form["required"]
            continue
        key = form.name or name
        if form.omit and part and part.default is None:
            hint = without_none(hint)
        properties[key] = value(hint)
        if not form.omit:
            required.append(key)
    required = list(dict.fromkeys(required))  # a field may refine a key of an inline part
    schema = {"type": "object", "properties": properties, "required": required, **more}
    return {"allOf": inline, **schema} if inline else schema


def typed_dict(kind: Any) -> dict[str, Any]:
    """Return the schema of a TypedDict, whose keys that may be missing say so themselves."""
    properties, required = {}, []
    for name, hint in hints_of(kind).items():
        mark = get_origin(hint)
        marked = mark in (NotRequired, Required)
        properties[name] = value(get_args(hint)[0] if marked else hint)
        # Of annotations that are text the class itself knows no marks, only its ``total``.
        is_required = mark is Required if marked else name in kind.__required_keys__
        required += [name] if is_required else []
    return {"type": "object", "properties": properties, "required": required, **CLOSED}


def without_none(hint: Any) -> Any:
    """Return the type of what is left out where it would be None."""
    parts = get_args(hint)
    if get_origin(hint) is Annotated:
        return Annotated[(without_none(parts[0]), *parts[1:])]
    return Union[tuple(p for p in parts if p is not type(None))]  # noqa: UP007


def value(hint: Any) -> dict[str, Any]:
    """Return the schema of a value by its type."""
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if hint in SHARED:
        return {"$ref": SHARED[hint]}
    if is_dataclass(hint) and isinstance(hint, type):
        return record(hint)
    if is_typeddict(hint):
        return typed_dict(hint)
    if hasattr(hint, "_fields"):  # a NamedTuple
        properties = {name: value(part) for name, part in hints_of(hint).items()}
        return {"type": "object", "properties": properties, "required": list(properties), **CLOSED}
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        form = value(parts[0])
        return form | about(parts[1:], form.get("type"))
    if origin in (Union, types.UnionType):
        forms = [value(part) for part in parts]
        if all(form.keys() == {"type"} for form in forms):
            return {"type": [form["type"] for form in forms]}
        return {"anyOf": forms}
    if origin is Literal:
        return {"const": parts[0]} if len(parts) == 1 else {"enum": list(parts)}
    if origin is tuple and parts[-1] is not Ellipsis:
        return {
            "type": "array",
            "prefixItems": [value(part) for part in parts],
            "minItems": len(parts),
            "maxItems": len(parts),
        }
    if origin is np.ndarray:
        return {"type": "array", "items": value(_SCALARS[get_args(parts[1])[0]])}
    if origin in (tuple, list, Sequence):
        return {"type": "array", "items": value(parts[0])}
    if origin in (dict, Mapping):
        values = value(parts[1])
        if get_origin(parts[0]) is Literal:  # any of these names, and no other
            properties = dict.fromkeys(get_args(parts[0]), values)
            return {"type": "object", "properties": properties, "required": [], **CLOSED}
        return {"type": "object"} | ({"additionalProperties": values} if values else {})
    if hint is JsonForm:
        return {"type": "object"}
    assert hint in (Any, object), f"no schema for {hint}"
    return {}


def about(notes: Sequence[object], kind: object) -> dict[str, Any]:
    """Return what ``Annotated`` says beside a type: bounds and words."""
    schema: dict[str, Any] = {}
    for note in notes:
        if isinstance(note, AtLeast):
            schema["minItems" if kind == "array" else "minimum"] = note.value
        elif isinstance(note, AtMost):
            schema[_MOST.get(str(kind), "maximum")] = note.value
        elif isinstance(note, Above):
            schema["exclusiveMinimum"] = note.value
        elif isinstance(note, Matches):
            schema["pattern"] = note.pattern
        else:
            schema["description"] = note
    return schema


@cache
def hints_of(kind: Any) -> dict[str, Any]:
    """Return the types of a class's fields or a function; also what is imported for types only."""
    module = inspect.getmodule(kind)
    assert module is not None
    return get_type_hints(kind, localns=names_of_types(module), include_extras=True)


@cache
def names_of_types(module: types.ModuleType) -> dict[str, Any]:
    """Return what a module imports for types only."""
    names: dict[str, Any] = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for line in node.body:
                if isinstance(line, ast.ImportFrom) and line.module:
                    imported_module = import_module(line.module)
                    names |= {
                        a.asname or a.name: getattr(imported_module, a.name) for a in line.names
                    }
    return names
