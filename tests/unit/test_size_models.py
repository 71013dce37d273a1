"""Models of families in the store, and what decisions make of sizes that never ran."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from advisor.core.configuration import Configuration
from advisor.core.count_laws import CountLaws
from advisor.core.decision import Decision
from advisor.core.inventory import NodeType
from advisor.core.observation import Observation, Scope
from advisor.core.option import Option
from advisor.core.stamp import make_stamp, read_stamp
from advisor.errors import InputError, RefusedError, StoreError
from advisor.loop.outcomes import judged_model, unmetered
from advisor.schedulers.base import JobRecord
from advisor.schedulers.slurm.translator import parse_request, read_arguments, read_directives
from advisor.service.decide import decide
from advisor.service.snapshot import Snapshot, StoreSource
from advisor.store import seen, size_models, visible
from advisor.store.forgetting import forget
from advisor.store.profiled_runs import add_profile_step, save_count_laws
from advisor.store.reader import Reader
from advisor.store.records import StoredModel
from advisor.store.writer import Writer
from advisor.training.result_store import LocalResults
from advisor.views.simulation import simulate
from advisor.views.sized_options import sized_views
from advisor.views.whatif import WhatIf
from tests.again import same_again

FREQS = (1_200_000, 1_700_000, 2_200_000)
BDW = NodeType(
    "bdw", feature="broadwell", partitions=("batch",), sockets=2, cores=28, freq_khz=FREQS,
    default_freq_khz=2_200_000, nodes=tuple(f"bdw{i}" for i in range(40)),
    default_partition="batch",
)  # fmt: skip
THREADS = (8, 12, 16, 20, 24, 28)
CELLS = [Configuration("bdw", 1, 1, t, f) for t in THREADS for f in FREQS]
BASE = CELLS[-1]
_ONE = ((1.0, "1"),)


def time_energy(n: float, c: Configuration) -> tuple[float, float]:
    """A memory-bound code of work n^1.5: threads saturate at 16, frequency hardly matters."""
    time_s = 100 * (n / 4e6) ** 1.5 * (16 / min(c.threads_per_node, 16)) * (
        2.2e6 / c.freq_khz
    ) ** 0.1 / c.nodes  # fmt: skip
    watts = 90 + c.threads_per_node * (1.5 + 3 * (c.freq_khz / 2.2e6) ** 3)
    return time_s, time_s * watts * c.nodes


def runs(n: float, cells: list[Configuration], scope: Scope = "all", who: str = "",
         source: Any = "sweep") -> list[Observation]:  # fmt: skip
    rng = random.Random(int(n) + len(cells))
    found = []
    for c in cells:
        time_s, energy_j = time_energy(n, c)
        off = math.exp(rng.gauss(0, 0.004))
        found.append(
            Observation(
                c, time_s * off, energy_j * off, source=source, scope=scope, contributor=who,
                job_id=f"{who}{n}{c}",
            )
        )  # fmt: skip
    return found


def options(n: float, confirmed: bool = True) -> list[Option]:
    found = []
    for c in CELLS:
        t, e = time_energy(n, c)
        around = (t, t * 0.99, t * 1.01, e, e * 0.99, e * 1.01)
        found.append(Option(c, *around, measured=True, confirmed=confirmed, in_zone=True))
    return found


def sweep(writer: Writer, n: float, cells: list[Configuration], scope: Scope = "all",
          who: str = "") -> None:  # fmt: skip
    writer.add_observations("stencil", f"-n {n:.0f}", runs(n, cells, scope, who))


def fit(
    writer: Writer, n: float, scope: Scope = "all", owner: str = "", **more: Any
) -> StoredModel:
    values: dict[str, Any] = {
        "options": options(n),
        "energy_quality": "measured",
        "n_train": 12,
    } | more
    return writer.save_model(
        "stencil", f"-n {n:.0f}", "bdw", scope=scope, owner=owner, name="bspline",
        stats={"error": 0.05}, **values,
    )  # fmt: skip


def say_counts(writer: Writer, bytes_each: float) -> None:
    """Have profiles say that a run executes n^1.5 instructions and touches so much for each n."""
    laws = CountLaws(("N",), "", {}, ((_ONE, ((1e4, "N^1.5"),)),), ((_ONE, ((bytes_each, "N"),)),))
    number = add_profile_step(writer, "stencil", "fit", {}, {}, by="root")
    save_count_laws(writer, "stencil", number, laws)


def make_store(path: Path) -> Writer:
    writer = Writer(path)
    writer.save_node_types([BDW], source="test")
    say_counts(writer, 1024)
    for n in (1e6, 2e6):
        sweep(writer, n, [*CELLS[::6], BASE])
    sweep(writer, 4e6, [*CELLS[::2], BASE])
    fit(writer, 4e6)
    return writer


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Three sizes, the largest with a model; most tests only read it."""
    path = tmp_path_factory.mktemp("sizes") / "advisor.db"
    make_store(path).close()
    yield path


