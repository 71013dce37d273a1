"""When the model of a family is made, made again and taken away, and whose jobs it reaches."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.derive import size_models
from advisor.derive.worker import derive
from advisor.errors import InputError, RefusedError
from advisor.store.forgetting import forget
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from advisor.training.result_store import LocalResults
from advisor.views.sized_options import sized_views
from tests.unit.sizes.stencil import (
    BASE,
    BDW,
    CELLS,
    ask,
    fit,
    options,
    runs,
    say_counts,
    snapshot,
    sweep,
)


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


def test_two_sizes_say_what_is_measured_and_default_is_not_used(
    store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Writer(store_path) as writer:
        writer.save_node_types([BDW], source="test")
        for n in (1e6, 2e6):
            fit(writer, n)
        writer.save_model(
            "stencil",
            "default",
            "bdw",
            scope="all",
            owner="",
            name="bspline",
            energy_quality="measured",
            n_train=12,
            stats={},
            options=options(4e6),
        )
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
        assert derive(writer)
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


@pytest.mark.slow
def test_finished_jobs_widen_the_range_of_their_owner(family: Path, store_path: Path) -> None:
    with Writer(family) as writer:
        writer.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(family, store_path)
    with Writer(store_path) as writer:
        assert "too-far" in ask(snapshot(store_path), "-n 30000000", user="ada").codes
        first, *jobs = runs(8e6, [BASE] * 4, "own", "ada", source="job")
        for some in ([first], jobs, [first]):  # one shows nothing, and a fifth nothing more
            writer.add_observations("stencil", "-n 8000000", some)
            assert derive(writer)
        assert len(writer.size_models("stencil")) == 2
        decisions = {u: ask(snapshot(store_path), "-n 30000000", user=u) for u in ("ada", "eve")}
        assert "extrapolated" in decisions["ada"].codes
        assert "n 1e6 to 8e6" in " ".join(r.text for r in decisions["ada"].reasons)
        assert "too-far" in decisions["eve"].codes
        # Jobs that break the law show that there is none beyond what was measured.
        broken = [
            replace(o, time_s=4 * o.time_s)
            for o in runs(1.6e7, [BASE] * 3, "own", "eve", source="job")
        ]
        writer.add_observations("stencil", "-n 16000000", broken)
        assert derive(writer)
        decision = ask(snapshot(store_path), "-n 8000000", user="eve")
        assert "family-unfit" in decision.codes and not decision.changed
        assert "extrapolated" in ask(snapshot(store_path), "-n 8000000", user="bob").codes
