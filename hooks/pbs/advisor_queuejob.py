"""queuejob hook of PBS: asks the advisor's daemon about one job and turns its answer into the job.

Runs as root inside pbs_server, which does nothing else meanwhile; an exception or the hook's
alarm would reject the job. So whatever happens here, the job is accepted; one deadline covers
all waiting for the daemon; after a daemon that hung nobody asks for a while; and nothing
of the job is touched before the whole answer is read, checked, and made into PBS's own objects.

Python 3.6 to 3.12, the standard library only, also under -OO. Settings come from the hook's
configuration file (JSON, written by `advisor hook install`); without one the defaults below hold.
"""

import pbs

DEFAULTS = {
    "socket": "/run/advisor/advisor.sock",
    "deadline_s": 0.25,
    "retry_s": 30,
    "breaker": "/run/advisor-pbs-breaker",
    "host_resources": [],
    "inventory": "",
    "variables": ["ADVISOR", "ADVISOR_MODE", "ADVISOR_APPLICATION", "ADVISOR_WORKLOAD"],
    "counts": [],
    "resources": [],
    "harmless": [],
    "attributes": [],
    "away": [],
    "off": [],
}
CLIENT, DECISION, SET = "ADVISOR_QSUB", "ADVISOR_DECISION", "ADVISOR_SET"
STAMP, FREQ, THREADS = "advisor_stamp", "cpu_freq_mhz", "ompthreads"
PIECE_S = 0.01  # of waiting for the daemon
MAX_ANSWER, MAX_TEXT, MAX_STAMP, MAX_ATTRIBUTE = 65536, 65536, 2000, 200
FORMS = {
    "select": r"[^\s\"'()]+\Z",
    THREADS: r"[1-9]\d{0,5}\Z",
    FREQ: r"[1-9]\d{1,5}\Z",
}


class Unchanged(Exception):  # noqa: N818
    """Why the job stays as it is."""


class Hung(Unchanged):
    """The daemon is there but does not answer as it must."""


def load(_):
    """Import all that is needed: where a failure is caught, too."""
    global json, os, re, select, socket, stat, struct, time
    import json
    import os
    import re
    import select
    import socket
    import stat
    import struct
    import time


def main(event):
    """Ask about the event's job and write the plan into it. Raises whatever goes wrong."""
    job = event.job
    variables = {} if job.Variable_List is None else job.Variable_List
    settings = read_settings()
    if job.interactive or str(variables.get("ADVISOR") or "").lower() in settings["off"]:
        return
    if queue_of(job) in settings["away"]:
        return  # it goes to another server, which may not know the advisor's resources
    if is_open(settings["breaker"], settings["retry_s"]):
        pbs.logmsg(pbs.EVENT_DEBUG, "advisor: the daemon hung a moment ago and is not asked")
        return
    line = request(event, job, variables, settings)
    try:
        plan = read_answer(exchange(settings["socket"], line, settings["deadline_s"]))
    except Hung as problem:
        trip(settings["breaker"])
        raise Unchanged(f"{problem} (not asked again for {settings['retry_s']} s)") from None
    assign(check(plan, job, variables, settings))
    if plan["rewrite"] or plan["env"]:
        text = f"advisor: {job.Job_Name}: job rewritten, decision {plan['decision']}"
        pbs.logmsg(pbs.EVENT_DEBUG, text)


# -- settings and the circuit breaker ----------------------------------------------------------


def read_settings():
    """Return the settings of the configuration file laid over the defaults."""
    settings = dict(DEFAULTS)
    name = os.environ.get("PBS_HOOK_CONFIG_FILE") or getattr(pbs, "hook_config_filename", None)
    if name:
        with open(name) as file:
            stored = json.load(file)
        for key in settings:
            if key in stored:
                settings[key] = type(settings[key])(stored[key])
    if not os.environ.get("PBS_HOOK_CONFIG_FILE") and os.environ.get("ADVISOR_SOCKET"):
        settings["socket"] = os.environ["ADVISOR_SOCKET"]
    return settings


