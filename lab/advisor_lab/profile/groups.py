"""Classes by who receives from whom: communication groups (Wu and Mueller 2012; appendix B.3).

Processes with the same relative sources are a class. Classes of different runs are aligned by the
votes of runs at neighbouring scales, each of which compares what the classes receive.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from advisor.errors import InputError
from advisor_lab.profile.runs import ProfiledRun, ThreadId, scale_text
from advisor_lab.profile.topology import recognise

ClassMembers = tuple[tuple[ThreadId, ...], ...]


@dataclass(frozen=True, slots=True)
class CommunicationGroup:
    """Processes in sequences of stride and iterations, and what each receives.

    ``dimensions`` are (iterations, stride), in ascending order of stride.
    """

    start_rank: int
    dimensions: tuple[tuple[int, int], ...]
    vector: tuple[Mapping[str, float], ...]

    def ranks(self) -> list[int]:
        """Return all process ids of the group."""
        ranks = [self.start_rank]
        for iterations, stride in self.dimensions:
            ranks = [rank + i * stride for i in range(iterations) for rank in ranks]
        return sorted(ranks)

    def to_dict(self) -> dict[str, Any]:
        """Return the group with appendix B.3's keys."""
        data: dict[str, Any] = {
            "startRank": self.start_rank,
            "dimensions": len(self.dimensions),
        }
        for i, (iterations, stride) in enumerate(self.dimensions, 1):
            data[f"dimension{i}"] = {"iterations": iterations, "stride": stride}
        return {**data, "communicationVector": [dict(v) for v in self.vector]}


def relative_sources(run: ProfiledRun) -> dict[ThreadId, frozenset[int]]:
    """Return what each thread receives from, relative to its process."""
    sources = {}
    for thread, profile in run.threads.items():
        value = profile.values.get("MPIcommVector", ())
        rows = value if isinstance(value, tuple) else ()
        sources[thread] = frozenset(int(row[0]) for row in rows)
    return sources


def master_of(run: ProfiledRun) -> int | None:
    """Return the process from which alone all others receive, None where there is none.

    Of three processes it is the first one, for the middle of a chain of three looks alike.
    """
    absolute: dict[int, set[int]] = {}
    for (process, _), sources in relative_sources(run).items():
        absolute.setdefault(process, set()).update((process + s) % run.processes for s in sources)
    masters = {source for sources in absolute.values() if len(sources) == 1 for source in sources}
    for master in masters:
        other_sources = [sources for process, sources in absolute.items() if process != master]
        alone = len(other_sources) > 1 and all(sources == {master} for sources in other_sources)
        if alone and (len(other_sources) > 2 or master == min(absolute)):
            return master
    return None


def topology_of(run: ProfiledRun) -> str:
    """Return the name of a run's pattern, "" where it is none we know."""
    if master_of(run) is not None:
        return "master/worker"
    process_sources = {
        process: sources for (process, _), sources in relative_sources(run).items() if sources
    }
    topology = recognise(process_sources)
    return topology.name if topology else ""


def group_members(run: ProfiledRun) -> ClassMembers:
    """Return the threads with the same relative sources together, by their first one.

    Raises InputError where there is nothing to see, or the pattern is no regular one.
    """
    sources = relative_sources(run)
    if not any(sources.values()):
        raise InputError(
            f"{run.file}: mpiCommunicationVector: no thread receives peer-to-peer messages",
            hint="--method profile classifies by the other metrics",
        )
    master = master_of(run)
    classes: dict[tuple[object, bool], list[ThreadId]] = {}
    for thread in sorted(sources):
        kind: object = sources[thread]
        if master is not None and kind:
            kind = thread[0] == master
        classes.setdefault((kind, thread[1] == 0), []).append(thread)
    members = tuple(tuple(threads) for threads in classes.values())
    for threads in members:
        if not spanned(sorted({process for process, _ in threads})):
            first = threads[0][0]
            raise InputError(
                f"{run.file}: mpiCommunicationVector: the processes that receive like process "
                f"{first} are in no regular order",
                hint="--method profile classifies by the other metrics",
            )
    return members


def spanned(ranks: Sequence[int]) -> tuple[int, tuple[tuple[int, int], ...]] | None:
    """Return first rank and (iterations, stride) of each dimension; None without an order."""
    dimensions: list[tuple[int, int]] = []
    starts = list(ranks)
    while len(starts) > 1:
        stride = starts[1] - starts[0]
        length = 1
        while length < len(starts) and starts[length] - starts[length - 1] == stride:
            length += 1
        if len(starts) % length:
            return None
        blocks = [starts[i : i + length] for i in range(0, len(starts), length)]
        if any(block[j] - block[0] != j * stride for block in blocks for j in range(length)):
            return None
        dimensions.append((length, stride))
        starts = [block[0] for block in blocks]
    return ranks[0], tuple(dimensions)


def communication_groups(run: ProfiledRun, members: ClassMembers) -> list[CommunicationGroup]:
    """Return the groups of a run's classes, with statistics of what their processes receive."""
    groups = []
    for threads in members:
        start, dimensions = spanned(sorted({process for process, _ in threads})) or (
            threads[0][0],
            (),
        )
        received: dict[int, list[tuple[float, float]]] = {}
        for thread in threads:
            value = run.threads[thread].values.get("MPIcommVector", ())
            for row in value if isinstance(value, tuple) else ():
                received.setdefault(int(row[0]), []).append((row[1], row[-1]))
        vector = tuple(
            {
                "relativeSrc": source,
                **_statistics("Size", [r[0] for r in rows]),
                **_statistics("Msgs", [r[1] for r in rows]),
            }
            for source, rows in sorted(received.items())
        )
        groups.append(CommunicationGroup(start, dimensions, vector))
    return groups


