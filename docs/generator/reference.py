"""docs/reference: every key of policy.yaml and site.yaml, from their JSON schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from advisor.policy.jsonschema import schema

Node = dict[str, Any]

HEAD = """\
<!-- Made by `make docs` from the fields that advisor/core/keys.py tells of: change them. -->
# {kind}.yaml

{what}
`advisor {kind} check` lists every mistake in a file, `advisor {kind} diff` compares it with the
one in effect, `advisor {kind} apply` puts it into effect, `advisor {kind} show` prints all
settings with their defaults. [config/{kind}.yaml](../../config/{kind}.yaml) is an example,
[config/{kind}.schema.json](../../config/{kind}.schema.json) is for editors.
"""
WHAT = {
    "policy": "What the advisor may do with jobs.",
    "site": "What the advisor knows of nodes and applications beyond what the scheduler says.",
}


def page(kind: str) -> str:
    """Return docs/reference/KIND.md; ``kind`` is policy or site."""
    root = schema(kind)
    text = HEAD.format(kind=kind, what=WHAT[kind])
    for title, about, rows in _sections(root, root, "", frozenset()):
        text += f"\n## {title}\n\n" if title else "\n"
        text += f"{about}\n\n" if about else ""
        text += "| key | value | default | meaning |\n|---|---|---|---|\n" + "".join(rows)
    return text


def keys(kind: str) -> set[str]:
    """Return all keys as they are written in the page, like ``axes.frequency``."""
    root = schema(kind)
    lines = (row for _, _, rows in _sections(root, root, "", frozenset()) for row in rows)
    return {line.split("`")[1] for line in lines}


def _sections(
    root: Node, node: Node, path: str, listed_keys: frozenset[str]
) -> Iterator[tuple[str, str, list[str]]]:
    """Yield title, description and rows of a mapping, then of those below it.

    ``listed_keys`` are keys that are listed already: a rule takes all of the file's settings.
    """
    rows, subsections = [], []
    required = node.get("required", ())
    for key, value in sorted(node["properties"].items(), key=lambda one: one[0] not in required):
        if key in listed_keys:
            continue
        inner, suffix = _mapping(root, value)
        if inner is not None:
            subsections.append((f"{path}{key}{suffix}", inner))
        rows.append(_row(f"{path}{key}", value, inner, key in required))
    about = " ".join(str(node.get("description", "")).split()) if path else ""
    if listed_keys & node["properties"].keys():
        about += " All settings at the top of the file can stand here, too."
    yield path.rstrip("."), about.replace("``", "`"), rows
    listed = listed_keys | (node["properties"].keys() - {"version"} if not path else set())
    for name, inner in subsections:
        yield from _sections(root, inner, f"{name}.", frozenset(listed if "[]" in name else ()))


def _mapping(root: Node, value: Node) -> tuple[Node | None, str]:
    """Return the mapping that a key holds, and how its path goes on; None where it holds none."""
    for suffix, inner in (
        ("", value),
        ("[]", value.get("items", {})),
        (".NAME", value.get("additionalProperties", {})),
        *(("", alternative) for alternative in (*value.get("oneOf", ()), *value.get("anyOf", ()))),
    ):
        if isinstance(inner, dict) and "$ref" in inner:
            return root["$defs"][inner["$ref"].rsplit("/", 1)[1]], suffix
    return None, ""


def _row(name: str, value: Node, inner: Node | None, required: bool) -> str:
    text = value.get("description", "") or (inner or {}).get("description", "")
    default = "required" if required else _default(value)
    cells = [f"`{name}`", _values(value, inner), default, " ".join(text.split())]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _default(value: Node) -> str:
    default = value.get("default")
    if isinstance(default, list):
        return ", ".join(f"`{element}`" for element in default)
    if isinstance(default, dict) or default in (None, "") or "default:" in str(value):
        return ""
    if _is_percentage(value):
        return f"`{100 * default:g}%`"
    if isinstance(default, bool):
        return f"`{default}`".lower()
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


def _is_percentage(value: Node) -> bool:
    return any("%" in alternative.get("pattern", "") for alternative in value.get("anyOf", ()))


def _values(value: Node, inner: Node | None) -> str:
    """Return in words what may be written."""
    kinds = [alternative.get("type") for alternative in (*value.get("anyOf", ()), value)]
    takes_list = "array" in kinds or "oneOf" in value
    if "enum" in value.get("items", ()):
        return "a list of " + ", ".join(
            f"`{alternative}`" for alternative in value["items"]["enum"]
        )
    if "enum" in value or "const" in value:
        return ", ".join(
            f"`{alternative}`" for alternative in value.get("enum", [value.get("const")])
        )
    if _is_percentage(value):
        (span,) = (alternative for alternative in value["anyOf"] if "minimum" in alternative)
        return f"{100 * span['minimum']:g}% to {100 * span['maximum']:g}%"
    if "[hH]z" in str(value):
        return (
            "a list of frequencies, or a mapping" if takes_list else "a frequency, like `1.9 GHz`"
        )
    if inner is not None:
        return "a list of mappings" if "items" in value else "a mapping"
    if "minimum" in value and "maximum" in value:
        number = "whole number" if value.get("type") == "integer" else "number"
        return f"{number}, {value['minimum']:,.0f} to {value['maximum']:,.0f}"
    if kinds == ["boolean"] or value.get("type") == "boolean":
        return "`true`, `false`"
    if "additionalProperties" in value:
        return "a mapping of names"
    if value.get("minimum") is not None:
        return "a number, or one with a unit"
    return "text, or a list" if takes_list else "text"
