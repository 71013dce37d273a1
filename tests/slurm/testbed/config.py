"""The configuration files of a testbed cluster."""

from __future__ import annotations

import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path

from .daemons import TestbedError
from .law import NODE_TYPES

LOCAL_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
ACCOUNT = "proj"
NOOP_HOOKS = {
    "cli_filter.lua": """\
function slurm_cli_setup_defaults(options, early) return slurm.SUCCESS end
function slurm_cli_pre_submit(options, offset) return slurm.SUCCESS end
function slurm_cli_post_submit(offset, job_id, step_id) return slurm.SUCCESS end
return slurm.SUCCESS
""",
    "job_submit.lua": """\
function slurm_job_submit(job_desc, part_list, submit_uid) return slurm.SUCCESS end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid) return slurm.SUCCESS end
return slurm.SUCCESS
""",
}


@dataclass(frozen=True)
class Ports:
    """The private TCP ports of one cluster; `slurmd` by node name."""

    mariadb: int
    slurmdbd: int
    slurmctld: int
    slurmd: dict[str, int]


def claim_ports() -> tuple[Ports, socket.socket]:
    """Return ports nobody listens on, and the socket that keeps them for as long as it is open.

    The kernel gives outgoing connections ports of its own range, also of connections made between
    this choice and the start of a daemon: ports are taken outside of that range. Clusters that
    start at the same time exclude each other by the first port of a block, which no daemon uses.
    """
    names = [node for node_type in NODE_TYPES.values() for node in node_type.nodes]
    needed = 3 + len(names)
    low, high = map(int, LOCAL_PORT_RANGE.read_text().split())
    for first in range(10240, 65536 - needed, needed + 1):
        if first + needed >= low and first <= high:
            continue
        claim = socket.socket()
        try:
            claim.bind(("127.0.0.1", first))
            numbers = range(first + 1, first + 1 + needed)
            for number in numbers:
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", number))
        except OSError:
            claim.close()
            continue
        slurmd = dict(zip(names, numbers[3:], strict=True))
        return Ports(numbers[0], numbers[1], numbers[2], slurmd), claim
    raise TestbedError(f"no {needed + 1} ports in a row are free outside of {LOCAL_PORT_RANGE}")


BOUND = "ProctrackType=proctrack/cgroup\nTaskPlugin=task/cgroup,task/affinity\n"
"""What has Slurm bind each job to its cores; the last of equal settings holds."""
GPU_TYPE = "bdw"
"""The node type whose nodes get GPUs, where a testbed has some."""


def gres_conf(root: Path, gpus: int) -> str:
    """Return gres.conf."""
    nodes = ",".join(NODE_TYPES[GPU_TYPE].nodes)
    return f"NodeName={nodes} Name=gpu Type=posed File={root}/dev/nvidia[0-{gpus - 1}]\n"


def slurm_conf(root: Path, ports: Ports, lua_hooks: bool, cluster: str, gpus: int = 0) -> str:
    """Return slurm.conf."""
    gres = {GPU_TYPE: f" Gres=gpu:posed:{gpus}"} if gpus else {}
    hooks = "JobSubmitPlugins=lua\nCliFilterPlugins=lua\n" if lua_hooks else ""
    nodes = "".join(
        f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports.slurmd[node]}"
        f" Sockets={t.sockets} CoresPerSocket={t.cores_per_socket} ThreadsPerCore=1"
        f" RealMemory=8000 Feature={t.feature} Weight={10 * rank + 1}{gres.get(name, '')}\n"
        for rank, (name, t) in enumerate(NODE_TYPES.items())
        for node in t.nodes
    )
    by_type = "".join(
        f"PartitionName={t.feature} Nodes={','.join(t.nodes)} MaxTime=INFINITE State=UP\n"
        for t in NODE_TYPES.values()
    )
    return f"""\
ClusterName={cluster}
SlurmctldHost={socket.gethostname().split(".")[0]}(127.0.0.1)
SlurmctldPort={ports.slurmctld}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/run/munge.socket
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/run/slurmctld.self.pid
SlurmdPidFile={root}/run/slurmd.%n.self.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd.%n.log
SlurmctldDebug=verbose
SlurmdDebug=info
SlurmdParameters=config_overrides
ReturnToService=2
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=50
CpuFreqGovernors=OnDemand,Performance,PowerSave,UserSpace,Conservative
PropagateResourceLimits=NONE
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
KillWait=2
MessageTimeout=30
SlurmdTimeout=120
MinJobAge=600
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1,energy=1
AcctGatherNodeFreq=2
AcctGatherEnergyType=acct_gather_energy/pm_counters
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={ports.slurmdbd}
AccountingStoragePass={root}/run/munge.socket
AccountingStorageTRES=energy
AccountingStoreFlags=job_comment,job_env,job_script
{"GresTypes=gpu" if gpus else ""}
{hooks}{nodes}\
PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=debug Nodes=bdw1,bdw2 MaxTime=30 State=UP
{by_type}"""


