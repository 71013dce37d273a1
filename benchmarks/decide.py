"""How fast the daemon decides, and whether that depends on how much it knows.

Prints, side by side for growing stores: time and memory to load all models; the decision itself;
the daemon's whole time for an answer (parsing the request and making the stamp included) for a
job seen before and for a new one; and the round trip over the socket with a new connection each.
With --sizes, in turns: first answers for known inputs and for sizes that never ran.
With --classes, in turns: a store of fitted models, the same with as many class models, and jobs of
applications that have only those (a class model's trial is looked up with its options).
With --steps, in turns: first answers for a job that is advised as a whole, and for jobs whose steps
are planned where they start, or not known.

    python benchmarks/decide.py [--models 10,1000,10000] [--requests 3000]
        [--classes] [--sizes] [--steps]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from statistics import NormalDist, median
from typing import Any

from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.core.observation import Observation
from advisor.core.option import Option
from advisor.core.trial_points import PERCENT, TrialPoints
from advisor.derive.worker import deriving
from advisor.store.writer import Writer

FREQS = tuple(range(1_200_000, 2_300_000, 100_000))
NODE = NodeType(
    "bdw",
    feature="broadwell",
    partitions=("batch",),
    sockets=2,
    cores=44,
    memory_mb=64_000,
    freq_khz=FREQS,
    default_freq_khz=2_200_000,
    nodes=("bdw1",),
    default_partition="batch",
)


def options() -> list[Option]:
    """121 options, 11 thread counts by 11 frequencies, as in the thesis."""
    found = []
    for threads in range(4, 45, 4):
        for freq in FREQS:
            t = 100 * (24 / min(threads, 24)) * (2.2e6 / freq) ** 0.2
            e = t * (90 + threads * (1.5 + 3 * (freq / 2.2e6) ** 3))
            c = Configuration("bdw", 1, 1, threads, freq)
            found.append(
                Option(
                    c,
                    t,
                    t * 0.99,
                    t * 1.01,
                    e,
                    e * 0.99,
                    e * 1.01,
                    measured=True,
                    confirmed=True,
                    in_zone=True,
                )
            )
    return found


def fill(path: Path, models: int, by_class: int = 0) -> None:
    """Write ``models`` models of 121 options each, every one of another application.

    Then so many class models more, of applications that have no other.
    """
    table = options()
    with Writer(path) as store:
        store.save_node_types([NODE], source="benchmark")
        base: dict[str, object] = {"mode": "apply", "goal": "min_energy", "holdout": 0.0}
        base["cold_start"] = {"mode": "apply", "classes": ["memory-bound"]}
        store.apply_config(
            "policy", path="-", text="-", compiled={"base": base, "rules": []}, by="benchmark"
        )
        store.save_model(
            "app0",
            "default",
            "bdw",
            scope="all",
            owner="",
            name="bspline",
            energy_quality="measured",
            n_train=12,
            stats={},
            options=table,
        )
    copy_models(path, "app0", range(1, models))
    if by_class:
        with Writer(path) as store:
            own = max(table, key=lambda o: (o.configuration.threads_per_node, o.configuration))
            estimates = [o if o is own else estimate(o) for o in table]
            z = [NormalDist().inv_cdf(p / 100) for p in PERCENT]
            values = ((0.02, 0.01 + i / 1e4, 0.0, -0.05) for i in range(len(table)))
            points = TrialPoints(tuple(z), tuple(values))
            cold = {
                "class": "memory-bound",
                "strategy": "default",
                "method": "gp",
                "applications": 12,
                "like": ["a", "b"],
                "own": own.configuration.to_dict(),
                "signature": {"gbs": 90.0},
                "trials": [],
                "unlike": False,
                "trial_points": points.to_dict(),
            }
            store.save_model(
                f"app{models}",
                "default",
                "bdw",
                scope="all",
                owner="",
                name="class",
                energy_quality="measured",
                n_train=0,
                stats={"cold_start": cold},
                options=estimates,
            )
        copy_models(path, f"app{models}", range(models + 1, models + by_class))


def estimate(option: Option) -> Option:
    """Return what a class model would know of an option."""
    t, e = option.time_s, option.energy_j
    return Option(
        option.configuration, t, t / 1.05, t * 1.05, e, e / 1.05, e * 1.05, estimated=True
    )


def copy_models(path: Path, first: str, numbers: Iterable[int]) -> None:
    """Make copies of a model under other names; one by one would take minutes."""
    import sqlite3

    with sqlite3.connect(path) as db:
        db.executemany(
            "INSERT INTO workloads (application, name, created_at) VALUES (?, 'default', 'now')",
            [(f"app{i}",) for i in numbers],
        )
        columns = [r[1] for r in db.execute("PRAGMA table_info(models)")]
        copied = [c for c in columns if c not in ("id", "workload_id")]
        kept, values = ", ".join(copied), ", ".join(f"m.{c}" for c in copied)
        db.execute(
            f"INSERT INTO models (workload_id, {kept}) SELECT w.id, {values} FROM workloads AS w, "
            "models AS m WHERE w.id NOT IN (SELECT workload_id FROM models) AND m.workload_id ="
            " (SELECT id FROM workloads WHERE application = ?)",
            (first,),
        )


def request(application: int) -> bytes:
    """Return a submission as the filter sends it."""
    script = (
        f"#!/bin/bash\n#SBATCH -N 1\n#SBATCH --exclusive\n#SBATCH -t 60\nmodule load gcc\n"
        f"cd $SLURM_SUBMIT_DIR\nsrun ./app{application} input.dat > out.txt\n"
    )
    body = {
        "v": 1,
        "op": "decide",
        "scheduler": "slurm",
        "hook": "cli_filter",
        "type": "sbatch",
        "options": {"nodes": "1", "exclusive": "exclusive", "time": "01:00:00"},
        "argv": ["/home/u/job.sh"],
        "script": script,
        "script_path": "/home/u/job.sh",
        "truncated": False,
        "env": {},
        "choices": "",
        "cwd": "/home/u",
        "het": False,
        "plan": 1,
    }
    return json.dumps(body).encode() + b"\n"


def quantiles(values: list[float]) -> tuple[float, float]:
    """Median and 99th percentile in microseconds."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2] * 1e6, ordered[int(len(ordered) * 0.99)] * 1e6


