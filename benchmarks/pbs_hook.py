"""What PBS's queuejob hook costs inside pbs_server, without a PBS.

Runs the hook's file as PBS does, compiled once and executed for each event in one isolated -OO
interpreter, against the tests' stand-in of the `pbs` module and the real daemon. The hook's own
time is what an event takes beyond a bare exchange of the same line with the same daemon, taken
in turns. Then the same with a daemon that hangs: the first event waits its deadline, the next
ones ask nobody; and with none.

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
CHILD = r"""
import json, os, socket, sys, time
sys.path.insert(0, sys.argv[1])
import pbs
code = compile(open(sys.argv[2]).read(), "<embedded code object>", "exec")
given, path, rounds = json.load(sys.stdin), sys.argv[3], int(sys.argv[4])
asked = []

def event():
    pbs.LOG.clear()
    pbs._event = pbs.Event(pbs.QUEUEJOB, given["user"], {"job": pbs.Job(given["job"])})
    begin = time.perf_counter()
    try:
        exec(code, {"__name__": "__main__", "__builtins__": __builtins__})
    except SystemExit:
        pass
    return time.perf_counter() - begin

class Spy(socket.socket):
    def sendall(self, data, *more):
        asked.append(data)
        return super().sendall(data, *more)

def exchange(line):
    begin = time.perf_counter()
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(5)
    connection.connect(path)
    connection.sendall(line)
    answer = b""
    while not answer.endswith(b"\n"):
        answer += connection.recv(65536)
    connection.close()
    return time.perf_counter() - begin

hook, bare = [], []
if rounds:
    plain, socket.socket = socket.socket, Spy
    event()
    socket.socket = plain
    line = asked[0]
    for turn in range(rounds):
        hook.append(event())
        bare.append(exchange(line))
    written = str(pbs._event.job.Resource_List["select"])
else:
    hook = [event() for _ in range(50)]
    written = ""
json.dump({"hook": hook, "bare": bare, "select": written, "log": [t for _, t in pbs.LOG]},
          sys.stdout)
"""


def fill(store: Path) -> None:
    """Write a store that rewrites jobs of the application ``stencil``."""
    from advisor.core.configuration import Configuration
    from advisor.core.inventory import NodeType
    from advisor.core.option import Option
    from advisor.store.writer import Writer

    freqs = tuple(range(1_200_000, 2_300_000, 100_000))
    node = NodeType(
        "bdw", feature="node_type=bdw", partitions=("workq",), cores=28, memory_mb=64000,
        freq_khz=freqs, default_freq_khz=freqs[-1], nodes=("n1", "n2"), default_partition="workq",
    )  # fmt: skip
    options = []
    for threads in range(4, 29, 4):
        for freq in freqs:
            seconds = 20 * (28 / threads) ** 0.2 * (freqs[-1] / freq) ** 0.2
            joules = seconds * (60 + 0.5 * threads * (freq / 1e6) ** 2)
            options.append(
                Option(
                    Configuration("bdw", 1, 1, threads, freq), seconds, seconds * 0.99,
                    seconds * 1.01, joules, joules * 0.99, joules * 1.01, True, True, True,
                )
            )  # fmt: skip
    with Writer(store) as writer:
        writer.save_node_types([node], source="benchmark")
        base = {"mode": "apply", "goal": "min_energy", "holdout": 0.0, "max_slowdown": 0.5}
        base["axes"] = {"threads": "override"}
        writer.apply_config(
            "policy", path="-", text="-", compiled={"base": base, "rules": []}, by="benchmark"
        )
        writer.save_model(
            "stencil", "default", "bdw", scope="all", owner="", name="bspline",
            energy_quality="measured", n_train=12, stats={}, options=options,
        )  # fmt: skip


def events(folder: Path, rounds: int) -> dict[str, list[float]]:
    """Run the hook; return the times of its events and of the bare exchanges, s."""
    job = {
        "id": "", "Job_Name": "stencil.sh", "queue": "",
        "Submit_arguments": "<jsdl-hpcpa:Argument>stencil.sh</jsdl-hpcpa:Argument>",
        "Resource_List": {"select": "1:ncpus=28:node_type=bdw", "walltime": "01:00:00"},
        "Variable_List": {"PBS_O_WORKDIR": "/home/alice", "ADVISOR_APPLICATION": "stencil"},
    }  # fmt: skip
    config = {"socket": str(folder / "s"), "breaker": str(folder / "breaker")}
    (folder / "hook.json").write_text(json.dumps(config))
    words = [
        sys.executable, "-I", "-S", "-OO", "-c", CHILD, str(ROOT / "tests/pbs/stand_in"),
        str(ROOT / "hooks/pbs/advisor_queuejob.py"), str(folder / "s"), str(rounds),
    ]  # fmt: skip
    done = subprocess.run(
        words, input=json.dumps({"user": "root", "job": job}), capture_output=True, text=True,
        check=True, env={"PBS_HOOK_CONFIG_FILE": str(folder / "hook.json")},
    )  # fmt: skip
    found: dict[str, list[float]] = json.loads(done.stdout)
    if rounds and found["select"] == job["Resource_List"]["select"]:  # type: ignore[index]
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
                [sys.executable, "-m", "advisor", "serve", "--socket", str(folder / "s"), "--db",
                 str(folder / "advisor.db")], cwd=ROOT, stderr=output,
            )  # fmt: skip
        try:
            while "event=serving" not in log.read_text():
                if daemon.poll() is not None:
                    raise SystemExit(log.read_text())
                time.sleep(0.05)
            found = events(folder, args.rounds)
            os.kill(daemon.pid, signal.SIGSTOP)
            hung = events(folder, 0)["hook"]
            os.kill(daemon.pid, signal.SIGCONT)
        finally:
            daemon.terminate()
            daemon.wait()
        (folder / "breaker").unlink(missing_ok=True)
        down = events(folder, 0)["hook"]
    own = [h - b for h, b in zip(found["hook"], found["bare"], strict=True)]
    rows = {
        "event, rewritten": found["hook"], "bare exchange": found["bare"], "hook's own": own,
        "daemon hung, first": hung[:1], "daemon hung, later": hung[1:], "no daemon": down[1:],
    }  # fmt: skip
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
