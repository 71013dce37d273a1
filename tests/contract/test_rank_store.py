"""``advisor lab rank`` keeps what it found, and ``advisor store promote`` shares it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.core.observation import Observation
from advisor.core.option import Option
from advisor.store.rankings import rankings, save_characterisation
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from advisor.views.ranking_picture import measured_times
from tests.pictures import kept

Advisor = Callable[..., Any]
STREAM = {"size_kb": 1000, "stride_b": 8, "dtype_b": 8, "access": "P"}
FOUND = {
    "application": "app",
    "workload": "w",
    "node_type": "here",
    "phases": [
        {"name": "solve", "weight": 0.6, "time_s": 6.0, "iterations": 6e6, "streams": [STREAM]},
        {
            "name": "copy",
            "weight": 0.4,
            "time_s": 4.0,
            "time_per_iter_us": 2.0,
            "streams": [{**STREAM, "size_kb": 5200}],
        },
    ],
}


def profile(node: str, us: float, size: float, **more: float) -> dict[str, object]:
    return {
        "microbenchmark": "mbw1p",
        "node_type": node,
        "time_per_iter_us": us,
        "streams": [{**STREAM, "size_kb": size}],
        **more,
    }


@pytest.fixture
def site(store_path: Path, tmp_path: Path) -> Path:
    """A characterisation by ann, stated power of two node types, and profiles of four."""
    with Writer(store_path) as store:
        store.save_node_types(
            [
                NodeType("here", cores=20, base_power_w=100, core_power_w=5),
                NodeType("fast", cores=60, base_power_w=100, core_power_w=5),
                NodeType("mute", cores=20),
            ],
            source="test",
        )
        save_characterisation(store, "app", "w", "here", FOUND, contributor="ann", scope="own")
    file = tmp_path / "profiles.yaml"
    file.write_text(
        yaml.safe_dump(
            [
                profile("here", 1.0, 1000, energy_per_iter_nj=100.0),
                profile("here", 2.0, 5000, energy_per_iter_nj=300.0),
                profile("fast", 0.5, 1000),
                profile("fast", 1.0, 5000),
                profile("mute", 2.0, 1000),
                profile("mute", 4.0, 5000),
                profile("metered", 1.0, 1000, energy_per_iter_nj=50.0),
                profile("metered", 2.0, 5000, energy_per_iter_nj=150.0),
            ]
        )
    )
    return file


def test_estimated_and_measured_times_are_drawn(
    advisor: Advisor, store_path: Path, site: Path, tmp_path: Path
) -> None:
    """Runs on the full node at the highest frequency count; others are not what is estimated."""
    with Writer(store_path) as store:
        runs = [
            Observation(Configuration("fast", 1, 1, threads, khz), time_s, contributor="ann")
            for threads, khz, time_s in ((60, 2_000_000, 5.6), (60, 1_200_000, 9.0), (30, 0, 7.0))
        ]
        store.add_observations("app", "w", runs)
    argv = ("rank", "app", "--profiles", site, "--no-store")
    told = advisor(*argv, "--plot", tmp_path / "p.svg")
    assert told.code == 0, told.err
    assert "● estimated   ○ measured" in told.out
    svg = (tmp_path / "p.svg").read_text()
    assert all(text in svg for text in ("time (s)", "fast", "metered", "measured"))
    kept(tmp_path / "p.svg", "rank")
    with Reader(store_path) as reader:
        times = measured_times(reader, "app", "w")
    assert list(times) == ["fast"] and times["fast"][0] == pytest.approx(5.6)
    assert 5.4 < times["fast"][1] < 5.6 < times["fast"][2] < 5.8


def test_a_ranking_is_stored_with_time_energy_and_similarity(
    advisor: Advisor, store_path: Path, site: Path
) -> None:
    told = advisor("rank", "app", "--profiles", site)
    assert told.code == 0 and "stored, for jobs of ann" in told.out
    with Reader(store_path) as store:
        found = {r.estimate.node_type: r for r in rankings(store, "app", "w")}
        assert rankings(store, "app", user="bob") == [] and rankings(store, "app", base="x") == []
        assert len(rankings(store, "app", user="ann")) == 4
    assert list(found) == ["fast", "here", "metered", "mute"]
    first = found["fast"]
    assert (first.base, first.contributor, first.scope, first.method) == (
        "here",
        "ann",
        "own",
        "blend",
    )
    fast = first.estimate
    assert fast.time_ratio == pytest.approx(0.5) and fast.time_s == pytest.approx(5.0)
    # a copy of another size: 15 of 25 points there, for 4 of 10 seconds
    assert fast.similarity == pytest.approx(125 - 4.0) and fast.similarity_max == 125
    assert fast.energy_source == "node power"
    assert fast.energy_ratio == pytest.approx(0.5 * 400 / 200)
    assert fast.energy_error_pct == pytest.approx(15.0)
    metered = found["metered"].estimate
    assert metered.energy_source == "profiles" and metered.energy_ratio == pytest.approx(0.5)
    mute = found["mute"].estimate
    assert (mute.energy_source, mute.energy_ratio, mute.energy_error_pct) == (None, None, None)


def test_what_follows_from_a_ranking_is_said(
    advisor: Advisor, store_path: Path, site: Path
) -> None:
    alone = advisor("rank", "app", "--profiles", site).out
    assert "no options follow from it: app has no model on here" in alone
    options = []
    for threads in (5, 10, 15, 20):
        t, c = 100.0 / threads, Configuration("here", 1, 1, threads, 0)
        e = t * (100 + 5 * threads)
        options.append(Option(c, t, t, t, e, e, e, True, True, True, True))
    with Writer(store_path) as store:
        store.save_model(
            "app",
            "w",
            "here",
            scope="all",
            owner="",
            name="bspline",
            energy_quality="measured",
            n_train=4,
            stats={},
            options=options,
        )
    said = advisor("rank", "app", "--profiles", site).out
    assert "fast: jobs may go there, by this estimate" in said
    assert "mute: no job goes there: its energy on mute is not known" in said
    assert "metered: no job goes there: metered is not in the inventory" in said
    shown = advisor("options", "app", "--user", "ann").out
    assert "similarity 121/125: nothing ran on fast; on one full node 0.50 x the time" in shown
    assert "estimate" in shown and advisor("options", "app", "--user", "bob").out.count("ran") < 3
    listed = advisor("options", "app", "--user", "ann", "--json").json()
    assert [(m["node_type"], m["model"]) for m in listed["models"]] == [
        ("fast", "transfer"),
        ("here", "bspline"),
    ]
    assert all(o["estimated"] for o in listed["options"] if o["node_type"] == "fast")
    checked = advisor("doctor").out
    assert "1 estimated from microbenchmarks" in checked
    assert "app (w) on mute is ranked by ann, but no job goes there" in checked


def test_a_new_ranking_takes_the_place_of_the_old(
    advisor: Advisor, store_path: Path, site: Path
) -> None:
    data = advisor("rank", "app", "--profiles", site, "--json").json()
    assert data["stored"] is True
    site.write_text(
        yaml.safe_dump(
            [
                profile("here", 1.0, 1000),
                profile("here", 2.0, 5000),
                profile("fast", 0.25, 1000),
                profile("fast", 0.5, 5000),
            ]
        )
    )
    advisor("rank", "app", "--profiles", site)
    with Reader(store_path) as store:
        found = {r.estimate.node_type: r.estimate.time_ratio for r in rankings(store, "app")}
    assert found == pytest.approx({"fast": 0.25, "here": 1.0})


def test_what_is_not_stored(advisor: Advisor, store_path: Path, site: Path) -> None:
    assert "stored" not in advisor("rank", "app", "--profiles", site, "--no-store").out
    phases = site.with_name("phases.yaml")
    phases.write_text(yaml.safe_dump(FOUND))
    advisor("rank", "--phase", phases, "--profiles", site)
    with Reader(store_path) as store:
        assert rankings(store, "app") == []
    if os.getuid() == 0:
        return
    store_path.chmod(0o444)
    told = advisor("rank", "app", "--profiles", site)
    assert told.code == 0 and "may not be written" in told.out


def test_promote_shares_a_ranking(advisor: Advisor, store_path: Path, site: Path) -> None:
    advisor("rank", "app", "--profiles", site)
    assert advisor("promote", "app", "--scope", "account").code == 3
    told = advisor("promote", "app", "--scope", "all", "--contributor", "ann")
    assert told.code == 0 and "now advise everybody's jobs" in told.out
    with Reader(store_path) as store:
        assert {r.scope for r in rankings(store, "app", user="bob")} == {"all"}
    assert advisor("promote", "app", "--scope", "all").code == 3
    unknown = advisor("promote", "app", "--scope", "all", "--contributor", "bob")
    assert unknown.code == 2 and "bob measured nothing" in unknown.err