def in_process(path: Path, models: int, requests: int, start: int = 0) -> dict[str, float]:
    """Load and decide in a process of its own, so that memory can be told.

    Jobs are of applications ``start`` to ``start + models``.
    """
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import decide, json, pathlib\n"
        "print(json.dumps(decide.measure(pathlib.Path(sys.argv[2]), int(sys.argv[3]), "
        "int(sys.argv[4]), int(sys.argv[5]))))"
    )
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", code, here, str(path), str(models), str(requests), str(start)],
        capture_output=True,
        text=True,
        check=True,
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


def measure(path: Path, models: int, requests: int, start: int = 0) -> dict[str, float]:
    """Time loading and deciding inside this process."""
    import gc

    from advisor.core.protocol import parse_request_line
    from advisor.schedulers.slurm.translator import parse_request
    from advisor.service.decide import decide
    from advisor.service.handlers import Handlers
    from advisor.service.peer import Peer
    from advisor.service.snapshot import StoreSource

    peer = Peer(os.getpid(), os.getuid(), os.getgid())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    handlers = Handlers(StoreSource(path))
    handlers.refresh()
    load_s = time.perf_counter() - began
    memory_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert len(handlers.source.snapshot.models) >= start + models
    gc.collect()
    gc.freeze()
    gc.disable()  # as the daemon does, which collects between answers
    draw = random.Random(7)
    order = [start + draw.randrange(models) for _ in range(requests)]
    lines = {i: request(i)[:-1] for i in set(order)}
    times: dict[str, list[float]] = {"first": [], "again": []}
    seen: set[int] = set()
    for i in order:
        began = time.perf_counter()
        answer = handlers.answer(lines[i], peer)
        times["again" if i in seen else "first"].append(time.perf_counter() - began)
        seen.add(i)
        assert b'"rewrite":{"' in answer, answer
    for i in order[: requests // 3]:
        began = time.perf_counter()
        handlers.answer(lines[i], peer)
        times["again"].append(time.perf_counter() - began)
    own = []
    for i in order[: requests // 3]:
        payload = parse_request_line(lines[i])
        job = parse_request(payload, user="root", uid=0, choices={})
        began = time.perf_counter()
        decide(job, handlers.source.snapshot)
        own.append(time.perf_counter() - began)
    first, again, alone = (
        quantiles(times["first"]),
        quantiles(times["again"]),
        quantiles(own),
    )
    return {
        "own_p50": alone[0],
        "own_p99": alone[1],
        "load_s": load_s,
        "memory_mb": memory_mb,
        "first_p50": first[0],
        "first_p99": first[1],
        "again_p50": again[0],
        "again_p99": again[1],
    }


def side_by_side(models: int, requests: int) -> None:
    """Print the same jobs' times without and with class models, in turns, and jobs of those."""
    print(f"{models} models: decision p50/p99 us, answer, first answer; the median of 5 turns")
    with tempfile.TemporaryDirectory(prefix="advisor-bench-") as folder:
        plain, both = Path(folder) / "plain.db", Path(folder) / "both.db"
        fill(plain, models)
        fill(both, models, models)
        kinds = {
            "without class models": (plain, 0),
            "with as many": (both, 0),
            "jobs of those": (both, models),
        }
        turns: dict[str, list[dict[str, float]]] = {name: [] for name in kinds}
        for _ in range(5):
            for name, (path, start) in kinds.items():
                turns[name].append(in_process(path, models, requests, start))
    for name, found in turns.items():
        middle = {k: median(r[k] for r in found) for k in found[0]}
        parts = (
            f"{middle[f'{k}_p50']:6.0f} /{middle[f'{k}_p99']:6.0f}"
            for k in ("own", "again", "first")
        )
        print(f"{name:22}" + "   ".join(parts))


def fill_family(path: Path) -> None:
    """Write a family of three sizes, the largest with a model of 121 options."""
    table = options()
    with deriving(path) as store:
        store.save_node_types([NODE], source="benchmark")
        base = {"mode": "apply", "goal": "min_energy", "holdout": 0.0, "extrapolated": "accept"}
        store.apply_config(
            "policy", path="-", text="-", compiled={"base": base, "rules": []}, by="benchmark"
        )
        for n, some in ((1e6, table[::40]), (2e6, table[::40]), (4e6, table[::10])):
            runs = [
                Observation(o.configuration, o.time_s * n / 4e6, o.energy_j * n / 4e6, scope="all")
                for o in some
            ]
            store.add_observations("app0", f"input.dat -n {n:.0f}", runs)
        for workload in ("input.dat -n 4000000", "input.dat"):
            store.save_model(
                "app0",
                workload,
                "bdw",
                scope="all",
                owner="",
                name="bspline",
                energy_quality="measured",
                n_train=13,
                stats={},
                options=table,
            )


TURNS = 5


def forget(snapshot: Any) -> None:
    """Forget what was worked out for requests; what was read from the store stays."""
    for memory in (snapshot.choices, snapshot.baselines, snapshot._sized, snapshot._longest):
        memory.clear()


UNDISTURBED = 1.15
"""How many times its least the plain loop may take for what ran beside it to count."""


def new_sizes(requests: int) -> None:
    """Print first answers: the known input under ever new scripts, and ever new sizes.

    Each is made in ``TURNS`` turns and forgotten in between. Printed are all the times; those
    where the machine was ours, which a plain loop of fixed work before and after shows (a virtual
    machine shares its cores without a word); and the least of each request.
    """
    import gc

    from advisor.core.protocol import parse_request_line
    from advisor.schedulers.slurm.translator import parse_request
    from advisor.service.decide import decide
    from advisor.service.handlers import Handlers
    from advisor.service.peer import Peer
    from advisor.service.snapshot import StoreSource

    peer = Peer(os.getpid(), os.getuid(), os.getgid())
    draw = random.Random(7)
    times: defaultdict[str, list[list[tuple[float, float]]]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="advisor-bench-") as folder:
        path = Path(folder) / "family.db"
        fill_family(path)
        handlers = Handlers(StoreSource(path))
        handlers.refresh()
        gc.collect()
        gc.freeze()
        gc.disable()
        for i in range(requests):
            new = f"input.dat -n {draw.randint(4_000_001, 16_000_000)}"
            for name, words in (("known input", "input.dat"), ("new size", new)):
                alone, whole = [], []
                for turn in range(TURNS):
                    line = request(0).replace(b"input.dat", words.encode())
                    line = line.replace(b"module load gcc", b"module load gcc/%d.%d" % (i, turn))
                    job = parse_request(parse_request_line(line[:-1]), user="u", uid=0, choices={})
                    forget(handlers.source.snapshot)
                    alone.append(timed(partial(decide, job, handlers.source.snapshot)))
                    line = line.replace(b"module load gcc", b"module load icc")
                    forget(handlers.source.snapshot)
                    whole.append(timed(partial(handlers.answer, line[:-1], peer)))
                times[f"{name}, decision"].append(alone)
                times[f"{name}, answer"].append(whole)
    fastest = min(loop for rows in times.values() for row in rows for _, loop in row)
    print("us of processor time        all p50/p99      undisturbed p50/p99     least p50/p99")
    for name, rows in times.items():
        every = [took for row in rows for took, _ in row]
        ours = [took for row in rows for took, loop in row if loop <= UNDISTURBED * fastest]
        columns = every, ours, [min(row)[0] for row in rows]
        shown = "".join(f"{p50:10.0f} /{p99:6.0f}" for p50, p99 in map(quantiles, columns))
        print(f"{name:24}{shown}   ({len(ours) / len(every):.0%} undisturbed)")


STEPS = {
    "advised as a whole": "srun ./app{} input.dat",
    "two unknown programs": "srun ./mesh{} a\nsrun ./flow b",
    "one program planned": "srun ./mesh a\nsrun ./app{} input.dat",
    "three programs planned": "srun ./app{0} a\nsrun ./app1{0} b\nsrun ./app2{0} c",
}
"""What a script starts, by the number of an application."""


def planned_steps(requests: int) -> None:
    """Print first answers for jobs of STEPS, the least of ``TURNS`` of each, and answers again."""
    import gc

    from advisor.service.handlers import Handlers
    from advisor.service.peer import Peer
    from advisor.service.snapshot import StoreSource

    peer = Peer(os.getpid(), os.getuid(), os.getgid())
    print("us of processor time     first answer p50/p99   answer again p50/p99")
    with tempfile.TemporaryDirectory(prefix="advisor-bench-") as folder:
        path = Path(folder) / "steps.db"
        fill(path, 1000)
        handlers = Handlers(StoreSource(path))
        handlers.refresh()
        gc.collect()
        gc.freeze()
        gc.disable()
        for name, body in STEPS.items():
            first, again = [], []
            for i in range(requests):
                turns = []
                for turn in range(TURNS):
                    line = request(0).replace(
                        b"srun ./app0 input.dat > out.txt",
                        json.dumps(body.format(i % 90))[1:-1].encode(),
                    )
                    line = line.replace(b"load gcc", b"load gcc/%d.%d" % (i, turn))[:-1]
                    forget(handlers.source.snapshot)
                    answer = partial(handlers.answer, line, peer)
                    turns.append(timed(answer)[0])
                first.append(min(turns))
                again.append(min(timed(answer)[0] for _ in range(TURNS)))
                assert (b'"plan":' in answer()) == name.endswith("planned")
                handlers.settle()
            columns = "".join(
                f"{p50:11.0f} /{p99:6.0f}" for p50, p99 in map(quantiles, (first, again))
            )
            print(f"{name:24}{columns}")


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return the processor time of some work and of the slower of two plain loops around it."""
    before = plain_loop()
    began = time.process_time()
    result = work()
    took = time.process_time() - began
    assert result
    return took, max(before, plain_loop())


def plain_loop() -> float:
    """Return the processor time of work that is always the same."""
    began, total = time.process_time(), 0
    for k in range(1000):
        total += k * k % 7
    return time.process_time() - began


def round_trip(path: Path, requests: int) -> tuple[float, float]:
    """Time whole exchanges with a real daemon, a new connection each."""
    folder = path.parent
    command = [sys.executable, "-m", "advisor", "serve", "--db", str(path)]
    command += ["--socket", str(folder / "s"), "--log-level", "warning"]
    daemon = subprocess.Popen(command)
    try:
        while not (folder / "s").exists():
            time.sleep(0.05)
        line, times = request(1), []
        for _ in range(requests):
            start = time.perf_counter()
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(folder / "s"))
                client.sendall(line)
                while not client.recv(65536).endswith(b"\n"):
                    pass
            times.append(time.perf_counter() - start)
    finally:
        daemon.terminate()
        daemon.wait()
    return quantiles(times)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="10,1000,10000")
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--classes", action="store_true", help="compare with class models")
    parser.add_argument("--sizes", action="store_true", help="compare with sizes that never ran")
    parser.add_argument("--steps", action="store_true", help="compare with planned steps")
    args = parser.parse_args()
    if args.steps:
        planned_steps(args.requests)
        return
    if args.sizes:
        new_sizes(args.requests)
        return
    if args.classes:
        for models in (int(n) for n in args.models.split(",")):
            side_by_side(models, args.requests)
        return
    print(
        "models  load s  memory MB   decision p50/p99 us    answer p50/p99 us"
        "   first time p50/p99 us   over the socket p50/p99 us"
    )
    base: dict[str, float] | None = None
    with tempfile.TemporaryDirectory(prefix="advisor-bench-") as folder:
        for models in (int(n) for n in args.models.split(",")):
            path = Path(folder) / f"m{models}.db"
            fill(path, models)
            r = in_process(path, models, args.requests)
            trip = round_trip(path, args.requests)
            base = base or r
            print(
                f"{models:6d}  {r['load_s']:6.2f}  {r['memory_mb']:9.0f}   "
                f"{r['own_p50']:10.0f} /{r['own_p99']:6.0f}"
                f"      {r['again_p50']:6.0f} /{r['again_p99']:6.0f}"
                f"       {r['first_p50']:6.0f} /{r['first_p99']:6.0f}"
                f"          {trip[0]:6.0f} /{trip[1]:6.0f}"
                f"   (decision x{r['own_p50'] / base['own_p50']:.2f} of the smallest)"
            )


if __name__ == "__main__":
    main()
