"""What the advisor knows of PBS: every resource and job attribute, and what each of them binds.

A closed world: a job that asks for something which is not in these tables is left alone. Each
entry names the axes that must be kept where it is set: ``frequency``, ``threads``, ``node_type``,
``cores`` (the request must not become smaller), ``shape`` (it changes what a core or a task is:
nothing is changed but the cap of a job whose earlier ones tell what that does), ``all`` (the same
of nodes). An entry with none is harmless, or one that the advisor reads itself. Standard library
only: the daemon uses it, and the installation writes the names into the queuejob hook.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from advisor.schedulers.pbs.chunks import is_amount

FREQ = "cpu_freq_mhz"
"""The resource of a frequency cap, which the execution hook applies."""
FREE: tuple[str, ...] = ()
NODES = ("node_type",)
SIZE = ("node_type", "cores")
SPEED = ("frequency",)
GPU_SPEED = ("gpu_freq_khz", "gpu_power_w")
WORK = ("frequency", "threads", "node_type", "cores")
"""A limit on work done: whatever is slower, or has other threads, meets it sooner."""
SHAPE, ALL = ("shape",), ("all",)

RESOURCES: Mapping[str, tuple[str, ...]] = {
    # read by the advisor itself, or its own
    **dict.fromkeys(
        (
            "select",
            "place",
            "nodes",
            "ncpus",
            "mpiprocs",
            "ompthreads",
            "mem",
            "walltime",
            "nodect",
            FREQ,
            "advisor_stamp",
            "energy_j",
            "energy_nodes",
            "advisor_gpus",
        ),
        FREE,
    ),
    **dict.fromkeys(("gpu_freq_mhz", "gpu_power_w"), GPU_SPEED),
    # what the scheduler or the site's accounting looks at
    **dict.fromkeys(("file", "nice", "site", "preempt_targets", "energy", "cpupercent"), FREE),
    # what picks nodes
    **dict.fromkeys(("arch", "host", "vnode", "vntype", "software", "aoe", "nodemask"), NODES),
    # devices, and memory beyond plain mem
    **dict.fromkeys(
        (
            "ngpus",
            "naccelerators",
            "accelerator",
            "accelerator_model",
            "accelerator_memory",
            "accelerator_group",
            "hbmem",
            "vmem",
            "pmem",
            "pvmem",
            "nchunk",
            # disks of a node, as NCI and MetaCentrum name them
            "jobfs",
            "scratch_local",
            "scratch_ssd",
            "scratch_shared",
        ),
        SIZE,
    ),
    # other ways to set a frequency or a power limit
    **dict.fromkeys(("pstate", "pgov", "eoe", "pcap_node", "pcap_accelerator"), SPEED + GPU_SPEED),
    # limits on what a job computes
    **dict.fromkeys(("cput", "pcput", "min_walltime", "max_walltime", "soft_walltime"), WORK),
    # older machines' own ways to say what a core or a task is
    **dict.fromkeys(
        (
            "hpm",
            "ssinodes",
            "pe_mask",
            "mppwidth",
            "mppdepth",
            "mppnppn",
            "mppmem",
            "mppnodes",
            "mpparch",
            "mpphost",
            "mpplabels",
            "mpp_nppcu",
            "neednodes",
            "procs",
            "gpus",
            "mics",
        ),
        SHAPE,
    ),
}
"""Built-in resources, those of the advisor's own hooks, and names in use everywhere."""

OWN_VARIABLES = re.compile(r"PBS_(?!O_)\w+|NCPUS")
"""Variables by which mpirun and programs find a job's nodes and cores; a script that sets one runs
on others."""
_SHELLS = frozenset({"sh", "bash", "dash", "ksh", "zsh"})
HELD, SHELL = ("held",), ("shell",)
ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            "Account_Name",
            "Checkpoint",
            "Error_Path",
            "Output_Path",
            "Join_Path",
            "Keep_Files",
            "Mail_Points",
            "Mail_Users",
            "Job_Name",
            "Priority",
            "Rerunable",
            "Remove_Files",
            "User_List",
            "group_list",
            "umask",
            "project",
            "block",
            "sandbox",
            "stagein",
            "stageout",
            "pwd",
            "run_count",
            "interactive",
            "array",
            "comment",
            "array_indices_submitted",
            "max_run_subjobs",
            "release_nodes_on_stageout",
            "job_kill_delay",
            "no_stdio_sockets",
            "forward_x11_cookie",
            "forward_x11_port",
            "gui",
            "cred",
            "security",
            "Variable_List",
            "Resource_List",
            "Submit_arguments",
            "Submit_Host",
            "executable",
            "argument_list",
            "queue",
            "topjob_ineligible",
            "credential_id",
            "credential_validity",
        ),
        FREE,
    ),
    # it starts when nobody knows yet
    **dict.fromkeys(("Execution_Time", "Hold_Types", "depend"), HELD),
    # which shell reads the script; `shape` where it is none that the advisor reads
    "Shell_Path_List": SHELL,
    # its nodes are reserved as it starts
    "create_resv_from_job": SIZE,
    # it is given more nodes than it asks for
    "tolerate_node_failures": ALL,
}
"""Attributes that a submission can set, by PBS's name: options of qsub, and those of ``-W``."""


