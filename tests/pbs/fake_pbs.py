"""A PBS made of files: qsub, qstat, qdel, pbsnodes and qmgr in a folder for PATH.

Answers have the shapes recorded from OpenPBS 23.06.06, its faults included (of several ids,
qstat's JSON has the first alone; the last -v counts; a resource in use is not deleted). What a
request becomes after its hooks, and where it would run, is admission.py's. Jobs really run, as
processes; hooks that were imported run in fresh interpreters, server hooks at qsub, execution
hooks around the job, on a posed /sys.

    python fake_pbs.py ROOT PROGRAM ARGUMENTS...
"""

from __future__ import annotations

import base64
import fcntl
import getopt
import json
import os
import pwd
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import admission

HERE = Path(__file__).resolve().parent
QSUB_OPTIONS = "a:A:c:C:e:fhIj:J:k:l:m:M:N:o:p:q:r:R:S:u:v:VW:XzP:"
PROGRAMS = ("qsub", "qstat", "qdel", "pbsnodes", "qmgr")
EVENTS = ("execjob_begin", "execjob_prologue", "execjob_epilogue", "execjob_end")
TYPES = {"long": "int", "string": "str", "size": "size", "boolean": "str", "float": "str"}


class Refusal(Exception):
    """What a program says on stderr, and its exit code."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


class Complex:
    """The state of the whole complex: one JSON file under a lock."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @contextmanager
    def locked(self) -> Iterator[dict[str, Any]]:
        with (self.root / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            path = self.root / "server.json"
            state = json.loads(path.read_text())
            before = json.dumps(state)
            yield state
            if json.dumps(state) != before:
                partial = path.with_name("server.new")
                partial.write_text(json.dumps(state))
                partial.replace(path)

    @property
    def hooks(self) -> Path:
        """Where the server keeps what was imported."""
        return self.root / "home" / "server_priv" / "hooks"

    def log(self, text: str) -> None:
        with (self.root / "log").open("a") as file:
            file.write(text + "\n")


def install(root: Path, *, nodes: dict[str, dict[str, Any]] | None = None) -> Path:
    """Make a complex in a folder; return the folder of its programs, for PATH."""
    for name in ("bin", "spool", "hooks", "sys", "home/server_priv/hooks/tmp"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for program in PROGRAMS:
        path = root / "bin" / program
        words = shlex.join([sys.executable, "-S", str(HERE / "fake_pbs.py"), str(root), program])
        path.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        path.chmod(0o755)
    state = {
        "next": 1,
        "jobs": {},
        "nodes": nodes or {"n1": {"ncpus": 28, "mem": "65536000kb", "node_type": "bdw"}},
        "given": {},
        "queues": {
            "workq": {"queue_type": "Execution", "enabled": "True", "started": "True"},
        },
        "server": {
            "server_state": "Active", "default_queue": "workq", "job_history_enable": "True",
        },
        "resources": {"node_type": {"type": "string", "flag": "h"}},
        "hooks": {},
    }  # fmt: skip
    (root / "server.json").write_text(json.dumps(state))
    return root / "bin"


# -- qsub ----------------------------------------------------------------------------------------


def submission(argv: list[str]) -> tuple[dict[str, Any], str, dict[str, str]]:
    """Return a job as its queuejob hook sees it, its script, and qsub's options by letter."""
    try:
        given, rest = getopt.getopt(argv, QSUB_OPTIONS)
    except getopt.GetoptError as error:
        raise Refusal(f"qsub: {error}\nusage: qsub ...", 2) from None
    separator = len(argv) > len(rest) and argv[len(argv) - len(rest) - 1] == "--"
    text, name, executable = "", "STDIN", None
    if separator and rest:
        executable, text = rest[0], "exec " + shlex.join(rest) + "\n"
    elif rest and rest[0] != "-":
        if len(rest) > 1:
            raise Refusal("usage: qsub ...", 2)
        try:
            text, name = Path(rest[0]).read_text(errors="replace"), Path(rest[0]).name
        except OSError as error:
            raise Refusal(f"qsub: script file:: {error.strerror}") from None
    else:
        text = sys.stdin.read()
    options: dict[str, str] = {}
    resources: dict[str, str] = {}
    for words in [] if executable else directives(text):
        take(getopt.getopt(words, QSUB_OPTIONS)[0], options, resources)
    take(given, options, resources)
    variables = {
        "PBS_O_WORKDIR": str(Path.cwd()), "PBS_O_HOME": os.environ.get("HOME", "/"),
        "PBS_O_PATH": os.environ.get("PATH", ""),
    }  # fmt: skip
    if "V" in options:
        variables.update(os.environ)
    variables.update(read_variables(options.get("v", "")))
    escape = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "'": "&apos;", '"': "&quot;"})
    job: dict[str, Any] = {
        "Job_Name": options.get("N", name),
        "Account_Name": options.get("A"),
        "queue": options.get("q", ""),
        "project": options.get("P"),
        "interactive": 1 if "I" in options else None,
        "array_indices_submitted": options.get("J"),
        "executable": executable,
        "argument_list": "".join(jsdl(w.translate(escape)) for w in rest[1:]) or None
        if executable else None,
        "Submit_arguments": "".join(jsdl(w.translate(escape)) for w in argv),
        "Resource_List": resources,
        "Variable_List": variables,
    }  # fmt: skip
    job.update(attributes(options))
    return job, text, options


