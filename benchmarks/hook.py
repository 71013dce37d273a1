"""What the Slurm hooks cost a submission, on a real Slurm (root, Debian's Slurm packages).

Starts the testbed and the real daemon (as nice as its systemd unit makes it), and submits held
jobs one after the other: with a filter that does nothing, with ours for an application the daemon
does not know (stamped), and for one it rewrites; and, with the filter that does nothing again, a
script that asks by hand for what the rewritten one gets, since Slurm itself takes longer for it.
They take turns within one run, so their ratios hold on a busy machine too. Then four submitters at
once, and whether every job arrived. Times of the hooks are taken inside Lua, around the call.

What the machine itself adds stands beside it: the filter that does nothing a second time, against
itself, and, inside Lua, one that does nothing and one that only computes for 1 ms.

    python benchmarks/hook.py [--rounds 300] [--parallel 500] [--lua-posix] [--json] [--conf DIR]

With --conf it submits to a cluster that runs already, by the slurm.conf in that folder: held jobs
named advisor-bench, whole nodes of the default partition, cancelled again. Nothing of the cluster
is changed, so its own job_submit.lua is what stamps, and is not timed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "slurm"))

from testbed import NODE_TYPES, Testbed, predict
from testbed.config import NOOP_HOOKS
from testbed.daemons import alive, wait_until

from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.core.option import Option
from advisor.core.protocol import call
from advisor.schedulers.slurm.hook_state import cluster_of
from advisor.store.writer import Writer

ROOT = Path(__file__).resolve().parent.parent
BY_HAND = "no-op, asked by hand"
AGAIN = "no-op filter, again"
ARMS = ("no-op filter", AGAIN, "unknown application", BY_HAND, "rewritten")
BASES = {
    AGAIN: "no-op filter",
    "unknown application": "no-op filter",
    "rewritten": BY_HAND,
}
ADVISED = ("unknown application", "rewritten")
NOOP = NOOP_HOOKS["cli_filter.lua"]
BUSY = """
function slurm_cli_setup_defaults(options, early) return slurm.SUCCESS end
function slurm_cli_pre_submit(options, offset)
  local finish = os.clock() + 0.001
  while os.clock() < finish do end
  return slurm.SUCCESS
end
function slurm_cli_post_submit(offset, job_id, step_id) return slurm.SUCCESS end
return slurm.SUCCESS
"""
UNIT = ROOT / "config" / "systemd" / "advisor.service"
SUBMITTERS = 4
NAME = "advisor-bench"
MINUTES = "60"
"""The jobs' limit: without one that is known nothing is made slower."""
POSED = NODE_TYPES["bdw"]
TIMED = """
do
  local library = package.loadlib("@POSIX@", "luaopen_posix_time")
  local clock = library()
  local function now()
    local t = clock.clock_gettime(clock.CLOCK_MONOTONIC)
    return t.tv_sec + t.tv_nsec / 1e9
  end
  local inner = @FUNCTION@
  function @FUNCTION@(...)
    local start = now()
    local result = inner(...)
    local took = now() - start
    local file = io.open("@FILE@", "a")
    if file then
      file:write(("%.1f\\n"):format(took * 1e6))
      file:close()
    end
    return result
  end
end
return slurm.SUCCESS
"""


def timed(hook: str, function: str, file: Path) -> str:
    """Return a hook that also notes how long each call took, us."""
    library = next(Path("/usr/lib").glob("*/lua/5.1/posix.so"))
    body = hook.rstrip().removesuffix("return slurm.SUCCESS")
    extra = TIMED.replace("@FUNCTION@", function).replace("@FILE@", str(file))
    return body + extra.replace("@POSIX@", str(library))


