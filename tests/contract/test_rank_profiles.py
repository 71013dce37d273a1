"""``advisor lab rank`` with the store's profiles: mixing them, and asking for what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.core.inventory import NodeType
from advisor.ranking.suite import member
from advisor.store.profiles import Bench, StoredProfile, save_profiles, wanted
from advisor.store.rankings import rankings, save_characterisation
from advisor.store.reader import Reader
from advisor.store.writer import Writer

Advisor = Callable[..., Any]
STREAM = {"size_kb": 3000, "stride_b": 8, "dtype_b": 8, "access": "P", "steps": 1.0}
APP = {
    "application": "app",
    "workload": "w",
    "node_type": "old",
    "threads": 4,
    "time_s": 10.0,
    "phases": [
        {
            "name": "solve",
            "weight": 0.8,
            "time_s": 8.0,
            "iterations": 4e9,
            "threads": 4,
            "streams": [STREAM],
        }
    ],
}


def profiles(name: str, load: float, compute: float) -> Iterator[StoredProfile]:
    """A node type: nanoseconds of a load and of an addition, the same for any size."""

    def one(family: str, ns: float, threads: int, *zones: tuple[float, int]) -> StoredProfile:
        streams = tuple(s.to_dict() for s in member(family, threads, *zones).streams)
        return StoredProfile(name, family, streams, threads, ns / 1000, 0.01, 5)

    for threads in (4, 1):
        for kb in (256, 16384):
            for family in ("mbw1lc", "mbw1lp", "mbw1p"):
                yield one(family, load, threads, (kb, 8))
        yield one("chain", compute, threads)
        yield one("fma", compute / 10, threads)


@pytest.fixture
def site(store_path: Path) -> Path:
    with Writer(store_path) as store:
        store.save_node_types(
            [NodeType(n, feature=n, cores=4, nodes=(n,)) for n in ("old", "new")], source="slurm"
        )
        for name, load, compute in (("old", 2.0, 1.0), ("new", 1.0, 1.0)):
            bench = Bench(name, {"cores": 4}, name, "6.1", "cc", "root")
            save_profiles(store, bench, list(profiles(name, load, compute)))
        save_characterisation(store, "app", "w", "old", APP, contributor="ann", scope="all")
    return store_path


def test_profiles_are_mixed_and_the_ranking_is_stored(advisor: Advisor, site: Path) -> None:
    data = advisor("rank", "app", "--json").json()
    assert (data["method"], data["base"]) == ("blend", "old")
    new, old = data["ranking"]
    assert (new["node_type"], old["node_type"]) == ("new", "old")
    # the phase is all loads and takes half; the rest is between as long and half as long
    assert new["phases_s"] == pytest.approx(4.0) and old["time_s"] == pytest.approx(10.0)
    assert 4.0 + 1.0 < new["time_s"] < 4.0 + 2.0
    with Reader(site) as store:
        (found,) = [r for r in rankings(store, "app", "w") if r.estimate.node_type == "new"]
    assert found.method == "blend" and found.estimate.time_ratio == pytest.approx(
        new["time_s"] / 10.0
    )


def test_what_is_nearer_to_the_phases_is_queued(advisor: Advisor, site: Path) -> None:
    told = advisor("rank", "app").out
    assert "advisor lab bench --wanted" in told
    with Reader(site) as store:
        waiting = wanted(store)
    assert [(w.microbenchmark, w.streams[0]["size_kb"]) for w in waiting] == [
        ("mbw1p", 3000.0),
        ("mbw1lp", 3000.0),
    ]
    assert waiting[0].wanted_for == "app: solve"
    advisor("rank", "app")
    with Reader(site) as store:
        assert wanted(store) == waiting  # and are not queued twice


def test_what_was_measured_is_not_queued(advisor: Advisor, site: Path) -> None:
    with Writer(site) as store:
        for name, ns in (("old", 2.0), ("new", 1.0)):
            streams = tuple(s.to_dict() for s in member("mbw1p", 4, (3000, 8)).streams)
            bench = Bench(name, {"cores": 4}, name, "6.1", "cc", "root")
            profile = StoredProfile(name, "mbw1p", streams, 4, ns / 1000, 0.01, 5)
            save_profiles(store, bench, [profile])
    told = advisor("rank", "app", "--method", "thesis")
    assert "advisor lab bench --wanted" not in told.out
    data = advisor("rank", "app", "--method", "thesis", "--json").json()
    assert data["phases"][0]["match"]["index"] == 125
    assert data["ranking"][0]["phases_s"] == pytest.approx(4.0)


def test_one_bench_of_several_node_types_does_not_end_the_waiting(
    advisor: Advisor, site: Path
) -> None:
    advisor("rank", "app")
    one = member("mbw1p", 4, (3000, 8))
    streams = tuple(s.to_dict() for s in one.streams)
    with Writer(site) as store:
        for name, left in (("old", 2), ("new", 1)):
            bench = Bench(name, {"cores": 4}, name, "6.1", "cc", "root")
            save_profiles(store, bench, [StoredProfile(name, "mbw1p", streams, 4, 1.0, 0.01, 5)])
            assert len(wanted(store)) == left


def test_without_profiles_it_says_what_to_do(advisor: Advisor, store_path: Path) -> None:
    with Writer(store_path) as store:
        store.save_node_types([NodeType("old", cores=4)], source="site")
        save_characterisation(store, "app", "w", "old", APP, contributor="ann", scope="all")
    done = advisor("rank", "app")
    assert done.code == 3 and "no node type has profiles (advisor lab bench" in done.err
