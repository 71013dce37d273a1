"""Start a sweep from what a class model says: its first runs go where that expects the most.

A part of the design is moved to the points of greatest expected improvement under the policy
(:mod:`advisor.core.recommend`), each the nearest one, so that the rest still spans the grid. What
the runs say decides from then on: the class model takes no part in the fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.core.configuration import Configuration, SearchSpace
from advisor.core.option import Option
from advisor.core.policy import Policy
from advisor.core.reasons import like_text
from advisor.core.recommend import recommend
from advisor.core.words import describe
from advisor.models.design import moved
from advisor.store.reader import Reader
from advisor.store.records import StoredModel
from advisor.training.training_job import TrainingJob, current_user

MOVED = 1 / 3
"""So much of a design goes where the class model expects the most."""
STARTED = ("adaptive", "uniform")
"""The designs of which a part is moved. A sequential one finds the best points by itself, better so
from an even start; the others are for comparison."""
_SCOPES = ("own", "account", "all")


@dataclass(frozen=True, slots=True)
class ClassStart:
    """What a class model says of a job that is to be swept.

    ``options`` are its, ``own`` the one of the job as written, ``like`` whom it is like, in words.
    """

    options: Sequence[Option]
    own: Option
    like: str

    def moved(
        self, design: Sequence[Configuration], space: SearchSpace, policy: Policy
    ) -> tuple[list[Configuration], tuple[Configuration, ...]]:
        """Return the design with a part of it moved, and where to."""
        grid = set(space)
        options = [o for o in self.options if o.configuration in grid]
        moved_to: list[Configuration] = []
        while len(moved_to) < round(MOVED * len(design)):
            best = recommend(options, self.own, policy, skip=moved_to)
            if best is None:
                break
            moved_to.append(best.configuration)
        return moved(design, space, moved_to, self.own.configuration), tuple(moved_to)

    def note(self, places: Sequence[Configuration]) -> str:
        """Say where a class model has the first runs go."""
        if not places:
            return f"by {self.like}, no point is expected to do better: the runs are spread evenly"
        first = describe(places[0])
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        verb = "are" if more else "is"
        return f"{first}{more} {verb} among the first runs: best by {self.like}"


def class_start(store: Path, job: TrainingJob) -> ClassStart | None:
    """Return what the class model that this user's jobs see says, None without any for this job."""
    model = _model(store, job) if store.exists() else None
    if model is None:
        return None
    options = model.written_options()
    baseline = next((o for o in options if o.configuration == job.baseline), None)
    return (
        None if baseline is None else ClassStart(options, baseline, like_text(model.cold_start)[0])
    )


def _model(store: Path, job: TrainingJob) -> StoredModel | None:
    owners = {"own": current_user(), "account": job.request.account, "all": ""}
    with Reader(store) as reader:
        models = reader.find_models(job.application, job.workload, job.node_type.name)
    fitted = (m for m in models if m.by_class and m.state == "fitted")
    usable = [m for m in fitted if m.owner == owners[m.scope]]
    return min(usable, key=lambda m: _SCOPES.index(m.scope), default=None)
