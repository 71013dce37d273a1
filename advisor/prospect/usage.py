"""What jobs used, summed up job by job in bounded memory, and which of it could be acted on.

A job can be acted on if it had whole nodes, its program is recognised, and it is repeated: the
same user ran it on as many nodes of the partition at least :data:`REPEATED` times.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from advisor.core.inventory import Inventory, NodeType
from advisor.core.launchers import LAUNCHERS, LIGHT
from advisor.core.power import is_possible, stated_power_w
from advisor.core.recognise import ApplicationRule, clean_name, recognise
from advisor.loop.execution import node_type_of
from advisor.schedulers.base import JobRecord, JobUse, StepRecord, StepUse, longest_step

REPEATED = 20
"""Runs of one user's program on as many nodes: a sweep takes about ten of them."""
MOST_GROUPS = 500_000
"""Groups that are told apart, a few hundred bytes each; jobs of further ones are summed up as one
group that is not acted on."""
DEFAULT_W = 400.0
"""A node's power where neither a meter nor the site tells. The kWh of a node-hour of ARCHER2's two
64-core processors were 0.42 on average (its published use of September 2022); older nodes take
less, nodes with accelerators more."""
LEAST_METERED = 20
"""Metered jobs of a partition that tell its other nodes' power."""
MOST_UNCOVERED = 0.1
"""Share of a job's time that its steps may leave out; more of it is time without a meter."""
OTHERS = "(others)"
"""The application of what is not recognised, and of groups beyond :data:`MOST_GROUPS`."""
NOT_PROGRAMS = (
    LIGHT
    | LAUNCHERS
    | frozenset(
        """
    bash sh csh tcsh zsh ksh dash python python2 python3 perl ruby R Rscript julia matlab octave
    java node singularity apptainer podman docker shifter numactl env time nice timeout wrap
    interactive allocation STDIN orted prted prte_wrapper pmi_proxy hydra_pmi_proxy
    hydra_bstrap_proxy pmirun mpispawn sys/dashboard/sys/jupyter jupyter
    """.split()  # noqa: SIM905
    )
)
"""Names of steps and jobs that say nothing of what ran: shells, interpreters, launch daemons."""


class UseGroup(NamedTuple):
    """What jobs of one group have in common; ``cpus`` and ``threads`` are of a node."""

    application: str
    by: str
    """What told the application: "rule", "program", "name" (the job's), or "" for nothing."""
    user: str
    account: str
    partition: str
    node_type: str
    nodes: int
    cpus: int
    ranks: int
    threads: int
    cap_khz: int
    whole: bool | None
    """Whether the scheduler says that they had their nodes alone, None where it does not."""


@dataclass(slots=True)
class GroupSums:
    """What the jobs of a group come to: node-seconds, joules, and logarithms of good runs.

    ``metered_s`` are the node-seconds whose energy is in ``energy_j``; ``runs`` counts jobs that
    ended well and were metered whole, with sums and squares of ln J and ln s.
    """

    jobs: int = 0
    node_s: float = 0.0
    metered_s: float = 0.0
    energy_j: float = 0.0
    runs: int = 0
    ln_energy: float = 0.0
    ln_energy_squares: float = 0.0
    ln_time: float = 0.0
    ln_time_squares: float = 0.0
    submit_line: str = ""
    users: int = 1
    """How many users these jobs are of: several only where a table has sums."""

    def log_moments(self) -> tuple[float, float, float, float]:
        """Return mean and standard deviation of ln energy, then of ln time."""
        n = max(1, self.runs)
        moments = []
        for total, squares in (
            (self.ln_energy, self.ln_energy_squares),
            (self.ln_time, self.ln_time_squares),
        ):
            mean = total / n
            moments += [mean, math.sqrt(max(0.0, squares - n * mean * mean) / max(1, n - 1))]
        return moments[0], moments[1], moments[2], moments[3]


@dataclass(frozen=True, slots=True)
class GroupUse:
    """A group with its use: energies in J, of which ``assumed_j`` at an assumed power.

    ``source`` says where that power is from: "partition", "site" or "default".
    """

    group: UseGroup
    sums: GroupSums
    whole: bool
    actionable: bool
    node_s: float
    energy_j: float
    assumed_j: float
    source: str


