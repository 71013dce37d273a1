"""The node type of the machine this runs on, where no scheduler states one."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from advisor.core.inventory import NodeType
from advisor.meters.process import usable_cpus
from advisor.schedulers.cpufreq import Cpufreq

NODE_TYPE = "local"


def local_node_type(root: Path = Path("/sys")) -> NodeType:
    """Return this machine as a node type: its cores, memory and the caps that can be set."""
    topology = root / "devices/system/cpu"
    cores, sockets = set(), set()
    cpus = usable_cpus(root)
    for cpu in cpus:
        folder = topology / f"cpu{cpu}" / "topology"
        try:
            package = (folder / "physical_package_id").read_text().strip()
            cores.add((folder / "thread_siblings_list").read_text().strip())
        except OSError:
            package = "0"
            cores.add(str(cpu))
        sockets.add(package)
    steps = Cpufreq(root).steps()
    try:
        memory_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    except (OSError, ValueError):
        memory_mb = 0
    return NodeType(
        NODE_TYPE,
        sockets=len(sockets),
        cores=len(cores),
        threads_per_core=max(1, len(cpus) // len(cores)),
        memory_mb=memory_mb,
        freq_khz=steps,
        default_freq_khz=steps[-1] if steps else 0,
        nodes=(socket.gethostname().split(".")[0],),
    )