def snapshot(path: Path, **settings: Any) -> Snapshot:
    source = StoreSource(path)
    source.refresh()
    source.close()
    site = source.snapshot
    base: dict[str, Any] = {
        "mode": "apply",
        "goal": "min_energy",
        "holdout": 0.0,
        "extrapolated": "accept",
    }
    policy = replace(site.policy.base, **(base | settings))
    return replace(site, policy=replace(site.policy, base=policy), choices={}, baselines={})


def ask(site: Snapshot, arguments: str = "-n 8000000", *, line: str = "", sbatch: str = "",
        user: str = "ada", environment: dict[str, str] | None = None,
        chance: Callable[[], float] = lambda: 1.0) -> Decision:  # fmt: skip
    script = f"#!/bin/bash\n{line}\nsrun ./stencil {arguments}\n"
    words = ("-N1 --exclusive " + sbatch).split()
    request = parse_request(
        {"type": "sbatch", "options": read_directives(script) | read_arguments(words),
         "script": script, "script_path": "/home/job.sh", "argv": ["/home/job.sh"],
         "env": environment or {}},
        user=user, uid=1000, choices={},
    )  # fmt: skip
    decision = decide(request, site, chance=chance)
    same_again(decision, site, chance)
    return decision


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


def test_profiles_that_say_something_else_have_the_family_fitted_again(
    family: Path, tmp_path: Path
) -> None:
    with Reader(family) as reader:
        (before,) = reader.size_models("stencil")
    assert before.about_sizes["terms"] == ["instructions"]
    shutil.copy(family, path := tmp_path / "advisor.db")
    with Writer(path) as writer:
        say_counts(writer, 2048)
        (after,) = writer.size_models("stencil")
        assert after.id != before.id
        assert after.count_laws() != before.count_laws()
        writer.save_node_types([replace(BDW, memory_mb=12_000)], source="test")
        with pytest.raises(RefusedError, match="no option has the memory: 1 rank"):
            sized_views(writer, "stencil", {"n": 8e6}, user="ada")
        (view,) = sized_views(writer, "stencil", {"n": 5e6}, user="ada")
        assert view.options and not view.left_out


def test_one_fit_of_all_sizes_makes_their_law_once(
    store_path: Path, advisor: Callable[..., Any]
) -> None:
    """The largest is fitted first: else each size that becomes the largest has a law made."""
    with Writer(store_path) as writer:
        for n in (1e6, 2e6, 4e6):
            sweep(writer, n, [*CELLS[::2], BASE])
    assert advisor("fit", "stencil", "--db", store_path).code == 0
    with Reader(store_path) as reader:
        (law,) = reader.size_models("stencil")
        assert law.stats["sizes"]["largest"] == "-n 4000000"
        assert law.version == 1


def without_sizes(site: Snapshot) -> Snapshot:
    site = replace(site, models={i: m for i, m in site.models.items() if not m.of_sizes})
    site.index()
    return site


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
        {"type": "sbatch", "options": {"nodes": "1", "exclusive": ""},
         "script": "srun ./stencil -n 8000000", "script_path": "/j", "argv": ["/j"]},
        user="ada", uid=1, choices={"version": 1, "workloads": {"stencil/*": {"pin": {
            "threads_per_node": 20}}}},
    )  # fmt: skip
    assert not decide(pinned, site, chance=lambda: 1.0).changed


@pytest.mark.parametrize(
    ("line", "environment"),
    [("#ADVISOR extrapolated=advise", {}), ("", {"ADVISOR_EXTRAPOLATED": "refuse"}),
     ("#ADVISOR max_extrapolation=1.5", {}), ("", {"ADVISOR_MAX_EXTRAPOLATION": "1.9"})],
)  # fmt: skip
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
            "-n 1000000", "-n 2000000", "-n 4000000",
        ]  # fmt: skip


