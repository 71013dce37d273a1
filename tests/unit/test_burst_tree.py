"""Bursts of several nodes, clustered in a tree: as if all were in one place."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.phases.arrays import Ints
from advisor_lab.phases.burst_tree import CondensedBursts, cluster_nodes, joined, up_the_tree
from advisor_lab.phases.bursts import BurstTable, cluster, dbscan

CENTRES = np.array([[8.0, 1.0], [7.0, 1.6], [7.2, 0.5], [5.9, 1.1]])


def drawn(often: tuple[int, ...], seed: int, scatter: float = 0.03) -> tuple[BurstTable, Ints]:
    """Return bursts of 16 processes, so many of each kind, and their kinds from 1."""
    rng = np.random.default_rng(seed)
    kinds = rng.permutation(np.repeat(np.arange(len(often)), often))
    axes = CENTRES[kinds] + rng.normal(0, scatter, (len(kinds), 2))
    process = rng.integers(0, 16, len(kinds))
    return BurstTable(process, 10 ** axes[:, 0] / 1e9, axes), kinds + 1


def numbers_of(kinds: Ints, bursts: BurstTable) -> Ints:
    took = np.bincount(kinds, bursts.duration_s)[1:]
    return (np.argsort(-took).argsort() + 1)[kinds - 1]


@pytest.mark.parametrize("subset", [1.0, 0.15])
@pytest.mark.parametrize("nodes", [2, 5, 16])
def test_nodes_find_what_one_place_finds(nodes: int, subset: float) -> None:
    """A kind that only the first node has, and one with few bursts on each, are clusters too."""
    tables = [drawn((400, 150, 150, 300 if i == 0 else 0), i) for i in range(nodes)]
    bursts, found = joined(
        [t for t, _ in tables], cluster_nodes([t for t, _ in tables], subset=subset, seed=3)
    )
    truth = numbers_of(np.concatenate([k for _, k in tables]), bursts)
    assert (found.labels == truth).mean() > 0.99
    together = cluster(bursts, subset=subset, seed=3)
    assert (found.labels == together.labels).mean() > 0.99


def test_what_is_too_few_on_every_node_is_a_cluster_of_all() -> None:
    """Two bursts a node are none; thirty-two nodes have sixty-four in one place."""
    tables = [drawn((100, 2, 0, 0), i)[0] for i in range(32)]
    assert all(cluster(t).labels.max() == 1 for t in tables)
    assert all(g.labels.max() == 2 for g in cluster_nodes(tables))


def test_what_goes_up_is_bounded_whatever_nodes_have_done() -> None:
    rng = np.random.default_rng(0)
    few, many = (
        CondensedBursts.of(rng.normal(0.5, 0.02, (n, 2)).clip(0, 1), rng) for n in (5000, 200_000)
    )
    both = few.with_other(many, rng)
    assert len(both.cells) < 2000 and len(both.sample) == 4096
    assert both.counts.sum() == 205_000


def test_a_sample_of_two_nodes_has_of_each_as_much_as_it_stands_for() -> None:
    rng = np.random.default_rng(0)
    few = CondensedBursts.of(np.full((10_000, 1), 0.2), rng)
    many = CondensedBursts.of(np.full((90_000, 1), 0.8), rng)
    sample = few.with_other(many, rng).sample
    assert (sample < 0.5).mean() == pytest.approx(0.1, abs=0.02)


def test_points_that_stand_for_several_are_as_many() -> None:
    points = np.array([[0.0], [0.1], [5.0], [5.1]])
    assert dbscan(points, 1.0, 3, np.array([1, 1, 2, 1])).tolist() == [-1, -1, 0, 0]


def test_a_tree_joins_neighbours_level_by_level() -> None:
    joins: list[tuple[str, str]] = []

    def join(a: str, b: str) -> str:
        joins.append((a, b))
        return a + b

    assert up_the_tree(list("abcde"), join) == "abcde"
    assert joins == [("a", "b"), ("c", "d"), ("ab", "cd"), ("abcd", "e")]
    with pytest.raises(ValueError):
        up_the_tree([], join)


def test_several_files_are_nodes(tmp_path: Path, advisor: Callable[..., Any]) -> None:
    paths = [tmp_path / f"node{i}.csv" for i in range(3)]
    for i, path in enumerate(paths):
        bursts, _ = drawn((60, 40), i)
        rows = [
            f"{p},{d:.9f},{round(10**a)},{round(10**a / ipc)}"
            for p, d, (a, ipc) in zip(
                bursts.process, bursts.duration_s, bursts.axes.tolist(), strict=True
            )
        ]
        path.write_text("\n".join(["process,duration_s,instructions,cycles", *rows, ""]))
    done = advisor("phases", "cluster", *paths, "--subset", "50%", "--json")
    assert done.code == 0, done.err
    shown = done.json()
    assert [f["bursts"] for f in shown["files"]] == [100, 100, 100]
    assert [c["bursts"] for c in shown["clusters"]] == [180, 120]
    assert len(shown["labels"]) == 300
    for (first, last), path in zip(pairwise((0, 100, 200, 300)), paths, strict=True):
        alone = advisor("phases", "cluster", path, "--json").json()
        assert alone["labels"] == shown["labels"][first:last]
    paths[1].write_text("process,duration_s,instructions,cycles\n0,1,2,x\n")
    assert (
        "node1.csv, line 2, column cycles: 'x' is not" in advisor("phases", "cluster", *paths).err
    )
