"""The JSON schemas in config/ are those of the code."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import yaml

from advisor.paths import share
from advisor.policy import jsonschema


@pytest.mark.parametrize("kind", ["policy", "site"])
def test_the_schema_file_is_generated(kind: str) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "advisor.policy.jsonschema", kind],
        capture_output=True,
        text=True,
        check=True,
        cwd=share("config").parent,
    ).stdout
    kept = share(f"config/{kind}.schema.json").read_text()
    assert made == kept, (
        f"run: python -m advisor.policy.jsonschema {kind} > config/{kind}.schema.json"
    )


def test_an_unknown_kind_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert jsonschema.main(["nonsense"]) == 2
    assert "policy|site" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["policy", "site"])
def test_every_key_of_the_example_is_in_the_schema(kind: str) -> None:
    schema = json.loads(share(f"config/{kind}.schema.json").read_text())
    example = yaml.safe_load(share(f"config/{kind}.yaml").read_text())
    assert set(example) <= set(schema["properties"])
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["version"]
