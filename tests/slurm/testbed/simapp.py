"""The simulated application: stands in for silicon only.

`srun simapp --kernel stencil [--scale S]` sleeps for as long as the response law (`law.py`) says
and registers its watts as a load of its node, so that the node's meter integrates them.

What it takes for the law is what a real OpenMP program would have got:

- nodes: of the step (1 when started without srun);
- threads per rank: OMP_NUM_THREADS, else every CPU the rank is bound to; never more than those,
  since threads beyond them share a core. Threads per node are the sum over the node's ranks;
- frequency: the cap in force in /sys for the first CPU it is bound to (the set speed under the
  userspace governor, the lowest frequency under powersave), else the node type's highest.

A run begins where its srun was called: what launching it takes on a busy machine is no part of the
law, and neither its time nor its joules hold any of it.

A rank has as many threads as that, and each works for a moment, so that whoever counts the threads
of a run finds them. With `--pool N` a rank is instead what many Python programs are: N worker
processes of one thread each, or of OMP_NUM_THREADS threads each where that is set. It prints how
many it has; the law takes it for the program that it seems to be.

With `--replay CSV` it is a program on GPUs instead: time and energy of a node are those of a row,
the one whose clock or power limit (the first column, kHz or W) is the job's. That is the clock of
its step (`SLURM_GPU_FREQ`, MHz), else the limit that its job's comment names (`power=150`), else
the one that was set last on a node's posed devices (`--devices FOLDER`), else the highest.

Local rank 0 of each node registers the load of its node. Outside of a posed node it runs as on
the node type `--node-type` (default bdw) and registers nothing.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

from . import law

CPU_ROOT = Path("/sys/devices/system/cpu")


def bound_cpus(environ: dict[str, str], local_id: int) -> list[int]:
    """Return the posed CPUs which Slurm bound this rank to; empty when it did not say."""
    masks = [m for m in environ.get("SLURM_CPU_BIND_LIST", "").split(",") if m.startswith("0x")]
    if not masks:
        return []
    bits = int(masks[local_id % len(masks)], 16)
    return [cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1]


def frequency_khz(cpu: int, node_type: law.NodeType) -> int:
    """Return the frequency which this CPU may reach now, as its cpufreq files say."""
    cpufreq = CPU_ROOT / f"cpu{cpu}" / "cpufreq"
    try:
        governor = (cpufreq / "scaling_governor").read_text().strip()
        name = {"userspace": "scaling_setspeed", "powersave": "scaling_min_freq"}.get(
            governor, "scaling_max_freq"
        )
        return int((cpufreq / name).read_text())
    except (OSError, ValueError):
        return node_type.max_khz


def threads_per_node(environ: dict[str, str], cpus: int, ranks: int) -> int:
    """Return busy cores of the node: ranks times threads, no rank using more than its CPUs."""
    if not cpus:
        cpus = max(1, int(environ.get("SLURM_CPUS_ON_NODE", "1")) // ranks)
    wanted = environ.get("OMP_NUM_THREADS", "").split(",")[0]
    threads = min(int(wanted), cpus) if wanted.isdigit() and int(wanted) > 0 else cpus
    shared = environ.get("SLURM_CPUS_ON_NODE", "")
    total = threads * ranks
    return min(total, int(shared)) if shared.isdigit() else total


def ranks_on_node(environ: dict[str, str]) -> int:
    """Return how many ranks of the step run on this node."""
    text = environ.get("SLURM_STEP_TASKS_PER_NODE", "1")
    counts: list[int] = []
    for part in text.split(","):
        count, _, times = part.rstrip(")").partition("(x")
        counts += [int(count)] * int(times or 1)
    node = int(environ.get("SLURM_NODEID", "0"))
    return counts[min(node, len(counts) - 1)]


def started_at(process: Path) -> float:
    """Return when a process was started (monotonic), with the kernel's resolution."""
    boot_s = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    ticks = int((process / "stat").read_text().rpartition(")")[2].split()[19])
    return ticks / os.sysconf("SC_CLK_TCK") - boot_s


def called_at(job: str, now: float) -> float:
    """Return when the srun of this rank was started (monotonic), `now` where there is none.

    It is the newest srun of the job.
    """
    ours = f"SLURM_JOB_ID={job}".encode()
    begun = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "comm").read_text() != "srun\n":
                continue
            if ours in (entry / "environ").read_bytes().split(b"\0"):
                begun.append(started_at(entry))
        except OSError:  # it has ended, or is another user's
            continue
    return max(begun, default=now)


def start_threads(count: int, each_s: float) -> None:
    """Start a process's other threads: each works for so long, and stays until the process ends."""

    def work() -> None:
        while time.thread_time() < each_s:
            pass
        threading.Event().wait()

    for _ in range(count - 1):
        threading.Thread(target=work, daemon=True).start()


def start_pool(workers: int, threads: int, each_s: float) -> None:
    """Start worker processes, each of so many threads; they end with this one."""
    parent = os.getpid()
    for _ in range(workers):
        if os.fork() == 0:
            start_threads(threads, each_s)
            while time.thread_time() < each_s:
                pass
            while os.getppid() == parent:
                time.sleep(0.05)
            os._exit(0)