def is_open(path, retry_s):
    """Tell whether the daemon hung less than ``retry_s`` ago; a foreign file is not believed."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        return False
    return -1 <= time.time() - status.st_mtime < retry_s


def trip(path):
    """Note that the daemon hung just now."""
    try:
        os.unlink(path)
    except OSError:
        pass
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        pbs.logmsg(pbs.EVENT_ADMIN, f"advisor: {path}: {error.strerror}")


# -- question and answer -----------------------------------------------------------------------


def request(event, job, variables, settings):
    """Return the line that asks about a job."""
    options = {n: str(v) for n, v in given(job.Resource_List).items() if n != STAMP}
    own = {
        "queue": queue_of(job),
        "account": job.Account_Name,
        "job-name": job.Job_Name,
        "project": job.project,
        "array": job.array_indices_submitted,
    }
    options.update((name, str(value)) for name, value in own.items() if value)
    sizes = sorted(n for n in variables if str(n).startswith("ADVISOR_SIZE_"))
    env = {n: variables.get(n) for n in (*settings["variables"], *sizes[:20])}
    data = {
        "v": 1,
        "op": "decide",
        "scheduler": "pbs",
        "hook": "queuejob",
        "type": "qsub",
        "user": str(event.requestor),
        "options": options,
        "attributes": attributes(job, settings["harmless"]),
        "host_resources": list(settings["host_resources"]),
        "submit_arguments": text_of(job.Submit_arguments),
        "executable": text_of(job.executable),
        "argument_list": text_of(job.argument_list),
        "client": text_of(variables.get(CLIENT)),
        "env": {name: text_of(value) for name, value in env.items() if value is not None},
        "cwd": text_of(variables.get("PBS_O_WORKDIR")),
    }
    return json.dumps(data).encode("ascii") + b"\n"


def queue_of(job):
    """Return the name of the queue a job is submitted to, "" for the server's default."""
    return str(getattr(job.queue, "name", job.queue) or "")


def given(resources):
    """Return what a job asks for. PBS raises AttributeError for a resource the site has not."""
    values = {name: getattr(resources, name, None) for name in resources.keys()}  # noqa: SIM118
    return {name: value for name, value in values.items() if value is not None}


def attributes(job, known):
    """Return the attributes that are set on a job, but for these."""
    names = [n for n in getattr(job, "attributes", ()) if n[0] != "_" and n not in known]
    values = {name: str(getattr(job, name, None) or "")[:MAX_ATTRIBUTE] for name in names}
    return {name: value for name, value in values.items() if value not in ("", "0", "False")}


def text_of(value):
    """Return a value as text; "" for none, and for one that is too long to be sent."""
    text = "" if value is None else str(value)
    return text if len(text) <= MAX_TEXT else ""


def exchange(path, line, left):
    """Send a line and return the answer's; wait no longer than ``left`` seconds in all."""
    half, answer = left / 2, b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            # Blocking, so that the kernel lets it wait where others stand before it.
            room = struct.pack("ll", int(half), int(half % 1 * 1e6) or 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, room)
            begin = time.monotonic()
            connection.connect(path)
            left -= min(half, time.monotonic() - begin)
            connection.setblocking(False)
            while line:
                left = wait(connection, select.POLLOUT, left)
                line = line[connection.send(line) :]
            while b"\n" not in answer:
                left = wait(connection, select.POLLIN, left)
                piece = connection.recv(MAX_ANSWER)
                if not piece:
                    raise Unchanged("the daemon hung up")
                answer += piece
                if len(answer) > MAX_ANSWER:
                    raise Hung("the daemon's answer is too long")
        except BlockingIOError:  # a full queue at the socket
            raise Hung("the daemon did not answer in time") from None
        except OSError as error:
            raise Unchanged(f"no daemon answers at {path}: {error.strerror or error}") from None
    return answer.split(b"\n", 1)[0]


def wait(connection, event, left):
    """Wait until a socket is ready; return what is left of the seconds. Raises BlockingIOError."""
    # Of a short piece of waiting no more than its length counts: where the host stands still, or
    # does not let this process run, no daemon hangs.
    watched = select.poll()
    watched.register(connection, event)
    while left > 0:
        begin = time.monotonic()
        events = watched.poll(PIECE_S * 1000)
        left -= min(PIECE_S, time.monotonic() - begin)
        if events:
            return left
    raise BlockingIOError