def test_another_policy_is_tried_on_jobs_of_sizes_never_swept(family: Path, tmp_path: Path) -> None:
    shutil.copy(family, path := tmp_path / "advisor.db")
    with Writer(path) as writer:
        for job, n in enumerate((8000000, 8000000, 4000000, 80000000)):
            writer.save_decision(ask(snapshot(path), f"-n {n}"), job_id=f"{job}")
        whatif = WhatIf.load(writer)
        changes = {c.case.workload: c for c in whatif.under("min_energy", 0.1)}
        assert set(changes) == {"-n 4000000", "-n 8000000"}  # the third is too far for any
        new = changes["-n 8000000"]
        assert (new.case.runs, new.case.baseline) == (2, BASE)
        assert new.then is not None and new.then.energy < -0.03
        accept = {"base": {"mode": "apply", "goal": "min_energy", "holdout": 0.0,
                           "extrapolated": "accept"}, "rules": []}  # fmt: skip
        tried = simulate(writer, accept, datetime.now(UTC) - timedelta(hours=1))
        assert (tried.decisions, tried.different, dict(tried.undecided)) == (4, 3, {})


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
    site.models = {i: replace(m, sizes_blob=blob) if m.of_sizes else m
                   for i, m in site.models.items()}  # fmt: skip
    site = replace(site, _decoded=OrderedDict())
    site.index()
    with suppress(StoreError):  # which the daemon answers by leaving the job alone
        assert not ask(site).changed