def qsub(pbs: Complex, argv: list[str]) -> int:
    job, text, options = submission(argv)
    resources, user = job["Resource_List"], pwd.getpwuid(os.getuid()).pw_name
    with pbs.locked() as state:
        say_no("qsub", lambda: admission.check_given(state, resources, user=True))
        hooks = [h for h in state["hooks"].values() if h["event"] == ["queuejob"] and on(h)]
        known = types(state)
    for hook in hooks:
        event = {"event": "QUEUEJOB", "resources": known, "job": {"id": "", **job}}
        outcome = run_hook(pbs, hook, event)
        if outcome["answer"] != ["accept", ""]:
            raise Refusal(f"qsub: {(outcome['answer'] or ['', 'hook failed'])[1]}")
        job["Resource_List"], job["Variable_List"] = outcome["resources"], outcome["variables"]
    held = {"Hold_Types": "H", "Execution_Time": "W"}
    with pbs.locked() as state:
        given_list = job["Resource_List"]
        say_no("qsub", lambda: admission.check_given(state, given_list, user=False))
        job_id = f"{state['next']}{'[]' if options.get('J') else ''}.pbs1"
        state["next"] += 1
        queue = job["queue"] or state["server"]["default_queue"]
        waits = next((held[n] for n in held if job.get(n)), "Q")
        move = admission.submit if waits == "Q" else admission.arrive
        queue = say_no("qsub", lambda: move(state, queue, given_list, user))
        wants, select = admission.complete(state, state["queues"][queue], given_list)
        state["given"][job_id] = given_list
        attributes_ = {
            "Job_Name": job["Job_Name"],
            "Job_Owner": f"{user}@pbs1",
            "job_state": waits,
            "queue": queue,
            "server": "pbs1",
            "ctime": now(),
            "Resource_List": shown(wants),
            "schedselect": select,
            "substate": 10,
            "Variable_List": job["Variable_List"],
            "Submit_arguments": " ".join(argv),
            "project": job["project"] or "_pbs_project_default",
        }
        if job["Account_Name"]:
            attributes_["Account_Name"] = job["Account_Name"]
        state["jobs"][job_id] = attributes_
    script = pbs.root / "spool" / f"{job_id}.SC"
    script.write_text(text)
    with (pbs.root / "spool" / f"{job_id}.OU").open("w") as output:
        subprocess.Popen(
            [sys.executable, "-S", __file__, str(pbs.root), "mom", job_id, options.get("o", "")],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
    if "z" not in options:
        print(job_id)
    return 0


def take(given: list[tuple[str, str]], options: dict[str, str], resources: dict[str, str]) -> None:
    for flag, value in given:
        if flag == "-l":
            for part in re.split(r",(?=[\w]+=)", value):
                key, _, amount = part.partition("=")
                resources[key] = amount
        else:
            options[flag[1]] = value


def directives(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        if line.strip().startswith("#PBS"):
            yield shlex.split(line.strip()[4:])
        elif line.strip() and not line.strip().startswith("#"):
            return


def read_variables(text: str) -> dict[str, str]:
    found = {}
    for part in filter(None, re.split(r"(?<!\\),", text)):
        name, equals, value = part.partition("=")
        found[name] = value.replace("\\,", ",") if equals else os.environ.get(name, "")
    return found


def jsdl(word: str) -> str:
    return f"<jsdl-hpcpa:Argument>{word}</jsdl-hpcpa:Argument>"


def attributes(options: dict[str, str]) -> dict[str, Any]:
    """Return the attributes that qsub sets whatever is said, and those that were."""
    found: dict[str, Any] = {
        "Checkpoint": "u", "Join_Path": options.get("j", "n"), "Keep_Files": "n",
        "Mail_Points": "a", "Priority": options.get("p", "0"), "Rerunable": options.get("r", "1"),
    }  # fmt: skip
    if "h" in options:
        found["Hold_Types"] = "u"
    if "a" in options:
        found["Execution_Time"] = options["a"]
    for word in filter(None, options.get("W", "").split(",")):
        name, _, value = word.partition("=")
        found[name] = value
    return found


def types(state: dict[str, Any]) -> dict[str, str]:
    """Return the types of the site's own resources, as hooks see them."""
    return {n: TYPES[r["type"]] for n, r in state["resources"].items()}


def say_no(program: str, ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except admission.RefusedError as error:
        raise Refusal(f"{program}: {error}") from None


def shown(wants: dict[str, Any]) -> dict[str, Any]:
    """Return resources as qstat shows them."""
    found = dict(sorted(wants.items()))
    if "walltime" in found and ":" not in str(found["walltime"]):
        seconds = int(found["walltime"])
        found["walltime"] = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    for name, value in found.items():
        if isinstance(value, str) and value.isdecimal():
            found[name] = int(value)
    return found


# -- a job's life ----------------------------------------------------------------------------------


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
            k: v for k, v in wants.items() if k in ("ncpus", "place", "cpu_freq_mhz")
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
        "cpupercent": 0, "cput": "00:00:00", "mem": "7364kb", "ncpus": wants["ncpus"],
        "walltime": f"{int(took) // 3600:02d}:{int(took) // 60 % 60:02d}:{round(took) % 60:02d}",
    }  # fmt: skip
    for kind in EVENTS[2:]:
        for hook in hooks:
            outcome = run_hook(pbs, hook, {"event": kind.upper(), "job": exec_event})
            used.update({k: int(v) for k, v in outcome["used"].items()})
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
                    job["job_state"], job["substate"], job["stime"] = "R", 42, now()
                    job["exec_host"] = "+".join(
                        f"{admission.host_of(state, n)}/{i}*{c.get('ncpus', 1)}"
                        for i, (n, c) in enumerate(where)
                    )
                    job["exec_vnode"] = "+".join(f"({n}:{taken(state, c)})" for n, c in where)
                    job["comment"] = f"Job run at {now()} on {job['exec_vnode']}"
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
        "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": home, "SHELL": "/bin/sh",
        **{k: str(v) for k, v in job["Variable_List"].items()},
        "PBS_JOBID": job_id, "PBS_NODEFILE": str(nodefile), "PBS_JOBNAME": job["Job_Name"],
        "PBS_ENVIRONMENT": "PBS_BATCH", "NCPUS": threads, "OMP_NUM_THREADS": threads,
    }  # fmt: skip
    script = pbs.root / "spool" / f"{job_id}.SC"
    line = script.read_text(errors="replace").partition("\n")[0]
    shell = shlex.split(line[2:]) if line.startswith("#!") else ["/bin/sh"]
    target = Path(output) if output else pbs.root / "spool" / f"{job_id}.out"
    limit = None
    if ":" in str(wants.get("walltime", "")):
        hours, minutes, seconds = str(wants["walltime"]).split(":")
        limit = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    with target.open("wb") as stream:
        process = subprocess.Popen(
            [*shell, str(script)], env=environment, cwd=home, stdin=subprocess.DEVNULL,
            stdout=stream, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
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
    job.update(job_state="F", Exit_status=code, obittime=now(), history_timestamp=int(time.time()))
    job["resources_used"] = used
    deleted = job.pop("deleted", False)
    job["substate"] = 91 if deleted else 92 if code == 0 else 93
    how = (
        "terminated by root@pbs1" if deleted
        else "exceeded resource walltime" if code == -29
        else "finished" if code == 0 else "failed"
    )  # fmt: skip
    job["comment"] += f" and {how}"
    if state["server"].get("job_history_enable") != "True":
        del state["jobs"][job_id]


def run_hook(pbs: Complex, hook: dict[str, Any], event: dict[str, Any]) -> dict[str, Any]:
    """Run a hook as PBS does, in an interpreter of its own."""
    environment = {"PATH": "/usr/bin:/bin"}
    if hook.get("config"):
        path = pbs.root / "hooks" / f"{hook['name']}.CF"
        path.write_text(hook["config"])
        environment["PBS_HOOK_CONFIG_FILE"] = str(path)
    source = pbs.root / "hooks" / f"{hook['name']}.PY"
    source.write_text(hook["code"])
    event = {
        **event, "user": pwd.getpwuid(os.getuid()).pw_name,
        "conf": {"PBS_HOME": str(pbs.root / "home")}, "node": "n1",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-OO", str(HERE / "hook_run.py"), str(source)],
        input=json.dumps([event]), capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    if done.returncode:
        raise Refusal(f"hook {hook['name']}: {done.stderr}")
    outcome: dict[str, Any] = json.loads(done.stdout)[0]
    for line in [*outcome["log"], *filter(None, [outcome["failure"]])]:
        pbs.log(line)
    return outcome


def on(hook: dict[str, Any]) -> bool:
    return bool(hook.get("code")) and str(hook.get("enabled", "true")).lower() == "true"


# -- questions -------------------------------------------------------------------------------------


def qstat(pbs: Complex, argv: list[str]) -> int:
    given, ids = getopt.getopt(argv, "fxtBQF:")
    flags = dict(given)
    with pbs.locked() as state:
        pass
    head = {"timestamp": int(time.time()), "pbs_version": "23.06.06", "pbs_server": "pbs1"}
    if "-B" in flags:
        return say({**head, "Server": {"pbs1": state["server"]}})
    if "-Q" in flags:
        return say({**head, "Queue": state["queues"]})
    jobs = state["jobs"]
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
            "Mom": name, "Port": 15002, "pbs_version": "23.06.06", "ntype": "PBS",
            "state": "job-exclusive" if name in busy else "free", "pcpus": 2,
            **({"queue": has["queue"]} if "queue" in has else {}),
            "resources_available": {
                "arch": "linux", "host": name, "vnode": name,
                **{k: v for k, v in has.items() if k != "queue"},
            },
            "resources_assigned": {}, "sharing": "default_shared",
        }
        for name, has in state["nodes"].items()
    }  # fmt: skip
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


# -- qmgr ------------------------------------------------------------------------------------------


def qmgr(pbs: Complex, argv: list[str]) -> int:
    given, _ = getopt.getopt(argv, "c:")
    lines = [given[-1][1]] if given else sys.stdin.read().splitlines()
    code = 0
    for line in lines:
        try:
            with pbs.locked() as state:
                manage(pbs, state, line.strip())
        except Refusal as refusal:
            print(refusal, file=sys.stderr)
            code = refusal.code
    return code


def manage(pbs: Complex, state: dict[str, Any], line: str, *, log: bool = True) -> None:
    if not line or line.startswith("#"):
        return
    if log:
        pbs.log(f"qmgr {line}")
    verb, kind, *rest = line.split(None, 2)
    words = rest[0] if rest else ""
    name, _, tail = words.partition(" ")
    hooks, resources = state["hooks"], state["resources"]
    if verb == "list" and kind == "server":
        print(f"Server pbs1\n    default_queue = {state['server']['default_queue']}\n")
    elif verb == "list" and kind == "resource":
        for key in [name] if name else resources:
            if key not in resources:
                raise failed(key, "Unknown resource", 15035)
            print(f"Resource {key}")
            for attribute, value in resources[key].items():
                print(f"    {attribute} = {value}")
            print()
    elif verb == "list" and kind == "hook":
        for key in [name] if name else hooks:
            if key not in hooks:
                raise hook_failed(key, "hook not found")
            print(f"Hook {key}\n    type = site")
            for attribute in ("enabled", "event", "alarm", "freq", "order", "fail_action"):
                if attribute in hooks[key]:
                    value = hooks[key][attribute]
                    shown = ",".join(value) if isinstance(value, list) else value
                    print(f"    {attribute} = {shown}")
            print()
    elif verb == "create" and kind == "resource":
        if name in resources:
            raise failed(name, "Duplicate entry in list ", 15055)
        resources[name] = dict(w.strip().split("=", 1) for w in tail.split(","))
    elif verb == "delete" and kind == "resource":
        if name not in resources:
            raise failed(name, "Unknown resource", 15035)
        if any(name in j["Resource_List"] for j in state["jobs"].values()):
            raise failed(name, "Resource busy on job", 15174)
        del resources[name]
    elif verb == "create" and kind == "hook":
        if name in hooks:
            raise hook_failed(name, f"hook name '{name}' already registered, try another name")
        hooks[name] = {"name": name, "enabled": "true", "event": []}
        if tail:
            set_hook(hooks[name], tail)
    elif verb == "delete" and kind == "hook":
        if name not in hooks:
            raise hook_failed(name, f"{name} does not exist!")
        del hooks[name]
        for kept in pbs.hooks.glob(f"{name}.*"):
            kept.unlink()
    elif verb == "set" and kind == "hook":
        set_hook(hooks[name], tail)
    elif verb == "import" and kind == "hook":
        form, encoding, path = tail.split()
        data = Path(path).read_bytes()
        text = base64.b64decode(data) if encoding == "base64" else data
        hooks[name]["config" if form == "application/x-config" else "code"] = text.decode()
        suffix = "CF" if form == "application/x-config" else "PY"
        (pbs.hooks / f"{name}.{suffix}").write_bytes(text)
    elif verb == "export" and kind == "hook":
        form = tail.split()[0]
        if name not in hooks:
            raise hook_failed(name, "hook not found")
        text = hooks[name].get("config" if form == "application/x-config" else "code", "")
        (pbs.hooks / "tmp" / f"qmgr_hook{os.getpid()}").write_text(text)  # PBS leaves it there
        print(text, end="")
    elif kind in ("server", "queue") and verb in ("set", "unset", "create", "delete"):
        manage_attributes(state, verb, kind, words)
    else:
        raise Refusal(f"qmgr: Syntax error - cannot locate attribute\n{line}")


def manage_attributes(state: dict[str, Any], verb: str, kind: str, words: str) -> None:
    """Change a queue or the server: ``set queue q resources_max.ncpus = 4``."""
    name, _, rest = words.partition(" ") if kind == "queue" else ("", "", words)
    if verb == "delete":
        del state["queues"][name]
        return
    if verb == "create":
        state["queues"][name] = {"queue_type": "", "enabled": "False", "started": "False"}
    elif kind == "queue" and name not in state["queues"]:
        raise failed(name, "Unknown queue", 15018)
    owner = state["queues"][name] if kind == "queue" else state["server"]
    for part in filter(None, [rest] if '"' in rest or verb != "create" else rest.split(",")):
        key, _, value = (p.strip() for p in part.partition("="))
        value = value.strip('"')
        key, _, resource = key.partition(".")
        if key in ("enabled", "started", "acl_user_enable", "queue_type"):
            value = value.capitalize()
        if verb == "unset":
            (owner.get(key, {}).pop if resource else owner.pop)(resource or key, None)
        elif resource:
            owner.setdefault(key, {})[resource] = value
        else:
            owner[key] = value


def set_hook(hook: dict[str, Any], text: str) -> None:
    key, _, value = (part.strip() for part in text.partition("="))
    hook[key] = value.strip('"').split(",") if key == "event" else value


def failed(name: str, why: str, number: int) -> Refusal:
    return Refusal(
        f"qmgr obj={name} svr=default: {why}\nqmgr: Error ({number}) returned from server"
    )


def hook_failed(name: str, why: str) -> Refusal:
    return Refusal(f"qmgr obj={name} svr=default: {why}\nqmgr: hook error returned from server")


def now() -> str:
    return time.strftime("%a %b %e %H:%M:%S %Y").replace("  ", " ")


def main() -> int:
    program = {
        "qsub": qsub, "qstat": qstat, "qdel": qdel, "pbsnodes": pbsnodes, "qmgr": qmgr, "mom": mom,
    }[sys.argv[2]]  # fmt: skip
    try:
        return program(Complex(Path(sys.argv[1])), sys.argv[3:])
    except Refusal as refusal:
        print(refusal, file=sys.stderr)
        return refusal.code


if __name__ == "__main__":
    sys.exit(main())