def read_answer(text):
    """Return the daemon's plan, read as if anybody could have written it. Raises Hung."""
    try:
        data = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError):
        raise Hung("the daemon's answer is not JSON") from None
    if not isinstance(data, dict):
        raise Hung("the daemon's answer is not an object")
    if isinstance(data.get("error"), str):
        raise Unchanged("the daemon says: " + data["error"][:200])
    rewrite, env, stamp = data.get("rewrite"), data.get("env") or {}, data.get("stamp")
    decision = data.get("decision")
    if data.get("v") != 1:
        raise Hung("the daemon does not speak protocol version 1")
    if not isinstance(decision, str) or not re.match(r"[0-9a-f]{16}\Z", decision):
        raise Hung("the daemon's answer has no decision")
    if not isinstance(rewrite, dict) or not isinstance(env, dict):
        raise Hung("the daemon's answer is not one for PBS")
    if not isinstance(stamp, str) or len(stamp) > MAX_STAMP:
        raise Hung("the daemon's answer has no stamp")
    if not re.match(r"advisor:\{[ -&(-~]*\}\Z", stamp):
        raise Hung("the daemon's stamp is malformed")
    for name, value in rewrite.items():
        form = FORMS.get(name, r"[A-Za-z][\w.@+-]*\Z")
        if not isinstance(value, str) or len(value) > 4000:
            raise Hung(f"resource {name!r} has a value that is not valid")
        if not re.match(r"\w+\Z", name, re.ASCII) or not re.match(form, value, re.ASCII):
            raise Hung(f"resource {name!r} is not one the advisor writes so")
    for name, value in env.items():
        if not isinstance(value, str) or not re.match(FORMS[THREADS], value, re.ASCII):
            raise Hung(f"variable {name!r} is not a number of threads")
    return {"decision": decision, "stamp": stamp, "rewrite": rewrite, "env": env}


# -- is it possible, and then doing it ---------------------------------------------------------


def check(plan, job, variables, settings):
    """Return what to write, as (where, name, PBS's object); None takes a name out.

    Raises Unchanged for a job that is not understood whole, what PBS does not know or is not the
    advisor's to write, and a select that does more than the advisor may.
    """
    resources = job.Resource_List
    asked = given(resources)
    changes = [(resources, STAMP, plan["stamp"])]
    if plan["rewrite"] or plan["env"]:
        refuse_strange(job, asked, settings)
    for name in (*plan["rewrite"], STAMP):
        if not hasattr(resources, name):
            raise Unchanged(f"there is no resource {name} (run: advisor hook install)")
    for name, value in sorted(plan["rewrite"].items()):
        if name == "select":
            added = difference(str(asked.get(name, "")), value, settings)
            refuse_impossible(added, value, job, settings)
            changes.append((resources, name, pbs.select(value)))
        elif name == FREQ or (name == THREADS and not {"select", "nodes", THREADS} & set(asked)):
            changes.append((resources, name, int(value)))
        else:
            raise Unchanged(f"resource {name} is not the advisor's to write here")
    for name, value in sorted(plan["env"].items()):
        if name in variables or not is_count(name, settings):
            raise Unchanged(f"variable {name} is not the advisor's to set here")
        changes.append((variables, name, value))
    if plan["env"]:
        words = (f"{name}={value}" for name, value in sorted(plan["env"].items()))
        changes.append((variables, SET, " ".join(words)))
    return [*changes, (variables, DECISION, plan["decision"])]


def is_count(name, settings):
    """Tell whether a variable is a number of threads; OMP_NUM_THREADS is PBS's own."""
    form = re.match(r"[A-Z][A-Z0-9_]*_NUM_THREADS\Z", name, re.ASCII)
    return name != "OMP_NUM_THREADS" and (form is not None or name in settings["counts"])


def refuse_strange(job, asked, settings):
    """Raise Unchanged for what the installed list does not know."""
    known = set(settings["resources"]) | set(settings["host_resources"])
    names = [n for n in asked if n != "select"]
    for part in str(asked.get("select", "")).split("+"):
        names += [word.split("=")[0].strip() for word in part.split(":") if "=" in word]
    strange = [n for n in names if n not in known]
    strange += attributes(job, set(settings["harmless"]) | set(settings["attributes"]))
    if strange:
        raise Unchanged("the hook does not know " + ", ".join(strange))


