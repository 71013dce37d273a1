"""The main job end to end without any scheduler: what ``make demo`` runs.

Compiles a real OpenMP program, measures it, fits its trade-off model, and lets the advisor run its
job script; ends in ``advisor demo``, whose table says what advice saves on a large server. Where
other processes take more than a little of this machine meanwhile, it says so in place of a verdict.
Everything is kept in one temporary folder.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent

POLICY = """\
version: 1
mode: apply             # advise would only say what it would do
goal: balanced
max_slowdown: 10%
min_saving: 3%
holdout: 0%
estimated_energy: apply # this demo may act on estimates; a site should want a meter
training: {samples: 12, confirm: 1}
"""

# For machines without an energy meter: watts of an idle node, and of one busy core at full
# frequency. Whatever is computed from them is labelled as an estimate everywhere.
SITE = """\
version: 1
node_types:
  local:
    base_power_w: 40
    core_power_w: 12
"""

MOST_OTHERS = 0.05
"""The share of the cores' time that others may take; beyond it times cannot be judged."""


def main() -> int:
    """Run the demo; return its exit code."""
    begin = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="advisor-demo-"))
    os.environ.update(
        ADVISOR_DB=str(folder / "advisor.db"),
        ADVISOR_CONFIG_DIR=str(folder / "config"),
        ADVISOR_SOCKET=str(folder / "advisor.sock"),
        XDG_STATE_HOME=str(folder / "state"),
        XDG_CONFIG_HOME=str(folder / "xdg"),
    )
    (folder / "config").mkdir()
    (folder / "config" / "policy.yaml").write_text(POLICY)
    (folder / "config" / "site.yaml").write_text(SITE)
    os.chdir(folder)
    shutil.copy(HERE / "heat.sh", folder)
    say("This machine, and a program that scales badly: the implicit heat equation (heat.c)")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        print("a C compiler is needed: on Debian, apt-get install gcc", file=sys.stderr)
        return 1
    run(compiler, "-O2", "-fopenmp", "-o", "heat", str(HERE / "heat.c"), "-lm")
    show("heat.sh")
    say("1. What is here: this machine as a node type, and which meter it has")
    advisor("site", "discover", "--scheduler", "local")
    advisor("site", "apply")
    say("2. The site's policy")
    advisor("policy", "apply")
    say("3. The application is unknown, so it is measured: few runs, then one that confirms")
    cores = Cores.now()
    advisor("train", "heat.sh", "--scheduler", "local", "--yes")
    say("4. What is known now: every option of this machine")
    advisor("options", "heat")
    say("5. What the advisor would do with the job, and why")
    advisor("explain", "heat.sh")
    if not decision("heat.sh")["changed"]:
        print(
            f"\nNothing is worth a change here: {os.cpu_count() or 1} cores leave little to save. "
            "A machine with more\ncores than its memory can feed (16 or more) shows a saving, as "
            "the one below."
        )
    say("6. The job runs: as it is, and as advised")
    advisor("run", "heat.sh", env={"ADVISOR": "off"})
    advised = advisor("run", "heat.sh")
    job = next((w for w in advised.split() if w.startswith("local-")), "")
    say("7. What was promised, and what came out")
    judge(job, cores.others())
    say("8. What others measured on a large server, and what advice from a few runs saves there")
    advisor("demo")
    print(f"\ndone in {time.monotonic() - begin:.0f} s; everything is in {folder}")
    return 0


@dataclass(frozen=True, slots=True)
class Cores:
    """Processor time in seconds since the machine started: there was, others' and ours."""

    there: float
    busy: float
    ours: float

    @classmethod
    def now(cls) -> Cores:
        """Read the kernel's counts; what a virtual machine's host took away is others'."""
        user, nice, system, idle, waiting, *rest = [
            int(count) / os.sysconf("SC_CLK_TCK")
            for count in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        ]
        busy = user + nice + system + sum(rest)
        uses = (resource.getrusage(resource.RUSAGE_CHILDREN), resource.getrusage(0))
        return cls(busy + idle + waiting, busy, sum(u.ru_utime + u.ru_stime for u in uses))

    def others(self) -> float:
        """Return the share of all cores' time since then that other processes took."""
        now = Cores.now()
        others = now.busy - self.busy - (now.ours - self.ours)
        return max(0.0, others / max(now.there - self.there, 1e-9))


def judge(job: str, others: float) -> None:
    """Show how the job came out, unless ``others``, a share of the cores' time, were in its way."""
    if others <= MOST_OTHERS:
        advisor("why", job)
        return
    print(
        f"Other processes took {100 * others:.0f} % of this machine's cores during these runs, so "
        "their\ntimes say little: whether the job came out as promised is not judged here. Run it "
        "again\non a quiet machine."
    )


def say(text: str) -> None:
    """Print a heading."""
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n== {text}", flush=True)


def show(path: str) -> None:
    """Print a file."""
    print(f"$ cat {path}\n{Path(path).read_text()}", flush=True)


def run(*command: str) -> None:
    """Run a command and stop the demo if it fails."""
    print("$ " + " ".join(command), flush=True)
    subprocess.run(command, check=True)


def advisor(*arguments: str, env: dict[str, str] | None = None) -> str:
    """Run an advisor command, show and return what it prints; exit code 3 is an answer too."""
    before = "".join(f"{k}={v} " for k, v in (env or {}).items())
    print(f"$ {before}advisor {' '.join(arguments)}", flush=True)
    command = [sys.executable, "-m", "advisor", *arguments]
    lines = []
    with subprocess.Popen(
        command,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    if process.returncode not in (0, 3):
        sys.exit(f"the demo stopped: advisor {arguments[0]} failed")
    return "".join(lines)


def decision(script: str) -> dict[str, Any]:
    """Return what `advisor explain` says of a script, as data."""
    words = [sys.executable, "-m", "advisor", "explain", script, "--json"]
    answer: dict[str, Any] = json.loads(subprocess.run(words, capture_output=True).stdout)
    return answer


if __name__ == "__main__":
    sys.exit(main())