def test_two_sizes_say_what_is_measured_and_default_is_not_used(
    store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Writer(store_path) as writer:
        writer.save_node_types([BDW], source="test")
        for n in (1e6, 2e6):
            fit(writer, n)
        writer.save_model(
            "stencil", "default", "bdw", scope="all", owner="", name="bspline",
            energy_quality="measured", n_train=12, stats={}, options=options(4e6),
        )  # fmt: skip
        site = snapshot(store_path)
        decision = ask(site)
        assert decision.codes[-2:] == ("few-sizes", "training-ask")
        assert (
            "extrapolation needs 3 measured sizes, there are: n 1e6, 2e6"
            in decision.reasons[-2].text
        )
        assert not decision.changed
        # Another word is another family, which nothing is known of.
        assert "workload-fallback" in ask(site, "-n 8000000 --fast").codes
        # The third size makes the model, right after its commit; forgetting it takes it away.
        for n in (1e6, 2e6, 4e6):
            sweep(writer, n, CELLS[::4] if n < 4e6 else CELLS[::2])
        with pytest.raises(InputError), writer.batch():
            fit(writer, 4e6)
            raise InputError("undone")
        assert not writer.size_models("stencil")
        meanwhile: list[bool] = []

        def table(*arguments: Any) -> Any:  # others write while it is fitted
            with Writer(store_path, timeout_s=0.1) as other:
                other.add_observations("other", "one", runs(1e6, CELLS[:1]))
                meanwhile.append(not other.size_models("stencil"))
            return real(*arguments)

        real = size_models._table
        monkeypatch.setattr(size_models, "_table", table)
        fit(writer, 4e6)
        assert meanwhile == [True]
        (model,) = writer.size_models("stencil")
        assert (model.scope, model.owner, model.n_train) == ("all", "", 19)
        assert "extrapolated" in ask(snapshot(store_path)).codes
        again = fit(writer, 1e6)  # nothing that it follows from
        assert writer.size_models("stencil") == [model]
        assert again.fitted
        forget(writer, "stencil", "-n 2000000", by="test")
        assert not writer.size_models("stencil")
        assert "few-sizes" in ask(snapshot(store_path)).codes


def test_private_runs_reach_their_owner_only_and_lawless_families_are_unfit(
    store_path: Path,
) -> None:
    with Writer(store_path) as writer:
        writer.save_node_types([BDW], source="test")
        for n, size in ((1e6, 1e6), (2e6, 9e6), (4e6, 1.5e6)):
            found = [replace(o, contributor="ada", scope="own") for o in runs(size, CELLS[::3])]
            writer.add_observations("stencil", f"-n {n:.0f}", found)
        fit(writer, 2e6, "own", "ada")
        fit(writer, 4e6, "own", "ada")
        (model,) = writer.size_models("stencil")
        assert (model.scope, model.owner) == ("own", "ada")
        assert "no-model" in ask(snapshot(store_path), user="eve").codes
        decision = ask(snapshot(store_path), user="ada")
        assert "family-unfit" in decision.codes and not decision.changed
        results = LocalResults(writer, user="ada", trust="own")
        assert results.no_law("stencil", "-n 4000000").startswith("family-unfit: physics: the l")
        assert not results.no_law("other", "-n 4000000")


def test_finished_jobs_widen_the_range_of_their_owner(family: Path, store_path: Path) -> None:
    with Writer(family) as writer:
        writer.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(family, store_path)
    with Writer(store_path) as writer:
        assert "too-far" in ask(snapshot(store_path), "-n 30000000", user="ada").codes
        first, *jobs = runs(8e6, [BASE] * 4, "own", "ada", source="job")
        for some in ([first], jobs, [first]):  # one shows nothing, and a fifth nothing more
            writer.add_observations("stencil", "-n 8000000", some)
        assert len(writer.size_models("stencil")) == 2
        decisions = {u: ask(snapshot(store_path), "-n 30000000", user=u) for u in ("ada", "eve")}
        assert "extrapolated" in decisions["ada"].codes
        assert "n 1e6 to 8e6" in " ".join(r.text for r in decisions["ada"].reasons)
        assert "too-far" in decisions["eve"].codes
        # Jobs that break the law show that there is none beyond what was measured.
        broken = [replace(o, time_s=4 * o.time_s) for o in runs(1.6e7, [BASE] * 3, "own", "eve",
                                                                source="job")]  # fmt: skip
        writer.add_observations("stencil", "-n 16000000", broken)
        decision = ask(snapshot(store_path), "-n 8000000", user="eve")
        assert "family-unfit" in decision.codes and not decision.changed
        assert "extrapolated" in ask(snapshot(store_path), "-n 8000000", user="bob").codes


def test_a_number_of_nodes_that_never_ran_is_decided_from_those_that_did(store_path: Path) -> None:
    some = [c for c in CELLS if c.threads_per_node in (16, 20, 28)]
    with Writer(store_path) as writer:
        writer.save_node_types([BDW], source="test")
        cells = [replace(c, nodes=n) for n in (1, 2, 4) for c in some]
        writer.add_observations("stencil", "mesh", runs(4e6, cells))
        table = [replace(o, configuration=replace(o.configuration, nodes=n), time_s=o.time_s / n,
                         time_lo_s=o.time_lo_s / n, time_hi_s=o.time_hi_s / n)
                 for n in (1, 2, 4) for o in options(4e6)]  # fmt: skip
        writer.save_model(
            "stencil", "mesh", "bdw", scope="all", owner="", name="bspline", options=table,
            energy_quality="measured", n_train=12, stats={},
        )  # fmt: skip
    site = snapshot(store_path)
    measured, never, far = (ask(site, "mesh", sbatch=f"-N{n}") for n in (4, 8, 17))
    assert "extrapolated" not in measured.codes and measured.changed
    assert "extrapolated" in never.codes
    assert "nodes 8 was not measured: extrapolated from nodes 1 to 4" in never.reasons[1].text
    assert never.baseline is not None and never.baseline.nodes == 8
    assert never.baseline_time_s == pytest.approx(12.5, rel=0.2)
    assert "too-far" in far.codes and not far.changed
    assert "baseline-outside-model" in ask(without_sizes(site), "mesh", sbatch="-N8").codes


def test_the_daemon_shows_families_to_those_who_cannot_read_the_store(
    family: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visible, "_TABLES", 1)  # a page each
    with Reader(family) as reader:

        def ask(request: dict[str, object]) -> dict[str, Any]:
            answer = visible.page(reader, request, "eve", all_jobs=False)
            found: dict[str, Any] = json.loads(json.dumps(answer))
            return found

        copied = tmp_path / "seen.db"
        seen.copy(copied, ask, ("applications", "options"), application="stencil")
        with Reader(copied) as copy:
            ours, theirs = (
                sized_views(r, "stencil", {"n": 8e6}, user="eve") for r in (reader, copy)
            )
            assert len(theirs) == 1 and theirs == ours
            assert [w.name for w in copy.workloads("stencil")] == [
                w.name for w in reader.workloads("stencil")
            ]


def test_options_of_a_size_that_was_not_swept(family: Path, advisor: Callable[..., Any]) -> None:
    data = advisor("options", "stencil", "--at", "n=8M", "--db", family, "--json").json()
    assert data["at"] == {"n": 8e6} and data["beyond"] == {"n": 2.0}
    assert 0 < data["shared_error_pct"] < 30
    (base,) = [o for o in data["options"] if o["baseline"]]
    assert base["time_s"] == pytest.approx(time_energy(8e6, BASE)[0], rel=0.1)
    assert {o["confirmed"] or o["measured"] for o in data["options"]} == {False}
    assert any(o["on_front"] for o in data["options"])
    text = advisor("options", "stencil", "--at", "n=8e6", "--db", family).out
    assert "-n {} at n 8e6" in text and "extrapolated from n 1e6 to 4e6 by physics" in text
    for at, why in (
        ("m=4", "m is not a parameter of"),
        ("n=1e9", "too-far"),
        ("nodes=2", "nodes is no"),
    ):
        result = advisor("options", "stencil", "--at", at, "--db", family)
        assert result.code and why in result.err and result.err.count("\n") == 1
