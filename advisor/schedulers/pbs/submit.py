"""What a sweep's run asks of qsub: what the user's script asks for, and its configuration."""

from __future__ import annotations

import math

from advisor.core.delivery import place_mark
from advisor.schedulers.base import PlannedRun, SweepJob
from advisor.schedulers.pbs.chunks import CHUNK_RESOURCES, asked, edited
from advisor.schedulers.pbs.qsub import written
from advisor.schedulers.pbs.table import FREQ, NOT_SWEPT, OPTIONS

START_S = 60.0
"""Time of a run's start and end that is allowed for in its walltime."""
SWEEP = "ADVISOR_SWEEP"
"""Variable that names the attempt a job is."""
_COUNTED = frozenset({"ncpus", "mpiprocs", "ompthreads", "mem", "host", "vnode"})
_SET = frozenset({"select", "place", "nodes", "walltime", FREQ})


def cap_khz(job: SweepJob, run: PlannedRun) -> int:
    """Return the cap a run needs: none at the frequency the job has as it is written."""
    return job.cap_to_set(run) if job.node_type.freq_khz else 0


def qsub_words(
    job: SweepJob, run: PlannedRun, attempt: int, default_variables: str = ""
) -> list[str]:
    """Return qsub's words: the job's own, with what makes the run's configuration.

    ``default_variables``: the ``-v`` that the server gives a job which has none.
    """
    cap, threads = cap_khz(job, run), job.threads_to_set(run)
    options = {k: v for k, v in job.options.items() if k not in NOT_SWEPT}
    if job.method == "request":
        options = {k: v for k, v in options.items() if k in OPTIONS or _jobwide(k)}
        options |= _smaller_chunks(job, run)
    else:
        options |= _chunks_of_job(job, threads)
    if job.partition:
        options["queue"] = job.partition
    walltime = _walltime_s(job, run) or job.options.get("walltime", "")
    if walltime:
        options["walltime"] = str(walltime)
    if cap:
        options[FREQ] = str(cap // 1000)
    mark = f"{SWEEP}={job.id}/{job.stage}/{run.seq}/{attempt}"
    variables = [job.options.get("variables") or default_variables, "ADVISOR=off", mark]
    if job.results is not None:
        variables.append(place_mark(job.results))
    if threads:  # PBS itself sets OMP_NUM_THREADS, from the chunk
        variables += [f"{n}={threads}" for n in job.threads_from if n != "OMP_NUM_THREADS"]
    groups = [w for w in options.pop("additional", "").split(",") if "group_list" in w]
    if groups:
        options["additional"] = ",".join(groups)
    options |= {
        "job-name": f"adv-{run.seq}.{attempt}",
        "variables": ",".join(filter(None, variables)),
        "join": "oe",
        "mail": "n",
        "rerunable": "n",
    }
    return [word for words in written(options) for word in words]


def _chunks_of_job(job: SweepJob, threads: int) -> dict[str, str]:
    """Return the chunks as the job has them, on the run's node type, for so many threads a rank."""
    job_chunks = asked(job.options)
    changes = {"ompthreads": str(threads)} if threads else {}
    name, equals, value = job.node_type.feature.partition("=")
    if equals:
        changes[name] = value
    chunk = {**job_chunks.resources, **changes}
    if chunk == job_chunks.resources:
        return {}
    if job_chunks.form == "select":
        return {"select": edited(job.options["select"], changes)}
    place = str(job_chunks.place)
    replaced_options = [n for n in job.options if n in CHUNK_RESOURCES or n == "nodes"]
    return {
        **dict.fromkeys(replaced_options, ""),
        "select": ":".join([str(job_chunks.count), *(f"{k}={v}" for k, v in chunk.items())]),
        **({"place": place} if place else {}),
    }


def _smaller_chunks(job: SweepJob, run: PlannedRun) -> dict[str, str]:
    """Return whole nodes with the chunk of a smaller request in each: nobody else disturbs it."""
    c = run.configuration
    job_chunks = asked(job.options)
    chunk = {
        "ncpus": str(c.threads_per_node),
        "mpiprocs": str(c.ranks_per_node),
        "ompthreads": str(c.threads_per_rank),
        **{k: v for k, v in job_chunks.resources.items() if k not in _COUNTED},
    }
    if job_chunks.memory_mb:
        nodes = job_chunks.nodes or job_chunks.count
        chunk["mem"] = f"{math.ceil(job_chunks.memory_mb * job_chunks.count / nodes)}mb"
    name, equals, value = job.node_type.feature.partition("=")
    if equals:
        chunk[name] = value
    return {
        "select": ":".join([str(c.nodes), *(f"{k}={v}" for k, v in chunk.items())]),
        "place": "scatter:excl",
    }


def _jobwide(name: str) -> bool:
    """Tell whether an option is a resource of the whole job, as a licence."""
    return name not in OPTIONS.keys() | CHUNK_RESOURCES | _SET


def _walltime_s(job: SweepJob, run: PlannedRun) -> int | None:
    """Return the seconds a run may take at worst, None where nothing tells."""
    bound = job.longest_s(run)
    return None if bound is None else math.ceil(bound + START_S)