class Running:
    """A cluster that runs already, by its slurm.conf: what Bench needs of a Testbed."""

    def __init__(self, conf_dir: Path, folder: Path) -> None:
        self.conf_dir = folder / "site"
        self.conf_dir.mkdir()
        shutil.copy(conf_dir / "slurm.conf", self.conf_dir)
        cluster = cluster_of(conf_dir)
        if cluster is None:
            raise SystemExit(f"no cluster answers by {conf_dir}/slurm.conf")
        default = next((p.name for p in cluster.partitions if p.default), "")
        node = next((n for n in cluster.nodes if default in n.partitions), None)
        if node is None:
            raise SystemExit("the cluster has no default partition with nodes")
        alike = [n for n in cluster.nodes if n.features == node.features]
        self.node = NodeType(
            "bdw",
            feature=next(iter(node.features), ""),
            partitions=(default,),
            sockets=node.sockets,
            cores=node.cores,
            memory_mb=node.memory_mb,
            freq_khz=POSED.frequencies_khz,
            default_freq_khz=POSED.max_khz,
            nodes=tuple(n.name for n in alike),
        )

    def env(self) -> dict[str, str]:
        """Return the environment to submit in."""
        return {**os.environ, "SLURM_CONF": str(self.conf_dir / "slurm.conf")}

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm."""
        return subprocess.run(command, env=self.env(), text=True, capture_output=True, check=True)


def posed_node() -> NodeType:
    """Return the node type of the posed cluster that jobs are submitted for."""
    return NodeType(
        "bdw",
        feature=POSED.feature,
        partitions=("broadwell",),
        sockets=POSED.sockets,
        cores=POSED.cores,
        memory_mb=8000,
        freq_khz=POSED.frequencies_khz,
        default_freq_khz=POSED.max_khz,
        nodes=POSED.nodes,
    )


def fill(store: Path, node: NodeType) -> None:
    """Write a store that rewrites jobs of the application ``stencil``."""
    posed, options = POSED, []
    top = min(node.cores, posed.cores)
    for threads in sorted({*range(4, top + 1, 4), top, node.cores}):
        for freq in posed.frequencies_khz:
            t, watts = predict("stencil", "bdw", 1, min(threads, posed.cores), freq)
            c = Configuration("bdw", 1, 1, threads, freq)
            options.append(
                Option(
                    c,
                    t,
                    t * 0.995,
                    t * 1.005,
                    t * watts,
                    t * watts * 0.995,
                    t * watts * 1.005,
                    measured=True,
                    confirmed=True,
                    in_zone=True,
                )
            )
    with Writer(store) as writer:
        writer.save_node_types([node], source="benchmark")
        base = {"mode": "apply", "goal": "min_energy", "holdout": 0.0, "max_slowdown": 0.5}
        writer.apply_config(
            "policy", path="-", text="-", compiled={"base": base, "rules": []}, by="benchmark"
        )
        writer.save_model(
            "stencil",
            "default",
            "bdw",
            scope="all",
            owner="",
            name="bspline",
            energy_quality="measured",
            n_train=12,
            stats={},
            options=options,
        )


class Bench:
    """The cluster, the daemon, and one folder with slurm.conf and filter for each arm."""

    def __init__(self, testbed: Testbed | Running, folder: Path, lua_posix: bool) -> None:
        self.testbed = testbed
        self.node = testbed.node if isinstance(testbed, Running) else posed_node()
        self.folder = folder
        self.filter_us = folder / "filter.us"
        self.submit_us = folder / "submit.us"
        conf = testbed.conf_dir
        for name in NOOP_HOOKS:
            (conf / name).unlink(missing_ok=True)
        self._advisor("hook", "install", "--dir", str(conf), "--socket", str(folder / "s"))
        if lua_posix:
            for path in (conf / "advisor").glob("*/native.so"):
                path.unlink()
        ours = (conf / "cli_filter.lua").read_text()
        self.confs = {}
        for name, text in {
            "no-op filter": NOOP,
            "ours": ours,
            "timed": timed(ours, "slurm_cli_pre_submit", self.filter_us),
            "timed no-op": timed(NOOP, "slurm_cli_pre_submit", self.filter_us),
            "timed busy": timed(BUSY, "slurm_cli_pre_submit", self.filter_us),
        }.items():
            place = folder / name.replace(" ", "-")
            place.mkdir()
            (place / "advisor").symlink_to(conf / "advisor")
            (place / "slurm.conf").write_text((conf / "slurm.conf").read_text())
            (place / "cli_filter.lua").write_text(text)
            self.confs[name] = place / "slurm.conf"
        self.times_submit = isinstance(testbed, Testbed)
        submit = timed((conf / "job_submit.lua").read_text(), "slurm_job_submit", self.submit_us)
        later = (conf / "job_submit.lua").stat().st_mtime + 2
        (conf / "job_submit.lua").write_text(submit)
        os.utime(conf / "job_submit.lua", (later, later))
        self.scripts = {
            "unknown application": self._script("never-heard-of"),
            "rewritten": self._script("stencil"),
        }
        self.scripts["no-op filter"] = self.scripts[AGAIN] = self.scripts["rewritten"]
        self.scripts[BY_HAND] = folder / "by-hand.sh"

    def _script(self, application: str) -> Path:
        path = self.folder / f"{application}.sh"
        path.write_text(
            f"#!/bin/bash\n#SBATCH -J {NAME}\n#SBATCH -N 1\n#SBATCH --exclusive\n"
            f"#SBATCH -p {self.node.partitions[0]}\n#SBATCH -t {MINUTES}\n"
            f"module load gcc\ncd $SLURM_SUBMIT_DIR\nsrun ./{application} input.dat > out.txt\n"
        )
        return path

    def ask_by_hand(self) -> None:
        """Write the script that asks for what the daemon would make of the known application."""
        text = self.scripts["rewritten"].read_text()
        request = {
            "v": 1,
            "op": "explain",
            "scheduler": "slurm",
            "type": "sbatch",
            "script": text,
            "options": {
                "nodes": "1",
                "exclusive": "exclusive",
                "partition": self.node.partitions[0],
                "time": MINUTES,
            },
            "argv": ["job.sh"],
        }
        rewrite = call(self.folder / "s", request)["rewrite"]
        if not isinstance(rewrite, dict) or not rewrite:
            raise SystemExit("the daemon rewrites nothing")
        lines = "".join(f"#SBATCH --{name}={value}\n" for name, value in rewrite.items())
        self.scripts[BY_HAND].write_text(text.replace("module load", f"{lines}module load", 1))

    def _advisor(self, *arguments: str) -> None:
        subprocess.run(
            [sys.executable, "-m", "advisor", *arguments],
            cwd=ROOT,
            check=True,
            stdout=subprocess.DEVNULL,
        )

    @contextmanager
    def daemon(self) -> Iterator[None]:
        """Serve meanwhile."""
        fill(self.folder / "advisor.db", self.node)
        log = self.folder / "serve.log"
        nice = re.search(r"^Nice=(.+)$", UNIT.read_text(), re.MULTILINE)
        command = ["nice", "-n", nice[1] if nice else "0", sys.executable, "-m", "advisor"]
        command += ["serve", "--socket", str(self.folder / "s")]
        with log.open("w") as output:
            process = subprocess.Popen(
                [*command, "--db", str(self.folder / "advisor.db")], cwd=ROOT, stderr=output
            )
        try:
            wait_until(lambda: "event=serving" in log.read_text(), 60, "the daemon")
            yield
        finally:
            process.terminate()
            process.wait()

    def submit(self, conf: str, script: Path) -> tuple[float, int]:
        """Submit one held job; return the time, s, and the job's number."""
        environment = {**self.testbed.env(), "SLURM_CONF": str(self.confs[conf])}
        read, write = os.pipe()
        null = os.open(os.devnull, os.O_RDWR)
        start = time.perf_counter()
        child = os.posix_spawn(
            "/usr/bin/sbatch",
            ["sbatch", "--hold", "--parsable", str(script)],
            environment,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, null, 0),
                (os.POSIX_SPAWN_DUP2, write, 1),
                (os.POSIX_SPAWN_DUP2, null, 2),
                (os.POSIX_SPAWN_CLOSE, read),
            ],
        )
        _, status = os.waitpid(child, 0)
        took = time.perf_counter() - start
        os.close(write)
        os.close(null)
        with os.fdopen(read) as pipe:
            said = pipe.read()
        if status:
            raise SystemExit("sbatch failed")
        return took, int(said)

    def sequence(self, rounds: int) -> dict[str, list[float]]:
        """Submit by turns; return the times of each arm."""
        times: dict[str, list[float]] = {arm: [] for arm in ARMS}
        for turn in range(rounds):
            first = turn % len(ARMS)
            for arm in ARMS[first:] + ARMS[:first]:
                conf = "ours" if arm in ADVISED else "no-op filter"
                times[arm].append(self.submit(conf, self.scripts[arm])[0])
            if turn % 100 == 99:
                self.cancel()
        return times

    def inside(self, rounds: int) -> dict[str, list[float]]:
        """Return the times of filters and of job_submit, us; the filters take turns."""
        kinds = {
            "a filter that does nothing": ("timed no-op", "rewritten"),
            "1 ms of Lua": ("timed busy", "rewritten"),
            **{f"filter, {arm}": ("timed", arm) for arm in ADVISED},
        }
        stamping = "job_submit, stamping"
        found: dict[str, list[float]] = {kind: [] for kind in (*kinds, stamping)}
        for file in (self.filter_us, self.submit_us):
            file.unlink(missing_ok=True)
        for turn in range(rounds):
            for kind, (conf, arm) in kinds.items():
                self.submit(conf, self.scripts[arm])
                found[kind].append(float(self.filter_us.read_text()))
                if conf == "timed" and self.times_submit:
                    found[stamping].append(float(self.submit_us.read_text()))
                for file in (self.filter_us, self.submit_us):
                    file.unlink(missing_ok=True)
            if turn % 100 == 99:
                self.cancel()
        return {kind: values for kind, values in found.items() if values}

    def parallel(self, each: int) -> tuple[int, int, float]:
        """Submit from several at once; return jobs known and stamped, and jobs per second."""
        numbers: list[int] = []

        def work() -> None:
            for _ in range(each):
                numbers.append(self.submit("ours", self.scripts["rewritten"])[1])

        threads = [Thread(target=work) for _ in range(SUBMITTERS)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - start
        said = self.testbed.run(["scontrol", "show", "job", "-o"]).stdout
        known = {
            int(match[1]): "AdminComment=advisor:" in line
            for line in said.splitlines()
            if (match := re.match(r"JobId=(\d+) ", line))
        }
        arrived = [n for n in set(numbers) if n in known]
        return len(arrived), sum(known[n] for n in arrived), len(numbers) / took

    def cancel(self) -> None:
        """Cancel what is held, so that the queue stays short."""
        self.testbed.run(["scancel", "--quiet", "--state=PENDING", f"--name={NAME}"])


@contextmanager
def running(conf: Path | None, folder: Path) -> Iterator[Testbed | Running]:
    """Start a posed cluster, or take the one whose slurm.conf is in a folder."""
    if conf is not None:
        yield Running(conf.resolve(), folder)
        return
    with Testbed() as testbed:
        meter = alive(testbed.directory / "run" / "silicon.pid")
        if meter:
            os.kill(meter, signal.SIGSTOP)  # its posed meters take a tenth of a core
        yield testbed


def quantile(values: list[float], q: float) -> float:
    """Return a quantile of the values themselves."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--parallel", type=int, default=500, help="jobs of each of 4 submitters")
    parser.add_argument("--lua-posix", action="store_true", help="without the compiled library")
    parser.add_argument("--conf", type=Path, help="folder of a running cluster's slurm.conf")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="hook-bench-"))
    folder.chmod(0o755)
    try:
        with running(args.conf, folder) as testbed:
            bench = Bench(testbed, folder, args.lua_posix)
            with bench.daemon():
                bench.ask_by_hand()
                bench.sequence(10)
                times = bench.sequence(args.rounds)
                inside = bench.inside(args.rounds)
                arrived, stamped, rate = bench.parallel(args.parallel)
                bench.cancel()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    result = {}
    for arm, t in times.items():
        base = times[BASES.get(arm, arm)]
        result[arm] = {
            "p50_ms": quantile(t, 0.5) * 1e3,
            "p99_ms": quantile(t, 0.99) * 1e3,
            "per_s": 1 / statistics.mean(t),
            "throughput": statistics.mean(base) / statistics.mean(t),
            "throughput_p50": quantile(base, 0.5) / quantile(t, 0.5),
        }
    if args.json:
        parallel = {"jobs": arrived, "stamped": stamped, "per_s": rate}
        print(json.dumps({"sbatch": result, "inside_us": inside, "parallel": parallel}))
        return
    print("sequential sbatch -H       p50 ms   p99 ms   per s   throughput (by the median)")
    for arm, r in result.items():
        print(
            f"{arm:24s}  {r['p50_ms']:7.2f}  {r['p99_ms']:7.2f}  {r['per_s']:6.1f}   "
            f"{r['throughput']:6.1%}    ({r['throughput_p50']:.1%})"
        )
    print("\ninside Lua                 p50 ms   p99 ms")
    for name, values in inside.items():
        print(f"{name:28s} {quantile(values, 0.5) / 1e3:5.2f}  {quantile(values, 0.99) / 1e3:7.2f}")
    total = SUBMITTERS * args.parallel
    print(
        f"\n{SUBMITTERS} submitters at once: {rate:.0f} jobs/s, {arrived} of {total} arrived, "
        f"{stamped} stamped"
    )


if __name__ == "__main__":
    main()
