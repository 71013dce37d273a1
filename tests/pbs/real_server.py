"""The requests of pbs_shapes.py on a real PBS server, each without and with the advisor's hook.

    python tests/pbs/real_server.py [--every K] [--drawn N]

Run as root on the host of a server that nobody else uses: queues, resources and a hook of its own
are made there, and taken away again. `--vnodes` prints the vnodes it needs, for `pbs_mom -s insert`
on one host. Without a server it says so and ends with 77.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent)]

import test_pbs_differential as posed  # noqa: E402
from hooked import HOOKS  # noqa: E402
from pbs_shapes import FIXED, SHARING, SITES, Shape, drawn  # noqa: E402

from advisor.core.availability import Availability  # noqa: E402
from advisor.core.decision import Decision  # noqa: E402
from advisor.errors import SchedulerError  # noqa: E402
from advisor.schedulers.node_state import rooms, sized  # noqa: E402
from advisor.schedulers.pbs import availability  # noqa: E402
from advisor.schedulers.pbs.hooks import PbsHookSettings, queuejob_config  # noqa: E402
from advisor.schedulers.pbs.inventory import read_hook_inventory  # noqa: E402

HOOK = "advisor_differential"
NO_SERVER = 77
QUEUES = ("q", "small", "large")
WAIT_S = 20.0


def vnodes() -> str:
    """Return the vnodes that the shapes are written for, as pbs_mom reads them."""
    lines = ["$configversion 2"]
    for name, has in posed.NODES.items():
        given = {"host": name, **{k: v for k, v in has.items() if k not in ("queue", "arch")}}
        lines += [f"{name}: resources_available.{k} = {v}" for k, v in given.items()]
    return "\n".join(lines) + "\n"


def qmgr(command: str, *, must: bool = True) -> None:
    """Run one command of qmgr."""
    done = subprocess.run(["qmgr", "-c", command], capture_output=True, text=True, check=False)
    if done.returncode and must:
        raise SystemExit(f"qmgr: {command}: {done.stderr}")


def pose(site: str) -> None:
    """Make the queues of a site."""
    for name in QUEUES:
        qmgr(f"delete queue {name}", must=False)
    for line in SITES[site]:
        qmgr(line)


def submit(shape: Shape, folder: Path, handed: dict[str, str]) -> tuple[posed.Outcome, int | None]:
    """Submit a shape; return what became of it, and its exit status if it ended."""
    script = folder / "job.sh"
    script.write_text(shape.script)
    variables = {"ADVISOR_QSUB": secrets.token_hex(16)}
    handed[variables["ADVISOR_QSUB"]] = posed.client(shape.script)
    words = list(shape.words)
    own = [words[i + 1] for i, w in enumerate(words) if w == "-v"]
    done = subprocess.run(
        ["qsub", *words, "-v", ",".join([*own[-1:], *variables]), str(script)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **variables},
        check=False,
    )
    if done.returncode:
        return posed.Outcome(done.stderr.strip().removeprefix("qsub: ")), None
    job_id, end = done.stdout.strip(), time.monotonic() + WAIT_S
    job: dict[str, Any] = {}
    while time.monotonic() < end:
        shown = subprocess.run(
            ["qstat", "-x", "-f", "-F", "json", job_id], capture_output=True, text=True, check=False
        )
        job = next(iter(json.loads(shown.stdout or "{}").get("Jobs", {}).values()), {})
        state, comment = job.get("job_state"), str(job.get("comment", ""))
        if state in ("F", "H", "B") or not job or "Not Running" in comment or "Never" in comment:
            break
        time.sleep(0.1)
    subprocess.run(["qdel", "-W", "force", job_id], capture_output=True, check=False)
    wants: dict[str, Any] = job.get("Resource_List", {})
    started = "" if "exec_vnode" in job or job.get("job_state") == "B" else str(job.get("comment"))
    outcome = posed.Outcome(
        "", str(job.get("queue")), wants, str(job.get("schedselect", "")), started
    )
    return outcome, job.get("Exit_status")


def main() -> int:
    """Compare all shapes; the exit code is 1 when anything differs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=1, help="of the fixed ones every so many-th")
    parser.add_argument("--drawn", type=int, default=0, help="so many more, drawn at random")
    parser.add_argument("--vnodes", action="store_true", help="print the vnodes that are needed")
    args = parser.parse_args()
    if args.vnodes:
        print(vnodes(), end="")
        return 0
    try:
        availability.read()
    except SchedulerError as error:
        print(f"no PBS server can be asked here, so nothing was compared: {error.message}")
        return NO_SERVER
    folder = Path(tempfile.mkdtemp(prefix="advisor-differential-", dir="/var/tmp"))
    folder.chmod(0o755)
    for name, (kind, flag) in posed.RESOURCES.items():
        qmgr(f"create resource {name} type={kind},flag={flag}", must=False)
    for queue in ("fat", "mixed"):
        qmgr(f"create queue {queue} queue_type=execution,enabled=true,started=true", must=False)
        for node, has in posed.NODES.items():
            if has.get("queue") == queue:
                qmgr(f"set node {node} queue = {queue}")
    qmgr(f"create hook {HOOK} event=queuejob")
    qmgr(f"set hook {HOOK} alarm = 10")
    hook = HOOKS / "advisor_queuejob.py"
    qmgr(f"import hook {HOOK} application/x-python default {hook}")
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        stack.callback(qmgr, f"delete hook {HOOK}", must=False)
        stack.callback(pose, "plain")
        snapshot = stack.enter_context(posed.stored(folder / "advisor.db"))
        return compare([*FIXED[:: args.every], *drawn(args.drawn, seed=7)], snapshot, folder)