@dataclass(slots=True)
class Usage:
    """The sums by group, and what was noticed on the way."""

    inventory: Inventory = field(default_factory=Inventory)
    rules: Sequence[ApplicationRule] = ()
    groups: dict[UseGroup, GroupSums] = field(default_factory=dict)
    most_cpus: dict[tuple[str, str], int] = field(default_factory=dict)
    """Per partition and node type the most CPUs of a node that a job had."""
    impossible: int = 0
    """Jobs whose meter said what their nodes cannot have used."""
    idle: int = 0
    """Jobs that never ran: without nodes or time."""
    beyond: int = 0
    """Jobs of groups beyond :data:`MOST_GROUPS`."""
    first_end: str = ""
    last_end: str = ""
    summed: int = 0
    """Jobs that came as sums of a program."""

    def add_sums(self, programs: Iterable[tuple[UseGroup, GroupSums]]) -> None:
        """Take in sums by program, of whole nodes. Several tables of one program are added up."""
        for group, more in programs:
            if not more.jobs or not more.node_s:
                self.idle += more.jobs
                continue
            self.summed += more.jobs
            sums = self._sums_of(group, more.jobs)
            self.most_cpus.setdefault((group.partition, group.node_type), 0)
            sums.jobs += more.jobs
            sums.node_s += more.node_s
            sums.metered_s += more.metered_s
            sums.energy_j += more.energy_j
            sums.users = max(sums.users, more.users)

    def add(self, jobs: Iterable[JobRecord | JobUse]) -> None:
        """Take in jobs."""
        type_of = lru_cache(65536)(lambda nodes: node_type_of(nodes, self.inventory))
        name_of = lru_cache(65536)(self._name)
        by_line = any(rule.arguments for rule in self.rules)
        node_type = None
        for job in jobs:
            if not job.nodes or not job.elapsed_s:
                self.idle += 1
                continue
            if self.inventory.node_types:
                node_type = self._node_type(job, type_of(job.node_list))
            steps = [step for step in job.steps if step.numbered]
            main = longest_step(steps)
            application, program_key = name_of(
                main.name if main is not None else "", job.name, job.submit_line if by_line else ""
            )
            ranks = threads = 0
            if main is not None and main.nodes:
                ranks = main.tasks // main.nodes if main.tasks % main.nodes == 0 else 0
                threads = main.cpus // main.nodes if main.cpus % main.nodes == 0 else 0
            group = UseGroup(
                application,
                program_key,
                job.user,
                job.account,
                job.partition,
                node_type.name if node_type else "",
                job.nodes,
                job.cpus // job.nodes,
                ranks,
                threads,
                job.freq_requested_khz or 0,
                job.whole_nodes,
            )
            sums = self.groups.get(group)
            if sums is None:
                sums = self._sums_of(group, 1)
                where = group.partition, group.node_type
                self.most_cpus[where] = max(group.cpus, self.most_cpus.get(where, 0))
            self._count_job(job, steps, sums, node_type)
            ended_at = job.ended_at
            if ended_at and not self.first_end <= ended_at <= self.last_end:
                self.first_end = min(self.first_end or ended_at, ended_at)
                self.last_end = max(self.last_end, ended_at)

    def _sums_of(self, group: UseGroup, jobs: int) -> GroupSums:
        """Return the sums to which jobs of a group go."""
        sums = self.groups.get(group)
        if sums is None:
            if len(self.groups) >= MOST_GROUPS:
                self.beyond += jobs
                group = group._replace(
                    application=OTHERS,
                    by="",
                    user="",
                    account="",
                    nodes=0,
                    ranks=0,
                    threads=0,
                    cap_khz=0,
                )
            sums = self.groups.setdefault(group, GroupSums())
        return sums

    def _count_job(
        self,
        job: JobRecord | JobUse,
        steps: Sequence[StepRecord | StepUse],
        sums: GroupSums,
        node_type: NodeType | None,
    ) -> None:
        elapsed_s, energy_j = job.elapsed_s or 0.0, job.energy_j
        sums.jobs += 1
        sums.node_s += job.nodes * elapsed_s
        sums.submit_line = job.submit_line[:500]
        covered_s, impossible = 0.0, False
        for step in steps:
            covered_s += step.elapsed_s or 0.0
            impossible = impossible or step.energy_impossible
        if impossible or (
            energy_j is not None and not is_possible(energy_j, covered_s, job.nodes, node_type)
        ):
            self.impossible += 1
            return
        if energy_j is None or covered_s <= 0 or covered_s > elapsed_s * (1 + MOST_UNCOVERED) + 2:
            return  # steps that overlap count their nodes' energy twice
        covers_job = covered_s >= elapsed_s * (1 - MOST_UNCOVERED)
        sums.metered_s += job.nodes * (elapsed_s if covers_job else covered_s)
        sums.energy_j += energy_j
        if covers_job and job.state == "COMPLETED":
            ln_energy, ln_time = math.log(energy_j), math.log(covered_s)
            sums.runs += 1
            sums.ln_energy += ln_energy
            sums.ln_energy_squares += ln_energy * ln_energy
            sums.ln_time += ln_time
            sums.ln_time_squares += ln_time * ln_time

    def _node_type(self, job: JobRecord | JobUse, node_type: NodeType | None) -> NodeType | None:
        if node_type is None and self.inventory.node_types:
            types = self.inventory.in_partition(job.partition)
            return types[0] if len(types) == 1 else None
        return node_type

    def _name(self, program: str, job_name: str, submit_line: str) -> tuple[str, str]:
        """Return application and what told it, as decisions do: rules, the program, the name."""
        program = program.rpartition("/")[2]
        command = [program] if program and program not in NOT_PROGRAMS else []
        recognised = recognise(
            None, job_name=job_name, command=command, submit_line=submit_line, rules=self.rules
        )
        if recognised.rule is not None:
            return recognised.application, "rule"
        if recognised.application:
            return recognised.application, "program"
        name = clean_name(job_name)
        if not name or name in NOT_PROGRAMS or name.isdecimal():
            return OTHERS, ""
        return name, "name"

    def uses(self) -> list[GroupUse]:
        """Return all groups with their energy, and whether they can be acted on."""
        full = {where: self._full_cpus(*where) for where in self.most_cpus}
        whole_nodes = {
            group: group.whole
            if group.whole is not None
            else group.cpus >= full[group.partition, group.node_type] > 0
            for group in self.groups
        }
        power_w = self._metered_power_w(whole_nodes)
        runs: dict[tuple[object, ...], float] = {}
        for group, sums in self.groups.items():
            if whole_nodes[group] and group.by:
                runs[workload(group)] = runs.get(workload(group), 0) + sums.jobs / sums.users
        uses = []
        for group, sums in self.groups.items():
            where = group.partition, group.node_type
            share = 1.0 if whole_nodes[group] else group.cpus / max(full[where], group.cpus, 1)
            node_s = sums.node_s * share
            # what a meter says of shared nodes is of all jobs on them
            metered_s, metered_j = (
                (sums.metered_s, sums.energy_j) if whole_nodes[group] else (0.0, 0.0)
            )
            assumed_w, source = self._assumed_w(where, power_w)
            assumed_j = max(0.0, node_s - metered_s) * assumed_w
            uses.append(
                GroupUse(
                    group,
                    sums,
                    whole_nodes[group],
                    runs.get(workload(group), 0) >= REPEATED
                    and whole_nodes[group]
                    and bool(group.by),
                    node_s,
                    metered_j + assumed_j,
                    assumed_j,
                    source,
                )
            )
        return uses

    def _full_cpus(self, partition: str, node_type: str) -> int:
        """Return a node's CPUs: the site's word, else the most that a job of the partition had."""
        stated_type = self.inventory.node_types.get(node_type)
        if stated_type is not None:
            return stated_type.cores * stated_type.threads_per_core
        return self.most_cpus[partition, node_type]

    def _metered_power_w(self, whole_nodes: dict[UseGroup, bool]) -> dict[tuple[str, str], float]:
        """Return the mean metered power of a node by partition and node type, where it is known."""
        totals: dict[tuple[str, str], list[float]] = {}
        for group, sums in self.groups.items():
            if whole_nodes[group] and sums.metered_s:
                total = totals.setdefault((group.partition, group.node_type), [0.0, 0.0, 0.0])
                total[0] += sums.jobs
                total[1] += sums.energy_j
                total[2] += sums.metered_s
        return {w: j / s for w, (jobs, j, s) in totals.items() if jobs >= LEAST_METERED}

    def _assumed_w(
        self, where: tuple[str, str], power_w: dict[tuple[str, str], float]
    ) -> tuple[float, str]:
        if where in power_w:
            return power_w[where], "partition"
        stated_type = self.inventory.node_types.get(where[1])
        stated_w = (
            stated_power_w(stated_type, stated_type.cores) if stated_type is not None else None
        )
        return (stated_w, "site") if stated_w else (DEFAULT_W, "default")


def workload(group: UseGroup) -> tuple[object, ...]:
    """Return what one sweep would serve: a user's program on nodes of a kind, and how many."""
    return (
        group.application,
        group.user,
        group.account,
        group.partition,
        group.node_type,
        group.nodes,
    )
