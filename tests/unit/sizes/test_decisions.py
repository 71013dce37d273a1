"""What decisions make of sizes that never ran."""

from __future__ import annotations

import math
from collections import OrderedDict
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.core.stamp import make_stamp, read_stamp
from advisor.derive.worker import derive
from advisor.errors import StoreError
from advisor.loop.outcomes import judged_model, unmetered
from advisor.schedulers.base import JobRecord
from advisor.schedulers.slurm.translator import parse_request
from advisor.service.decide import decide
from advisor.store.writer import Writer
from tests.unit.sizes.stencil import (
    BDW,
    CELLS,
    ask,
    options,
    runs,
    snapshot,
    time_energy,
    without_sizes,
)
from tests.unset import as_measured


def test_a_size_that_never_ran_is_decided_by_its_family(family: Path) -> None:
    decision = ask(snapshot(family))
    assert decision.workload == "-n 8000000"
    assert "extrapolated" in decision.codes and "workload-fallback" not in decision.codes
    assert decision.environment["OMP_NUM_THREADS"] in ("16", "20")
    assert decision.chosen is not None and decision.chosen.estimated
    assert not decision.chosen.confirmed
    time_s, _ = time_energy(8e6, decision.chosen.configuration)
    assert decision.chosen.time_s == pytest.approx(time_s, rel=0.15)
    assert decision.chosen.time.hi <= 0.05
    assert not any(a.confirmed for a in decision.alternatives)
    assert decision.energy_quality == "measured"
    assert "this size was not measured" in decision.message


def test_no_job_gets_an_option_that_lacks_the_memory_its_profiles_predict(family: Path) -> None:
    site = snapshot(family)
    for memory_mb, lacks in ((8000, False), (7000, True), (0, False)):  # 7812 MiB at n = 8e6
        kinds = {"bdw": replace(BDW, memory_mb=memory_mb)}
        inventory = replace(site.inventory, node_types=kinds)
        there = replace(site, inventory=inventory, choices={}, baselines={})
        decision = ask(there)
        assert decision.changed != lacks
        assert ("lacks-memory" in decision.codes) == lacks
        if lacks:
            texts = [r.text for r in decision.reasons]
            assert (
                "options without enough memory are left out: 1 rank a node needs 7.63 GiB of "
                "memory by the profiles, bdw has 6.84 GiB" in texts
            )
            assert not ask(there, environment={"ADVISOR_GOAL": "min_time"}).changed
            assert ask(there, "-n 4000000").changed  # what ran had the memory


@pytest.mark.parametrize("arguments", ["-n 4000000", "-n 4000000 --verbose"])
@pytest.mark.parametrize("more", ["", "-t 1", "-c 16", "-N2"])
def test_a_swept_size_is_decided_as_without_the_family(
    family: Path, arguments: str, more: str
) -> None:
    site = snapshot(family)
    one, other = (ask(s, arguments, sbatch=more).to_dict() for s in (site, without_sizes(site)))
    assert {**one, "decision": "", "created_at": ""} == {**other, "decision": "", "created_at": ""}


@pytest.mark.parametrize("extrapolated", ["advise", "refuse"])
@pytest.mark.parametrize("mode", ["apply", "advise", "observe"])
@pytest.mark.parametrize("chosen", ["", "#ADVISOR extrapolated=accept"])
def test_no_job_changes_where_the_policy_does_not_accept(
    family: Path, extrapolated: str, mode: str, chosen: str
) -> None:
    site = snapshot(family, extrapolated=extrapolated, mode=mode)
    for arguments in ("-n 8000000", "-n 3000000", "-n 2000000"):
        decision = ask(site, arguments, line=chosen)
        assert not decision.changed
        assert ("extrapolated-refused" in decision.codes) == (extrapolated == "refuse")
        assert ("setting-refused" in decision.codes) == bool(chosen)


def test_advice_is_shown_and_a_pin_needs_acceptance_too(family: Path) -> None:
    site = snapshot(family, extrapolated="advise")
    decision = ask(site)
    assert decision.codes[-1] == "extrapolated-advise"
    assert decision.chosen is not None and "would give" in decision.message
    pinned = parse_request(
        {
            "type": "sbatch",
            "options": {"nodes": "1", "exclusive": ""},
            "script": "srun ./stencil -n 8000000",
            "script_path": "/j",
            "argv": ["/j"],
        },
        user="ada",
        uid=1,
        choices={"version": 1, "workloads": {"stencil/*": {"pin": {"threads_per_node": 20}}}},
    )
    assert not decide(pinned, site, chance=lambda: 1.0).changed


@pytest.mark.parametrize(
    ("line", "environment"),
    [
        ("#ADVISOR extrapolated=advise", {}),
        ("", {"ADVISOR_EXTRAPOLATED": "refuse"}),
        ("#ADVISOR max_extrapolation=1.5", {}),
        ("", {"ADVISOR_MAX_EXTRAPOLATION": "1.9"}),
    ],
)
def test_a_user_may_be_more_careful(family: Path, line: str, environment: dict[str, str]) -> None:
    assert not ask(snapshot(family), line=line, environment=environment).changed