@dataclass(frozen=True, slots=True)
class QsubOption:
    """One option of qsub: all that is known of it stands here once; ``-l`` is its resources."""

    name: str
    """Ours: qsub has letters only."""
    letter: str
    has_value: bool
    is_swept: bool
    """Whether it is part of what a job's sweep measures: not where output goes, when a job starts,
    how long it may take."""
    attribute: str
    """What it sets, by PBS's name; "" where it concerns qsub alone."""


# LETTER,NAME with ":" where a value follows, "!" for what a job's sweep does without, =ATTRIBUTE.
_OPTIONS = """
    a,after:!=Execution_Time A,account:=Account_Name c,checkpoint:!=Checkpoint C,prefix:!
    e,error:!=Error_Path j,join:!=Join_Path J,array:!=array_indices_submitted k,keep:!=Keep_Files
    m,mail:!=Mail_Points M,mail-users:!=Mail_Users N,job-name:!=Job_Name o,output:!=Output_Path
    p,priority:!=Priority P,project:=project q,queue:=queue r,rerunable:!=Rerunable
    R,remove:!=Remove_Files S,shell:!=Shell_Path_List u,users:!=User_List
    v,variables:=Variable_List W,additional: f,foreground! h,hold!=Hold_Types
    I,interactive!=interactive V,export-all X,forward-x11!=forward_x11_cookie z,quiet
"""
OPTIONS: Mapping[str, QsubOption] = {
    name: QsubOption(name, letter, bool(colon), not mark, attribute)
    for letter, name, colon, mark, attribute in re.findall(
        r"(\w),([\w-]+)(:?)(!?)(?:=(\w+))?", _OPTIONS
    )
}
"""qsub's options by our names: none is a resource."""
BY_LETTER: Mapping[str, QsubOption] = {option.letter: option for option in OPTIONS.values()}
NOT_SWEPT = frozenset(option.name for option in OPTIONS.values() if not option.is_swept)
"""Options that a job's sweep does without."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What a job asks for beyond its size binds: axes with what binds them, and what is unknown."""

    axes: Mapping[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    held: bool = False


def bound(
    resources: Mapping[str, str], attributes: Mapping[str, str], kinds: Collection[str] | None
) -> Bound:
    """Look up a job's resources (its own and its chunk's) and attributes.

    ``kinds`` names the site's own resources of a host: a text of these picks nodes, an amount has
    a meaning that is not known. None where they are not known; then each text picks nodes.
    """
    axes: dict[str, str] = {}
    unknown = []
    is_held = False
    for name, value in resources.items():
        entry = RESOURCES.get(name)
        if entry is None and not is_amount(value) and (kinds is None or name in kinds):
            entry = NODES
        if entry is None:
            unknown.append(name)
        for axis in entry or ():
            axes.setdefault(axis, f"{name}={value}")
    for name, value in attributes.items():
        entry = ATTRIBUTES.get(name)
        if entry is None:
            unknown.append(name)
        elif entry is SHELL:
            if not _reads_sh(value):
                axes.setdefault("shape", f"-S {value}")
        elif entry is HELD:
            is_held = is_held or not (name == "Hold_Types" and value == "n")
        else:
            for axis in entry:
                axes.setdefault(axis, name)
    return Bound(axes, tuple(unknown), is_held)


def _reads_sh(shells: str) -> bool:
    """Tell whether each of ``/bin/bash@host,/bin/sh`` runs a script as it is read here."""
    paths = (s.strip("\"' ").partition("@")[0] for s in shells.split(","))
    return all(path.rsplit("/", 1)[-1] in _SHELLS for path in paths)


def strange(custom: Iterable[str], kinds: Collection[str]) -> list[str]:
    """Return which of a server's own resources leave a job alone that asks for them."""
    return sorted(n for n in custom if n not in RESOURCES and n not in kinds)