def replayed(path: Path, environ: dict[str, str], devices: Path | None) -> tuple[float, float]:
    """Return time (s) and power (W) of a program on GPUs, at the clock or limit that it has."""
    with path.open(newline="") as file:
        _, *rows = csv.reader(file)
    points = {int(value): (float(time_s), float(energy_j)) for value, time_s, energy_j in rows}
    value = 1000 * int(environ.get("SLURM_GPU_FREQ") or 0)
    if not value:
        command = ["squeue", "-h", "-j", environ.get("SLURM_JOB_ID", "0"), "-o", "%k"]
        comment = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        value = int((re.findall(r"power=(\d+)", comment) or [0])[0])
    if not value and devices:
        calls = devices / f"{environ['SLURMD_NODENAME']}.set"
        words = calls.read_text().split() if calls.exists() else ["0"]
        value = int(words[-1]) // 1000
    time_s, energy_j = points[value or max(points)]
    return time_s, energy_j / time_s


def register(loads: Path, watts: float, start: float, end: float) -> Path:
    """Tell the node's meter about the joules of `watts` from `start` to `end` (monotonic).

    They all come late, between 80 and 95 % of the time: Slurm first looks at the meter when a step
    has begun, some tenths of a second later on a busy machine, and would miss what came before.
    Those of the node at rest until now are taken off: it counts none while it has a load. The meter
    removes the returned file when it has counted them.
    """
    lasts = end - start
    joules = watts * lasts - law.REST_W * (time.monotonic() - started_at(Path("/proc/self")))
    watts, start, end = joules / (0.15 * lasts), start + 0.8 * lasts, start + 0.95 * lasts
    name = f"{os.getpid()}.load"
    partial = loads / f".{name}"
    partial.write_text(f"{watts:.3f} {start:.6f} {end:.6f} {os.getpid()}\n")
    return partial.rename(loads / name)


def wait_until_counted(load: Path) -> None:
    """Stay until the meter has counted a load: Slurm reads it for the last time when we are gone.

    It has by then, unless the machine is so busy that the meter's process waits for a processor.
    """
    for _ in range(500):
        if not load.exists():
            return
        time.sleep(0.01)


def main(argv: list[str]) -> int:
    """Run one rank."""
    start = time.monotonic()
    parser = argparse.ArgumentParser(prog="simapp", description="Simulated application.")
    parser.add_argument("--kernel", choices=sorted(law.KERNELS), default="stencil")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the time")
    parser.add_argument("--node-type", choices=sorted(law.NODE_TYPES), default="bdw")
    parser.add_argument("--pool", type=int, default=0, help="worker processes of a rank")
    parser.add_argument("--replay", type=Path, help="a program on GPUs, by its measured curve")
    parser.add_argument("--devices", type=Path, help="what was set on the nodes' posed GPUs")
    args = parser.parse_args(argv)
    environ = dict(os.environ)
    node = environ.get("SLURMD_NODENAME", "")
    try:
        node_type = law.node_type_of(node)
    except KeyError:
        node, node_type = "", law.NODE_TYPES[args.node_type]
    in_step = "SLURM_STEP_NUM_NODES" in environ
    nodes = int(environ["SLURM_STEP_NUM_NODES"]) if in_step else 1
    ranks = ranks_on_node(environ) if in_step else 1
    local_id = int(environ.get("SLURM_LOCALID", "0"))
    cpus = bound_cpus(environ, local_id)
    threads = threads_per_node(environ, len(cpus), ranks)
    if not node and "OMP_NUM_THREADS" not in environ:
        threads = node_type.cores
    freq = frequency_khz(cpus[0] if cpus else 0, node_type) if node else node_type.max_khz
    if in_step:
        start = called_at(environ.get("SLURM_JOB_ID", ""), start)
    time_s, watts = law.predict(args.kernel, node_type, nodes, threads, freq, args.scale)
    if args.replay:
        time_s, watts = replayed(args.replay, environ, args.devices)
    load = None
    if node and local_id == 0:
        loads = Path(__file__).resolve().parents[2] / "nodes" / node / "loads"
        load = register(loads, watts, start, start + time_s)
    little_s = 0.06 * time.thread_time()  # of what it took to start: more than waiting takes
    wanted = environ.get("OMP_NUM_THREADS", "")
    each = int(wanted) if wanted.isdigit() else 1
    if args.pool:
        start_pool(args.pool, each, little_s)
    else:
        start_threads(threads // ranks, little_s)
    time.sleep(max(0.0, start + time_s - time.monotonic()))
    if load is not None:
        wait_until_counted(load)
    if int(environ.get("SLURM_PROCID", "0")) == 0:
        print(
            f"simapp kernel={args.kernel} node={node or node_type.name} nodes={nodes}"
            f" ranks_per_node={ranks} threads_per_node={threads} freq_khz={freq}"
            f" time_s={time_s:.3f} watts={watts:.1f}"
            + (f" workers={args.pool} threads_each={each}" if args.pool else ""),
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
