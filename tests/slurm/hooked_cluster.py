"""A cluster with the hooks on, and jobs of several users."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed import Submitted, Testbed

from advisor.paths import share

ROOT = share("config").parent
CAP = "1200000-1800000"
SHOW = """\
env | grep -E '^(ADVISOR_|OMP_|MKL_|SLURM_(NTASKS|NPROCS|CPUS_PER_TASK|CPU_FREQ_REQ)=|SRUN_)' | sort
"""


@dataclass
class Hooked:
    """A cluster with the hooks on, and a folder every user may enter for sockets and files."""

    testbed: Testbed
    folder: Path

    @property
    def socket(self) -> Path:
        return self.folder / "s"

    def advisor(self, *arguments: str, conf: bool = False) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [sys.executable, "-m", "advisor", *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            env={**env, **self.testbed.env()} if conf else env,
        )

    def hook(self, action: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        socket = () if action == "remove" else ("--socket", str(self.socket))
        done = self.advisor(
            "hook",
            action,
            "--scheduler",
            "slurm",
            "--dir",
            str(self.testbed.conf_dir),
            *socket,
            *arguments,
        )
        assert done.returncode == 0, done.stderr
        return done

    def env(self, user: str | None = None) -> dict[str, str]:
        """Give a submission a runtime folder of its own: its circuit breaker is nobody else's."""
        runtime = Path(tempfile.mkdtemp(dir=self.folder))
        if user:
            shutil.chown(runtime, user)
        return {"XDG_RUNTIME_DIR": str(runtime)}

    def sbatch(
        self,
        *args: str,
        script: str | None = "srun true\n",
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        **other: Any,
    ) -> Submitted:
        """Submit a held job that must be accepted."""
        done = self.testbed.sbatch(
            "--hold",
            *args,
            script=script,
            user=user,
            env={**self.env(user), **(env or {})},
            **other,
        )
        assert done.job_id, done.stderr
        return done

    def job(self, done: Submitted) -> dict[str, str]:
        return self.testbed.scontrol_job(done.job_id)

    def run(
        self, command: Sequence[str], env: Mapping[str, str] | None = None, **other: Any
    ) -> tuple[str, str]:
        """Run srun or salloc, which must succeed; return what it said."""
        done = self.testbed.run(command, env={**self.env(), **(env or {})}, **other)
        return done.stdout, done.stderr
