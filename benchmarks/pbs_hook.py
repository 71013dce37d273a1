"""What PBS's queuejob hook costs inside pbs_server, without a PBS.

Runs the hook's file as PBS does, compiled once and executed for each event in one isolated -OO
interpreter, against the tests' stand-in of the `pbs` module and the real daemon. The hook's own
time is what an event takes without the exchange with the daemon, which is timed inside it. Then
the same with a daemon that hangs: the first event waits its deadline, the next ones ask nobody;
and with none.

    python benchmarks/pbs_hook.py [--rounds 2000] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BAR_MS = 2.0
CALL = 'exchange(settings["socket"], line, begin + settings["deadline_s"])'
CHILD = r"""
import json, sys, time
sys.path.insert(0, sys.argv[1])
import pbs
source = open(sys.argv[2]).read()
source.index(sys.argv[3])  # raises where the hook has no such call
source = source.replace(sys.argv[3], "TIMED(lambda: " + sys.argv[3] + ")", 1)
code = compile(source, "<embedded code object>", "exec")
given, rounds = json.load(sys.stdin), int(sys.argv[4])
exchanges = []

def timed(call):
    begin = time.perf_counter()
    try:
        return call()
    finally:
        exchanges.append(time.perf_counter() - begin)

def event():
    pbs.LOG.clear()
    pbs._event = pbs.Event(pbs.QUEUEJOB, given["user"], {"job": pbs.Job(given["job"])})
    spent = len(exchanges)
    begin = time.perf_counter()
    try:
        exec(code, {"__name__": "__main__", "__builtins__": __builtins__, "TIMED": timed})
    except SystemExit:
        pass
    took = time.perf_counter() - begin
    return took, sum(exchanges[spent:])

found = []
for turn in range(rounds):
    found.append(event())
    time.sleep(0.001)  # the daemon writes behind its answer
written = str(pbs._event.job.Resource_List["select"])
json.dump({"hook": [f[0] for f in found], "exchange": [f[1] for f in found], "select": written,
           "log": [t for _, t in pbs.LOG]}, sys.stdout)
"""


def fill(store: Path) -> None:
    """Write a store that rewrites jobs of the application ``stencil``."""
    from advisor.core.configuration import Configuration
    from advisor.core.inventory import NodeType
    from advisor.core.option import Option
    from advisor.store.writer import Writer

    freqs = tuple(range(1_200_000, 2_300_000, 100_000))
    node = NodeType(
        "bdw",
        feature="node_type=bdw",
        partitions=("workq",),
        cores=28,
        memory_mb=64000,
        freq_khz=freqs,
        default_freq_khz=freqs[-1],
        nodes=("n1", "n2"),
        default_partition="workq",
    )
    options = []
    for threads in range(4, 29, 4):
        for freq in freqs:
            seconds = 20 * (28 / threads) ** 0.2 * (freqs[-1] / freq) ** 0.2
            joules = seconds * (60 + 0.5 * threads * (freq / 1e6) ** 2)
            options.append(
                Option(
                    Configuration("bdw", 1, 1, threads, freq),
                    seconds,
                    seconds * 0.99,
                    seconds * 1.01,
                    joules,
                    joules * 0.99,
                    joules * 1.01,
                    True,
                    True,
                    True,
                )
            )
    with Writer(store) as writer:
        writer.save_node_types([node], source="benchmark")
        base = {"mode": "apply", "goal": "min_energy", "holdout": 0.0, "max_slowdown": 0.5}
        base["axes"] = {"threads": "override"}
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


def events(folder: Path, rounds: int, *, rewritten: bool = False) -> dict[str, list[float]]:
    """Run the hook; return the times of its events and of their exchanges, s."""
    job = {
        "id": "",
        "Job_Name": "stencil.sh",
        "queue": "",
        "Submit_arguments": "<jsdl-hpcpa:Argument>stencil.sh</jsdl-hpcpa:Argument>",
        "Resource_List": {"select": "1:ncpus=28:node_type=bdw", "walltime": "01:00:00"},
        "Variable_List": {"PBS_O_WORKDIR": "/home/alice", "ADVISOR_APPLICATION": "stencil"},
    }
    config = {"socket": str(folder / "s"), "breaker": str(folder / "breaker")}
    (folder / "hook.json").write_text(json.dumps(config))
    words = [
        sys.executable,
        "-I",
        "-S",
        "-OO",
        "-c",
        CHILD,
        str(ROOT / "tests/pbs/stand_in"),
        str(ROOT / "hooks/pbs/advisor_queuejob.py"),
        CALL,
        str(rounds),
    ]
    done = subprocess.run(
        words,
        input=json.dumps({"user": "root", "job": job}),
        capture_output=True,
        text=True,
        check=True,
        env={"PBS_HOOK_CONFIG_FILE": str(folder / "hook.json")},
    )
    found: dict[str, list[float]] = json.loads(done.stdout)
    if rewritten and found["select"] == job["Resource_List"]["select"]:  # type: ignore[index]
        raise SystemExit(f"the hook rewrote nothing: {found['log']}")
    return found


def quantile(values: list[float], q: float) -> float:
    """Return a quantile of the values themselves."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pbs-hook-") as name:
        folder = Path(name)
        fill(folder / "advisor.db")
        log = folder / "serve.log"
        with log.open("w") as output:
            daemon = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "advisor",
                    "serve",
                    "--socket",
                    str(folder / "s"),
                    "--db",
                    str(folder / "advisor.db"),
                ],
                cwd=ROOT,
                stderr=output,
            )
        try:
            while "event=serving" not in log.read_text():
                if daemon.poll() is not None:
                    raise SystemExit(log.read_text())
                time.sleep(0.05)
            found = events(folder, args.rounds, rewritten=True)
            os.kill(daemon.pid, signal.SIGSTOP)
            hung = events(folder, 50)["hook"]
            os.kill(daemon.pid, signal.SIGCONT)
        finally:
            daemon.terminate()
            daemon.wait()
        (folder / "breaker").unlink(missing_ok=True)
        down = events(folder, 50)["hook"]
    own = [h - x for h, x in zip(found["hook"][1:], found["exchange"][1:], strict=True)]
    rows = {
        "first event": found["hook"][:1],
        "event, rewritten": found["hook"][1:],
        "its exchange": found["exchange"][1:],
        "hook's own": own,
        "daemon hung, first": hung[:1],
        "daemon hung, later": hung[1:],
        "no daemon": down[1:],
    }
    result = {
        k: {"p50_ms": quantile(v, 0.5) * 1e3, "p99_ms": quantile(v, 0.99) * 1e3}
        for k, v in rows.items()
    }
    if args.json:
        print(json.dumps(result))
        return
    print(f"{'':22s} p50 ms   p99 ms")
    for label, r in result.items():
        bar = f"   (bar: p99 below {BAR_MS:g} ms)" if label == "hook's own" else ""
        print(f"{label:22s} {r['p50_ms']:7.3f}  {r['p99_ms']:7.3f}{bar}")


if __name__ == "__main__":
    main()
