"""Check the settings of Slurm that the advisor lives by, and its hooks."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from advisor import __version__
from advisor.core.check import Check, opening
from advisor.core.request import plain_name
from advisor.errors import AdvisorError, SchedulerError
from advisor.schedulers.cpufreq import Cpufreq
from advisor.schedulers.slurm import hook_state as state
from advisor.schedulers.slurm.availability import parse_settings, prolog_settings
from advisor.schedulers.slurm.control import ask
from advisor.schedulers.slurm.hooks import KEYS, HookFile, find_folder, read_hooks
from advisor.schedulers.slurm.inventory import read_cluster
from advisor.schedulers.slurm.table import OPTIONS
from advisor.schedulers.slurm.translator import (
    BINDING_SETTINGS,
    CPUSET_SETTINGS,
    NODE_CORES,
    cores_uncapped,
    node_cap_program,
    nodes_uncapped,
    uncapped_by,
)

_DOES = {"cli_filter.lua": "rewritten, and no step advised", "job_submit.lua": "stamped"}


def read_settings() -> dict[str, str]:
    """Return the controller's configuration by key. Raises SchedulerError when it is not there."""
    settings = parse_settings(ask("scontrol", "show", "config"))
    if not settings:
        raise SchedulerError("scontrol show config says nothing")
    return settings


def check_scheduler(understood: Collection[str] = ()) -> tuple[Mapping[str, str], list[Check]]:
    """Return Slurm's settings ({} where there is none) and the checks of them.

    ``understood``: options in no table that the site knows.
    """
    try:
        settings = read_settings()
    except SchedulerError as error:
        todo = "nothing, if this machine only uses --scheduler local"
        return {}, [Check("slurm", "warn", f"no Slurm can be asked here: {error.message}", todo)]
    return settings, [
        *_accounting(settings),
        *_energy(settings),
        *_frequency(settings),
        *_node_cap(settings),
        *_options(understood),
    ]


def _options(understood: Collection[str]) -> Iterator[Check]:
    """Compare the options that this Slurm knows with those that the advisor understands."""
    ours = sorted({plain_name(name) for name in OPTIONS}.intersection(understood))
    if ours:
        yield Check(
            "options",
            "warn",
            f"site.yaml says what {', '.join(ours)} does; that changes nothing, for the advisor's "
            "own table has it",
            "take it out of understood_options in site.yaml, then advisor site apply",
        )
    try:
        helps = [ask(c, "--help", timeout_s=20) for c in ("sbatch", "srun", "salloc")]
    except SchedulerError as error:
        yield Check("options", "warn", f"not compared: {error.message}")
        return
    named = unknown_options("\n".join(helps))
    unknown = [name for name in named if plain_name(name) not in understood]
    if unknown:
        yield Check(
            "options",
            "warn",
            f"the advisor does not know {', '.join(unknown)}: jobs with such an option are left"
            " alone",
            f"site.yaml: understood_options: {{{plain_name(unknown[0])}: harmless}}, or binds:"
            " [axes] (docs/admin.md), or a release of the advisor that knows this Slurm",
        )
    else:
        site = f", {', '.join(named)} from site.yaml" if named else ""
        text = f"all options of this sbatch, srun and salloc are known{site}"
        yield Check("options", "ok", text)


def unknown_options(text: str) -> list[str]:
    """Return the options named in a ``--help`` text that the advisor's table lacks, as typed."""
    options = {
        n.replace("_", "-") for n in re.findall(r"(?<![\w-])--([a-z][a-z0-9_-]*[a-z0-9])", text)
    }
    return [f"--{name}" for name in sorted(options - OPTIONS.keys())]


