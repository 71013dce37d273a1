"""Print the JSON schema of policy.yaml or site.yaml, for editors that complete and check YAML.

``python -m advisor.policy.jsonschema policy|site``
"""

from __future__ import annotations

import json
import sys
from typing import Any

from advisor.policy.site_schema import FILES

_TITLES = {"policy": "advisor policy file", "site": "advisor site file"}


def schema(kind: str) -> dict[str, Any]:
    """Return the JSON schema of one kind of file."""
    model_schema = FILES[kind].model_json_schema()
    model_schema.pop("description", None)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **model_schema,
        "title": _TITLES[kind],
        "description": f"Shipped with the advisor; check a file with: advisor {kind} check FILE",
    }


def text(kind: str) -> str:
    """Return the schema as it is kept in ``config/``."""
    return json.dumps(schema(kind), indent=2, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    """Write one schema to standard output."""
    if len(arguments) != 1 or arguments[0] not in FILES:
        sys.stderr.write(f"usage: python -m advisor.policy.jsonschema {'|'.join(FILES)}\n")
        return 2
    sys.stdout.write(text(arguments[0]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
