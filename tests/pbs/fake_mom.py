"""A job's life: it waits for nodes, runs between its execution hooks and is accounted for."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import admission
from fake_server import Complex, clock, on, run_hook

EVENTS = ("execjob_begin", "execjob_prologue", "execjob_epilogue", "execjob_end")


def mom(pbs: Complex, argv: list[str]) -> int:
    """Wait for nodes, run the job, account for it."""
    job_id, output = argv
    wait_for_nodes(pbs, job_id)
    with pbs.locked() as state:
        job = dict(state["jobs"][job_id])
        hooks = [h for h in state["hooks"].values() if "execjob_begin" in h["event"] and on(h)]
    if job["job_state"] != "R":
        return 0
    wants = job["Resource_List"]
    exec_event: dict[str, Any] = {
        "id": job_id,
        "exec_vnode": job["exec_vnode"],
        "exec_host": job["exec_host"],
        "Resource_List": {
            k: v
            for k, v in wants.items()
            if k
            in (
                "ncpus",
                "place",
                "select",
                "cpu_freq_mhz",
                "gpu_freq_mhz",
                "gpu_power_w",
                "advisor_stamp",
            )
        },
    }
    for kind in EVENTS[:2]:
        for hook in hooks:
            run_hook(pbs, hook, {"event": kind.upper(), "job": exec_event})
    begin = time.time()
    code = run_script(pbs, job_id, job, output)
    took = time.time() - begin
    burn(pbs, took, int(wants["ncpus"]))
    used: dict[str, Any] = {
        "cpupercent": 0,
        "cput": "00:00:00",
        "mem": "7364kb",
        "ncpus": wants["ncpus"],
        "walltime": f"{int(took) // 3600:02d}:{int(took) // 60 % 60:02d}:{round(took) % 60:02d}",
    }
    for kind in EVENTS[2:]:
        for hook in hooks:
            outcome = run_hook(pbs, hook, {"event": kind.upper(), "job": exec_event})
            used.update({k: int(v) if v.isdecimal() else v for k, v in outcome["used"].items()})
    with pbs.locked() as state:
        end(state, job_id, code, used)
    return 0


def wait_for_nodes(pbs: Complex, job_id: str) -> None:
    """Take nodes where the scheduler would run the job."""
    scheduled = looked_at(pbs)
    while True:
        with pbs.locked() as state:
            job = state["jobs"].get(job_id)
            if job is None or job["job_state"] not in ("Q", "H", "W"):
                return
            queue = state["queues"][job["queue"]]
            runs = queue["queue_type"] == "Execution" and queue.get("started") == "True"
            if job["job_state"] == "Q" and runs:
                where = admission.start(state, job, scheduled)
                if isinstance(where, str):
                    job["comment"] = where
                else:
                    job["job_state"], job["substate"], job["stime"] = "R", 42, int(time.time())
                    job["exec_host"] = "+".join(
                        f"{admission.host_of(state, n)}/{i}*{c.get('ncpus', 1)}"
                        for i, (n, c) in enumerate(where)
                    )
                    job["exec_vnode"] = "+".join(f"({n}:{taken(state, c)})" for n, c in where)
                    job["comment"] = f"Job run at {clock(time.time())} on {job['exec_vnode']}"
                    return
        time.sleep(0.02)


def taken(state: dict[str, Any], chunk: dict[str, str]) -> str:
    """Return what a chunk takes of its vnode, as exec_vnode says it."""
    counted = [n for n in chunk if "n" in admission.flags(state, n) and n != "mpiprocs"]
    return ":".join(f"{n}={chunk[n]}" for n in counted)


def looked_at(pbs: Complex) -> frozenset[str]:
    """Return what sched_config's line names: a resource that it lacks is not looked at."""
    path = pbs.root / "home" / "sched_priv" / "sched_config"
    text = path.read_text() if path.exists() else 'resources: "ncpus, mem, arch, host, vnode"'
    found = re.search(r"^resources:\s*\"([^\"]*)\"", text, re.MULTILINE)
    return frozenset(re.split(r"[,\s]+", found[1])) if found else frozenset()


def run_script(pbs: Complex, job_id: str, job: dict[str, Any], output: str) -> int:
    """Run a job's script as its process, within its walltime; return its exit status."""
    wants = job["Resource_List"]
    kinds = admission.chunks(job["schedselect"])
    first = kinds[0][1]
    threads = first.get("ompthreads", first.get("ncpus", "1"))
    nodefile = pbs.root / "spool" / f"{job_id}.nodes"
    hosts = [part.partition("/")[0] for part in job["exec_host"].split("+")]
    ranks = [int(chunk.get("mpiprocs", 1)) for count, chunk in kinds for _ in range(count)]
    nodefile.write_text("".join(f"{h}\n" * n for h, n in zip(hosts, ranks, strict=True)))
    home = os.environ.get("HOME", "/")
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": home,
        "SHELL": "/bin/sh",
        **{k: str(v) for k, v in job["Variable_List"].items()},
        "PBS_JOBID": job_id,
        "PBS_NODEFILE": str(nodefile),
        "PBS_JOBNAME": job["Job_Name"],
        "PBS_ENVIRONMENT": "PBS_BATCH",
        "NCPUS": threads,
        "OMP_NUM_THREADS": threads,
    }
    script = pbs.root / "spool" / f"{job_id}.SC"
    line = script.read_text(errors="replace").partition("\n")[0]
    shell = shlex.split(line[2:]) if line.startswith("#!") else ["/bin/sh"]
    target = Path(output) if output else pbs.root / "spool" / f"{job_id}.out"
    if target.is_dir():
        target /= f"{job_id}.OU"
    limit = None
    if ":" in str(wants.get("walltime", "")):
        hours, minutes, seconds = str(wants["walltime"]).split(":")
        limit = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    with target.open("wb") as stream:
        process = subprocess.Popen(
            [*shell, str(script)],
            env=environment,
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        with pbs.locked() as state:
            state["jobs"][job_id]["session_id"] = process.pid
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return -29
    return code if code >= 0 else 256 - code


def burn(pbs: Complex, seconds: float, ncpus: int) -> None:
    """Move the posed meter by what a run used: more with more cores and a higher cap.

    It is a hungry node, so that the whole joules of a run of a second tell enough. Where a test
    moves the meter itself (a file "metered"), nothing is added.
    """
    zone = pbs.root / "sys/class/powercap/intel-rapl:0/energy_uj"
    if not zone.exists() or (pbs.root / "metered").exists():
        return
    cap = pbs.root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq"
    ghz = int(cap.read_text()) / 1e6 if cap.exists() else 2.2
    watts = 200.0 + ncpus * 8.0 * ghz**2
    with pbs.locked():
        zone.write_text(f"{int(zone.read_text()) + round(watts * seconds * 1e6)}\n")


def end(state: dict[str, Any], job_id: str, code: int, used: dict[str, Any]) -> None:
    job = state["jobs"][job_id]
    if job["job_state"] == "F":
        return
    job.update(
        job_state="F",
        Exit_status=code,
        obittime=int(time.time()),
        history_timestamp=int(time.time()),
    )
    job["resources_used"] = used
    deleted = job.pop("deleted", False)
    job["substate"] = 91 if deleted else 92 if code == 0 else 93
    how = (
        "terminated by root@pbs1"
        if deleted
        else "exceeded resource walltime"
        if code == -29
        else "finished"
        if code == 0
        else "failed"
    )
    job["comment"] += f" and {how}"
    if state["server"].get("job_history_enable") != "True":
        del state["jobs"][job_id]
