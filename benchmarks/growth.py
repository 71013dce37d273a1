"""How the costs of verbs grow with the store: processor seconds over jobs and over models.

    python benchmarks/growth.py [--verbs collect,publish,report,backup,why]
        [--jobs 10000,100000] [--models 100,1000] [--folder DIR] [--repeat 1] [--json]

A store is built for every number of jobs with every number of models: models of drawn applications,
decisions as the daemon makes them, outcomes as `advisor collect` writes them (a few thousand by
those, the rest copies under other numbers and times, spread over the last 30 days), runs and
signatures of jobs, and applications that were never swept. Then each verb runs as a process of its
own on a fresh copy of the store, `collect` with a stand-in for sacct that tells of 50 jobs which
nobody has collected yet. Counted are processor seconds, children included.

The slopes are those of ln(seconds) = a + b ln(jobs) + c ln(models), by least squares: 0 does not
grow, 1 grows in proportion. Built stores stay in --folder, where the next call finds them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from decide import FREQS, NODE, copy_models, fill, request
from year import Accounting, records

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.core.option import Option, pack_options
from advisor.derive.histories import derive_histories
from advisor.loop.collect import collect
from advisor.loop.day_sums import sum_days
from advisor.schedulers.base import JobRecord
from advisor.schedulers.slurm.accounting import FIELDS
from advisor.schedulers.slurm.translator import parse_request
from advisor.service.decide import decide
from advisor.service.snapshot import StoreSource
from advisor.store import rows
from advisor.store.reader import Reader
from advisor.store.writer import Writer

VERBS = ("collect", "publish", "report", "backup", "why", "jobs", "note")
FRESH = 50
"""Jobs that the measured collection finds."""
TEMPLATES = 2000
"""Jobs that the daemon's and the collection's own code makes; of more models, two for each."""
DAYS = 30
"""Days over which the jobs are spread."""
RUNS = 12
"""Runs of the sweep that each model follows from."""
UNSWEPT = 0.1
"""Applications without a model, as a share of those that have one."""
USERS = 500
"""Users of the site; the first applications are everybody's."""


def surface(draw: random.Random) -> list[Option]:
    """Return the options of an application drawn anew: serial share, memory's share, power."""
    serial, memory = draw.uniform(0, 0.1), draw.uniform(0, 0.9)
    limit, idle, active = draw.uniform(8, 28), draw.uniform(60, 120), draw.uniform(1.5, 5)
    scale = draw.uniform(600, 6000)
    options = []
    for threads in range(4, 45, 4):
        for freq_khz in FREQS:
            f = freq_khz / FREQS[-1]
            core = (serial + (1 - serial) / threads) / f
            bus = serial + (1 - serial) / min(threads, limit)
            t = scale * ((1 - memory) * core + memory * bus)
            e = t * (idle + active * threads * (0.3 + 0.7 * f**2.5))
            place = Configuration(NODE.name, 1, 1, threads, freq_khz)
            options.append(
                Option(place, t, t * 0.99, t * 1.01, e, e * 0.99, e * 1.01, True, True, True)
            )
    return options


