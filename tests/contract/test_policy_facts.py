"""A rule of the policy sees the same job wherever its settings are looked up."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.inventory import NodeType
from advisor.core.option import Option
from advisor.core.policy import MATCH_FIELDS
from advisor.core.protocol import MAX_SCRIPT
from advisor.loop.outcomes import policy_of
from advisor.schedulers.base import JobRecord
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from advisor.training.site_context import load_known
from advisor.training.training_job import TrainingSubject, understand
from advisor.views.choosing import for_script
from advisor.views.policy import holding
from advisor.views.preview import AskingJob, Person, preview, site_for_preview
from tests.unset import as_measured

Run = Callable[..., Any]
ME = pwd.getpwuid(os.getuid()).pw_name
FACTS = {
    "scheduler": "slurm",
    "partition": "batch",
    "qos": "night",
    "user": ME,
    "account": "climate",
    "job_name": "big",
    "application": "stencil",
    "workload": "one",
    "node_type": "bdw",
}
SCRIPT = (
    "#!/bin/bash\n#SBATCH -N 1 --exclusive -p batch -q night -A climate -J big\n"
    "#ADVISOR workload=one\nsrun ./stencil\n"
)


def apply(store: Path, key: str, pattern: str) -> None:
    """Apply a policy whose one rule turns everything off for the jobs that match."""
    rule = {"match": {key: [pattern]}, "set": {"mode": "off", "training": {"mode": "off"}}}
    with Writer(store) as writer:
        writer.apply_config(
            "policy",
            path="p",
            text=f"{key}: {pattern}",
            compiled={"base": {"mode": "apply"}, "rules": [rule]},
            by="test",
        )


@pytest.fixture
def script(tmp_path: Path, store_path: Path) -> Path:
    node = NodeType(
        "bdw",
        feature="broadwell",
        partitions=("batch",),
        cores=16,
        nodes=("bdw1",),
        freq_khz=(1_200_000, 2_200_000),
        default_freq_khz=2_200_000,
        default_partition="batch",
    )
    options = [
        Option(Configuration("bdw", 1, 1, t, 2_200_000), 10, 9.9, 10.1, e, e, e, True, True, True)
        for t, e in ((16, 1000.0), (8, 800.0))
    ]
    with Writer(store_path) as writer:
        writer.save_node_types([node], source="test")
        writer.save_model(
            "stencil",
            "one",
            "bdw",
            scope="all",
            owner="",
            name="bspline",
            energy_quality="measured",
            n_train=12,
            stats=as_measured(options),
            options=options,
        )
    path = tmp_path / "job.sh"
    path.write_text(SCRIPT)
    return path


def doors(advisor: Run, store: Path, script: Path) -> dict[str, bool]:
    """Return, by where a job's settings are looked up, whether they are those of the rule."""
    person = Person(ME, os.getuid(), FACTS["account"], {}, FACTS["qos"], FACTS["job_name"])
    with Reader(store) as reader:
        site = site_for_preview(reader)
        site.take(reader.models())
        policy = reader.policy()
    decision = preview(
        site, AskingJob("stencil", "one", Configuration("bdw", 1, 1, 16, 2_200_000), person)
    )
    assert decision is not None
    known = load_known(store)
    job = understand(TrainingSubject(script), scheduler="slurm", site=known.site)
    outlook = for_script(script, {}, store=store, socket=script.parent / "none", person=person)
    ended = JobRecord(
        "7",
        FACTS["job_name"],
        ME,
        FACTS["account"],
        "COMPLETED",
        partition="batch",
        qos="night",
    )
    place = Configuration("bdw", 1, 1, 16, 2_200_000).to_dict()
    record = Decision.from_dict({**FACTS, "baseline": place})
    return {
        "explain": "mode-off" in advisor("explain", script, "--json").json()["reasons"],
        "preview": "mode-off" in [r.code for r in decision.reasons],
        "choose": not outlook.lines,
        "train": known.policy_for(job).training.mode == "off",
        "policy page": holding(policy, FACTS)[0].startswith("rule 1"),
        "outcome": policy_of(record, ended, policy).mode == "off",
    }


@pytest.mark.parametrize("key", MATCH_FIELDS)
def test_a_rule_on_any_key_holds_everywhere(
    advisor: Run, store_path: Path, script: Path, key: str
) -> None:
    apply(store_path, key, FACTS[key])
    assert doors(advisor, store_path, script) == dict.fromkeys(
        ("explain", "preview", "choose", "train", "policy page", "outcome"), True
    )
    apply(store_path, key, FACTS[key] + "x")
    assert not any(doors(advisor, store_path, script).values())


def test_scripts_are_read_as_far_as_the_hooks_send_them(
    advisor: Run, store_path: Path, script: Path
) -> None:
    apply(store_path, "user", "nobody-here")
    script.write_text(SCRIPT + "#" * MAX_SCRIPT)
    reasons = advisor("explain", script, "--json").json()["reasons"]
    assert "script-not-understood" in reasons
    outlook = for_script(
        script, {}, store=store_path, socket=script.parent / "none", person=Person(ME)
    )
    assert not outlook.lines and any("only a part of it" in text for text in outlook.why)
    assert "free nodes are not known" in outlook.unseen  # no daemon answered
    refused = advisor("train", script, "--scheduler", "local", "--dry-run")
    assert refused.code == 1 and "larger than 128 KB" in refused.err
