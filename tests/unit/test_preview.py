"""What people are shown ahead is decided as the scheduler of this machine decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.core.option import Option
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from advisor.views import preview as view
from advisor.views.preview import AskingJob, Person, preview, site_for_preview
from tests.unset import as_measured

NODE = NodeType(
    "bdw",
    feature="broadwell",
    partitions=("batch",),
    sockets=2,
    cores=28,
    memory_mb=64_000,
    freq_khz=(1_200_000, 1_800_000, 2_400_000),
    default_freq_khz=2_400_000,
    nodes=("bdw1", "bdw2"),
    default_partition="batch",
)
WRITTEN = {"slurm": "cpu-freq", "pbs": "cpu_freq_mhz"}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "advisor.db"
    options = []
    for threads in (7, 14, 28):
        for freq in NODE.freq_khz:
            t, e = 100.0 * (2.4e6 / freq) ** 0.1, threads * 100.0 * (freq / 2.4e6) ** 2
            options.append(
                Option(
                    Configuration("bdw", 1, 1, threads, freq),
                    t,
                    t * 0.99,
                    t * 1.01,
                    e,
                    e * 0.99,
                    e * 1.01,
                    measured=True,
                    confirmed=True,
                    in_zone=True,
                )
            )
    with Writer(path) as writer:
        writer.save_node_types([NODE], source="test")
        base = {
            "mode": "apply",
            "goal": "min_energy",
            "holdout": 0.0,
            "max_slowdown": 0.5,
            "axes": {"threads": "cap"},  # a chunk of PBS states its cores: under fill they stay
        }
        writer.apply_config(
            "policy", path="-", text="-", compiled={"base": base, "rules": []}, by="test"
        )
        writer.save_model(
            "app",
            "default",
            "bdw",
            scope="all",
            owner="",
            name="bspline",
            energy_quality="measured",
            n_train=9,
            stats=as_measured(options),
            options=options,
        )
    return path


@pytest.mark.parametrize("scheduler", WRITTEN)
def test_a_preview_is_decided_as_the_scheduler_here_does(
    store: Path, monkeypatch: pytest.MonkeyPatch, scheduler: str
) -> None:
    monkeypatch.setattr(view, "installed_name", lambda: scheduler)
    with Reader(store) as reader:
        site = site_for_preview(reader)
        site.take(reader.models())
    base = Configuration("bdw", 1, 1, 28, 2_400_000)
    decision = preview(site, AskingJob("app", "default", base, Person("ann")))
    assert decision is not None
    assert decision.scheduler == scheduler
    assert decision.changed, [r.code for r in decision.reasons]
    assert decision.chosen is not None
    assert decision.chosen.configuration == Configuration("bdw", 1, 1, 7, 1_200_000)
    assert WRITTEN[scheduler] in decision.rewrite
