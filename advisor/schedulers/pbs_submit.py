"""What a sweep's run asks of qsub: whole nodes of its kind, and what the user's script asks for."""

from __future__ import annotations

import math

from advisor.core.asked import default_freq
from advisor.schedulers.base import PlannedRun, SweepJob, slowdown_bound
from advisor.schedulers.pbs_options import FREQ
from advisor.schedulers.pbs_qsub import ATTRIBUTES, written
from advisor.schedulers.pbs_select import CHUNK_RESOURCES, asked

START_S = 60.0
"""Time of a run's start and end that is allowed for in its walltime."""
SWEEP = "ADVISOR_SWEEP"
"""Variable that names the attempt a job is."""
_KEPT = frozenset({"account", "project", "queue"})
"""Attributes of the user's script that each run takes over as they are."""
_COUNTED = frozenset({"ncpus", "mpiprocs", "ompthreads", "mem", "host", "vnode"})
_SET = frozenset({"select", "place", "nodes", "walltime", FREQ})


def cap_khz(job: SweepJob, run: PlannedRun) -> int:
    """Return the cap a run needs: none at the frequency that jobs get without asking."""
    freq = run.configuration.freq_khz
    return 0 if freq == default_freq(job.node_type) or not job.node_type.freq_khz else freq


def qsub_words(job: SweepJob, run: PlannedRun, attempt: int) -> list[str]:
    """Return qsub's words: whole nodes of the run's kind, and what the user's script asks for."""
    c, cap = run.configuration, cap_khz(job, run)
    theirs = asked(job.options)
    chunk = {
        "ncpus": str(c.threads_per_node),
        "mpiprocs": str(c.ranks_per_node),
        "ompthreads": str(c.threads_per_rank),
        **{k: v for k, v in theirs.resources.items() if k not in _COUNTED},
    }
    if theirs.memory_mb:
        nodes = theirs.nodes or theirs.count
        chunk["mem"] = f"{math.ceil(theirs.memory_mb * theirs.count / nodes)}mb"
    name, equals, value = job.node_type.feature.partition("=")
    if equals:
        chunk[name] = value
    kept = {name: job.options[name] for name in _KEPT if job.options.get(name)}
    if job.partition:
        kept["queue"] = job.partition
    groups = [w for w in job.options.get("additional", "").split(",") if "group_list" in w]
    if groups:
        kept["additional"] = ",".join(groups)
    resources = {
        "select": ":".join([str(c.nodes), *(f"{k}={v}" for k, v in chunk.items())]),
        "place": "scatter:excl",
        **{k: v for k, v in job.options.items() if _jobwide(k)},
    }
    walltime = _walltime_s(job, run) or job.options.get("walltime", "")
    if walltime:
        resources["walltime"] = str(walltime)
    if cap:
        resources[FREQ] = str(cap // 1000)
    own = job.options.get("variables", "")
    marks = f"ADVISOR=off,{SWEEP}={job.id}/{job.stage}/{run.seq}/{attempt}"
    options = {
        "job-name": f"adv-{run.seq}.{attempt}", "variables": f"{own},{marks}" if own else marks,
        "join": "oe", "mail": "n", "rerunable": "n", **kept, **resources,
    }  # fmt: skip
    if "export-all" in job.options:
        options["export-all"] = ""
    return [word for words in written(options) for word in words]


def _jobwide(name: str) -> bool:
    """Tell whether an option is a resource of the whole job, as a licence."""
    return name not in ATTRIBUTES | CHUNK_RESOURCES | _SET


def _walltime_s(job: SweepJob, run: PlannedRun) -> int | None:
    """Return the seconds a run may take at worst, None where nothing tells."""
    bound = job.run_limit_s
    if job.estimate_s is not None and job.baseline is not None:
        slower = 1.5 * job.estimate_s * slowdown_bound(run.configuration, job.baseline)
        bound = slower if bound is None else min(bound, slower)
    return None if bound is None else math.ceil(bound + START_S)