def compare(shapes: list[Shape], snapshot: Any, folder: Path) -> int:
    """Submit all shapes twice and print what differs."""
    told: Counter[str] = Counter()
    # sharing is of pbs_mom's own definition of its vnodes: qmgr does not set it
    shapes = sorted(
        (s for s in shapes if not s.running and s.site not in SHARING), key=lambda s: s.site
    )
    site = None
    for number, shape in enumerate(shapes):
        if shape.site != site:
            site = shape.site
            pose(site)
        qmgr(f"set hook {HOOK} enabled = false")
        handed: dict[str, str] = {}
        off, code = submit(shape, folder, handed)
        reading = availability.read()
        known = Availability(
            "pbs",
            rooms(snapshot.inventory, reading.nodes),
            sized(snapshot.inventory, reading.partitions),
            reading.queues,
        )
        settings = queuejob_config(
            PbsHookSettings(
                folder / f"s{number}",
                deadline_s=5.0,
                frequency_steps={kind.feature: posed.STEPS for kind in (posed.BDW, posed.SKL)},
            ),
            read_hook_inventory(),
        )
        settings["breaker"] = str(folder / "breaker")
        (folder / "hook.json").write_text(json.dumps(settings))
        qmgr(f"import hook {HOOK} application/x-config default {folder}/hook.json")
        qmgr(f"set hook {HOOK} enabled = true")
        decisions: list[Decision] = []
        with posed.answering(
            folder / f"s{number}", replace(snapshot, availability=known), decisions, handed
        ):
            on, then = submit(shape, folder, handed)
        wrong = off.compared(on)
        if code != then:
            wrong.append(f"exit status {code}, then {then}")
        advised = bool(decisions and decisions[0].changed and on.said == "")
        told["advised" if advised else "left alone"] += 1
        written = {k: v for k, v in (on.wants or {}).items() if k in ("select", "cpu_freq_mhz")}
        if advised and written == {"select": (off.wants or {}).get("select")}:
            wrong.append(f"decided {dict(decisions[0].rewrite)}, written nothing")
        if wrong:
            told["differ"] += 1
            print(f"{shape} {written}: {'; '.join(wrong)}", flush=True)
    print(", ".join(f"{n} {what}" for what, n in sorted(told.items())), f"of {len(shapes)} shapes")
    return 1 if told["differ"] else 0


if __name__ == "__main__":
    sys.exit(main())