def build(path: Path, jobs: int, models: int) -> None:
    """Fill a store at ``path``, in a draft beside it first."""
    draft = path.with_suffix(".part")
    for end in ("", "-wal", "-shm"):
        Path(f"{draft}{end}").unlink(missing_ok=True)
    draw = random.Random(models)
    fill(draft, 1)
    copy_models(draft, "app0", range(1, models))
    with closing(sqlite3.connect(draft)) as db, db:
        for number, workload in db.execute("SELECT id, workload_id FROM models").fetchall():
            options = surface(draw)
            db.execute(
                "UPDATE models SET options = ? WHERE id = ?", (pack_options(options), number)
            )
            for option in draw.sample(options, RUNS):
                run = Observation(
                    option.configuration,
                    option.time_s,
                    option.energy_j,
                    source="sweep",
                    contributor="admin",
                    scope="all",
                    method="variables",
                )
                _insert(db, "observations", rows.observation_row(workload, run, rows.now()))
    templates = min(jobs, max(TEMPLATES, 2 * models)) + FRESH
    _decide(draft, templates, models, draw)
    fresh, others = _records(draft, templates)
    with Writer(draft) as writer:
        collect(writer, Accounting(others), datetime.now(UTC) - timedelta(days=90))  # type: ignore[arg-type]
    _settle(draft)
    _multiply(draft, jobs, fresh)
    with Writer(draft) as writer:  # as the collections of those days did
        sum_days(writer, math.inf)
        derive_histories(writer, lambda: False)
    with closing(sqlite3.connect(draft)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path.with_suffix(".sacct").write_text(sacct_rows(fresh))
    draft.rename(path)


def _decide(path: Path, count: int, models: int, draw: random.Random) -> None:
    """Store so many decisions of the last days, as the daemon makes and writes them."""
    source = StoreSource(path)
    source.refresh()
    source.close()
    unswept = max(3, round(UNSWEPT * models))
    start = datetime.now(UTC) - timedelta(hours=12)
    with closing(sqlite3.connect(path)) as db, db:
        for number in range(count):
            application = number % (models + unswept)
            if number >= count - FRESH and number % 10 == 0:
                application = models + number // 10 % unswept
            payload = json.loads(request(application))
            payload["script"] = payload["script"].replace(" input.dat", "")  # of all workloads
            payload["options"]["time"] = "12:00:00"
            payload["options"]["account"] = f"account{number % 20}"
            job = parse_request(payload, user=f"user{number % USERS}", uid=1000, choices={})
            at = start + timedelta(seconds=number * 6 * 3600 / count)
            made = replace(
                decide(job, source.snapshot),
                id=f"{draw.randrange(16**16):016x}",
                created_at=at.isoformat(timespec="seconds").replace("+00:00", "Z"),
            )
            db.execute(rows.SAVE_DECISION, rows.decision_row(made, str(number + 1)))


def _records(path: Path, count: int) -> tuple[list[JobRecord], list[JobRecord]]:
    """Return what the accounting says of the last jobs, which are to be fresh, and of all others.

    One of nineteen jobs takes 4 % longer than predicted: worse than promised, and not by far.
    """
    made = records(path, count)
    for number, job in enumerate(made):
        longer = 1.04 if number % 19 == 0 else 1.0 + 0.005 * math.sin(number)
        elapsed_s = round((job.elapsed_s or 600) * longer)
        cpu_s = elapsed_s * job.cpus * (0.3 + number % 7 / 10)
        steps = tuple(replace(s, elapsed_s=elapsed_s) for s in job.steps)
        end = datetime.fromisoformat(job.submitted_at) + timedelta(seconds=elapsed_s)
        made[number] = replace(
            job,
            elapsed_s=elapsed_s,
            cpu_s=cpu_s,
            memory_mb=2000.0 + number % 13 * 1000,
            disk_mb=float(number % 11 * 500),
            partition="batch",
            steps=steps,
            ended_at=end.isoformat(timespec="seconds").replace("+00:00", "Z"),
        )
    return made[:FRESH], made[FRESH:]


def _settle(path: Path) -> None:
    """Have all models in use and nothing to derive, as on a site between two collections."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM stale")
        db.execute("UPDATE models SET state = 'fitted' WHERE state = 'suspended'")


def _multiply(path: Path, jobs: int, fresh: Sequence[JobRecord]) -> None:
    """Copy decisions and outcomes under other numbers until there are so many jobs."""
    named = {job.job_id for job in fresh}
    with closing(sqlite3.connect(path)) as db, db:
        db.row_factory = sqlite3.Row
        outcomes = {
            row["decision_id"]: row for row in db.execute("SELECT * FROM outcomes").fetchall()
        }
        decisions = [
            row
            for row in db.execute("SELECT * FROM decisions").fetchall()
            if row["job_id"] not in named and row["id"] in outcomes
        ]
        now = datetime.now(UTC)
        db.execute("DELETE FROM outcomes")  # they are among the copies, in the order of time
        db.executemany("DELETE FROM decisions WHERE id = ?", [(d["id"],) for d in decisions])
        draw = random.Random(jobs)
        for number in range(jobs):
            decision = decisions[number % len(decisions)]
            outcome = outcomes[decision["id"]]
            back = (jobs - number) * (DAYS - 1) * 86400 / jobs
            at = now - timedelta(days=0.6) - timedelta(seconds=back)
            text = at.isoformat(timespec="seconds").replace("+00:00", "Z")
            new = {
                decision["id"]: f"{draw.randrange(16**16):016x}",
                decision["created_at"]: text,
            }
            record, seen = decision["record"], outcome["record"]
            ended_at = json.loads(seen)["ended_at"]
            length = datetime.fromisoformat(ended_at) - datetime.fromisoformat(
                outcome["submitted_at"]
            )
            for old, value in new.items():
                record = record.replace(f'"{old}"', f'"{value}"', 1)
                seen = seen.replace(f'"{old}"', f'"{value}"')
            end = (at + length).isoformat(timespec="seconds").replace("+00:00", "Z")
            seen = seen.replace(f'"{ended_at}"', f'"{end}"')
            job_id = str(1_000_000 + number)
            _insert(
                db,
                "decisions",
                {
                    **dict(decision),
                    "id": new[decision["id"]],
                    "created_at": text,
                    "record": record,
                    "job_id": job_id,
                },
            )
            _insert(
                db,
                "outcomes",
                {
                    **dict(outcome),
                    "job_id": job_id,
                    "submitted_at": text,
                    "decision_id": new[decision["id"]],
                    "record": seen,
                    "collected_at": end,
                },
            )


def _insert(db: sqlite3.Connection, table: str, row: dict[str, object]) -> None:
    marks = ", ".join("?" * len(row))
    db.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))


def sacct_rows(jobs: Sequence[JobRecord]) -> str:
    """Return the accounting's rows of jobs and their steps, fields parted by a tab."""

    def line(**fields: object) -> str:
        return "\t".join(str(fields.get(name, "")) for name in FIELDS) + "\t\n"

    text = ""
    for job in jobs:
        cap = f"{job.freq_requested_khz}K" if job.freq_requested_khz else ""
        cpu_s = job.cpu_s or 0.0
        common = {
            "State": job.state,
            "ElapsedRaw": round(job.elapsed_s or 0),
            "NNodes": job.nodes,
            "NCPUS": job.cpus,
            "ReqCPUFreqMax": cap,
        }
        text += line(
            JobID=job.job_id,
            JobName=job.name,
            User=job.user,
            Account=job.account,
            Partition=job.partition,
            Submit=job.submitted_at,
            End=job.ended_at,
            NodeList=job.node_list,
            AdminComment=job.admin_comment,
            TotalCPU=f"{int(cpu_s // 60)}:{cpu_s % 60:06.3f}",
            Cluster=job.cluster,
            **common,
        )
        text += line(
            JobID=f"{job.job_id}.0",
            JobName="app",
            NTasks=1,
            ConsumedEnergyRaw=round(job.energy_j or 0),
            AveCPUFreq=cap,
            MaxRSS=f"{job.memory_mb or 0:.0f}M",
            AveDiskRead=f"{job.disk_mb or 0:.0f}M",
            AveDiskWrite="0M",
            **common,
        )
    return text


_STAND_IN = """#!/bin/sh
for word; do case $word in --delimiter=*) parted=${word#--delimiter=};; esac; done
exec sed "s/\\t/$parted/g" "$ADVISOR_GROWTH_SACCT"
"""


def measured(verb: str, store: Path, folder: Path) -> float:
    """Return the processor seconds of a verb on a copy of a store, its children's included."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "bin").mkdir(parents=True)
    copy = folder / "advisor.db"
    shutil.copyfile(store, copy)
    for name, text in (("sacct", _STAND_IN), ("squeue", "#!/bin/sh\n")):
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    words = {
        "collect": ["collect", "--scheduler", "slurm"],
        "publish": ["publish", str(folder / "copy.db")],
        "report": ["report", "--since", f"{DAYS}d"],
        "backup": ["backup", str(folder / "backup.db")],
        "why": ["why", _job(copy), "--scheduler", "slurm"],
        "jobs": ["jobs", "--everybody", "--since", f"{DAYS}d"],
        "note": ["note", "--everybody", "--since", f"{DAYS}d"],
    }[verb]
    environment = {
        **os.environ,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "ADVISOR_GROWTH_SACCT": str(store.with_suffix(".sacct")),
        "ADVISOR_CONFIG_DIR": str(folder / "config"),
        "ADVISOR_SOCKET": str(folder / "socket"),
    }
    command = [sys.executable, "-m", "advisor", *words, "--db", str(copy), "--json"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"growth: {' '.join(command)}: {done.stderr.strip()}")
    if verb == "collect" and (new := json.loads(done.stdout)["new"]) != FRESH:
        raise SystemExit(f"growth: {store}: {new} new jobs were collected, not {FRESH}")
    shutil.rmtree(folder)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _job(store: Path) -> str:
    with Reader(store) as reader:
        half = "SELECT job_id FROM outcomes WHERE rowid >= (SELECT max(rowid) / 2 FROM outcomes)"
        return str(reader.rows(f"{half} ORDER BY rowid LIMIT 1")[0][0])


def slopes(cases: Sequence[dict[str, float]]) -> tuple[float | None, float | None]:
    """Return how the logarithm of the seconds grows with those of jobs and of models.

    None for what has one value alone.
    """
    columns = [
        (name, np.array([math.log(case[name]) for case in cases])) for name in ("jobs", "models")
    ]
    varied = [(name, values) for name, values in columns if np.ptp(values) > 0]
    table = np.column_stack([np.ones(len(cases)), *(values for _, values in varied)])
    y = np.array([math.log(max(case["seconds"], 1e-3)) for case in cases])
    fit = dict(zip([name for name, _ in varied], np.linalg.lstsq(table, y)[0][1:], strict=True))
    return tuple(float(fit[name]) if name in fit else None for name, _ in columns)  # type: ignore[return-value]


def results(args: argparse.Namespace, folder: Path) -> Iterator[dict[str, object]]:
    """Yield what each verb takes on each store, and its slopes."""
    stores = {}
    for jobs, models in product(args.jobs, args.models):
        path = folder / f"growth-{jobs}-{models}.db"
        if not path.exists():
            build(path, jobs, models)
        stores[jobs, models] = path
    for verb in args.verbs:
        cases = [
            {
                "jobs": jobs,
                "models": models,
                "store_mb": path.stat().st_size / 1e6,
                "seconds": min(
                    measured(verb, path, folder / "measured") for _ in range(args.repeat)
                ),
            }
            for (jobs, models), path in stores.items()
        ]
        over_jobs, over_models = slopes(cases)
        yield {
            "verb": verb,
            "cases": cases,
            "slope_jobs": over_jobs,
            "slope_models": over_models,
        }


def numbers(text: str) -> list[int]:
    """Read ``10000,100000``."""
    return sorted({int(word) for word in text.split(",")})


def main() -> None:
    """Print a line for each verb and store, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--verbs", default="collect,publish,report,backup,why")
    parser.add_argument("--jobs", type=numbers, default=[10_000, 100_000])
    parser.add_argument("--models", type=numbers, default=[100, 1000])
    parser.add_argument("--folder", type=Path, help="where built stores stay (default: nowhere)")
    parser.add_argument("--repeat", type=int, default=1, help="the least of so many counts")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.verbs = args.verbs.split(",")
    if unknown := set(args.verbs) - set(VERBS):
        parser.error(f"--verbs: {', '.join(sorted(unknown))}: none of {', '.join(VERBS)}")
    with tempfile.TemporaryDirectory() as name:
        folder = args.folder or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        verbs = []
        for result in results(args, folder):
            verbs.append(result)
            if not args.json:
                for case in result["cases"]:  # type: ignore[attr-defined]
                    print(
                        f"{result['verb']:8} {case['jobs']:>9} jobs {case['models']:>6} models "
                        f"{case['store_mb']:>8.0f} MB {case['seconds']:>8.2f} s CPU"
                    )
                for over in ("jobs", "models"):
                    if (slope := result[f"slope_{over}"]) is not None:
                        print(f"{result['verb']:8} slope over {over}: {slope:.2f}")
                sys.stdout.flush()
    if args.json:
        print(json.dumps({"schema": "advisor/growth/1", "verbs": verbs}))


if __name__ == "__main__":
    main()
