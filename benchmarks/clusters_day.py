"""A day of five clusters on one store: real daemons, real requests, the real collector.

    python benchmarks/clusters_day.py [--store postgresql|sqlite] [--jobs 5000] [--rate 250]
        [--models 100] [--history 10000] [--kills 0] [--short] [--own-hosts] [--seed 1]
        [--folder DIR] [--json]

Three Slurm clusters and two PBS ones share a store, in PostgreSQL (a private server that is started
here) or a file, which begins with ``--history`` jobs of the last 30 days. Each cluster has a daemon
of its own, to which ``--jobs`` submissions come over its socket, a connection each, ``--rate`` a
second on all clusters together (200,000 a day on each are 11.6). A job ends as soon as it is
submitted: its row stands in its cluster's accounting from then on, with the stamp of its answer.
sacct and qstat are stand-ins that print these rows; ``advisor collect`` is the real one and runs
again and again, in PostgreSQL one for each cluster at once, as from hosts of their own, on a file
one after the other. All jobs lie within the six hours that each collection reads again. Daemons and
collections have the priorities of config/systemd.

``--own-hosts``: those who submit, and the daemons, get a processor whenever they want one
(SCHED_RR), as if database and collections were on hosts of their own. Without it they wait for one
as everything here does, and on two cores that is most of what a slow submission takes.

``--kills``: so many times, at moments drawn by ``--seed``, a daemon, a collector, a mover that
copies the store elsewhere or, in PostgreSQL, every process of the database gets SIGKILL and is
started again.

Then it counts: each decision that was answered must be in the store once, and so must each job's
outcome. Submissions are compared with those to an idle daemon, at the pace of one cluster, before
and after the day. ``collect`` is behind by the time from a job's end until its outcome is stored.
Report, publish and backup are timed last, and how long it takes until a daemon serves a policy that
was just applied.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

import growth
from decide import NODE, quantiles, request

from advisor.core.decision import Decision
from advisor.core.stamp import read_stamp
from advisor.schedulers.base import JobRecord, StepRecord
from advisor.store.move import move
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from tests import postgresql

USERS = ("root", "daemon", "bin", "sys", "games", "man", "mail", "news", "nobody", "backup")
"""Users that every Debian knows: the daemon looks their names up."""
FIRST = 5_000_000
"""The number of the first job of the day on each cluster."""
DAEMON, COLLECTION = ("nice", "-n", "-5"), ("nice", "-n", "10", "ionice", "-c", "3")
"""What gives them the priorities of their units; only root gets the first."""
AT_ONCE = ("chrt", "--rr", "1")
"""What gives a daemon the processor before everything that is not in this class; root's alone."""
A_DAY = 200_000
"""Submissions of a day on each cluster that the figures are held against."""
IDLE, IDLE_S = 1000, 20.0
"""Submissions to the idle daemon, before the day and after it, and the seconds they may take."""
PAUSE_S = 1.0
"""Between two collections of a cluster."""

_SLURM = """#!/bin/sh
for word; do case $word in --delimiter=*) parted=${word#--delimiter=};; esac; done
head -n "$(wc -l < "$ADVISOR_DAY_JOBS")" "$ADVISOR_DAY_JOBS" | sed "s/\\t/$parted/g"
"""
_PBS = """#!/bin/sh
case "$*" in *-B*)
    echo '{"Server": {"'"$ADVISOR_DAY_CLUSTER"'": {"job_history_enable": "True"}}}'; exit;;
*-x*)
    echo '{"Jobs": {'
    head -n "$(wc -l < "$ADVISOR_DAY_JOBS")" "$ADVISOR_DAY_JOBS" | sed '1s/^,//'
    echo '}}'; exit;;
esac
echo '{}'
"""


