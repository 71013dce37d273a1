"""What a user does on a testbed cluster: run commands, submit, wait, read accounting and meters."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from .daemons import TestbedError, go_first, wait_until
from .requirements import SEARCH_PATH

FOREIGN = ("SLURM", "SBATCH_", "SRUN_", "SALLOC_", "OMP_", "KMP_", "XDG_", "ADVISOR_", "MUNGE_")
RUNNING = {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "REQUEUED", "STOPPED"}
SACCT_FIELDS = (
    "JobID,JobName,User,Account,Partition,State,ExitCode,ElapsedRaw,Submit,Start,End,NNodes,NCPUS,"
    "NTasks,NodeList,ConsumedEnergyRaw,ReqCPUFreqMin,ReqCPUFreqMax,ReqCPUFreqGov,Constraints,"
    "Comment,AdminComment,SubmitLine"
)


@dataclass(frozen=True)
class CommandResult:
    """What a command answered."""

    returncode: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Submitted(CommandResult):
    """What sbatch answered; `job_id` is 0 when it refused."""

    job_id: int


class Client:
    """The commands of one cluster in `directory`; needs nothing but its files.

    `users` are the unprivileged users with an account on it.
    """

    def __init__(self, directory: Path, users: Sequence[str]) -> None:
        self.directory = directory
        self.users = tuple(users)
        self._scripts = 0

    # Where things are

    @property
    def conf_dir(self) -> Path:
        """The folder of slurm.conf, where Slurm looks for cli_filter.lua and job_submit.lua."""
        return self.directory / "etc"

    @property
    def user(self) -> str:
        """The first unprivileged user of account `proj`."""
        return self.users[0]

    def home(self, user: str | None = None) -> Path:
        """The folder which is HOME and the working directory of a user's commands."""
        return self.directory / "home" / (user or "root")

    def env(self, user: str | None = None) -> dict[str, str]:
        """The environment for this cluster's commands: SLURM_CONF, PATH with simapp, HOME, ..."""
        environ = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
        path = environ.get("PATH", "")
        environ |= {
            "SLURM_CONF": str(self.conf_dir / "slurm.conf"),
            "PATH": os.pathsep.join(p for p in (f"{self.directory}/bin", path, SEARCH_PATH) if p),
            "HOME": str(self.home(user)),
            "XDG_RUNTIME_DIR": str(self.home(user)),  # its hooks' circuit breaker is nobody else's
            "USER": user or "root",
            "LOGNAME": user or "root",
        }
        return environ

    # Work

    def run(
        self,
        command: Sequence[str | Path],
        *,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        input: str | None = None,
        cwd: Path | None = None,
        check: bool = True,
        timeout: float = 60.0,
    ) -> CommandResult:
        """Run a command of this cluster as `user` (default root) with `env` added to `env()`.

        Raises TestbedError with the command's stderr when it fails and `check` is set.
        """
        account = None if user is None else pwd.getpwnam(user)
        with subprocess.Popen(
            [str(word) for word in command],
            env=self.env(user) | dict(env or {}),
            cwd=cwd or self.home(user),
            user=None if account is None else account.pw_uid,
            group=None if account is None else account.pw_gid,
            extra_groups=None if account is None else [],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            go_first(process.pid)
            try:
                out, err = process.communicate(input or "", timeout)
            except subprocess.TimeoutExpired as error:
                raise TestbedError(f"no end after {timeout:g} s: {command}") from error
            finally:
                if process.poll() is None:
                    process.kill()
        if check and process.returncode != 0:
            raise TestbedError(f"{command} failed ({process.returncode}): {err.strip()}")
        return CommandResult(process.returncode, out, err)

    def sbatch(
        self,
        *args: str,
        script: str | None = None,
        script_args: Sequence[str] = (),
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> Submitted:
        """Submit a job: sbatch's options, and the text of its script (or --wrap among `args`)."""
        command: list[str | Path] = ["sbatch", *args]
        if script is not None:
            self._scripts += 1
            path = self.home(user) / f"job{os.getpid()}-{self._scripts}.sh"
            path.write_text(script if script.startswith("#!") else f"#!/bin/bash\n{script}")
            path.chmod(0o755)
            command += [path, *script_args]
        done = self.run(command, user=user, env=env, check=check)
        number = re.search(r"(?:Submitted batch job |^)(\d+)", done.stdout, re.MULTILINE)
        return Submitted(done.returncode, done.stdout, done.stderr, int(number[1]) if number else 0)

    def scontrol_jobs(self, job_id: int) -> list[dict[str, str]]:
        """Return `scontrol show job` as fields, one per array task or het component."""
        done = self.run(["scontrol", "show", "job", "-d", "-o", str(job_id)], check=False)
        return [
            dict(re.findall(r"(?:^| )([A-Za-z_/:]+)=(.*?) *(?= [A-Za-z_/:]+=|$)", line))
            for line in done.stdout.splitlines()
            if line.startswith("JobId=")
        ]

    def scontrol_job(self, job_id: int) -> dict[str, str]:
        """Return `scontrol show job` of a plain job as fields; TestbedError if unknown."""
        jobs = self.scontrol_jobs(job_id)
        if not jobs:
            raise TestbedError(f"scontrol does not know job {job_id}")
        return jobs[0]

    def wait(self, job_id: int, timeout: float = 60.0) -> str:
        """Wait until a job and all its parts have ended, return its state, as COMPLETED."""
        states: list[str] = []

        def ended() -> bool:
            states[:] = [job["JobState"] for job in self.scontrol_jobs(job_id)]
            return bool(states) and not RUNNING.intersection(states)

        try:
            wait_until(ended, timeout, f"job {job_id}")
        except TestbedError as error:
            raise TestbedError(f"{error}; state {states}") from None
        return next((state for state in states if state != "COMPLETED"), "COMPLETED")

    def rest(self, timeout: float = 120.0) -> None:
        """Wait until nothing runs, and the accounting is complete but for jobs that wait.

        The accounting hears of a brief job seconds after its end; the end may be there before the
        start, and with that the partition, which takes 4 s for a job that never started; its
        environment comes last. What has none a minute after its end never had one.
        """
        fields = "JobIDRaw,End,Partition"
        every = ["sacct", "-a", "-D", "-X", "-n", "-P", "-S", "2020-01-01", "-o", fields]

        def complete(job_id: str, end: str, partition: str, started: bool) -> bool:
            if end == "Unknown":
                return False
            old = time.time() - datetime.fromisoformat(end).timestamp() > 60
            if not started:
                return bool(partition) or old
            asked = ["sacct", "-j", job_id, "--env-vars"]
            return bool(partition) and (old or "SLURM_" in self.run(asked).stdout)

        def at_rest() -> bool:
            lines = self.run(["squeue", "-h", "-t", "all", "-o", "%A %T %N"]).stdout.splitlines()
            jobs = [line.split() for line in lines]
            started = {job_id: state for job_id, state, *nodes in jobs if nodes}
            if not RUNNING.isdisjoint(started.values()):
                return False
            unstarted = {job_id: state for job_id, state, *_ in jobs if job_id not in started}
            waiting = {job_id for job_id, state in unstarted.items() if state == "PENDING"}
            rows = [line.split("|") for line in self.run(every).stdout.splitlines()]
            return started.keys() <= {row[0] for row in rows} and all(
                row[0] in waiting or complete(row[0], row[1], row[2], row[0] not in unstarted)
                for row in rows
            )

        wait_until(at_rest, timeout, "the end of all jobs")

    def sacct(self, job_id: int, timeout: float = 60.0) -> list[dict[str, str]]:
        """Return the accounting records of an ended job, steps included, once they have settled."""
        rows: list[dict[str, str]] = []

        def settled() -> bool:
            rows[:] = self._sacct_rows(job_id)
            # A brief job's end may be there seconds before its start, and with that its partition.
            return bool(rows and rows[0]["Partition"]) and all(
                row["End"] != "Unknown" and row["State"].split()[0] not in RUNNING for row in rows
            )

        wait_until(settled, timeout, f"accounting of job {job_id}")
        return rows

    def _sacct_rows(self, job_id: int) -> list[dict[str, str]]:
        separator = "\x1f"  # comments and command lines may hold "|"
        command = ["sacct", "-P", f"--delimiter={separator}", "-j", str(job_id), "-o", SACCT_FIELDS]
        header, *lines = self.run(command).stdout.splitlines() or [""]
        keys = header.split(separator)
        rows: list[dict[str, str]] = []
        for line in lines:
            values = line.split(separator)
            if len(values) == len(keys):
                rows.append(dict(zip(keys, values, strict=True)))
            elif rows:  # the last field, the command line, goes on over a line break
                rows[-1][keys[-1]] += f"\n{line}"
        return rows

    def output(self, job_id: int) -> str:
        """Return what a batch job wrote to its standard output."""
        return Path(self.scontrol_job(job_id)["StdOut"]).read_text()

    # Views

    def slurmctld_log(self) -> str:
        """Return the controller's log."""
        return (self.directory / "log" / "slurmctld.log").read_text()

    def slurmd_log(self, node: str) -> str:
        """Return a node daemon's log."""
        return (self.directory / "log" / f"slurmd.{node}.log").read_text()

    def cpufreq(self, node: str, name: str = "scaling_max_freq", cpu: int = 0) -> str:
        """Return what a cpufreq file of a posed node holds now."""
        folder = self.directory / "nodes" / node / "sys/devices/system/cpu" / f"cpu{cpu}"
        return (folder / "cpufreq" / name).read_text().strip()

    def energy_j(self, node: str) -> int:
        """Return the joules on a posed node's meter."""
        counters = self.directory / "nodes" / node / "sys/cray/pm_counters"
        return int((counters / "energy").read_text().split()[0])
