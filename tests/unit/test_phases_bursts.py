"""Bursts clustered by their counters, and clusterings that become stable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.errors import InputError
from advisor.phases.tracking import ClusterStability, TrackedCluster, matched_share, overlap
from advisor_lab.phases.bursts import BurstTable, classify, cluster, dbscan, numbered
from advisor_lab.phases.files import read_bursts


@pytest.mark.parametrize(
    ("points", "least", "clusters"),
    [
        ([0, 1, 2, 10, 11, 12, 30], 2, [[0, 1, 2], [10, 11, 12]]),
        ([0, 1, 2, 10, 11, 12, 30], 3, [[0, 1, 2], [10, 11, 12]]),
        ([0, 1, 2, 10, 11, 12, 30], 4, []),
        ([0, 1, 2, 3, 4], 3, [[0, 1, 2, 3, 4]]),
        ([0, 0.9, 1.8, 2.8, 3.9], 3, [[0, 0.9, 1.8, 2.8]]),
    ],
)
def test_dbscan(points: list[float], least: int, clusters: list[list[float]]) -> None:
    labels = dbscan(np.array(points, float)[:, None], 1.0, least)
    assert [
        [p for p, label in zip(points, labels, strict=True) if label == n]
        for n in range(labels.max() + 1)
    ] == clusters


def test_the_rest_goes_to_the_nearest_clustered_point() -> None:
    known = np.array([[0.0], [1], [2], [10], [11], [12]])
    rest = np.array([[2.9], [4.0], [4.1], [8.0], [8.6], [13.9], [14.1], [6.0]])
    labels = classify(known, np.array([1, 1, 1, 2, 2, 2]), rest, 2.0)
    assert labels.tolist() == [1, 1, 0, 2, 2, 2, 0, 0]
    assert numbered(np.array([0, 1, -1, 1]), np.array([1.0, 2, 9, 2])).tolist() == [2, 1, 0, 1]


@pytest.mark.parametrize("subset", [1.0, 0.15])
def test_clusters_are_found_without_parameters(subset: float) -> None:
    rng = np.random.default_rng(4)
    truth = np.repeat([1, 2, 3], [500, 300, 200])
    centre = np.array([[0, 0], [8.0, 1.0], [7.0, 1.6], [7.2, 0.5]])[truth]
    axes = centre + rng.normal(0, 0.03, centre.shape)
    bursts = BurstTable(np.arange(1000) % 16, 10 ** axes[:, 0] / 1e9, axes)
    labels = cluster(bursts, subset=subset, seed=1).labels
    by_time = np.argsort(-np.bincount(truth, bursts.duration_s)[1:]).argsort() + 1
    assert (labels == by_time[truth - 1]).mean() > 0.99


def test_boxes_overlap_and_clusterings_become_stable() -> None:
    a = {"instructions": (100.0, 110.0), "ipc": (1.0, 1.1)}
    assert overlap(a, {"instructions": (116, 120), "ipc": (1.0, 1.1)})  # 115.5 >= 110.2
    assert not overlap(a, {"instructions": (122, 130), "ipc": (1.0, 1.1)})  # 115.5 < 115.9
    assert not overlap(a, {"instructions": (100, 110), "ipc": (1.3, 1.4)})  # 1.155 < 1.235
    other = {"instructions": (900.0, 910.0), "ipc": (1.0, 1.1)}
    both = [TrackedCluster(a, 9.0), TrackedCluster(other, 1.0)]
    assert matched_share(both, [TrackedCluster(a, 5.0)]) == 0.9
    for shares, at, required in (
        ([0.90, 0.86, 0.85], 3, 85),
        ([0.90, 0.84, 0.90, 0.90], 5, 80),
        ([0.60] * 6, None, 70),
    ):
        stability = ClusterStability()
        for share in shares:
            stability.matched(share)
        assert (stability.stable_at, stability.required) == (at, required)


def test_bursts_cluster_by_counters_of_ones_choice(
    tmp_path: Path, advisor: Callable[..., Any]
) -> None:
    """All have the same instructions and IPC; half of them moves a hundred times the bytes."""
    rows = [
        f"{i % 4},0.001,1000,2000,{10 ** (4 + 2 * (i % 2)) + i},{i % 2 * 500}" for i in range(80)
    ]
    path = tmp_path / "bursts.csv"
    path.write_text("\n".join(["process,duration_s,instructions,cycles,bytes,stalled", *rows, ""]))
    done = advisor(
        "phases", "cluster", path, "--by", "bytes,ipc", "--counters", "stalled", "--json"
    )
    assert done.code == 0, done.err
    one, other = done.json()["clusters"]
    assert {one["bursts"], other["bursts"]} == {40}
    rates = sorted(c["counters"]["bytes"]["per_s"] for c in (one, other))
    assert rates == pytest.approx([1e7, 1e9], rel=0.01)
    stalled = sorted(c["counters"]["stalled"]["per_instruction"] for c in (one, other))
    assert stalled == pytest.approx([0, 0.5], rel=0.01)
    text = advisor("phases", "cluster", path).out
    assert "GB/s" in text and "stalled" not in text
    assert "no column loads" in advisor("phases", "cluster", path, "--by", "loads").err
    assert "process is not a counter" in advisor("phases", "cluster", path, "--by", "process").err


def test_a_column_that_is_not_there_is_answered_with_those_that_are(tmp_path: Path) -> None:
    path = tmp_path / "b.csv"
    path.write_text("process,duration_s,instructions,cycles,misses\n0,1,100,200,3\n")
    with pytest.raises(InputError, match="there is no column foo") as error:
        read_bursts(path, axis_names=("ipc", "foo"))
    assert "it has duration_s, instructions, cycles, misses; ipc" in str(error.value.hint)
