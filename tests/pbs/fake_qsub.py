"""qsub: what a submission becomes, its queuejob hooks run, its job started."""

from __future__ import annotations

import getopt
import json
import os
import pwd
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import admission
from fake_server import Complex, Refusal, on, run_hook, say_no, types

PYTHON = sys.executable, "-S", str(Path(__file__).resolve().with_name("fake_pbs.py"))
QSUB_OPTIONS = "a:A:c:C:e:fhIj:J:k:l:m:M:N:o:p:q:r:R:S:u:v:VW:XzP:"


def submission(argv: list[str], defaults: str = "") -> tuple[dict[str, Any], str, dict[str, str]]:
    """Return a job as its queuejob hook sees it, its script, and qsub's options by letter.

    ``defaults``: the server's default_qsub_arguments, of which each option holds where neither the
    script nor the command line has it.
    """
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
    take(getopt.getopt(shlex.split(defaults), QSUB_OPTIONS)[0], options, resources)
    for words in [] if executable else directives(text):
        take(getopt.getopt(words, QSUB_OPTIONS)[0], options, resources)
    take(given, options, resources)
    variables = {
        "PBS_O_WORKDIR": str(Path.cwd()),
        "PBS_O_HOME": os.environ.get("HOME", "/"),
        "PBS_O_PATH": os.environ.get("PATH", ""),
    }
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
        if executable
        else None,
        "Submit_arguments": "".join(jsdl(w.translate(escape)) for w in argv),
        "Resource_List": resources,
        "Variable_List": variables,
    }
    job.update(attributes(options))
    return job, text, options


def qsub(pbs: Complex, argv: list[str]) -> int:
    with pbs.locked() as state:
        defaults = state["server"].get("default_qsub_arguments", "")
    job, text, options = submission(argv, defaults)
    resources, user = job["Resource_List"], pwd.getpwuid(os.getuid()).pw_name
    with pbs.locked() as state:
        say_no("qsub", lambda: admission.check_given(state, resources, user=True))
        hooks = in_order(h for h in state["hooks"].values() if "queuejob" in h["event"])
        later = in_order(h for h in state["hooks"].values() if "postqueuejob" in h["event"])
        known = types(state)
    for hook in filter(on, hooks):
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
            "ctime": int(time.time()),
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
    for hook in filter(on, later):
        postqueuejob(pbs, hook, job_id, known)
    script = pbs.root / "spool" / f"{job_id}.SC"
    script.write_text(text)
    with (pbs.root / "spool" / f"{job_id}.OU").open("w") as output:
        subprocess.Popen(
            [*PYTHON, str(pbs.root), "mom", job_id, options.get("o", "")],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    if "z" not in options:
        print(job_id)
    return 0


def in_order(hooks: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return hooks as they run: those of a lower order first."""
    return sorted(hooks, key=lambda hook: int(hook.get("order", 1)))


def postqueuejob(pbs: Complex, hook: dict[str, Any], job_id: str, known: dict[str, str]) -> None:
    """Run a hook on a job that is in its queue; nothing of it can be refused any more.

    Of its resources only values are taken, none is unset. A select the server made is made again.
    Nothing is taken for an array: PBS does not find its job there.
    """
    with pbs.locked() as state:
        job = json.loads(json.dumps(state["jobs"][job_id]))
    seen = {"id": job_id, **{k: job.get(k) for k in ("Job_Name", "queue", "project")}}
    seen["Resource_List"] = {k: str(v) for k, v in job["Resource_List"].items()}
    seen["Variable_List"] = job["Variable_List"]
    event = {"event": "POSTQUEUEJOB", "resources": known, "job": seen}
    outcome = run_hook(pbs, hook, event)
    if outcome["answer"] != ["accept", ""] or "[]" in job_id:
        return
    written = {n: outcome["resources"][n] for n in outcome["written"]}
    with pbs.locked() as state:
        job = state["jobs"][job_id]
        wants = {k: str(v) for k, v in job["Resource_List"].items()} | written
        if "select" not in state["given"][job_id]:
            del wants["select"]
        queue = state["queues"][job["queue"]]
        wants, job["schedselect"] = admission.complete(state, queue, wants)
        job["Resource_List"] = shown(wants)
        job["Variable_List"] = outcome["variables"]


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
        "Checkpoint": "u",
        "Join_Path": options.get("j", "n"),
        "Keep_Files": "n",
        "Mail_Points": "a",
        "Priority": options.get("p", "0"),
        "Rerunable": options.get("r", "1"),
    }
    if "h" in options:
        found["Hold_Types"] = "u"
    if "a" in options:
        found["Execution_Time"] = options["a"]
    for word in filter(None, options.get("W", "").split(",")):
        name, _, value = word.partition("=")
        found[name] = value
    return found


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
