"""Jobs of the past as runs: what the accounting's files say, and what models make of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.core.observation import Observation
from advisor.loop.refit import refit_with_jobs
from advisor.models.fit import fit_options
from advisor.models.job_runs import JobValue, with_jobs
from advisor.models.response import response
from advisor.models.runs import JOBS_BESIDE
from advisor.models.scatter import Scatter
from advisor.store.reader import Reader
from advisor.store.writer import Writer

Advisor = Callable[..., Any]
FREQS = (1_200_000, 1_800_000, 2_400_000)
NODE = NodeType(
    "bdw",
    feature="broadwell",
    partitions=("batch",),
    sockets=2,
    cores=16,
    memory_mb=64_000,
    freq_khz=FREQS,
    default_freq_khz=2_400_000,
    nodes=("n1", "n2"),
    default_partition="batch",
)
BASE = Configuration("bdw", 1, 2, 16, 2_400_000)
HEAD = (
    "User|JobID|JobName|State|NNodes|NCPUS|NTasks|NodeList|ElapsedRaw|ConsumedEnergyRaw|"
    "ReqCPUFreqMax|Submit|End|Extra\n"
)


def job(
    number: int,
    user: str = "ann",
    name: str = "solver",
    elapsed: int = 1000,
    state: str = "COMPLETED",
    cpus: int = 16,
    energy: int = 300_000,
) -> str:
    at = f"2026-01-{1 + number % 28:02d}T00:00:00|2026-01-{1 + number % 28:02d}T01:00:00"
    start = f"{user}|{number}|{name}|{state}|1|{cpus}||n1|{elapsed}|||{at}|x\n"
    step = f"|{number}.0|app|{state}|1|{cpus}|2|n1|{elapsed}|{energy}|1800000K|{at}|x\n"
    return start + step


@pytest.fixture
def store(store_path: Path) -> Path:
    with Writer(store_path) as writer:
        writer.save_node_types([NODE], source="test")
        rules = [{"name": "wave", "job_name": ["wave_*"], "workload": "big"}]
        writer.apply_config("site", path="s", text="s", compiled={"applications": rules}, by="test")
    return store_path


def test_sacct_by_the_names_of_its_columns(store: Path, advisor: Advisor, tmp_path: Path) -> None:
    """Each job that says nothing is counted with the reason; a second import changes nothing."""
    file = tmp_path / "jobs.txt"
    file.write_text(
        HEAD
        + job(1)
        + job(2, "bob", "wave_3")
        + job(3, elapsed=9)
        + job(4, state="FAILED")
        + job(5, cpus=8)
        + "ann|6|a|b|COMPLETED\n"
        + job(7).replace("|n1|", "|n9|")
        + job(8).replace("8.0", "8.batch")
        + "".join(job(n, "eve") for n in range(10, 33))
    )
    data = advisor("import", file, "--from", "sacct", "--json").json()
    assert (data["jobs"], data["imported"], data["applications"]) == (30, 22, ["solver", "wave"])
    assert data["left_out"] == {
        "it is too short for the accounting's clock": 1,
        "it did not end well": 1,
        "it shared its nodes, or that is not known": 1,
        "its nodes are of no single known node type": 1,
        "it is not one step: srun started none, or several": 1,
        "the latest 20 of a user and configuration are enough": 3,
    }
    assert data["notes"][-1] == "not understood: 1 line"
    with Reader(store) as reader:
        (run,) = (o.observation for o in reader.observations("wave", "big"))
    assert (run.source, run.scope, run.contributor) == ("job", "own", "bob")
    assert run.configuration == Configuration("bdw", 1, 2, 16, 1_800_000)
    assert (run.time_s, run.energy_j, run.extra["resolution_s"]) == (1000.0, 300_000.0, 1.0)
    again = advisor("import", file, "--from", "sacct", "--json").json()
    assert (again["imported"], again["skipped"]) == (0, 22)


def test_the_log_of_a_pbs_server(store: Path, advisor: Advisor, tmp_path: Path) -> None:
    """E records, as server_priv/accounting has them; others are passed over."""
    used = "resources_used.cput=04:00:00 resources_used.walltime=00:16:40"
    metered = f"{used} resources_used.energy_j=300000 resources_used.energy_nodes=1"
    record = (
        'user=ann group=users account="p 1" project=_pbs_project_default jobname=solver queue=batch'
        " ctime=1767225600 qtime=1767225600 etime=1767225600 start=1767225601"
        " exec_host=n1/0*16 exec_vnode=(n1:ncpus=16) Resource_List.ncpus=16"
        " Resource_List.select=1:ncpus=16:mpiprocs=2:ompthreads=8 Resource_List.place=excl"
        " session=1 end=1767226601 Exit_status=0 {} run_count=1"
    )
    file = tmp_path / "20260101"
    file.write_text(
        "01/01/2026 00:00:00;S;7.srv;user=ann\n"
        f"01/01/2026 00:20:00;E;7.srv;{record.format(metered)}\n"
        f"01/01/2026 00:20:00;E;8.srv;{record.format(used).replace('status=0', 'status=1')}\n"
        "01/01/2026 00:20:00;L;license;floating\n"
    )
    data = advisor("import", file, "--from", "pbs", "--json").json()
    assert (data["jobs"], data["imported"]) == (2, 1)
    assert data["left_out"] == {"it did not end well": 1}
    with Reader(store) as reader:
        (run,) = (o.observation for o in reader.observations("solver"))
    assert run.configuration == BASE and run.account == "p 1"
    assert (run.time_s, run.energy_j, run.meter) == (1000.0, 300_000.0, "pbs")


def test_a_file_of_something_else_is_one_line(
    store: Path, advisor: Advisor, tmp_path: Path
) -> None:
    file = tmp_path / "other.txt"
    file.write_text("JobID|State\n1|COMPLETED\n")
    done = advisor("import", file, "--from", "sacct")
    assert done.code == 1 and "other.txt:1: there is no column ElapsedRaw, NNodes" in done.err
    names = "JobID|State|ElapsedRaw|NNodes|NCPUS|NodeList"
    file.write_text(f"{names}\n")
    done = advisor("import", file, "--from", "sacct")
    assert done.code == 1 and "has no jobs" in done.err and "--endtime=now" in done.err
    file.write_text("JobID|State\n1|COMPLETED\n")
    done = advisor("import", file, "--from", "pbs")
    assert done.code == 1 and "this is not an accounting log of PBS" in done.err
    assert advisor("import", tmp_path / "none", "--from", "sacct").code == 1
    assert advisor("import", file).code == 2


def value(c: Configuration) -> float:
    return math.log(100 * 16 / c.threads_per_node) - 0.2 * math.log(c.freq_khz / 2.4e6)


GRID = [Configuration("bdw", 1, 2, n, f) for n in (4, 8, 12, 16) for f in FREQS]


def measured(source: str, c: Configuration, factor: float = 1.0) -> Observation:
    t = 10 * math.exp(value(c)) * factor
    extra = {"resolution_s": 1.0}
    return Observation(c, t, 300 * t, source=source, scope="all", extra=extra)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("factors", "why"),
    [
        ((1.0, 1.01, 0.99, 1.0), ""),
        ((1.3, 1.31, 1.29), "another input or meter"),
        ((1.0, 1.3, 0.7, 1.0, 1.3, 0.7), "not of one input"),
        ((1.0, 1.0), ""),  # too few to tell: not used, not named
    ],
)
def test_jobs_count_where_measured_runs_bear_them_out(factors: tuple[float, ...], why: str) -> None:
    of = response([(c, 10 * math.exp(value(c))) for c in GRID], Scatter(0.01))
    jobs = [JobValue(BASE, 10 * math.exp(value(BASE)) * f, 0.001) for f in factors]
    found, problem = with_jobs(of, jobs)
    assert problem.endswith(why) and bool(problem) == bool(why)
    used = not why and len(factors) > 2
    # four jobs of 2 % and the clock's 0.1 % against a run of 1 %; never worth more than one run
    worth = min(1.0, 4 * 0.01**2 / (0.02**2 + 0.001**2))
    assert found.counts[BASE] == pytest.approx(1 + worth if used else 1.0)
    assert found.first_hand == of.log_mean


def test_jobs_elsewhere_alone_say_nothing() -> None:
    """Without a measured run beside any of them nobody knows what their input was."""
    of = response([(c, 10 * math.exp(value(c))) for c in GRID[:6]], Scatter(0.01))
    jobs = [JobValue(BASE, 7.0, 0.001)] * 5
    assert with_jobs(of, jobs)[1] == "no job ran at a measured configuration"


def test_jobs_alone_confirm_nothing() -> None:
    """The very runs of a grid, once measured and once as jobs: a model each, one is confirmed."""
    runs = [measured("import", c) for c in GRID]
    assert any(o.confirmed for o in fit_options(runs).options)
    jobs = [measured("job", c, f) for c in GRID for f in (0.999, 1.001)]
    alone = fit_options(jobs)
    assert len(alone.options) == len(GRID)
    assert not any(o.confirmed or o.measured for o in alone.options)


def test_a_collections_jobs_help_a_model_and_keep_what_is_confirmed(store_path: Path) -> None:
    """Fitted again once they agree; not for jobs of another input, nor while it is suspended."""
    few = GRID[::2]
    with Writer(store_path) as writer:
        writer.save_node_types([NODE], source="test")
        writer.add_observations("app", "default", [measured("import", c) for c in few])
        fit = fit_options([measured("import", c) for c in few])
        key = ("app", "default", "bdw")
        model = writer.save_model(
            *key,
            scope="all",
            owner="",
            name=fit.model,
            energy_quality=fit.energy_quality,
            n_train=fit.n_train,
            stats=fit.stats,
            options=fit.options,
        )
        assert refit_with_jobs(writer, *key, "all", "") == ""
        others = [replace(measured("job", few[0], 1.4), job_id=str(n)) for n in range(4)]
        writer.add_observations("app", "default", others)
        assert refit_with_jobs(writer, *key, "all", "") == ""
        writer.change("DELETE FROM observations WHERE source = 'job'")
        same = [replace(measured("job", few[0], f), job_id=f"a{f}") for f in (0.99, 1.0, 1.01)]
        writer.add_observations("app", "default", same)
        assert refit_with_jobs(writer, *key, "own", "ann") == ""  # that user has no model
        assert "fitted app (default) on bdw" in refit_with_jobs(writer, *key, "all", "")
        (now,) = writer.find_models(*key)
        assert now.version == model.version + 1
        assert any(JOBS_BESIDE in note for note in now.stats["notes"])
        before = {o.configuration for o in fit.options if o.confirmed}
        assert before and before <= {o.configuration for o in now.options() if o.confirmed}
