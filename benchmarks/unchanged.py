"""Whether an alteration of the code left what the advisor does as it was.

    python benchmarks/unchanged.py record FILE [--requests 1000]
    python benchmarks/unchanged.py compare FILE OTHER

``record`` takes the user's way with the installed advisor in a folder of its own (site, policy,
import, fit), asks a real daemon about drawn submissions to Slurm and PBS, collects a month of the
jobs it advised, and writes down every answer, every verb's ``--json``, and the store's rows. Run it
with two versions' interpreters; ``compare`` prints what differs, and exits 1 where anything does.
Ids, moments and paths, which are new in every run, are written as their order of appearance.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

THREADS = (4, 8, 12, 16, 20, 24, 28)
FREQS_KHZ = (1_200_000, 1_500_000, 1_800_000, 2_100_000, 2_400_000)
APPLICATIONS = 8
RUNS = 12
"""Runs imported of half of the applications, as many as a sweep makes; of the others all are."""
SITE = """\
version: 1
node_types:
  broadwell: {cores: 28, sockets: 2, memory_mb: 64 GB, nodes: "b[1-9]", partitions: [batch],
              feature: broadwell, freq_khz: [1.2 GHz, 1.5 GHz, 1.8 GHz, 2.1 GHz, 2.4 GHz]}
  skylake: {cores: 28, sockets: 2, memory_mb: 96 GB, nodes: "s[1-9]", partitions: [fast],
            feature: skylake, freq_khz: [1.2 GHz, 1.5 GHz, 1.8 GHz, 2.1 GHz, 2.4 GHz]}
default_partition: batch
default_node_types: {batch: broadwell}
applications:
"""
RULE = "  - {{name: app{0}, match: {{executable: app{0}}}, threads_unset: all-cores}}\n"
POLICY = """\
version: 1
mode: apply
goal: min_energy
max_slowdown: 10%
min_saving: 2%
holdout: 0%
"""
SIZES = (
    "-N1 --exclusive",
    "-N1 --exclusive -n1 -c28",
    "-N1 -n28 --exclusive",
    "-N2 --exclusive",
    "-N1 -n4 -c7 --exclusive",
    "-N2 --ntasks-per-node=2 -c14 --exclusive",
    "-N1 -n1 -c20 --mem=9G",
    "-N1 -c8",
    "-n 3",
    "--exclusive",
)
EXTRAS = (
    "-p batch",
    "-p fast",
    "-C broadwell",
    "-C skylake",
    "-t 10",
    "-t 1:00:00",
    "--mem=40G",
    "--cpu-freq=1500000-2000000",
    "--cpu-freq=high",
    "--hint=nomultithread",
    "-a 0-3",
    "-J step",
    "--export=NONE",
    "--export=ALL,OMP_NUM_THREADS=8",
    "--gres=gpu:1",
    "--signal=USR1@60",
    "-q long",
    "--deadline=now+3hours",
    "--threads-per-core=1",
    "--distribution=cyclic",
    "--array=1-9%2",
)
CHUNKS = (
    "1:ncpus=28",
    "1:ncpus=28:mpiprocs=1:ompthreads=28",
    "2:ncpus=28:mpiprocs=2",
    "1:ncpus=8",
    "1:ncpus=28:mpiprocs=28",
    "1:ncpus=28:mem=40gb",
)
BODIES = (
    "{run} ./app{a} input.dat\n",
    "module load gcc\ncd $SLURM_SUBMIT_DIR\n{run} ./app{a} -n 100\n",
    "export OMP_NUM_THREADS=14\n{run} ./app{a}\n",
    "./app{a} > out.txt 2>&1\n",
    "for i in 1 2 3; do {run} ./app{a} $i; done\n",
    "N=7; {run} -n $N ./app{a}\n",
    "{run} ./app{a} one\n{run} ./app{b} two\n",
    "python3 solve.py\n",
    "mpirun -np 4 ./app{a}\n",
    "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\n{run} ./app{a}\n",
    "function go {{ {run} ./app{a}; }}; go\n",
    "#ADVISOR off\n{run} ./app{a}\n",
    "set -e\nif [ -f x ]; then {run} ./app{a}; fi\n",
)
VERBS = (
    "options app{a} --all",
    "options app{a} --sort energy",
    "predict app{a} --at nodes=2",
    "report --since 60d",
    "site show",
    "policy show",
    "evaluate grid0.csv",
    "metrics",
    "pareto grid0.csv --x time_s:min --y energy_j:min",
    "policy simulate policy.yaml",
    "explain job0.sh",
    "explain job1.sh",
    "explain job2.sh",
    "explain job3.sh",
    "nosuchverb",
    "options nosuchapplication",
    "choose app0 --goal edp",
    "off",
    "on",
    "demo",
)


class Way:
    """A folder with a store, and the verbs of the installed advisor run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "advisor.db"
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "ADVISOR_DB": str(self.store),
            "ADVISOR_CONFIG_DIR": str(folder),
            "ADVISOR_SOCKET": str(folder / "s"),
            "PYTHONSAFEPATH": "1",
        }

    def verb(self, words: str, *, plain: bool = False) -> str:
        """Return exit code and output of one verb, with ``--json`` unless it is to be plain."""
        command = [sys.executable, "-m", "advisor", *words.split(), *(() if plain else ("--json",))]
        ended = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True
        )
        return f"{ended.returncode}\n{ended.stdout}{ended.stderr}"


