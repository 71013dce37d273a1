"""GPU clocks and power limits of PBS jobs that ask for ngpus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.cli import main
from advisor.core.availability import Availability, JobLimits, PartitionState, Queue
from advisor.core.decision import Decision
from advisor.schedulers.pbs.chunks import asked, gpus_asked
from advisor.schedulers.pbs.translator import parse_request
from advisor.service.decide import decide
from advisor.store.writer import Writer
from tests.again import same_again
from tests.unit.decide.site import codes, snapshot
from tests.unit.decide.test_gpus import NODE, gpu_store

__all__ = ["gpu_store"]


def ask(
    store: Writer, select: str = "1:ncpus=16:ngpus=4", line: str = "./train", **options: str
) -> Decision:
    placed = {"place": "scatter:excl"} | options
    request = parse_request(
        {
            "options": {"select": select, "queue": "gpu", **placed},
            "host_resources": ["node_type"],
            "script": f"#!/bin/bash\n{line}\n",
        },
        user="ada",
        uid=1000,
        choices={},
    )
    site = snapshot(store)
    queues = {"": Queue(""), "gpu": Queue("gpu")}
    site.availability = Availability(
        "pbs", {}, {"gpu": PartitionState()}, queues, JobLimits(enforced=False)
    )
    decision = decide(request, site, chance=lambda: 1.0)
    same_again(decision, site, lambda: 1.0)
    return decision


@pytest.mark.parametrize(
    ("line", "written"),
    [("./train", {"gpu_freq_mhz": "800"}), ("mpirun ./limited", {"gpu_power_w": "150"})],
)
def test_a_gpu_job_gets_the_hooks_own_resource(
    gpu_store: Writer, line: str, written: dict[str, str]
) -> None:
    decision = ask(gpu_store, line=line)
    assert decision.rewrite == written and decision.changed, decision.reasons
    assert decision.node_axes == (), "there is one way: the resource"


def test_a_sites_own_way_to_write_an_axis_is_slurms(gpu_store: Writer) -> None:
    axes = {"gpu_power_w": {"option": "gpu-power"}, "gpu_freq_khz": {"nodes": True}}
    compiled: dict[str, Any] = {"axes": axes, "applications": []}
    gpu_store.apply_config("site", path="s", text="", compiled=compiled, by="test")
    assert ask(gpu_store).rewrite == {"gpu_freq_mhz": "800"}
    assert ask(gpu_store, line="./limited").rewrite == {"gpu_power_w": "150"}


@pytest.mark.parametrize(
    ("select", "options", "why"),
    [
        ("1:ncpus=16", {}, "the job asks for no GPUs"),
        ("1:ncpus=16:ngpus=0", {}, "the job asks for no GPUs"),
        ("1:ncpus=16:naccelerators=4", {}, "naccelerators does not tell which GPUs are its own"),
        ("1:ncpus=16:ngpus=x", {}, "ngpus=x is not a number"),
        ("1:ncpus=16:ngpus=4", {"gpu_power_w": "300"}, "by gpu_power_w=300"),
        ("1:ncpus=16:ngpus=4", {"gpu_freq_mhz": "1400"}, "by gpu_freq_mhz=1400"),
        ("1:ncpus=16:ngpus=4", {"pcap_accelerator": "250"}, "by pcap_accelerator=250"),
    ],
)
def test_its_gpus_are_kept(
    gpu_store: Writer, select: str, options: dict[str, str], why: str
) -> None:
    for line in ("./train", "./limited"):
        decision = ask(gpu_store, select, line, **options)
        assert not {"gpu_freq_mhz", "gpu_power_w"} & set(decision.rewrite)
        assert why in " ".join(r.text for r in decision.reasons), decision.reasons


@pytest.mark.parametrize(
    ("options", "asks"),
    [
        ({"select": "1:ngpus=4+2:ncpus=8"}, True),
        ({"select": "2:ncpus=8+1:ncpus=4:ngpus=4"}, True),
        ({"select": "2:ncpus=8+1:ncpus=4+1:naccelerators=1"}, True),
        ({"select": "2:ncpus=8+1:ncpus=4"}, False),
        ({"nodes": "1:ppn=8+1:ppn=4:ngpus=2"}, True),
        ({"nodes": "1:ppn=8+n2:ppn=4"}, False),
    ],
)
def test_gpus_of_chunks_of_any_kind_are_seen(options: dict[str, str], asks: bool) -> None:
    gpus = gpus_asked(asked(options))
    assert (gpus is not None) == asks
    if gpus is not None:
        assert gpus.unclear == "its chunks differ"


def test_another_number_than_its_runs_had_leaves_a_job_alone(gpu_store: Writer) -> None:
    decision = ask(gpu_store, "1:ncpus=16:ngpus=2")
    assert decision.rewrite == {} and not decision.changed
    assert "2 GPUs a node, where its runs had 4" in " ".join(r.text for r in decision.reasons)
    assert NODE.gpus.count == 4 and codes(decision)


def test_explain_shows_it_in_rewrite(
    gpu_store: Writer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\n./train\n")
    limits = "select=1:ncpus=16:ngpus=4", "place=scatter:excl", "walltime=10:00:00"
    words = [word for limit in limits for word in ("-l", limit)]
    command = ["explain", "--db", str(gpu_store.path), "--scheduler", "pbs", "--json"]
    assert main([*command, str(script), "--", *words]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["rewrite"] == {"gpu_freq_mhz": "800"}, answer["reasons"]
