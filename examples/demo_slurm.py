"""The main job on a real Slurm cluster on this one machine: what ``make demo-slurm`` runs.

Several slurmd pose as three node types; a simulated application stands in for their silicon.
Submission, filter, steps, frequency caps, accounting and energy are Slurm's own.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "slurm"))

from advised import AdvisedSite
from testbed import Testbed, requirements


def main() -> int:
    """Run the demo; return its exit code."""
    if reason := requirements():
        print(f"no Slurm testbed here: {reason}", file=sys.stderr)
        return 1
    begin = time.monotonic()
    print("starting munge, MariaDB, slurmdbd, slurmctld and slurmd ...", flush=True)
    with Testbed() as testbed:
        site = AdvisedSite(testbed)
        try:
            demo(site)
        finally:
            site.tear_down()
    print(f"\ndone in {time.monotonic() - begin:.0f} s; the cluster is stopped")
    return 0


def demo(site: AdvisedSite) -> None:
    """Train an application, submit its script, and see how it came out."""
    script = site.script(
        "stencil.sh",
        "srun simapp --kernel stencil --scale 2",
        "-N 1",
        "--exclusive",
        "-p broadwell",
        "-t 10",
    )
    say("the admin: inventory, policy, daemon, hooks")
    site.set_up()
    slurm(site, "sinfo", "-o", "%P %D %c %f")
    say("a scientist submits; nobody has measured this application")
    print(f"$ cat stencil.sh\n{script.read_text()}")
    wait(site, submit(site, script))
    say("it is trained once")
    advisor(site, "train", "stencil.sh", "--scheduler", "slurm", "--yes")
    site.settle()
    say("the same script again")
    job = submit(site, script)
    wait(site, job)
    fields = "JobID,JobName,State,NCPUS,ReqCPUFreqMax,ConsumedEnergyRaw,ElapsedRaw"
    slurm(site, "sacct", "-j", str(job), "-o", fields)
    say("what was promised, and what came out")
    advisor(site, "collect")
    advisor(site, "why", str(job))


def say(text: str) -> None:
    """Print a heading."""
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n== {text}", flush=True)


def advisor(site: AdvisedSite, *arguments: str) -> None:
    """Run and show an advisor command."""
    print(f"$ advisor {' '.join(arguments)}", flush=True)
    subprocess.run(
        [sys.executable, "-m", "advisor", *arguments],
        env=site.environment(),
        cwd=site.folder,
        check=True,
    )


def slurm(site: AdvisedSite, *command: str) -> None:
    """Run and show one of Slurm's commands."""
    print("$ " + " ".join(command), flush=True)
    print(site.testbed.run(list(command)).stdout, end="", flush=True)


def submit(site: AdvisedSite, script: Path) -> int:
    """Submit a script as its user would; return the job's id."""
    print(f"$ sbatch {script.name}", flush=True)
    done = site.testbed.run(["sbatch", str(script)], cwd=site.folder)
    print(done.stderr + done.stdout, end="", flush=True)
    return int(done.stdout.split()[-1])


def wait(site: AdvisedSite, job: int) -> None:
    """Wait until a job has ended."""
    site.testbed.wait(job)


if __name__ == "__main__":
    sys.exit(main())