def write_grid(path: Path, application: int, node_type: str, dice: random.Random) -> None:
    """Write a measured grid of one application: Amdahl's law, a bus, power by the clock's cube."""
    serial, memory = dice.uniform(0, 0.1), dice.uniform(0, 0.9)
    idle_w, core_w = dice.uniform(60, 120), dice.uniform(1.5, 5.0)
    scale = 100 * (1 + application) * (0.8 if node_type == "skylake" else 1.0)
    header = ("nodes", "ranks_per_node", "threads_per_node", "freq_khz", "time_s", "energy_j")
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(header)
        for threads in THREADS:
            for freq_khz in FREQS_KHZ:
                clock = freq_khz / FREQS_KHZ[-1]
                core = (serial + (1 - serial) / threads) / clock
                bus = serial + (1 - serial) / min(threads, 16)
                time_s = scale * ((1 - memory) * core + memory * bus) * dice.gauss(1, 0.005)
                power_w = idle_w + core_w * threads * (0.3 + 0.7 * clock**2.5)
                rows.writerow((1, 1, threads, freq_khz, f"{time_s:.3f}", f"{time_s * power_w:.1f}"))


def prepare(way: Way) -> dict[str, str]:
    """Import a dozen runs of each application and fit them; return what the verbs said."""
    rules = "".join(RULE.format(a) for a in range(APPLICATIONS))
    (way.folder / "site.yaml").write_text(SITE + rules)
    (way.folder / "policy.yaml").write_text(POLICY)
    said = {name: way.verb(f"{name} apply") for name in ("site", "policy")}
    for application in range(APPLICATIONS):
        dice = random.Random(application)
        for node_type in ("broadwell", "skylake")[: 1 + application % 2]:
            grid = way.folder / f"grid{application}.csv"
            write_grid(grid, application, node_type, dice)
            header, *cells = grid.read_text().splitlines()
            baseline = cells[-1]
            part = way.folder / "part.csv"
            whole = application % 4 < 2
            runs = cells if whole else [baseline, *dice.sample(cells[:-1], RUNS - 1)]
            part.write_text("\n".join([header, *runs]) + "\n")
            words = f"app{application} --node-type {node_type}"
            said[f"import {words}"] = way.verb(f"import part.csv --application {words}")
        said[f"fit app{application}"] = way.verb(f"fit app{application}")
    return said