@pytest.mark.parametrize("bad", ["5", "0.5", "many"])
def test_a_user_cannot_go_farther_than_the_site(family: Path, bad: str) -> None:
    decision = ask(snapshot(family), "-n 20000000", line=f"#ADVISOR max_extrapolation={bad}")
    assert "setting-refused" in decision.codes and "too-far" in decision.codes


@pytest.mark.parametrize("n", ["16100000", "249000", "1e300"])
def test_too_far_is_left_alone_and_says_what_ran(family: Path, n: str) -> None:
    decision = ask(snapshot(family), f"-n {n}")
    assert not decision.changed and "too-far" in decision.codes
    assert "training-ask" in decision.codes


def test_another_word_is_another_family(family: Path) -> None:
    assert ask(snapshot(family), "-n 8000000 --fast").codes[-2:] == ("no-model", "training-ask")


def test_the_shared_error_counts_against_the_limit_only(family: Path) -> None:
    site = snapshot(family, max_extrapolation=16.0)
    near, far = ask(site), ask(site, "-n 60000000")
    assert near.chosen is not None and far.chosen is not None
    wide = [(d.chosen.time.hi - d.chosen.time.lo) for d in (near, far) if d.chosen]
    assert wide[0] < wide[1] < 0.2
    predicted = near.baseline_time_s
    assert predicted is not None
    # Half of the limit's minutes are enough by the mean, yet no option surely fits.
    tight = ask(site, sbatch=f"-t {math.ceil(predicted / 60)}")
    assert "time-limit-short" not in tight.codes
    short = ask(site, sbatch="-t 2")
    assert "time-limit-short" in short.codes and not short.changed
    assert "limit 2.00 min" in short.message
    assert "-t" not in short.rewrite and "time" not in short.rewrite


def test_a_job_of_a_new_size_is_held_out_stamped_and_judged(family: Path) -> None:
    site = snapshot(family, holdout=0.5)
    assert ask(site, chance=lambda: 0.0).codes[-1] == "holdout"
    decision = ask(site)
    stamped = read_stamp(make_stamp(decision))
    assert stamped is not None and stamped.chosen is not None and stamped.chosen.estimated
    job = JobRecord(job_id="1", user="ada", account="", name="j", state="COMPLETED")
    with Writer(family) as writer:
        model = judged_model(decision, job, writer)
        assert model is not None and model.of_sizes
        assert not unmetered(decision)
        assert all(m.workload == "-n 4000000" for m in writer.find_models("stencil"))
        assert [w.name for w in writer.workloads("stencil")] == [
            "-n 1000000",
            "-n 2000000",
            "-n 4000000",
        ]


def test_a_suspended_family_decides_nothing_and_the_swept_size_goes_on(family: Path) -> None:
    site = snapshot(family)
    site.models = {
        i: replace(m, state="suspended") if m.of_sizes else m for i, m in site.models.items()
    }
    site.index()
    assert "suspended" in ask(site).codes
    assert ask(site, "-n 4000000").changed


@pytest.mark.parametrize("blob", [b"", b"\x01123", b"\x01" + bytes(400)])
def test_a_damaged_table_changes_no_job(family: Path, blob: bytes) -> None:
    site = snapshot(family)
    site.models = {
        i: replace(m, sizes_blob=blob) if m.of_sizes else m for i, m in site.models.items()
    }
    site = replace(site, _decoded=OrderedDict())
    site.index()
    with suppress(StoreError):  # which the daemon answers by leaving the job alone
        assert not ask(site).changed


def test_a_number_of_nodes_that_never_ran_is_decided_from_those_that_did(store_path: Path) -> None:
    some = [c for c in CELLS if c.threads_per_node in (16, 20, 28)]
    with Writer(store_path) as writer:
        writer.save_node_types([BDW], source="test")
        cells = [replace(c, nodes=n) for n in (1, 2, 4) for c in some]
        writer.add_observations("stencil", "mesh", runs(4e6, cells))
        table = [
            replace(
                o,
                configuration=replace(o.configuration, nodes=n),
                time_s=o.time_s / n,
                time_lo_s=o.time_lo_s / n,
                time_hi_s=o.time_hi_s / n,
            )
            for n in (1, 2, 4)
            for o in options(4e6)
        ]
        writer.save_model(
            "stencil",
            "mesh",
            "bdw",
            scope="all",
            owner="",
            name="bspline",
            options=table,
            energy_quality="measured",
            n_train=12,
            stats=as_measured(table),
        )
        assert derive(writer)
    site = snapshot(store_path)
    measured, never, far = (ask(site, "mesh", sbatch=f"-N{n}") for n in (4, 8, 17))
    assert "extrapolated" not in measured.codes and measured.changed
    assert "extrapolated" in never.codes
    assert "nodes 8 was not measured: extrapolated from nodes 1 to 4" in never.reasons[1].text
    assert never.baseline is not None and never.baseline.nodes == 8
    assert never.baseline_time_s == pytest.approx(12.5, rel=0.2)
    assert "too-far" in far.codes and not far.changed
    assert "baseline-outside-model" in ask(without_sizes(site), "mesh", sbatch="-N8").codes
