"""qstat, pbsnodes and qdel."""

from __future__ import annotations

import getopt
import json
import os
import re
import signal
import sys
import time
from typing import Any

from fake_mom import end
from fake_server import TIMES, Complex, Refusal, clock


def qstat(pbs: Complex, argv: list[str]) -> int:
    given, ids = getopt.getopt(argv, "fxtBQF:")
    flags = dict(given)
    with pbs.locked() as state:
        pass
    head = {"timestamp": int(time.time()), "pbs_version": "23.06.06", "pbs_server": "pbs1"}
    if "-B" in flags:
        if flags.get("-F") == "json":
            return say({**head, "Server": {"pbs1": state["server"]}})
        print("Server: pbs1")
        for key, value in state["server"].items():
            print(f"    {key} = {folded(f'{key} = {value}')[len(key) + 3 :]}")
        print()
        return 0
    if "-Q" in flags:
        return say({**head, "Queue": state["queues"]})
    jobs = {
        name: {k: clock(v) if k in TIMES and isinstance(v, int) else v for k, v in job.items()}
        for name, job in state["jobs"].items()
    }
    shown: dict[str, Any] = {}
    code = 0
    for asked in ids:
        name = asked if "." in asked else f"{asked}.pbs1"
        if name not in jobs:
            print(f"qstat: Unknown Job Id {name}", file=sys.stderr)
            code = 153
        elif jobs[name]["job_state"] == "F" and "-x" not in flags:
            why = "Job has finished, use -x or -H to obtain historical job information"
            print(f"qstat: {name} {why}", file=sys.stderr)
            code = 35
        elif not shown:  # of several, JSON has the first alone
            shown[name] = jobs[name]
    if not ids:
        if "-x" in flags and state["server"].get("job_history_enable") != "True":
            raise Refusal("qstat: PBS is not configured to maintain job history")
        shown = {n: j for n, j in jobs.items() if "-x" in flags or j["job_state"] != "F"}
    if flags.get("-F") == "json":
        say({**head, **({"Jobs": shown} if shown else {})})
    else:
        for name, job in shown.items():
            print(f"Job Id: {name}")
            for key, value in job.items():
                if key == "Variable_List":
                    value = ",".join(f"{k}={v}" for k, v in value.items())
                parts = value.items() if isinstance(value, dict) else [("", value)]
                for resource, text in parts:
                    print(f"    {key}{'.' if resource else ''}{resource} = {text}")
            print()
    return code


def folded(text: str) -> str:
    """Return a line as qstat prints a long one: broken behind commas, and indented by a tab."""
    lines = [""]
    for part in re.findall("[^,]*,|[^,]+$", text):
        if lines[-1] and len(lines[-1]) + len(part) > 70:
            lines.append("")
        lines[-1] += part
    return "\n\t".join(lines)


def say(data: dict[str, Any]) -> int:
    """Print as qstat does: numbers bare, whatever looks like one."""

    def shaped(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: shaped(v) for k, v in value.items()}
        return int(value) if isinstance(value, str) and value.isdecimal() else value

    print(json.dumps(shaped(data), indent="\t", separators=(",", ":\t")))
    return 0


def pbsnodes(pbs: Complex, argv: list[str]) -> int:
    getopt.getopt(argv, "avF:")
    with pbs.locked() as state:
        pass
    return say({"timestamp": int(time.time()), "pbs_version": "23.06.06", **nodes_of(state)})


def nodes_of(state: dict[str, Any]) -> dict[str, Any]:
    """Return what pbsnodes says of all vnodes."""
    running = [j["exec_vnode"] for j in state["jobs"].values() if j["job_state"] == "R"]
    busy = {n for n in state["nodes"] if any(f"({n}:" in vnodes for vnodes in running)}
    nodes = {
        name: {
            "Mom": name,
            "Port": 15002,
            "pbs_version": "23.06.06",
            "ntype": "PBS",
            "state": "job-exclusive" if name in busy else "free",
            "pcpus": 2,
            **({"queue": has["queue"]} if "queue" in has else {}),
            "resources_available": {
                "arch": "linux",
                "host": name,
                "vnode": name,
                **{k: v for k, v in has.items() if k not in ("queue", "sharing")},
            },
            "resources_assigned": {},
            "sharing": has.get("sharing", "default_shared"),
        }
        for name, has in state["nodes"].items()
    }
    return {"nodes": nodes}


def qdel(pbs: Complex, argv: list[str]) -> int:
    for name in argv:
        with pbs.locked() as state:
            job = state["jobs"].get(name)
            if job is None:
                raise Refusal(f"qdel: Unknown Job Id {name}", 153)
            if job["job_state"] == "F":
                raise Refusal(f"qdel: Job has finished {name}", 35)
            job["deleted"] = True
            if job["job_state"] == "Q":
                job.setdefault("comment", "Job deleted")
                end(state, name, 271, {})
            elif "session_id" in job:
                os.killpg(job["session_id"], signal.SIGTERM)
    return 0
