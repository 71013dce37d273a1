"""The shapes of requests: what is submitted, by whom, and in which state the site is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Script:
    """A job script; `always` where its effect shows only when it runs (it submits jobs)."""

    name: str
    text: str
    shell: str = "/bin/bash"
    always: bool = False

    @property
    def submits(self) -> bool:
        """Whether it submits jobs of its own, or waits for nodes while it has some."""
        return "salloc " in self.text or "sbatch " in self.text


@dataclass(frozen=True)
class Shape:
    """One request.

    `via` is how it is submitted: `file` (sbatch of a file), `directives` (its options are
    `#SBATCH` lines), `stdin`, `wrap`, `merged` (a shell that takes all of sbatch's output for the
    id of a dependency), `srun` or `salloc`. `then` are commands after the submission, where
    `JOB` stands for its id. `state` names a state of the site (`cluster.STATES`).
    """

    name: str
    script: Script
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    via: str = "file"
    state: str = "plain"
    user: str = "nobody"
    arguments: tuple[str, ...] = ()
    then: tuple[str, ...] = ()

    @property
    def always(self) -> bool:
        """Whether both must run to their end although the controller's records are the same."""
        return self.script.always or self.blocking or bool(self.then) or self.via == "merged"

    @property
    def alone(self) -> bool:
        """Whether other jobs beside it decide what becomes of it: `-N 1-4` takes what is free."""
        range_of_nodes = re.search(r"(?:-N|--nodes)[ =]?\d+-\d", " ".join(self.options))
        return self.script.submits or range_of_nodes is not None

    @property
    def blocking(self) -> bool:
        """Whether the submitting command waits for the job."""
        return self.via in ("srun", "salloc") or bool({"--wait", "-W"} & set(self.options))


def scripts() -> dict[str, Script]:
    """Return the scripts by name."""
    data = yaml.safe_load((HERE / "scripts.yaml").read_text())
    return {
        name: Script(
            name, entry["text"], entry.get("shell", "/bin/bash"), entry.get("run") == "always"
        )
        for name, entry in data.items()
    }


def fixed() -> list[Shape]:
    """Return the fixed shapes, in the order of the table."""
    known = scripts()
    return [_shape(entry, known) for entry in yaml.safe_load((HERE / "shapes.yaml").read_text())]


def _shape(entry: Mapping[str, Any], known: Mapping[str, Script]) -> Shape:
    fields = dict(entry)
    name = fields.pop("name")
    script = known[fields.pop("script", "one-srun")]
    options = tuple(str(fields.pop("options", "")).split())
    environment = {k: str(v) for k, v in fields.pop("environment", {}).items()}
    arguments = tuple(str(fields.pop("arguments", "")).split())
    then = tuple(fields.pop("then", ()))
    return Shape(name, script, options, environment, arguments=arguments, then=then, **fields)