def _accounting(s: Mapping[str, str]) -> Iterator[Check]:
    version = s.get("SLURM_VERSION", "")
    yield Check("slurm", "ok", f"{version} of cluster {s.get('ClusterName', '?')}".strip())
    storage = s.get("AccountingStorageType", "")
    if not storage or storage.endswith("/none"):
        yield Check(
            "accounting",
            "fail",
            "Slurm keeps no accounting, so nothing can be collected",
            "slurm.conf: AccountingStorageType=accounting_storage/slurmdbd",
        )
        return
    try:
        ask("sacct", "--noheader", "--starttime=now", "--endtime=now", timeout_s=20)
    except SchedulerError as error:
        yield Check("accounting", "fail", f"{storage}, but {error.message}", "is slurmdbd running?")
        return
    yield Check("accounting", "ok", storage)
    tracked = s.get("AccountingStorageTRES", "").split(",")
    if "gpu" in s.get("GresTypes", "").split(",") and "gres/gpu" not in tracked:
        yield Check(
            "accounting",
            "warn",
            "gres/gpu is not among the tracked resources: how many GPUs jobs had is not known",
            "slurm.conf: AccountingStorageTRES=energy,gres/gpu",
        )
    if "energy" not in tracked:
        yield Check(
            "accounting",
            "warn",
            "energy is not among the tracked resources",
            "slurm.conf: AccountingStorageTRES=energy",
        )
    if "job_env" not in s.get("AccountingStoreFlags", "").split(","):
        yield Check(
            "accounting",
            "warn",
            "jobs' environments are not kept: a stamp is only found in the admin comment",
            "slurm.conf: AccountingStoreFlags=job_env (if job_submit.lua is not installed)",
        )


def _energy(s: Mapping[str, str]) -> Iterator[Check]:
    plugin = s.get("AcctGatherEnergyType", "").removeprefix("acct_gather_energy/")
    if plugin in ("", "none"):
        yield Check(
            "energy",
            "warn",
            "Slurm meters no energy: models can only rest on estimates",
            "slurm.conf: AcctGatherEnergyType=acct_gather_energy/rapl (or ipmi, xcc, pm_counters)",
        )
    elif plugin == "gpu" or (plugin == "rapl" and "gpu" in s.get("GresTypes", "").split(",")):
        metered_parts = "GPUs alone" if plugin == "gpu" else "processors, not the nodes' GPUs"
        yield Check(
            "energy",
            "warn",
            f"metered by {plugin}: the energy of {metered_parts}",
            "slurm.conf: AcctGatherEnergyType=acct_gather_energy/ipmi (or xcc, pm_counters)",
        )
    else:
        yield Check("energy", "ok", f"metered by {plugin}")
    gather = s.get("JobAcctGatherType", "")
    if not gather or gather.endswith("none"):
        yield Check(
            "energy",
            "warn",
            "nothing is gathered of steps, so they have no energy",
            "slurm.conf: JobAcctGatherType=jobacct_gather/cgroup",
        )
    frequency = s.get("JobAcctGatherFrequency", "")
    if "energy=0" in frequency.split(","):
        yield Check(
            "energy",
            "warn",
            f"JobAcctGatherFrequency={frequency} never reads the meters",
            "slurm.conf: JobAcctGatherFrequency=task=30,energy=30",
        )


def _frequency(s: Mapping[str, str]) -> Iterator[Check]:
    if why := uncapped_by({name: s.get(name, "") for name in BINDING_SETTINGS}):
        remedy = "slurm.conf: TaskPlugin=task/cgroup,task/affinity, TaskPluginParam without none"
        yield Check("frequency", "warn", why, remedy)
        return
    governors = s.get("CpuFreqGovernors", "")
    yield Check("frequency", "ok", f"caps can be set (governors allowed: {governors or 'default'})")


def _node_cap(s: Mapping[str, str]) -> Iterator[Check]:
    """Check the program that caps nodes, where Slurm names it, as this host shows it."""
    named = prolog_settings(s)
    programs = [node_cap_program(named[key]) for key in ("Prolog", "Epilog")]
    program = next(filter(None, programs), None)
    if program is None:
        return
    if why := nodes_uncapped(named):
        yield Check(
            "node-cap",
            "warn",
            f"whole nodes are not capped: {why}",
            f"slurm.conf: Prolog={program}, Epilog={program}, PrologFlags=Alloc and"
            " JobSubmitPlugins=lua, then restart slurmctld and slurmd",
        )
        return
    cores = program.resolve().parent / NODE_CORES
    uncapped_cores = cores_uncapped(named | {name: s.get(name, "") for name in CPUSET_SETTINGS})
    of_cores = () if uncapped_cores else (cores,)
    for path in dict.fromkeys((*filter(None, programs), *of_cores)):
        if why := _safety_problem(path):
            yield Check(
                "node-cap",
                "fail",
                f"{path} {why}: it runs as root on each node, and Slurm drains a node whose prolog"
                " it cannot start",
                f"advisor hook install --node-cap, and copy {path} to the nodes",
            )
            return
    cap_support = Cpufreq().controllable() or "frequencies can be set here"
    shared = uncapped_cores or "where site.yaml says shared_caps: accept"
    yield Check(
        "node-cap",
        "ok",
        f"{program} caps whole nodes as prolog and epilog ({cap_support}); a job's own cores of a"
        f" shared node: {shared}",
    )