@dataclass
class Cluster:
    """One of the clusters, with what came of its day."""

    name: str
    scheduler: str
    folder: Path
    own_host: bool = False
    """Whether its daemon, and those who submit to it, never wait for a processor."""
    daemon: subprocess.Popen[bytes] | None = None
    collector: subprocess.Popen[bytes] | None = None
    starts: list[float] = field(default_factory=list)
    """When each collection began (s), and when it was done."""
    ends: list[float] = field(default_factory=list)
    collected: Counter[str] = field(default_factory=Counter)
    said: list[str] = field(default_factory=list)
    """What collections that failed said."""
    collections_s: float = 0.0
    """Seconds of processor time of its collections."""

    @property
    def socket(self) -> Path:
        """Return where its daemon answers."""
        return self.folder / "socket"

    @property
    def jobs(self) -> Path:
        """Return the file of its accounting."""
        return self.folder / "jobs"

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of a host of the cluster."""
        return {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "XDG_STATE_HOME": str(self.folder / "state"),
            "ADVISOR_DAY_JOBS": str(self.jobs),
            "ADVISOR_DAY_CLUSTER": self.name,
            "ADVISOR_CONFIG_DIR": str(self.folder / "config"),
            "ADVISOR_SOCKET": str(self.socket),
        }

    def prepare(self, store: Path) -> None:
        """Make its programs and its node types, the same nodes in its scheduler's words."""
        (self.folder / "bin").mkdir(parents=True)
        self.jobs.touch()
        programs = {"sacct": _SLURM, "squeue": "#!/bin/sh\n", "qstat": _PBS}
        for name, text in programs.items():
            (self.folder / "bin" / name).write_text(text)
            (self.folder / "bin" / name).chmod(0o755)
        node = NODE
        if self.scheduler == "pbs":
            node = replace(NODE, feature="node_type=bdw", partitions=("workq",))
        with Writer(store) as writer:
            writer.save_node_types([node], source=self.scheduler, cluster=self.name)

    def serve(self, store: Path) -> None:
        """Start its daemon, and wait until it answers."""
        command = list(AT_ONCE if self.own_host else DAEMON)
        command += [sys.executable, "-m", "advisor", "serve", "--socket", str(self.socket)]
        command += ["--db", str(store), "--watch", "0"]
        with (self.folder / "log").open("ab") as log:
            self.daemon = subprocess.Popen(command, stderr=log, env=self.environment)
        for _ in range(1200):
            with suppress(OSError, ValueError):
                if ask(self.socket, b'{"v":1,"op":"ping"}\n').get("pong"):
                    return
            time.sleep(0.05)
        raise SystemExit(f"clusters_day: no daemon: {(self.folder / 'log').read_text()[-2000:]}")

    def line(self, number: int) -> bytes:
        """Return a submission as the cluster's hook sends it."""
        asked = json.loads(request(number % 110))
        asked["script"] = asked["script"].replace(" input.dat", "")  # of all workloads
        user = USERS[number // 7 % len(USERS)]
        if self.scheduler == "slurm":
            asked["options"] |= {"time": "12:00:00", "account": f"account{number % 20}"}
            asked |= {"cluster": self.name, "user": user}
        else:
            asked = {
                "v": 1,
                "op": "decide",
                "scheduler": "pbs",
                "hook": "queuejob",
                "cluster": self.name,
                "user": user,
                "options": {
                    "select": f"1:ncpus={NODE.cores}:mpiprocs=1:ompthreads={NODE.cores}",
                    "place": "scatter:excl",
                    "walltime": "12:00:00",
                    "account": f"account{number % 20}",
                },
                "script": f"./app{number % 110} > out.txt\n",
                "env": {},
                "cwd": "/home/u",
            }
        return json.dumps(asked).encode() + b"\n"

    def row(self, number: int, made: Decision, stamp: str) -> str:
        """Return what its accounting says of a job that took what was predicted."""
        point = made.chosen if made.stamped_change else None
        elapsed_s = round((point.time_s if point else made.baseline_time_s or 600.0) * 1.001)
        energy_j = (point.energy_j if point else made.baseline_energy_j) or 2e5
        at = datetime.now(UTC)
        where = point.configuration if point else None
        job_id, user = str(FIRST + number), USERS[number // 7 % len(USERS)]
        if self.scheduler == "pbs":
            threads = where.threads_per_node if where else NODE.cores
            select = f"1:ncpus={NODE.cores}:mpiprocs=1:ompthreads={threads}"
            job = {
                "Job_Name": "run",
                "Job_Owner": f"{user}@login",
                "job_state": "F",
                "queue": "workq",
                "Account_Name": f"account{number % 20}",
                "ctime": int(at.timestamp()),
                "obittime": int(at.timestamp()) + elapsed_s,
                "exec_host": f"bdw1/0*{NODE.cores}",
                "Exit_status": 0,
                "run_count": 1,
                "Resource_List": {
                    "advisor_stamp": stamp,
                    "ncpus": NODE.cores,
                    "select": select,
                    "place": "scatter:excl",
                    "walltime": "12:00:00",
                },
                "resources_used": {
                    "walltime": f"{elapsed_s // 3600:02d}:{elapsed_s // 60 % 60:02d}"
                    f":{elapsed_s % 60:02d}",
                    "energy_j": str(round(energy_j)),
                    "energy_nodes": 1,
                },
            }
            return f',"{job_id}.{self.name}": {json.dumps(job)}\n'
        cap = where.freq_khz if where else None
        cpus = NODE.cores * NODE.threads_per_core
        step = StepRecord("0", "app", "COMPLETED", elapsed_s, 1, 1, energy_j, cap, cap, cpus)
        record = JobRecord(
            job_id,
            "run",
            user,
            f"account{number % 20}",
            "COMPLETED",
            at.isoformat(timespec="seconds"),
            elapsed_s,
            1,
            "bdw1",
            energy_j,
            cap,
            cap,
            admin_comment=stamp,
            partition="batch",
            cpus=cpus,
            steps=(step,),
            ended_at=(at + timedelta(seconds=elapsed_s)).isoformat(timespec="seconds"),
        )
        return growth.sacct_rows([record])

    def collect(self, store: Path) -> None:
        """Run one collection and note what came of it."""
        command = [*COLLECTION, sys.executable, "-m", "advisor", "collect", "--db", str(store)]
        command += ["--json", "--scheduler", self.scheduler, "--cluster", self.name]
        began = time.monotonic()
        with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as problems:
            self.collector = subprocess.Popen(
                command, env=self.environment, stdout=said, stderr=problems
            )
            code, self.collector = self._ended(self.collector), None
            said.seek(0)
            problems.seek(0)
            out, err = said.read(), problems.read()
        if code:
            self.said.append(err.strip() or f"signal {-code}")
            return
        answer = json.loads(out)
        self.starts.append(began)
        self.ends.append(time.monotonic())
        self.collected += Counter(new=answer["new"], stamps=answer["decisions_from_stamps"])
        self.collected += Counter(answer["verdicts"])
        self.collected["failed"] += len(answer["skipped"])
        self.collected["known"] = answer["known"]

    def _ended(self, collector: subprocess.Popen[bytes]) -> int:
        """Wait for a collection, count what it took, and return its exit code."""
        _, status, used = os.wait4(collector.pid, 0)
        self.collections_s += used.ru_utime + used.ru_stime
        collector.returncode = os.waitstatus_to_exitcode(status)
        return collector.returncode


def processor_s(pid: int, *, children: bool = False) -> float:
    """Return the processor seconds of a process, or also of its children, now and before."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    spent = sum(map(int, words[11 : 15 if children else 13])) / os.sysconf("SC_CLK_TCK")
    if children:
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with suppress(OSError):  # it has ended
                spent += processor_s(int(child))
    return spent


def ask(path: Path, line: bytes) -> dict[str, Any]:
    """Send a line over a connection of its own, as a hook does, and return the answer."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5.0)
        client.connect(str(path))
        client.sendall(line)
        data = b""
        while not data.endswith(b"\n"):
            if not (part := client.recv(65536)):
                raise OSError("the daemon is gone")
            data += part
    answer: dict[str, Any] = json.loads(data)
    return answer


def submit(
    cluster: Cluster,
    count: int,
    rate: float,
    begins: threading.Event,
    results: SimpleQueue[dict[str, Any]],
) -> None:
    """Submit so many jobs, ``rate`` a second; put what was answered, and how fast, into a queue."""
    took, ids, unanswered = [], [], 0
    if cluster.own_host:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    begins.wait()
    begin = time.monotonic()
    descriptor = os.open(cluster.jobs, os.O_WRONLY | os.O_APPEND)
    for number in range(count):
        line = cluster.line(number)
        time.sleep(max(0.0, begin + number / rate - time.monotonic()))
        asked = time.perf_counter()
        try:
            answer = ask(cluster.socket, line)
        except OSError:  # the job goes through as it was written
            unanswered += 1
            continue
        took.append(time.perf_counter() - asked)
        made = read_stamp(answer["stamp"])
        assert made is not None, answer
        ids.append(made.id)
        os.write(descriptor, cluster.row(number, made, answer["stamp"]).encode())
    os.close(descriptor)
    wall_s = time.monotonic() - begin
    results.put({"took": took, "ids": ids, "unanswered": unanswered, "wall_s": wall_s})


class Users:
    """Those who submit to each cluster: processes that wait until they are told to begin.

    They must be made while there is no other thread: one that starts a program at that moment would
    wait for them, as they keep the pipe by which it learns that the program runs.
    """

    def __init__(self, clusters: list[Cluster], count: int, rate: float) -> None:
        context = multiprocessing.get_context("fork")
        self._begins = context.Event()
        self._queues = {c.name: context.SimpleQueue() for c in clusters}
        self._processes = [
            context.Process(
                target=submit,
                args=(c, count, rate / len(clusters), self._begins, self._queues[c.name]),
                daemon=True,
            )
            for c in clusters
        ]
        for process in self._processes:
            process.start()

    def submitted(self) -> dict[str, dict[str, Any]]:
        """Submit to all clusters at once; return by name what each one's submissions came to."""
        self._begins.set()
        results = {name: queue.get() for name, queue in self._queues.items()}
        for process in self._processes:
            process.join()
        return results


@contextmanager
def idle_daemon(store: Path, folder: Path, *, own_host: bool) -> Iterator[Cluster]:
    """Serve a copy of the store that nobody else touches."""
    folder.mkdir()
    shutil.copyfile(store, folder / "idle.db")
    idle = Cluster("slurm1", "slurm", folder / "idle", own_host)
    idle.prepare(folder / "idle.db")
    idle.serve(folder / "idle.db")
    try:
        yield idle
    finally:
        stop(idle)


def stop(cluster: Cluster) -> None:
    """End a daemon as systemd does."""
    assert cluster.daemon is not None
    cluster.daemon.terminate()
    cluster.daemon.wait(30)


class Collections:
    """The timers: collections of all clusters, until they are told to stop."""

    def __init__(self, clusters: list[Cluster], store: Path, *, at_once: bool) -> None:
        self._store, self._over = store, threading.Event()
        groups = [[c] for c in clusters] if at_once else [clusters]
        self._threads = [threading.Thread(target=self._run, args=(g,)) for g in groups]

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        """Let every cluster be collected once more after the last job ended."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, clusters: list[Cluster]) -> None:
        while True:
            last = self._over.is_set()
            for cluster in clusters:
                cluster.collect(self._store)
            if last:
                return
            self._over.wait(PAUSE_S)


class Kills(threading.Thread):
    """Kills one process after the other, at moments drawn anew, and starts it again."""

    def __init__(
        self,
        clusters: list[Cluster],
        store: Path,
        server: postgresql.Server | None,
        count: int,
        within_s: float,
        seed: int,
    ) -> None:
        super().__init__()
        self._clusters, self._store, self._server = clusters, store, server
        self._draw = random.Random(seed)
        self._moments = sorted(self._draw.uniform(0, within_s) for _ in range(count))
        self.killed: list[tuple[float, str]] = []
        """When (s after the start) what was killed."""

    def run(self) -> None:
        """Kill until all moments are over."""
        begin = time.monotonic()
        kinds = ["daemon", "collector", "mover", *(["database"] if self._server else [])]
        for moment in self._moments:
            time.sleep(max(0.0, begin + moment - time.monotonic()))
            cluster, kind = self._draw.choice(self._clusters), self._draw.choice(kinds)
            what = getattr(self, f"_kill_{kind}")(cluster)
            self.killed.append((round(time.monotonic() - begin, 1), what))

    def _kill_daemon(self, cluster: Cluster) -> str:
        assert cluster.daemon is not None
        cluster.daemon.kill()
        cluster.daemon.wait()
        cluster.serve(self._store)
        return f"daemon of {cluster.name}"

    def _kill_collector(self, cluster: Cluster) -> str:
        running = cluster.collector
        if running is None:
            return f"collector of {cluster.name}, which did not run"
        running.kill()
        return f"collector of {cluster.name}"

    def _kill_mover(self, cluster: Cluster) -> str:
        target = cluster.folder / "moved.db"
        command = [sys.executable, "-m", "advisor", "store", "move", "--copy"]
        command += ["--to", str(target)]
        if self._server is None:
            command[4:] = ["backup", str(target)]
        mover = subprocess.Popen(
            [*command, "--db", str(self._store)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with suppress(subprocess.TimeoutExpired):
            mover.wait(self._draw.uniform(0.1, 2.0))
        mover.kill()
        mover.wait()
        target.unlink(missing_ok=True)
        return "mover"

    def _kill_database(self, _: Cluster) -> str:
        assert self._server is not None
        self._server.kill()
        time.sleep(self._draw.uniform(0.0, 1.0))
        self._server.start()
        return "database"


def behind(store: Path, cluster: str) -> dict[str, float]:
    """Return how long jobs waited for their outcomes: seconds, the median, 99 % and all."""
    sql = "SELECT submitted_at, collected_at FROM outcomes WHERE cluster = ? AND job_id >= ?"
    with Reader(store) as reader:
        rows = reader.rows(sql, (cluster, str(FIRST)))
    waited = sorted(
        (datetime.fromisoformat(row[1]) - datetime.fromisoformat(row[0])).total_seconds()
        for row in rows
    )
    if not waited:
        return {}
    at = {"p50": 0.5, "p99": 0.99, "most": 1.0}
    return {name: waited[min(len(waited) - 1, int(len(waited) * p))] for name, p in at.items()}


def noticed_s(store: Path, cluster: Cluster, times: int = 10) -> list[float]:
    """Return how long it took, each time, until a daemon decided by a policy just applied."""
    took = []
    for number in range(times):
        compiled = {"base": {"mode": "apply", "goal": "min_energy", "holdout": 0.0}, "rules": []}
        time.sleep(1.3 + number / times)
        with Writer(store) as writer:
            version = writer.apply_config(
                "policy", path="-", text=f"{number}", compiled=compiled, by="benchmark"
            )
        begin = time.monotonic()
        while (made := read_stamp(ask(cluster.socket, cluster.line(number))["stamp"])) is not None:
            if made.policy_version == version:
                break
            time.sleep(0.005)
        took.append(time.monotonic() - begin)
    return took


def counted(store: Path, ids: dict[str, list[str]]) -> dict[str, int]:
    """Return what of the answered decisions is in the store, and what is not as it has to be."""
    lost = twice = unlinked = without = 0
    for cluster, answered in ids.items():
        with Reader(store) as reader:
            sql = "SELECT id, job_id FROM decisions WHERE cluster = ?"
            decisions = {row[0]: row[1] for row in map(tuple, reader.rows(sql, (cluster,)))}
            sql = "SELECT decision_id, count(*) FROM outcomes WHERE cluster = ? GROUP BY 1"
            outcomes = {row[0]: row[1] for row in map(tuple, reader.rows(sql, (cluster,)))}
        lost += len(set(answered) - decisions.keys())
        unlinked += sum(not decisions.get(i) for i in answered)
        without += sum(i not in outcomes for i in answered)
        twice += len(answered) - len(set(answered)) + sum(n > 1 for n in outcomes.values())
    return {
        "answered": sum(map(len, ids.values())),
        "lost": lost,
        "twice": twice,
        "without_job": unlinked,
        "without_outcome": without,
    }


def timed(command: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """Run a command; return its seconds, those of the processor, and the megabytes it wrote."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd="/")
    wall_s = time.monotonic() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "wall_s": wall_s,
        "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "written_mb": (after.ru_oublock - before.ru_oublock) * 512 / 1e6,
        "said": done.stderr.strip() if done.returncode else "",
    }


def verbs(
    store: Path, cluster: Cluster, folder: Path, server: postgresql.Server | None
) -> dict[str, dict[str, Any]]:
    """Time what reads or copies all of the store."""
    copy, backup = folder / "copy.db", folder / "backup"
    start = [sys.executable, "-m", "advisor"]
    commands = {
        "report": [*start, "report", "--since", "30d", "--db", str(store), "--json"],
        "publish": [*start, "store", "publish", str(copy), "--db", str(store), "--json"],
        "backup": [*start, "store", "backup", str(backup), "--db", str(store), "--json"],
    }
    if server is not None:
        programs = postgresql.programs()
        assert programs is not None
        dump = [str(programs / "pg_dump"), "--schema=advisor", "-Fc", "-f", str(backup)]
        commands["backup"] = [*dump, str(store)]
    found = {}
    for name, command in commands.items():
        found[name] = timed(command, cluster.environment)
        made = {"publish": copy, "backup": backup}.get(name)
        if made is not None and made.exists():
            found[name]["size_mb"] = made.stat().st_size / 1e6
    return found


def spent_s(clusters: list[Cluster], server: postgresql.Server | None) -> dict[str, float]:
    """Return the processor seconds of all daemons, collections and the database so far.

    What a killed daemon took is left out, and a killed database begins anew.
    """
    daemons = [c.daemon.pid for c in clusters if c.daemon is not None]
    spent = {
        "daemons": sum(map(processor_s, daemons)),
        "collections": sum(c.collections_s for c in clusters),
    }
    if server is not None:
        spent["database"] = processor_s(server.pid, children=True)
    return spent


def day(args: argparse.Namespace, folder: Path, stack: ExitStack) -> dict[str, Any]:
    """Have the day, and return what it came to."""
    file = (args.folder or folder) / f"day-{args.history}-{args.models}.db"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        growth.build(file, args.history, args.models)
    clusters = [
        Cluster(f"{kind}{n}", kind, folder / f"{kind}{n}", args.own_hosts)
        for kind, n in (("slurm", 1), ("slurm", 2), ("slurm", 3), ("pbs", 1), ("pbs", 2))
    ]
    server, store = None, folder / "advisor.db"
    if args.store == "postgresql":
        if why := postgresql.why_none():
            raise SystemExit(f"clusters_day: {why}")
        server = stack.enter_context(postgresql.server())
        store = server.database()
        move(file, store)
    else:
        shutil.copyfile(file, store)
    for cluster in clusters:
        cluster.prepare(store)
    with ThreadPoolExecutor() as starts:
        list(starts.map(lambda cluster: cluster.serve(store), clusters))
    for cluster in clusters:
        stack.callback(stop, cluster)
    pace = args.rate / len(clusters)
    few = min(IDLE, args.jobs, round(IDLE_S * pace))
    idle = None
    if not args.short:
        quiet = idle_daemon(file, folder / "quiet", own_host=args.own_hosts)
        idle = stack.enter_context(quiet)
    alone = Users([idle], few, pace).submitted()["slurm1"]["took"] if idle else []
    within_s = args.jobs * len(clusters) / args.rate
    kills = Kills(clusters, store, server, args.kills, within_s, args.seed)
    users = Users(clusters, args.jobs, args.rate)
    before_s = spent_s(clusters, server)
    with Collections(clusters, store, at_once=server is not None):
        kills.start()
        results = users.submitted()
        kills.join()
        time.sleep(2.0)  # what the daemons have to write
    after_s = spent_s(clusters, server)
    answered = [ask(c.socket, b'{"v":1,"op":"status"}\n')["answer_us"] for c in clusters]
    alone += Users([idle], few, pace).submitted()["slurm1"]["took"] if idle else []
    took = [t for r in results.values() for t in r["took"]]
    wall_s = max(r["wall_s"] for r in results.values())
    (p50, p99), (idle_p50, idle_p99) = quantiles(took), quantiles(alone or took)
    return {
        "store": args.store,
        "clusters": len(clusters),
        "jobs": args.jobs,
        "history": args.history,
        "models": args.models,
        "own_hosts": args.own_hosts,
        "rate": len(took) / wall_s,
        "times_a_day": len(took) / wall_s / (len(clusters) * A_DAY / 86400),
        "unanswered": sum(r["unanswered"] for r in results.values()),
        "kept": counted(store, {name: r["ids"] for name, r in results.items()}),
        "submission_us": {"p50": p50, "p99": p99, "idle_p50": idle_p50, "idle_p99": idle_p99},
        "collect": {
            c.name: {
                **c.collected,
                "collections": len(c.ends),
                "behind_s": behind(store, c.name),
                "spent_s": sum(c.ends) - sum(c.starts),
                "said": c.said,
            }
            for c in clusters
        },
        "answer_us": {name: max(a[name] for a in answered) for name in ("p50", "p99")},
        "processor_s": {name: after_s[name] - before_s[name] for name in after_s},
        "killed": kills.killed,
        "noticed_s": [] if args.short else noticed_s(store, clusters[0]),
        "verbs": {} if args.short else verbs(store, clusters[0], folder, server),
    }


def show(found: dict[str, Any]) -> None:
    """Print it in lines."""
    print(
        f"{found['store']}: {found['clusters']} clusters, {found['jobs']} jobs each beside"
        f" {found['history']} of the last 30 days, {found['models']} models;"
        f" {found['rate']:.0f} submissions a second, {found['times_a_day']:.1f} times {A_DAY:,} a"
        f" day on each{', daemons as on hosts of their own' if found['own_hosts'] else ''}"
    )
    kept = found["kept"]
    print(
        f"  decisions  {kept['answered']} answered, {found['unanswered']} not; {kept['lost']} lost,"
        f" {kept['twice']} twice, {kept['without_job']} without their job,"
        f" {kept['without_outcome']} without outcome"
    )
    us = found["submission_us"]
    print(
        f"  submission p50 {us['p50']:.0f} us ({us['p50'] / us['idle_p50']:.2f} of an idle"
        f" daemon's), p99 {us['p99']:.0f} us ({us['p99'] / us['idle_p99']:.2f})"
    )
    print(
        f"  of that the daemon's own share, of its last answers, at the slowest: p50"
        f" {found['answer_us']['p50']:.0f} us, p99 {found['answer_us']['p99']:.0f} us"
    )
    jobs = max(1, kept["answered"])
    for name, spent in found["processor_s"].items():
        print(f"  processor  {name}: {spent:.0f} s, {1000 * spent / jobs:.1f} ms a job")
    for name, c in found["collect"].items():
        print(
            f"  collect    {name}: {c.get('new', 0)} new, {c.get('stamps', 0)} of them by their"
            f" stamps, in {c['collections']} collections of {c['spent_s']:.0f} s; behind by"
            f" {', '.join(f'{v:.0f} s ({k})' for k, v in c['behind_s'].items())};"
            f" {c.get('worse', 0)} worse,"
            f" {c.get('failed', 0)} skipped"
        )
        for line, count in Counter(c["said"]).items():
            print(f"             {count} failed: {line}")
    for name, v in found["verbs"].items():
        size = f", {v['size_mb']:.1f} MB" if "size_mb" in v else ""
        print(
            f"  {name:<10} {v['wall_s']:.2f} s, {v['cpu_s']:.2f} s of processor, "
            f"{v['written_mb']:.1f} MB written{size} {v['said']}"
        )
    if waited := sorted(found["noticed_s"]):
        print(
            f"  new policy served after {waited[len(waited) // 2] * 1000:.0f} ms (median),"
            f" {waited[-1] * 1000:.0f} ms at most"
        )
    for at_s, what in found["killed"]:
        print(f"  killed     {at_s:7.1f} s  {what}")


def main() -> None:
    """Have one day, and print what it came to; exit code 1 where a decision was lost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", choices=("postgresql", "sqlite"), default="postgresql")
    parser.add_argument("--jobs", type=int, default=5000, help="on each cluster")
    parser.add_argument("--rate", type=float, default=250.0, help="submissions a second, of all")
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--history", type=int, default=10_000, help="jobs of the last 30 days")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--short", action="store_true", help="only count; time nothing beside it")
    parser.add_argument(
        "--own-hosts", action="store_true", help="daemons and users wait for no processor (root)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where built stores stay (default: nowhere)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="adv-day-", dir="/tmp") as name, ExitStack() as stack:
        found = day(args, Path(name), stack)
    if args.json:
        print(json.dumps({"schema": "advisor/clusters-day/1", **found}))
    else:
        show(found)
    kept = found["kept"]
    sys.exit(any(kept[k] for k in ("lost", "twice", "without_job", "without_outcome")))


if __name__ == "__main__":
    main()
