"""No job is worse off for having been advised: each request without and with the advisor.

`python -m differential` from this folder prints the counts, `make soak` draws for an hour.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from differential.__main__ import SEED, show
from differential.cluster import cluster
from differential.compare import Verdict, compare
from differential.draw import draw
from differential.pairs import SACCT, SEPARATOR, Trial, accounting
from differential.shapes import Shape, fixed, scripts
from testbed import CommandResult, requirements
from testbed.client import Client

ADVISED = 40
DRAWN = 60
"""Here, for the time it takes; `make differential` draws 500."""


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    """A site of its own, with limits, partitions and states that other tests do not want."""
    if reason := requirements():
        pytest.skip(reason)
    with cluster() as made:
        yield Trial(made)


def tried(trial: Trial, shapes: Sequence[Shape]) -> list[Verdict]:
    verdicts = [compare(pair) for pair in trial.run(shapes)]
    differing = [show(verdict) for verdict in verdicts if verdict.differences]
    assert not differing, f"{len(differing)} of {len(shapes)} shapes differ\n" + "\n".join(
        differing
    )
    return verdicts


class Lagging(Client):
    """A cluster whose accounting has a job's end, and a moment later that of its batch step."""

    def __init__(self) -> None:
        super().__init__(Path("/"), ())
        self.states = ["RUNNING", "RUNNING", "COMPLETED"]

    def run(self, *command: object, **other: object) -> CommandResult:
        fields = dict.fromkeys(SACCT.split(","), "")
        job = {**fields, "JobIDRaw": "7", "State": "COMPLETED"}
        step = {**fields, "JobIDRaw": "7.batch", "State": self.states.pop(0)}
        return CommandResult(0, "\n".join(SEPARATOR.join(row.values()) for row in (job, step)), "")


def test_the_end_of_a_job_s_steps_is_waited_for() -> None:
    cluster = Lagging()
    rows = accounting(cluster, [{"JobId": "7", "JobState": "COMPLETED"}])
    assert [row["State"] for row in rows] == ["COMPLETED"] * 2


def test_fixed_shapes_end_as_without_the_advisor(trial: Trial) -> None:
    shapes = fixed()
    assert len({shape.name for shape in shapes}) == len(shapes) == 311
    verdicts = tried(trial, shapes)
    advised = sum(verdict.advised for verdict in verdicts)
    assert advised >= ADVISED, "nothing is safe by doing nothing"


def test_shapes_without_srun_end_as_they_would_on_nodes_that_cap_whole_jobs() -> None:
    if reason := requirements():
        pytest.skip(reason)
    shapes = [shape for shape in fixed() if "mpirun" in shape.script.name]
    with cluster(node_cap=True) as made:
        verdicts = tried(Trial(made), shapes)
    assert any("frequency cap" in verdict.changes for verdict in verdicts)


def test_drawn_shapes_end_as_without_the_advisor(trial: Trial) -> None:
    tried(trial, draw(SEED, DRAWN))


def test_scripts_that_wait_for_nodes_come_to_their_end(trial: Trial) -> None:
    """Both sides of this one held all nodes of a type, waited for each other and never ended."""
    waits = scripts()["nested-salloc"]
    options = ("-N2", "--exclusive", "-p", "maxmemory")
    (pair,) = trial.run([Shape("all nodes of a type", waits, options)])
    for side in (pair.off, pair.on):
        assert {record["JobState"] for record in side.ended} == {"COMPLETED"}, side


def test_the_trial_itself_makes_no_difference(trial: Trial) -> None:
    tried(Trial(trial.cluster, blank=True), fixed()[::10])
