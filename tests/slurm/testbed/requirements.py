"""What the testbed needs of a machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

#: Programs by the Debian package that has them.
PROGRAMS = {
    "munged": "munge",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
    "slurmdbd": "slurmdbd",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "sacctmgr": "slurm-client",
    "unshare": "util-linux",
    "cc": "gcc",
}
SEARCH_PATH = os.pathsep.join(["/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/bin"])


def program(name: str) -> str | None:
    """Return the path of a system program, looking in sbin folders too."""
    return shutil.which(name, path=SEARCH_PATH + os.pathsep + os.environ.get("PATH", ""))


def _plugin_folder() -> Path | None:
    for folder in Path("/usr/lib").glob("*/slurm-wlm"):
        return folder
    return None


def requirements() -> str | None:
    """Return why the testbed cannot run here, in one sentence, or None when it can."""
    if os.geteuid() != 0:
        return "the Slurm testbed needs root (mount namespaces, slurmd)"
    missing = sorted({package for name, package in PROGRAMS.items() if program(name) is None})
    plugins = _plugin_folder()
    if plugins is None or not (plugins / "cli_filter_lua.so").exists():
        missing.append("slurm-wlm-basic-plugins")
    elif not (plugins / "accounting_storage_mysql.so").exists():
        missing.append("slurm-wlm-mysql-plugin")
    if missing:
        return f"the Slurm testbed needs these packages: {' '.join(missing)}"
    probe = subprocess.run(
        ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /sys"],
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode != 0:
        return f"the Slurm testbed needs a private mount namespace: {probe.stderr.strip()}"
    return None
