"""Builds what makes a posed node: its /sys tree, and the programs that run on it."""

from __future__ import annotations

import compileall
import contextlib
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

from .daemons import TestbedError
from .law import NODE_TYPES, NodeType
from .silicon import START_J

GOVERNORS = "conservative ondemand userspace powersave performance"
GOVERNOR = "ondemand"
MARKER = ".testbed"
CAPS = "/run/advisor-caps"
"""Where hooks/slurm/advisor-node-cap keeps what stood on a node before its cap."""
CGROUPS = Path("/sys/fs/cgroup")
GPUS = "/run/advisor-gpus"
"""Where it keeps what stood on a job's GPUs."""
HERE = Path(__file__).resolve().parent


def build_sys(sys_root: Path, node_type: NodeType) -> None:
    """Write a posed /sys for one node of `node_type`.

    Frequencies are files as the kernel's cpufreq shows them, one policy per core, writable, so
    that what slurmd writes there is what everybody reads afterwards. There is no cpuinfo_cur_freq:
    nothing here would move it, and what Slurm samples of it would contradict simapp.
    """
    counters = sys_root / "cray" / "pm_counters"
    counters.mkdir(parents=True)
    (counters / "energy").write_text(f"{int(START_J)} J\n")
    (counters / "power").write_text(f"{round(node_type.idle_w)} W\n")
    (sys_root / "fs" / "cgroup").mkdir(parents=True)
    (sys_root / MARKER).write_text("posed node\n")
    cpu_root = sys_root / "devices" / "system" / "cpu"
    everything = f"0-{node_type.cores - 1}\n"
    steps = " ".join(str(khz) for khz in reversed(node_type.frequencies_khz))
    low, high = f"{node_type.min_khz}\n", f"{node_type.max_khz}\n"
    constant = {
        "cpuinfo_max_freq": high,
        "cpuinfo_min_freq": low,
        "cpuinfo_transition_latency": "10000\n",
        "scaling_available_frequencies": f"{steps}\n",
        "scaling_available_governors": f"{GOVERNORS}\n",
        "scaling_cur_freq": high,
        "scaling_driver": "acpi-cpufreq\n",
    }
    settable = {
        "scaling_governor": f"{GOVERNOR}\n",
        "scaling_max_freq": high,
        "scaling_min_freq": low,
        "scaling_setspeed": high,
    }
    for cpu in range(node_type.cores):
        cpufreq, topology = (cpu_root / f"cpu{cpu}" / name for name in ("cpufreq", "topology"))
        cpufreq.mkdir(parents=True)
        topology.mkdir()
        (topology / "thread_siblings_list").write_text(f"{cpu}\n")
        for name in ("affected_cpus", "related_cpus"):
            (cpufreq / name).write_text(f"{cpu}\n")
        for name, text in settable.items():
            (cpufreq / name).write_text(text)
        for name, text in constant.items():
            if cpu == 0:
                (cpufreq / name).write_text(text)
            else:  # one file under many names: quicker than hundreds of equal ones
                os.link(cpu_root / "cpu0" / "cpufreq" / name, cpufreq / name)
    for name in ("online", "possible", "present"):
        (cpu_root / name).write_text(everything)
    (cpu_root / "kernel_max").write_text("1023\n")
    node0 = sys_root / "devices" / "system" / "node" / "node0"
    node0.mkdir(parents=True)
    (node0 / "cpulist").write_text(everything)
    (node0.parent / "online").write_text("0\n")
    (node0.parent / "possible").write_text("0\n")


def build_nodes(root: Path) -> None:
    """Write the posed trees and load folders of all nodes under `root/nodes`."""
    with Path("/proc/cpuinfo").open() as real:  # Slurm looks there for the clock, too
        processors = [line for line in real if not line.startswith("cpu MHz")]
    for node_type in NODE_TYPES.values():
        for node in node_type.nodes:
            folder = root / "nodes" / node
            build_sys(folder / "sys", node_type)
            (folder / "cpuinfo").write_text("".join(processors))
            (folder / "caps").mkdir()
            (folder / "gpus").mkdir()
            loads = folder / "loads"
            loads.mkdir()
            loads.chmod(0o1777)
            (root / "spool" / node).mkdir()


def node_python() -> str:
    """Return a Python which every user of this machine may run."""
    for candidate in ("/usr/bin/python3", os.path.realpath(sys.executable)):
        path = Path(candidate)
        if path.exists() and all(
            folder.stat().st_mode & stat.S_IXOTH for folder in path.resolve().parents
        ):
            return candidate
    return sys.executable