def difference(old, new, settings):
    """Return what a select adds to each chunk of the job's own: a kind of node at most.

    All other words must be the same, letter for letter, but for ompthreads and, of a single
    chunk, fewer ncpus. Raises Unchanged.
    """
    added = {}
    olds, news = old.split("+"), new.split("+")
    if not old or len(olds) != len(news):
        raise Unchanged("the advisor does not make chunks")
    for before, after in zip(olds, news):
        before, after = before.split(":"), after.split(":")
        if len(after) < len(before):
            raise Unchanged("the advisor takes nothing out of a chunk")
        single = len(olds) == 1 and (before[0] == "1" or "=" in before[0])
        for was, now in zip(before + [""] * len(after), after):
            name, _, value = now.partition("=")
            number = int(value) if value.isdigit() else 0
            fewer = single and name == "ncpus" and was.startswith("ncpus=")
            if was == now or (number and name == THREADS and was.split("=")[0] in ("", name)):
                continue
            if not was and name in settings["host_resources"]:
                added[name] = value
            elif not (fewer and 0 < number <= amount(was.split("=")[1])):
                raise Unchanged(f"the advisor does not write {now} for {was or 'nothing'}")
    return added


def refuse_impossible(added, select, job, settings):
    """Raise Unchanged unless the queue has nodes of the kind for all chunks of a select."""
    if not added:
        return
    if not settings["inventory"]:
        raise Unchanged("there is no inventory (run: advisor hook install)")
    inventory = json.loads(settings["inventory"])
    queue = (queue_of(job) or inventory["default"]).split("@")[0]
    classes = inventory["queues"].get(queue)
    if classes is None:
        raise Unchanged(f"queue {queue} is not in the inventory")
    spread = "scatter" in str(getattr(job.Resource_List, "place", None) or "")
    for part in select.split("+"):
        words = part.split(":")
        count = int(words.pop(0)) if words[0].isdigit() else 1
        chunk = {"ncpus": "1", **dict(word.split("=", 1) for word in words), **added}
        fit = 0
        for kind in classes:
            if within(chunk, kind["resources"]):
                each = kind["resources"]["ncpus"] // max(1, amount(chunk["ncpus"]))
                fit += kind["nodes"] * (1 if spread else max(1, int(each)))
        if fit < count:
            raise Unchanged(f"queue {queue} has no nodes for select={select}")


def within(chunk, limits):
    """Tell whether each resource of a chunk is had: at most so much, or the very same."""
    for name, value in chunk.items():
        limit = limits.get(name)
        if name in ("mpiprocs", "ompthreads"):
            continue
        if isinstance(limit, (int, float)):
            if amount(value) > limit:
                return False
        elif limit is None or value not in limit.split(","):
            return False
    return True


def amount(text):
    """Return a number or a size (``4gb``, ``100mw``: in bytes). Raises ValueError."""
    text = text.strip().lower()
    factor = 8 if text.endswith("w") else 1
    text = text.rstrip("bw")
    if text[-1:] in ("k", "m", "g", "t", "p"):
        factor *= 1024 ** ("kmgtp".index(text[-1]) + 1)
        text = text[:-1]
    return float(text) * factor


def assign(changes):
    """Write all changes; when one fails, what was done is taken back."""
    done = []
    try:
        for where, name, value in changes:
            done.append((where, name, read(where, name)))
            write(where, name, value)
    except BaseException:
        for where, name, value in reversed(done):
            try:
                write(where, name, value)
            except Exception as error:
                pbs.logmsg(pbs.EVENT_ADMIN, f"advisor: {name} is not as it was: {error!r}")
        raise


def read(where, name):
    """Return a resource or variable, None for one that is not there."""
    return where.get(name) if isinstance(where, dict) else getattr(where, name, None)


def write(where, name, value):
    """Set a resource or variable; None takes it out."""
    if value is not None:
        where[name] = value
    elif isinstance(where, dict):
        where.pop(name, None)
    elif read(where, name) is not None:
        delattr(where, name)


def inherited(event):
    """Take out what the advisor set in the job from which this one is submitted (``qsub -V``)."""
    variables = event.job.Variable_List or {}
    for word in str(variables.pop(SET, "")).split():
        name, _, value = word.partition("=")
        if name.isidentifier() and variables.get(name) == value:
            del variables[name]


def private(event):
    """Take out what the client sent for the daemon alone: everybody sees a job's variables."""
    (event.job.Variable_List or {}).pop(CLIENT, None)


hook_event = pbs.event()
for step in (load, inherited, main, private):
    try:
        step(hook_event)
    except BaseException as why:  # whatever it is, the alarm's KeyboardInterrupt too
        problem = str(why) if isinstance(why, Unchanged) else repr(why)
        problem = "".join(c if " " <= c <= "~" else " " for c in problem)[:400]
        pbs.logmsg(pbs.EVENT_ADMIN, "advisor: job goes on unchanged: " + problem)
hook_event.accept()