def draw_job(dice: random.Random, folder: Path, number: int) -> tuple[str, Path, list[str]]:
    """Write a drawn job script; return its scheduler, its path and the options beside it."""
    scheduler = "slurm" if dice.random() < 0.7 else "pbs"
    run = "srun" if scheduler == "slurm" else ""
    a, b = dice.randrange(APPLICATIONS), dice.randrange(APPLICATIONS)
    body = dice.choice(BODIES if dice.random() < 0.5 else BODIES[:2]).format(run=run, a=a, b=b)
    path = folder / f"job{number}.sh"
    if scheduler == "pbs":
        walltime = dice.choice(
            ("", "#PBS -l walltime=9:00:00\n", "#PBS -l walltime=9:00:00 -l place=excl\n")
        )
        path.write_text(f"#!/bin/bash\n#PBS -l select={dice.choice(CHUNKS)}\n{walltime}{body}")
        return scheduler, path, []
    options = dice.choice(SIZES if dice.random() < 0.4 else SIZES[:2]).split()
    if dice.random() < 0.7:  # without a limit nothing slower is chosen
        options += ["-t", "1:00:00"]
    for extra in dice.sample(EXTRAS, dice.choice((0, 0, 1, 1, 2))):
        options += extra.split()
    if dice.random() < 0.5:
        path.write_text(f"#!/bin/bash\n#SBATCH {' '.join(options)}\n{body}")
        return scheduler, path, []
    path.write_text(f"#!/bin/bash\n{body}")
    return scheduler, path, options


def ask_daemon(way: Way, requests: int) -> list[str]:
    """Return a line for each drawn submission: what the hook would send, and the answer."""
    from advisor.core.protocol import call
    from advisor.errors import AdvisorError
    from advisor.schedulers.submission import payload_of

    command = [sys.executable, "-m", "advisor", "serve", "--watch", "0"]
    with (way.folder / "serve.log").open("w") as log:
        daemon = subprocess.Popen(command, env=way.environment, cwd=way.folder, stderr=log)
    socket = way.folder / "s"
    lines = []
    try:
        for attempt in range(200):
            try:
                call(socket, {"op": "ping"})
                break
            except AdvisorError:
                if attempt == 199:
                    raise
                time.sleep(0.1)
        dice = random.Random(11)
        for number in range(requests):
            scheduler, path, options = draw_job(dice, way.folder, number)
            hook = "cli_filter" if scheduler == "slurm" else "queuejob"
            try:
                payload = payload_of(path, options, scheduler=scheduler)
                question = {"v": 1, "op": "decide", "scheduler": scheduler, "hook": hook, **payload}
                answer = call(socket, question)
            except AdvisorError as error:
                lines.append(f"{options} {path.read_text()!r} refused: {error}")
                continue
            lines.append(json.dumps([payload, answer], sort_keys=True))
    finally:
        daemon.terminate()
        daemon.wait(60)
    return lines


def collect_month(way: Way) -> None:
    """Let the advised jobs have run, spread over 30 days, and collect how they came out."""
    from advisor.core.stamp import make_stamp
    from advisor.loop.collect import collect
    from advisor.schedulers.base import JobRecord, StepRecord
    from advisor.store.reader import Reader
    from advisor.store.writer import Writer

    with Reader(way.store) as store:
        decisions = store.decisions(limit=100_000)
    decisions.sort(key=lambda d: (d.application, d.baseline_time_s or 0, d.changed, str(d.chosen)))
    dice, end, jobs = random.Random(5), datetime.now(UTC), []
    for number, decision in enumerate(decisions):
        at = end - timedelta(days=30) + timedelta(days=30) * number / len(decisions)
        chosen = decision.chosen if decision.changed else None
        planned_s = chosen.time_s if chosen else decision.baseline_time_s or 600.0
        planned_j = chosen.energy_j if chosen else decision.baseline_energy_j or 2e5
        seconds = max(round(planned_s * dice.gauss(1, 0.02)), 1)
        joules = planned_j * dice.gauss(1, 0.02)
        cap = decision.configuration.freq_khz if decision.configuration and chosen else None
        step = StepRecord("0", "app", "COMPLETED", seconds, 1, 1, joules, cap, cap, 28)
        job = JobRecord(
            str(1000 + number),
            "run",
            decision.user,
            decision.account,
            "COMPLETED",
            at.isoformat(),
            seconds,
            1,
            "b1",
            joules,
            cap,
            cap,
            admin_comment=make_stamp(replace(decision, created_at=at.isoformat())),
            cpus=28,
            steps=(step,),
            ended_at=(at + timedelta(seconds=seconds)).isoformat(),
        )
        jobs.append(job)

    class Accounting:
        NAME = "slurm"

        def finished_jobs(self, since: str) -> list[JobRecord]:
            return jobs

        def unfinished_jobs(self) -> list[JobRecord]:
            return []

    with Writer(way.store) as writer:
        collect(writer, Accounting(), end - timedelta(days=40))  # type: ignore[arg-type]