def build_programs(root: Path) -> None:
    """Put simapp, silicon and their law where posed nodes find them; compile the affinity shim."""
    package = root / "lib" / "posed_node"
    package.mkdir()
    (package / "__init__.py").touch()
    for name in ("law", "silicon", "simapp"):
        shutil.copyfile(HERE / f"{name}.py", package / f"{name}.py")
    for name in ("silicon", "simapp"):
        script = root / "bin" / name
        script.write_text(
            f"#!{node_python()} -ES\nimport sys\nsys.path.insert(0, {str(root / 'lib')!r})\n"
            f"from posed_node.{name} import main\nsys.exit(main(sys.argv[1:]))\n"
        )
        script.chmod(0o755)
    compileall.compile_dir(package, quiet=1)
    shim = ["-o", str(root / "lib" / "affinity.so"), str(HERE / "affinity_shim.c")]
    done = subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", *shim],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise TestbedError(f"cc failed: {done.stderr.strip()}")


def cgroups(root: Path) -> list[Path]:
    """Return the cgroups of version 1 below which the nodes of this testbed have theirs."""
    return [CGROUPS / controller / root.name for controller in ("cpuset", "freezer")]


def build_cgroups(root: Path) -> None:
    """Make them, with all of this machine's CPUs and memory."""
    for folder in cgroups(root):
        folder.mkdir()
        for name in ("cpuset.cpus", "cpuset.mems"):
            if (folder / name).exists():
                (folder / name).write_text((folder.parent / name).read_text())


def remove_cgroups(root: Path) -> None:
    """Remove them, and what Slurm left below them."""
    for top in cgroups(root):
        for folder in (*sorted(top.rglob("*/"), reverse=True), top):
            with contextlib.suppress(OSError):
                folder.rmdir()


def slurmd_command(root: Path, node: str, slurmd: str) -> list[str]:
    """Return the command which runs slurmd for `node` inside its own posed /sys.

    hwloc is told the posed topology, so slurmd sees as many cores as the node poses; the cgroup
    tree is put back under the posed /sys, where the testbed has cgroups of its own with these as
    the whole. /proc/cpuinfo does not tell this machine's clock. What the node-cap program keeps of
    its node is the node's own: nodes of other testbeds have the same names.
    """
    script = (
        'set -e; testbed="$1"; sys="$2"; caps="$3"; gpus="$4"; cpuinfo="$5"; shift 5;'
        f' mkdir -p {CAPS} {GPUS}; mount --bind "$caps" {CAPS}; mount --bind "$gpus" {GPUS};'
        ' if [ -d /sys/fs/cgroup ]; then mount --rbind /sys/fs/cgroup "$sys/fs/cgroup"; fi;'
        ' for own in "$sys"/fs/cgroup/*/"$testbed"; do'
        ' [ ! -d "$own" ] || mount --bind "$own" "${own%/*}"; done;'
        ' mount --bind "$cpuinfo" /proc/cpuinfo; mount --rbind "$sys" /sys; exec "$@"'
    )
    posed = [str(root / "nodes" / node / name) for name in ("sys", "caps", "gpus", "cpuinfo")]
    return ["unshare", "-m", "sh", "-c", script, "sh", root.name, *posed, slurmd, "-D", "-N", node]


def slurmd_environ(root: Path, node_type: NodeType) -> dict[str, str]:
    """Return the extra environment of a posed node's slurmd."""
    return {
        "HWLOC_SYNTHETIC": f"pack:{node_type.sockets} core:{node_type.cores_per_socket} pu:1",
        "HWLOC_COMPONENTS": "synthetic,stop",
        "LD_PRELOAD": str(root / "lib" / "affinity.so"),
    }


def processes_on_posed_nodes(root: Path) -> list[int]:
    """Return every process that lives in a posed node of this testbed, slurmd and jobs alike.

    They are told by the marker file at their own /sys: no other process can see it there.
    """
    markers: set[tuple[int, int]] = set()
    for marker in (root / "nodes").glob(f"*/sys/{MARKER}"):
        with contextlib.suppress(OSError):  # another process removes the same orphan
            found = marker.stat()
            markers.add((found.st_dev, found.st_ino))
    if not markers:
        return []
    ours = Path("/proc/self/ns/mnt").readlink()
    pids = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if (entry / "ns" / "mnt").readlink() == ours:
                continue
            found = (entry / "root" / "sys" / MARKER).stat()
        except OSError:
            continue
        if (found.st_dev, found.st_ino) in markers:
            pids.append(int(entry.name))
    return pids
