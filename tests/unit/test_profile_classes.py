"""Classes of threads: by principal components and k-means, and by who receives from whom."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from advisor.errors import InputError
from advisor_lab.profile.clusters import (
    apply_classes,
    cluster_runs,
    components_of,
    kmeans,
    silhouette,
)
from advisor_lab.profile.generate import predict_classes, profile_json, trends_of
from advisor_lab.profile.groups import (
    align,
    communication_groups,
    group_members,
    spanned,
    topology_of,
)
from advisor_lab.profile.models import ClassRuns, fit_classes
from advisor_lab.profile.placement import class_places
from advisor_lab.profile.runs import ProfiledRun, ProfiledThread
from advisor_lab.profile.setup import built_in_setup
from advisor_lab.profile.topology import grid_sources, recognise
from advisor_lab.profile.trends import exact_trend, group_trend, predicted_groups

METRICS = ("LSys", "F0mem", "F0fp", "ILP0", "MPIinstructions", "MPIrecvBytes")
THREADS = (
    (8778300.0, 0.301603, 0.0499931, 2.12106, 3893.86, 65417900.0),
    (5009380.0, 0.410165, 0.204295, 1.36342, 887.083, 8189700.0),
    (5089450.0, 0.41543, 0.207704, 1.45403, 916.25, 7871460.0),
    (4985030.0, 0.416386, 0.210636, 1.42462, 895.052, 8059080.0),
    (5056830.0, 0.426581, 0.207352, 1.39379, 935.502, 7970250.0),
    (5002990.0, 0.423704, 0.207576, 1.38909, 930.208, 8207430.0),
    (4889660.0, 0.420547, 0.204584, 1.35711, 900.049, 8243930.0),
    (4991820.0, 0.43235, 0.205561, 1.40382, 901.457, 8013790.0),
    (5099340.0, 0.424816, 0.207694, 1.36216, 890.031, 7996710.0),
    (4944930.0, 0.407189, 0.202593, 1.42272, 904.616, 7906310.0),
    (5044080.0, 0.424153, 0.209103, 1.38804, 920.679, 8136520.0),
    (5143250.0, 0.428503, 0.211085, 1.38742, 893.832, 7904870.0),
    (5006530.0, 0.421757, 0.2149, 1.43773, 899.676, 8062390.0),
    (1952980.0, 0.0986446, 0.00978275, 3.0076, 148.386, 984518),
    (1998830.0, 0.0962502, 0.00998044, 3.0272, 153.698, 976442),
    (1982550.0, 0.0958815, 0.0102636, 2.98729, 150.641, 969210),
)
"""One master, twelve workers, three of another kind; drawn once with 2 % noise."""


def run_of(rows: tuple[tuple[float, ...], ...], scale: float = 1.0, name: str = "f") -> ProfiledRun:
    threads = {}
    for i, row in enumerate(rows):
        values = dict(zip(METRICS, row, strict=True))
        threads[i, 0] = ProfiledThread({**values, "LSys": values["LSys"] * scale})
    return ProfiledRun("a", {"NPC": len(rows), "N": scale}, threads, name, name, len(rows))


def talking(sources: Mapping[int, frozenset[int]], name: str = "f", **scale: float) -> ProfiledRun:
    threads = {
        (p, 0): ProfiledThread({"MPIcommVector": tuple((r, 8.0, 1.0) for r in sorted(own))})
        for p, own in sources.items()
    }
    total = len(sources)
    return ProfiledRun("a", {"NPC": total, **scale}, threads, name, name, total)


def ranks(run: ProfiledRun) -> list[list[int]]:
    return [[process for process, _ in own] for own in group_members(run)]


def test_components_and_classes_of_one_run() -> None:
    run = run_of(THREADS)
    components = components_of([run])
    wanted = [3.70704, 2.28863, 0.00227669, 0.00117177, 0.000726509, 0.000149799]
    assert components.eigenvalues == pytest.approx(wanted, rel=1e-4)
    assert components.axes.shape[1] == 2  # Kaiser
    found = cluster_runs([run], components)
    assert {k: round(found.silhouettes[k], 4) for k in (2, 3, 4, 5)} == {
        2: 0.8567,
        3: 0.9249,
        4: 0.5479,
        5: 0.513,
    }
    assert [[p for p, _ in own] for own in found.members[0]] == [[0], [*range(1, 13)], [13, 14, 15]]


def test_classes_are_the_same_in_every_run_and_in_the_test_runs() -> None:
    order = (13, 1, 2, 0, 3, 14, 4, 5, 6, 15)
    runs = [run_of(THREADS), run_of(tuple(THREADS[i] for i in order), 8.0, "g")]
    components = components_of(runs)
    clusters = cluster_runs(runs, components)
    assert [p for p, _ in clusters.members[1][0]] == [3]
    assert [p for p, _ in clusters.members[1][2]] == [0, 5, 9]
    (tested,) = apply_classes([run_of(THREADS[::-1], 64.0, "h")], runs, clusters, components)
    assert [p for p, _ in tested[0]] == [15] and [p for p, _ in tested[2]] == [0, 1, 2]
    with pytest.raises(InputError, match=r"few: threads: 2 are fewer than the 3 classes"):
        apply_classes([run_of(THREADS[:2], 1.0, "few")], runs, clusters, components)


def test_equal_threads_are_one_class() -> None:
    run = run_of((THREADS[0],) * 5)
    found = cluster_runs([run], components_of([run]))
    assert len(found.members[0]) == 1 and found.notes


def test_kmeans_and_silhouette_by_hand() -> None:
    points = np.array([[0.0], [1.0], [10.0], [11.0], [12.0], [30.0]])
    assert kmeans(points, 3).tolist() == [0, 0, 1, 1, 1, 2]
    # (0, 1): 1 to its own, 11 or 10 to the next: 10/11, 9/10; (10, 11, 12): a = 1.5, 1, 1.5 and
    # b = 9.5, 10.5, 11.5; alone: 0
    wanted = (10 / 11 + 9 / 10 + 8 / 9.5 + 9.5 / 10.5 + 10 / 11.5 + 0) / 6
    assert silhouette(points, kmeans(points, 3)) == pytest.approx(wanted)


PATTERNS = {
    "chain": ((12,), False, [1, 10, 1]),
    "ring": ((8,), True, [8]),
    "mesh2d": ((5, 6), False, [1, 4, 1, 3, 12, 3, 1, 4, 1]),
    "torus2d": ((4, 4), True, [4, 8, 4]),
    "mesh3d": ((3, 3, 3), False, [1] * 27),
    "torus3d": ((3, 3, 4), True, [3, 6, 3, 3, 6, 3, 3, 6, 3]),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns_and_their_groups(name: str) -> None:
    lengths, wraps, sizes = PATTERNS[name]
    sources = grid_sources(lengths, [wraps] * len(lengths))
    found = recognise(sources)
    assert found is not None and (found.name, found.dimensions) == (name, lengths)
    if name != "torus3d":
        assert [len(own) for own in ranks(talking(sources))] == sizes
    else:
        assert sum(len(own) for own in ranks(talking(sources))) == 36


def test_relative_sources_by_hand() -> None:
    everyone = {p: frozenset(range(1, 6)) for p in range(6)}
    found = recognise(everyone)
    assert found is not None and found.name == "alltoall"
    assert ranks(talking(everyone)) == [[*range(6)]]
    mesh = grid_sources((4, 4), (False, False))
    assert (sorted(mesh[0]), sorted(mesh[5]), sorted(mesh[12])) == (
        [1, 4],
        [1, 4, 12, 15],
        [1, 12],
    )
    torus = grid_sources((4, 4), (True, True))
    assert (sorted(torus[0]), sorted(torus[3])) == ([1, 3, 4, 12], [4, 12, 13, 15])


def test_groups_of_a_mesh_and_what_has_no_order() -> None:
    run = talking(grid_sources((4, 4), (False, False)))
    groups = communication_groups(run, group_members(run))
    interior = groups[4].to_dict()
    assert interior["startRank"] == 5 and groups[4].ranks() == [5, 6, 9, 10]
    assert interior["dimension1"] == {"iterations": 2, "stride": 1}
    assert interior["dimension2"] == {"iterations": 2, "stride": 4}
    assert groups[1].dimensions == ((2, 1),) and groups[3].dimensions == ((2, 4),)
    vector = interior["communicationVector"][0]
    assert vector["relativeSrc"] == 1 and vector["medianSize"] == 8.0 and vector["stdevMsgs"] == 0
    assert spanned([0, 1, 5]) is None
    odd = {p: frozenset({1} if p in (0, 1, 3) else {2}) for p in range(6)}
    with pytest.raises(InputError, match=r"f: mpiCommunicationVector: .* no regular order"):
        group_members(talking(odd))
    with pytest.raises(InputError, match=r"no thread receives"):
        group_members(talking({0: frozenset(), 1: frozenset()}))


def test_votes_of_neighbours_align_and_a_run_with_fewer_groups_is_named() -> None:
    meshes = [
        talking(grid_sources((n, n), (False, False)), f"m{n}{s}", SIZE=s)
        for n in (3, 4, 5)
        for s in (1, 2)
    ]
    aligned = align(meshes)
    assert [own[0][0] for own in aligned.members[4]] == [0, 1, 4, 5, 6, 9, 20, 21, 24]
    assert aligned.votes and all(vote == (*range(1, 10),) for *_, vote in aligned.votes)
    with pytest.raises(InputError, match=r"m2: threads: 2 communication groups, fewer than the 9"):
        align([*meshes, talking(grid_sources((2, 2), (False, False)), "m2", SIZE=1)])


def test_groups_follow_exact_trends_to_scales_that_never_ran() -> None:
    meshes = [talking(grid_sources((n, n), (False, False)), f"m{n}") for n in (4, 5, 6)]
    aligned = align(meshes)
    values = {"NPC": np.array([16.0, 25.0, 36.0])}
    trends = []
    for i in range(9):
        groups = [
            communication_groups(r, (m[i],))[0]
            for r, m in zip(meshes, aligned.members, strict=True)
        ]
        trends.append(group_trend(values, groups, [16, 25, 36]))
    found = predicted_groups(trends, {"NPC": 100.0})
    assert found is not None
    interior = found[4]
    assert (interior.start_rank, interior.dimensions) == (11, ((8, 1), (8, 10)))
    assert len(interior.ranks()) == 64
    assert sorted(v["relativeSrc"] for v in interior.vector) == [1, 10, 90, 99]
    assert predicted_groups(trends, {"NPC": 50.0}) is None  # no square
    noisy = exact_trend({"NPC": np.array([1.0, 2, 3, 4, 5])}, np.array([1.0, 4, 9.1, 16, 25]))
    assert noisy is None


def hybrid(processes: int, name: str) -> ProfiledRun:
    """A ring of processes of four threads, the first of which does more and communicates."""
    threads = {}
    for p in range(processes):
        near = tuple((step, 8.0, 1.0) for step in sorted({1, processes - 1}))
        for t in range(4):
            values = {"LSys": (1000.0 if t == 0 else 400.0) / processes}
            threads[p, t] = ProfiledThread(values | {"MPIcommVector": () if t else near})
    return ProfiledRun("a", {"P": processes}, threads, name, name, processes)


@pytest.mark.parametrize("by_communication", [True, False])
def test_threads_of_a_process_are_written_back_into_it(by_communication: bool) -> None:
    runs = [hybrid(n, str(n)) for n in (4, 8, 16, 32)]
    members = align(runs).members
    classes = [
        ClassRuns(name, tuple((r, m[i]) for r, m in zip(runs, members, strict=True)))
        for i, name in enumerate("AB")
    ]
    models, threads, _ = fit_classes(classes, built_in_setup(("P",)), "strict")
    trends = trends_of(classes, by_communication=by_communication)
    places, notes = class_places(classes)
    predicted, more = predict_classes(models, threads, trends, places, {"P": 64.0})
    assert not notes and not more
    profile = profile_json("a", {"P": 64.0}, predicted, per_process=True)
    assert profile["processes"] == 64 and len(profile["threads"]) == 256
    ids = [(t["processId"], t["threadId"], t["class"]) for t in profile["threads"]]
    assert ids == [(p, t, "B" if t else "A") for p in range(64) for t in range(4)]
    sources = [t["mpiCommunicationVector"] for t in profile["threads"][:2] if by_communication]
    assert [len(s) for s in sources] == ([2, 0] if by_communication else [])
    short = profile_json("a", {"P": 64.0}, predicted, per_process=False)
    assert [(t["class"], t["NThreads"]) for t in short["threads"]] == [("A", 64), ("B", 192)]


def test_a_master_and_its_workers_are_two_classes_at_every_scale() -> None:
    runs = []
    for n in (3, 4, 8, 16):
        workers = {p: frozenset({n - p}) for p in range(1, n)}
        runs.append(talking({0: frozenset(range(1, n)), **workers}, str(n)))
    assert [ranks(run) for run in runs] == [[[0], [*range(1, n)]] for n in (3, 4, 8, 16)]
    assert [len(own) for own in align(runs).members] == [2] * 4
    assert topology_of(runs[-1]) == "master/worker"
