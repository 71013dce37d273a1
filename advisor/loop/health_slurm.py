"""Check the settings of Slurm that the advisor lives by, and its hooks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from advisor.errors import SchedulerError
from advisor.loop.health import Check
from advisor.schedulers.sacct import run_command

HOOKS = ("cli_filter.lua", "job_submit.lua")


def read_settings() -> dict[str, str]:
    """Return the controller's configuration by key. Raises SchedulerError when it is not there."""
    text = run_command(["scontrol", "show", "config"])
    found = {}
    for line in text.splitlines():
        match = re.match(r"(\w+)\s*=\s*(.*)$", line)
        if match:
            value = match[2].strip()
            found[match[1]] = "" if value in ("(null)", "N/A", "Unknown") else value
    if not found:
        raise SchedulerError("scontrol show config says nothing")
    return found


def check_slurm() -> tuple[Mapping[str, str], list[Check]]:
    """Return Slurm's settings ({} where there is none) and the checks of them."""
    try:
        settings = read_settings()
    except SchedulerError as error:
        todo = "nothing, if this machine only uses --scheduler local"
        return {}, [Check("slurm", "warn", f"no Slurm can be asked here: {error.message}", todo)]
    return settings, [*_accounting(settings), *_energy(settings), *_frequency(settings)]


def _accounting(s: Mapping[str, str]) -> Iterator[Check]:
    version = s.get("SLURM_VERSION", "")
    yield Check("slurm", "ok", f"{version} of cluster {s.get('ClusterName', '?')}".strip())
    storage = s.get("AccountingStorageType", "")
    if not storage or storage.endswith("/none"):
        yield Check(
            "accounting", "fail", "Slurm keeps no accounting, so nothing can be collected",
            "slurm.conf: AccountingStorageType=accounting_storage/slurmdbd",
        )  # fmt: skip
        return
    try:
        run_command(["sacct", "--noheader", "--starttime=now", "--endtime=now"], timeout_s=20)
    except SchedulerError as error:
        yield Check("accounting", "fail", f"{storage}, but {error.message}", "is slurmdbd running?")
        return
    yield Check("accounting", "ok", storage)
    if "energy" not in s.get("AccountingStorageTRES", "").split(","):
        yield Check(
            "accounting", "warn", "energy is not among the tracked resources",
            "slurm.conf: AccountingStorageTRES=energy",
        )  # fmt: skip
    if "job_env" not in s.get("AccountingStoreFlags", "").split(","):
        yield Check(
            "accounting", "warn",
            "jobs' environments are not kept: a stamp is only found in the admin comment",
            "slurm.conf: AccountingStoreFlags=job_env (if job_submit.lua is not installed)",
        )  # fmt: skip


def _energy(s: Mapping[str, str]) -> Iterator[Check]:
    plugin = s.get("AcctGatherEnergyType", "").removeprefix("acct_gather_energy/")
    if plugin in ("", "none"):
        yield Check(
            "energy", "warn", "Slurm meters no energy: models can only rest on estimates",
            "slurm.conf: AcctGatherEnergyType=acct_gather_energy/rapl (or ipmi, xcc, pm_counters)",
        )  # fmt: skip
    else:
        yield Check("energy", "ok", f"metered by {plugin}")
    gather = s.get("JobAcctGatherType", "")
    if not gather or gather.endswith("none"):
        yield Check(
            "energy", "warn", "nothing is gathered of steps, so they have no energy",
            "slurm.conf: JobAcctGatherType=jobacct_gather/cgroup",
        )  # fmt: skip
    frequency = s.get("JobAcctGatherFrequency", "")
    if "energy=0" in frequency.split(","):
        yield Check(
            "energy", "warn", f"JobAcctGatherFrequency={frequency} never reads the meters",
            "slurm.conf: JobAcctGatherFrequency=task=30,energy=30",
        )  # fmt: skip


def _frequency(s: Mapping[str, str]) -> Iterator[Check]:
    plugins = s.get("TaskPlugin", "")
    if "affinity" not in plugins and "cgroup" not in plugins:
        yield Check(
            "frequency", "warn", f"TaskPlugin={plugins or 'none'} never applies --cpu-freq",
            "slurm.conf: TaskPlugin=task/cgroup,task/affinity",
        )  # fmt: skip
        return
    governors = s.get("CpuFreqGovernors", "")
    yield Check("frequency", "ok", f"caps can be set (governors allowed: {governors or 'default'})")


def check_hooks(settings: Mapping[str, str]) -> tuple[bool, list[Check]]:
    """Return whether the advisor's hooks are at work on this host, and the checks of it."""
    folder = Path(settings.get("SLURM_CONF") or "/etc/slurm/slurm.conf").parent
    on = {
        "cli_filter.lua": "lua" in settings.get("CliFilterPlugins", ""),
        "job_submit.lua": "lua" in settings.get("JobSubmitPlugins", ""),
    }
    keys = {"cli_filter.lua": "CliFilterPlugins", "job_submit.lua": "JobSubmitPlugins"}
    what = {"cli_filter.lua": "rewrites jobs", "job_submit.lua": "stamps jobs"}
    installed, checks = False, []
    for name in HOOKS:
        path = folder / name
        state = _installed(path)
        if state is None:
            checks.append(
                Check("hook", "warn", f"{path} cannot be read", "run this as root to check it")
            )
        elif not state:
            checks.append(
                Check(
                    "hook", "warn", f"{path} is not the advisor's; it {what[name]}",
                    f"advisor hook install --scheduler slurm --dir {folder}",
                )
            )  # fmt: skip
        elif not on[name]:
            checks.append(
                Check(
                    "hook", "fail", f"{path} is installed, but Slurm does not run it",
                    f"slurm.conf: {keys[name]}=lua, then restart slurmctld",
                )
            )  # fmt: skip
        else:
            installed = True
            checks.append(Check("hook", "ok", f"{path} is installed and on"))
    return installed, checks


def _installed(path: Path) -> bool | None:
    """Tell whether a hook file is the advisor's stub; None when it cannot be read."""
    try:
        return "advisor stub" in path.read_text(errors="replace")
    except FileNotFoundError:
        return False
    except OSError:
        return None