NEW_EACH_TIME = re.compile(
    r"(?P<moment>\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?)"
    r"|(?P<id>(?<![\w.])[0-9a-f]{12,64}\b)"
    r"|(?P<second>\b1[5-9]\d{8}(?:\.\d+)?\b)"
)


def plain(text: str, folder: Path) -> str:
    """Return ``text`` with ids, moments and the folder as what they are, not which."""
    text = text.replace(str(folder), "FOLDER")
    return NEW_EACH_TIME.sub(lambda match: f"<{match.lastgroup}>", text)


def rows_of(store: Path, folder: Path) -> dict[str, list[str]]:
    """Return the rows of every table as text, sorted: ids and moments differ in every run."""
    with sqlite3.connect(store) as db:
        names = [r[0] for r in db.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        return {
            name: sorted(plain(repr(row), folder) for row in db.execute(f"SELECT * FROM {name}"))
            for name in sorted(names)
        }


def record(path: Path, requests: int) -> None:
    with tempfile.TemporaryDirectory(prefix="advisor-unchanged-") as name:
        folder = Path(name)
        way = Way(folder)
        os.environ.update(HOME=name, ADVISOR_CONFIG_DIR=name, ADVISOR_DB=str(way.store))
        os.chdir(folder)
        outputs = prepare(way)
        answers = ask_daemon(way, requests)
        collect_month(way)
        for template in VERBS:
            for words in dict.fromkeys(template.format(a=a) for a in range(APPLICATIONS)):
                outputs[words] = way.verb(words)
        outputs["help"] = way.verb("--help", plain=True)
        rows = rows_of(way.store, folder)
        result = {
            "answers": [plain(line, folder) for line in answers],
            "outputs": {words: plain(text, folder) for words, text in outputs.items()},
            "rows": rows,
        }
    path.write_text(json.dumps(result, indent=0))
    changed = sum('\\"chg\\":1' in line for line in answers)
    print(
        f"{len(answers)} answers ({changed} change a job), {len(outputs)} outputs, "
        f"{sum(len(lines) for lines in rows.values())} rows: {path}"
    )


def compare(first: Path, second: Path) -> int:
    """Print what differs between two records; return how many things do."""
    a, b = json.loads(first.read_text()), json.loads(second.read_text())
    answers: int = sum(x != y for x, y in zip(a["answers"], b["answers"], strict=True))
    print(f"answers  {answers} of {len(a['answers'])} differ")
    for x, y in zip(a["answers"], b["answers"], strict=True):
        if x != y:
            print(f"  - {x[-600:]}\n  + {y[-600:]}")
            break
    outputs = [w for w in a["outputs"] | b["outputs"] if a["outputs"].get(w) != b["outputs"].get(w)]
    print(f"outputs  {len(outputs)} of {len(a['outputs'])} differ", *outputs[:20], sep="\n  ")
    tables = []
    for table in sorted(set(a["rows"]) | set(b["rows"])):
        left, right = (Counter(r["rows"].get(table, [])) for r in (a, b))
        if left != right:
            tables.append(table)
            gone, new = left - right, right - left
            print(f"rows     {table}: {gone.total()} only before, {new.total()} only now")
            for sign, some in (("-", gone), ("+", new)):
                print(*(f"  {sign} {row[:400]}" for row in list(some)[:1]), sep="\n")
    print(f"rows     {len(tables)} of {len(a['rows'])} tables differ")
    return answers + len(outputs) + len(tables)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    actions = parser.add_subparsers(dest="action", required=True)
    recording = actions.add_parser("record", help="write down what the installed advisor does")
    recording.add_argument("file", type=Path)
    recording.add_argument("--requests", type=int, default=1000)
    comparing = actions.add_parser("compare", help="print what differs between two records")
    comparing.add_argument("file", type=Path)
    comparing.add_argument("other", type=Path)
    asked = parser.parse_args()
    if asked.action == "record":
        record(asked.file.resolve(), asked.requests)
        return 0
    return int(compare(asked.file, asked.other) > 0)


if __name__ == "__main__":
    sys.exit(main())
