"""Tables for notebooks: from files, from a store, and the example in ``examples``."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.errors import InputError
from advisor.models.fit import fit_options
from advisor.store.writer import Writer
from advisor_lab import frame, smoothed
from advisor_lab.frames import KINDS

ROOT = Path(__file__).resolve().parents[2]
GRID = ROOT / "examples" / "grids" / "opteron48.csv"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with twelve runs of one program, and the model of them."""
    path = tmp_path_factory.mktemp("frames") / "advisor.db"
    runs = [
        Observation(Configuration("t", 1, 1, c, f), 40 / c + 2, 2000.0 + 9 * c, contributor="ann")
        for c in (2, 4, 8, 16)
        for f in (1_200_000, 1_800_000, 2_400_000)
    ]
    with Writer(path) as writer:
        writer.add_observations("app", "w", runs)
        fitted = fit_options(runs)
        writer.save_model(
            "app",
            "w",
            "t",
            scope="own",
            owner="ann",
            name=fitted.model,
            energy_quality=fitted.energy_quality,
            n_train=fitted.n_train,
            stats=fitted.stats,
            options=fitted.options,
        )
    return path


def test_files_are_merged_computed_and_narrowed(tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text(
        "nodes,ranks_per_node,threads_per_node,freq_khz,time_s,energy_j,fom\n1,2,4,0,10,500,25\n"
    )
    table = frame("runs", GRID, other, compute={"edp": "energy_j * time_s"}, where="edp < 5001")
    assert table["file"].tolist() == ["other"]
    row = table.iloc[0]
    assert (row["power_w"], row["edp"], row["rate_per_joule"]) == (50, 5000, 0.5)
    assert set(frame("runs", GRID, other)["file"]) == {"opteron48", "other"}


def test_a_store_gives_runs_and_options(store: Path) -> None:
    runs = frame("runs", db=store, application="app", where="threads_per_node >= 8")
    assert len(runs) == 6
    assert set(runs["user"]) == {"ann"}
    options = frame("options", db=store, where="on_front")
    assert len(options) and options["time_lo_s"].lt(options["time_s"]).all()
    assert frame("runs", db=store, user="bob").empty
    for kind in ("decisions", "outcomes"):
        assert frame(kind, db=store, since="30d").empty


def test_a_table_without_rows_has_its_columns(store: Path) -> None:
    """A notebook goes on where nothing happened yet, as the example of docs/models.md does."""
    assert frame("outcomes", db=store).groupby("verdict")["energy_kwh"].sum().empty
    assert frame("decisions", db=store, where="user == 'ann'").empty
    for kind in KINDS:
        nobodys = frame(kind, db=store, application="nosuch")
        assert {"application", "workload", "node_type"} <= set(nobodys.columns)
    runs = frame("runs", db=store)
    assert list(frame("runs", db=store, user="bob").columns) == list(runs.columns)


def test_a_number_that_is_not_known_is_not_a_number(tmp_path: Path) -> None:
    grid = tmp_path / "timed.csv"
    grid.write_text("nodes,ranks_per_node,threads_per_node,freq_khz,time_s,energy_j\n1,1,2,0,10,\n")
    summary = tmp_path / "summary.yml"
    place = "parameters: {nodes: 1, threadCount: 2, execParam: "
    summary.write_text(
        f"- {{objectives: {{totalTime: 4, totalEnergy: 8}}, {place}1}}}}\n"
        f"- {{objectives: {{totalTime: 5, estimatedEnergy: 9}}, {place}2}}}}\n"
    )
    table = frame("runs", grid, summary, compute={"edp": "energy_j * time_s"})
    assert table["file"].tolist() == ["timed", "summary", "summary"]
    assert table["edp"].isna().tolist() == [True, False, True]
    assert table["execParam"].dropna().tolist() == [1, 2]
    assert table["energy_quality"].tolist() == ["missing", "measured", "missing"]


def test_a_column_is_smoothed_along_each_curve() -> None:
    """Of degree 2 over 5 rows the middle weighs 17, its neighbours 12 and -3, of 35 (1964)."""
    table = frame("runs", GRID, where="application in ['SP', 'EP']")
    smooth = smoothed(table, "time_s", by=["application"])
    times = table.loc[table["application"] == "EP", "time_s"]
    middle = times.iloc[10:15].to_numpy() @ [-3, 12, 17, 12, -3] / 35
    assert smooth[times.index[12]] == pytest.approx(middle)
    assert smoothed(table[:4], "time_s").tolist() == table["time_s"][:4].tolist()
    with pytest.raises(InputError, match="no column 'nosuch'"):
        smoothed(table, "nosuch")
    with pytest.raises(InputError, match="window 4, degree 2"):
        smoothed(table, "time_s", window=4)


def test_mistakes_name_what_is_known() -> None:
    with pytest.raises(InputError, match="'nosuch' is not defined") as failed:
        frame("runs", GRID, where="nosuch > 1")
    assert "threads_per_node" in (failed.value.hint or "")
    with pytest.raises(InputError, match="no table is called 'models'"):
        frame("models")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="files hold runs"):
        frame("options", GRID)
    with pytest.raises(InputError, match="not a supported function"):
        frame("runs", GRID, where="__import__('os').getpid() > 0")


def test_the_example_runs() -> None:
    cells = runpy.run_path(str(ROOT / "examples" / "notebook.py"))
    assert cells["best"].loc["SP", "cores"] < 48
    assert cells["change"].shape == (7, 2)