def slurmdbd_conf(root: Path, ports: Ports) -> str:
    """Return slurmdbd.conf."""
    return f"""\
AuthType=auth/munge
AuthInfo=socket={root}/run/munge.socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={ports.slurmdbd}
SlurmUser=root
LogFile={root}/log/slurmdbd.log
PidFile={root}/run/slurmdbd.self.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={ports.mariadb}
StorageUser=slurm
StoragePass=testbed
StorageLoc=slurm_acct_db
"""


def mariadb_conf(root: Path, ports: Ports) -> str:
    """Return my.cnf: a small private server which need not survive a power cut.

    A server that starts deletes others' temporary tables: each has a folder of its own for them.
    """
    return f"""\
[mariadbd]
user=root
datadir={root}/db
tmpdir={root}/tmp
socket={root}/run/mariadb.socket
pid-file={root}/run/mariadb.self.pid
log-error={root}/log/mariadb.log
bind-address=127.0.0.1
port={ports.mariadb}
skip-name-resolve
skip-log-bin
innodb-buffer-pool-size=32M
innodb-log-file-size=8M
innodb-flush-log-at-trx-commit=0
innodb-flush-method=nosync
innodb-doublewrite=0
innodb-lock-wait-timeout=900
performance-schema=OFF
key-buffer-size=1M
aria-pagecache-buffer-size=8M
"""


def write_configuration(
    root: Path,
    ports: Ports,
    lua_hooks: bool,
    cluster: str,
    more: str,
    gpus: int = 0,
    bound: bool = False,
) -> None:
    """Write every configuration file under `root/etc`, with no-op hooks where none are.

    `more` is written at the end of slurm.conf. Each node of GPU_TYPE has so many `gpus`, whose
    files, as of devices, are made under `root/dev`. `bound`: jobs have cpusets.
    """
    etc = root / "etc"
    if bound:
        more = BOUND + more
    (etc / "slurm.conf").write_text(slurm_conf(root, ports, lua_hooks, cluster, gpus) + more)
    if gpus:
        (etc / "gres.conf").write_text(gres_conf(root, gpus))
        (root / "dev").mkdir(exist_ok=True)
        for number in range(gpus):
            # Slurm takes a device's number from such a file, and knows it by no other
            device = root / "dev" / f"nvidia{number}"
            device.unlink(missing_ok=True)
            os.mknod(device, stat.S_IFCHR | 0o600, os.makedev(195, number))
    constrain = "CgroupPlugin=cgroup/v1\nConstrainCores=yes\n" if bound else ""
    (etc / "cgroup.conf").write_text(f"CgroupAutomount=no\n{constrain}")
    (etc / "my.cnf").write_text(mariadb_conf(root, ports))
    secret = etc / "slurmdbd.conf"
    secret.touch(mode=0o600)
    secret.write_text(slurmdbd_conf(root, ports))
    if lua_hooks:
        for name, text in NOOP_HOOKS.items():
            if not (etc / name).exists():
                (etc / name).write_text(text)
    key = root / "munge" / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))
