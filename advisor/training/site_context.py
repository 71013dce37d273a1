"""What the store already knows: policy, site, and earlier runs of a workload."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from advisor.core.policy import JobFacts, Policy, PolicySet, scope_of
from advisor.models.scatter import Elsewhere, repeats_elsewhere
from advisor.schedulers.choose import installed
from advisor.store.clusters import inventory_here
from advisor.store.reader import Reader
from advisor.training.result_store import owner_of
from advisor.training.training_job import TrainingJob, TrainingSite, current_user


@dataclass(frozen=True, slots=True)
class SiteContext:
    """The applied policy and the site; defaults where there is no store yet."""

    policy: PolicySet = field(default_factory=PolicySet)
    site: TrainingSite = field(default_factory=TrainingSite)

    def policy_for(self, subject: TrainingJob, *, account: str = "") -> Policy:
        """Return the settings that hold for a subject's job."""
        request = subject.request
        job = JobFacts.of(
            replace(request, user=current_user(), account=request.account or account),
            partition=subject.partition,
            application=subject.application,
            workload=subject.workload,
            node_type=subject.node_type.name,
        )
        return self.policy.for_job(job)[0]


@dataclass(frozen=True, slots=True)
class Earlier:
    """What earlier runs of the baseline took: medians, and how many there were."""

    time_s: float
    energy_j: float | None
    runs: int


def load_known(store: Path) -> SiteContext:
    """Read policy and site from the store. Raises StoreError for one that cannot be read."""
    if not store.exists():
        return SiteContext()
    with Reader(store) as reader:
        inventory = inventory_here(reader, installed().cluster_name)
        return SiteContext(reader.policy(), TrainingSite.from_store(inventory, reader.site()))


def earlier_runs(store: Path, subject: TrainingJob) -> Earlier | None:
    """Return what this user's visible runs at the baseline took, None when there are none."""
    if not store.exists():
        return None
    with Reader(store) as reader:
        measurements = reader.observations(
            subject.application,
            subject.workload,
            subject.node_type.name,
            user=current_user(),
            account=subject.request.account,
        )
    repeats = [
        o.observation for o in measurements if o.observation.configuration == subject.baseline
    ]
    if not repeats:
        return None
    energies = [o.energy_j for o in repeats if o.energy_j is not None]
    return Earlier(
        median(o.time_s for o in repeats), median(energies) if energies else None, len(repeats)
    )


def scatter_before(store: Path, subject: TrainingJob, policy: Policy) -> Elsewhere:
    """Return what repeats of other workloads on the job's node type say, as its model may know."""
    if not store.exists():
        return {}
    account = subject.request.account
    scope = scope_of(policy.training.trust, account)
    place = subject.application, subject.workload, subject.node_type.name
    with Reader(store) as reader:
        owner = owner_of(scope, current_user(), account)
        return repeats_elsewhere(reader, *place, scope, owner)