def _safety_problem(path: Path) -> str:
    """Return what is wrong with a program that Slurm runs as root, "" for nothing."""
    try:
        state = path.stat()
    except FileNotFoundError:
        return "is not there"
    except OSError as error:
        return f"cannot be looked at ({error.strerror})"
    if state.st_uid != 0:
        return f"belongs to uid {state.st_uid}, not to root"
    if state.st_mode & 0o022:
        return "can be written by others than root"
    return "" if state.st_mode & 0o111 == 0o111 else "is not executable"


def check_hooks(
    settings: Mapping[str, str], frequency_steps: Mapping[str, tuple[int, ...]]
) -> tuple[str | None, list[Check]]:
    """Return the socket that installed hooks ask (None: none is at work), and the checks."""
    folder = Path(settings.get("SLURM_CONF") or "/etc/slurm/slurm.conf").parent
    try:
        folder = find_folder(folder)
        hooks = read_hooks(folder)
    except AdvisorError as error:
        return None, [Check("hook", "warn", error.message, error.hint or "run this as root")]
    checks = [_hook(folder, hook, settings) for hook in hooks]
    if "enable_configless" in settings.get("SlurmctldParameters", ""):
        checks.append(
            Check(
                "hook",
                "warn",
                "compute nodes that fetch their configuration (enable_configless) get"
                " cli_filter.lua without its modules: their steps run as written",
                "nothing, or a configuration folder on the nodes (docs/admin.md, steps)",
            )
        )
    modules = state.modules_folder(folder, hooks)
    if modules is None:
        return None, checks
    loading = state.check_modules(modules)
    install = f"advisor hook install --scheduler slurm --dir {folder}"
    if loading.startswith("do not load"):
        checks.append(Check("hook", "fail", f"the hooks' modules {loading}", install))
    try:
        comparison = state.check_inventory(modules, read_cluster())
    except SchedulerError as error:
        comparison = f"not compared: {error.message}"
    if comparison != "current":
        checks.append(
            Check("hook", "warn", f"what the hooks know of the cluster: {comparison}", install)
        )
    if old := state.check_steps(modules, frequency_steps):
        checks.append(Check("hook", "warn", old, install))
    at_work = any(h.state == "advisor" and _is_configured(h, settings) for h in hooks)
    socket = state.read_settings(modules).get("socket")
    return str(socket) if at_work and socket else None, checks


def _is_configured(hook: HookFile, settings: Mapping[str, str]) -> bool:
    return "lua" in settings.get(KEYS[hook.name], "").split(",")


def _hook(folder: Path, hook: HookFile, settings: Mapping[str, str]) -> Check:
    path, key = folder / hook.name, KEYS[hook.name]
    if hook.state != "advisor":
        problem = {
            "site": "is the site's own only",
            "leftover": "does nothing",
            "absent": "is not there",
        }.get(hook.state, hook.state)
        return Check(
            "hook",
            "warn",
            f"{path} {problem}: no job is {_DOES[hook.name]}",
            f"advisor hook install --scheduler slurm --dir {folder}",
        )
    if not _is_configured(hook, settings):
        return Check(
            "hook",
            "fail",
            f"{path} is installed, but Slurm does not run it",
            f"slurm.conf: {key}=lua, then scontrol reconfigure or restart slurmctld",
        )
    modules = folder / "advisor" / hook.folder_id
    if hook.name == "cli_filter.lua":  # it runs as the user, job_submit.lua inside slurmctld
        if command := opening([path]):
            text = f"other users cannot read {path}: each of their submissions fails"
            return Check("hook", "fail", text, command)
        if opening(modules.glob("*")):
            text = f"other users cannot read {modules}: their jobs run as written"
            return Check("hook", "fail", text, f"chmod -R o+rX {modules.parent}")
    if not state.of_this_release(hook, modules):
        return Check(
            "hook",
            "warn",
            f"{path} ({hook.version}) and its modules are not those of this advisor"
            f" ({__version__})",
            f"advisor hook install --scheduler slurm --dir {folder}",
        )
    calls = f", calls {hook.site_file.name}" if hook.site_file else ""
    return Check("hook", "ok", f"{path} is installed ({hook.version}) and on{calls}")