def _statistics(name: str, values: list[float]) -> dict[str, float]:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return {
        f"min{name}": min(values),
        f"max{name}": max(values),
        f"median{name}": statistics.median(values),
        f"mean{name}": statistics.fmean(values),
        f"stdev{name}": spread,
    }


# -- alignment -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AlignedGroups:
    """The classes of runs in one order, and how neighbours voted (appendix B.3).

    A vote is (voting run, voted run, the class that each of the voted run's was taken as).
    """

    members: tuple[ClassMembers, ...]
    votes: tuple[tuple[int, int, tuple[int, ...]], ...]


def align(
    runs: Sequence[ProfiledRun], settled_count: int = 0, settled: Sequence[ClassMembers] = ()
) -> AlignedGroups:
    """Return the classes of all runs in one order, by majority of the runs next to them.

    The first ``settled_count`` runs keep the classes in ``settled``. Raises InputError where runs
    differ in how many groups they have.
    """
    members = [*settled, *(group_members(run) for run in runs[settled_count:])]
    count = len(members[0])
    for run, run_members in zip(runs, members, strict=True):
        if len(run_members) != count:
            few, many = (run, runs[0]) if len(run_members) < count else (runs[0], run)
            raise InputError(
                f"{few.file}: threads: {min(len(run_members), count)} communication groups, fewer "
                f"than the {max(len(run_members), count)} of {many.file}",
                hint="every class must have a thread in every run: leave out a run too small for "
                "that, or give --method profile",
            )
    shapes = [_shapes(run, run_members) for run, run_members in zip(runs, members, strict=True)]
    near = _neighbours(runs)
    aligned_runs = list(range(settled_count)) or [0]
    votes: list[tuple[int, int, tuple[int, ...]]] = []
    while len(aligned_runs) < len(runs):
        following = [i for i in range(len(runs)) if i not in aligned_runs]
        # The run with most neighbours in order already: it gets most votes.
        run_index = max(
            following, key=lambda i: (len([j for j in near[i] if j in aligned_runs]), -i)
        )
        voters = [j for j in near[run_index] if j in aligned_runs] or [
            _closest(runs, run_index, aligned_runs)
        ]
        ballots = [_vote(shapes[j], shapes[run_index]) for j in voters]
        chosen = Counter(ballots).most_common(1)[0][0]
        for voter, ballot in zip(voters, ballots, strict=True):
            voted_classes = tuple(chosen.index(cluster) + 1 for cluster in ballot)
            votes.append((voter, run_index, voted_classes))
        members[run_index] = tuple(members[run_index][cluster] for cluster in chosen)
        shapes[run_index] = [shapes[run_index][cluster] for cluster in chosen]
        aligned_runs.append(run_index)
    return AlignedGroups(tuple(members), tuple(votes))


_Shape = tuple[frozenset[tuple[int, int]], float]


def _shapes(run: ProfiledRun, members: ClassMembers) -> list[_Shape]:
    """Return what each class receives, without the scale: directions and ranks of distances."""
    sources = relative_sources(run)
    total = run.processes

    def signed(source: int) -> int:
        return source if source <= total // 2 else source - total

    lengths = sorted({abs(signed(s)) for received in sources.values() for s in received})
    shapes = []
    for i, threads in enumerate(members):
        steps = [signed(s) for s in sources[threads[0]]]
        shape = frozenset((1 if s > 0 else -1, lengths.index(abs(s))) for s in steps)
        shapes.append((shape, i / len(members)))
    return shapes


def _vote(voter: Sequence[_Shape], voted: Sequence[_Shape]) -> tuple[int, ...]:
    """Return for each of the voter's classes the voted run's that is most like it."""
    # Of classes with the same shape, those at about the same place in their runs go together.
    cost = np.array(
        [[len(a ^ b) / max(1, len(a | b)) + 0.01 * abs(i - j) for b, j in voted] for a, i in voter]
    )
    rows, columns = linear_sum_assignment(cost)
    return tuple(int(c) for _, c in sorted(zip(rows, columns, strict=True)))


def _neighbours(runs: Sequence[ProfiledRun]) -> list[list[int]]:
    """Return for each run those one step away in one parameter."""
    values: dict[str, list[float]] = {}
    for name in runs[0].scale:
        values[name] = sorted({run.scale[name] for run in runs})

    def step(a: ProfiledRun, b: ProfiledRun) -> int:
        return sum(abs(values[n].index(a.scale[n]) - values[n].index(b.scale[n])) for n in values)

    return [[j for j, b in enumerate(runs) if step(a, b) == 1] for a in runs]


def _closest(runs: Sequence[ProfiledRun], run_index: int, among: Sequence[int]) -> int:
    def away(i: int) -> float:
        pairs = [(runs[run_index].scale[n], runs[i].scale[n]) for n in runs[run_index].scale]
        return sum(abs(math.log(max(a, 1e-9) / max(b, 1e-9))) for a, b in pairs)

    return min(among, key=away)


def votes_json(
    runs: Sequence[ProfiledRun], votes: Sequence[tuple[int, int, tuple[int, ...]]]
) -> list[dict[str, Any]]:
    """Return the votes as ``absoluteEdgeMatching`` has them."""
    return [
        {"from": scale_text(runs[a].scale), "to": scale_text(runs[b].scale), "vote": list(vote)}
        for a, b, vote in votes
    ]
