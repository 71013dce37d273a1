"""queuejob hook of PBS: asks the advisor's daemon about one job and turns its answer into the job.

The same script runs at postqueuejob, once all hooks are through: where one behind this has changed
a job that was rewritten, what was written is taken back, and that is put into the job's record.

Runs as root inside pbs_server, which does nothing else meanwhile; an exception or the hook's
alarm would reject the job. So whatever happens here, the job is accepted; one deadline covers
all waiting for the daemon; after a daemon that hung nobody asks for a while; and nothing
of the job is touched before the whole answer is read, checked, and made into PBS's own objects.

Python 3.6 to 3.12, the standard library only, also under -OO. Settings come from the hook's
configuration file (JSON, written by `advisor hook install`); without one the defaults below hold.
"""

import pbs

DEFAULTS = {
    "cluster": "",
    "socket": "/run/advisor/advisor.sock",
    "deadline_s": 0.25,
    "retry_s": 30,
    "breaker": "/run/advisor-pbs-breaker",
    "altered": "/run/advisor-pbs-altered",
    "host_resources": [],
    "inventory": "",
    "steps_mhz": {},
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
GPU_AXES = ("gpu_freq_mhz", "gpu_power_w")
PIECE_S = 0.01  # of waiting for the daemon
WROTE, ALTERED = "+wrote:", "+altered"  # behind the stamp: what was written, that it was changed
LOOKED_AT = ("select", "place", "nodes", "ncpus", "mpiprocs", THREADS, FREQ, *GPU_AXES)
NO_LIMIT = ("host", "vnode", "mpiprocs", THREADS)  # of a chunk, but no class of hosts has them
OF_HOST = ("ncpus", "mem", "vmem", "hbmem", "arch", *NO_LIMIT)
# Bytes of the daemon's answer; characters of a text, a stamp, an attribute, what was written.
MAX_ANSWER, MAX_TEXT, MAX_STAMP, MAX_ATTRIBUTE, MAX_WROTE = 65536, 65536, 2000, 200, 4000
MAX_MHZ = 20000  # no processor's
# \Z and not $, which would let a line break through behind the value.
FORMS = {
    "select": r"[^\s\"'()]+\Z",
    THREADS: r"[1-9]\d{0,5}\Z",
    FREQ: r"[1-9]\d{1,5}\Z",
    **dict.fromkeys(GPU_AXES, r"[1-9]\d{1,4}\Z"),
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
    # Older releases have no such event.
    if event.type == getattr(pbs, "POSTQUEUEJOB", None):
        look_again(event.job)
        return
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
    # A time to come is of a clock that was set back: nobody would ask until then.
    return -1 <= time.time() - status.st_mtime < retry_s


def trip(path):
    """Note that the daemon hung just now."""
    try:
        os.unlink(path)
    except OSError:
        pass
    try:
        # Made anew, so that nothing is written where a link of somebody else's leads.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        pbs.logmsg(pbs.EVENT_ADMIN, f"advisor: {path}: {error.strerror}")


# -- question and answer -----------------------------------------------------------------------


def request(event, job, variables, settings):
    """Return the line that asks about a job."""
    options = {n: str(v) for n, v in given(job.Resource_List).items() if n != STAMP}
    job_options = {
        "queue": queue_of(job),
        "account": job.Account_Name,
        "job-name": job.Job_Name,
        "project": job.project,
        "array": job.array_indices_submitted,
    }
    options.update((name, str(value)) for name, value in job_options.items() if value)
    sizes = sorted(n for n in variables if str(n).startswith("ADVISOR_SIZE_"))
    env = {n: variables.get(n) for n in (*settings["variables"], *sizes[:20])}
    data = {
        "v": 1,
        "op": "decide",
        "scheduler": "pbs",
        "hook": "queuejob",
        "cluster": settings["cluster"],
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


def attributes(job, harmless):
    """Return the attributes that are set on a job, but for these."""
    names = [n for n in getattr(job, "attributes", ()) if n[0] != "_" and n not in harmless]
    values = {name: str(getattr(job, name, None) or "")[:MAX_ATTRIBUTE] for name in names}
    return {name: value for name, value in values.items() if value not in ("", "0", "False")}


def text_of(value):
    """Return a value as text; "" for none, and for one that is too long to be sent."""
    text = "" if value is None else str(value)
    return text if len(text) <= MAX_TEXT else ""


def exchange(path, line, remaining_s):
    """Send a line and return the answer's; wait no longer than ``remaining_s`` seconds in all."""
    # A connection counts for half of the deadline at most: the answer's wait has the other half.
    half, answer = remaining_s / 2, b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            # Blocking, so that the kernel lets it wait where others stand before it.
            room = struct.pack("ll", int(half), int(half % 1 * 1e6) or 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, room)
            begin = time.monotonic()
            connection.connect(path)
            remaining_s -= min(half, time.monotonic() - begin)
            connection.setblocking(False)
            while line:
                remaining_s = wait(connection, select.POLLOUT, remaining_s)
                line = line[connection.send(line) :]
            while b"\n" not in answer:
                remaining_s = wait(connection, select.POLLIN, remaining_s)
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


def wait(connection, event, remaining_s):
    """Wait until a socket is ready; return what is left of the seconds. Raises BlockingIOError."""
    # Of a short piece of waiting no more than its length counts: where the host stands still, or
    # does not let this process run, no daemon hangs.
    watched = select.poll()
    watched.register(connection, event)
    while remaining_s > 0:
        begin = time.monotonic()
        events = watched.poll(PIECE_S * 1000)
        remaining_s -= min(PIECE_S, time.monotonic() - begin)
        if events:
            return remaining_s
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
        # Without ASCII, \w takes letters of all alphabets.
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
    requested = given(resources)
    changes = []
    if plan["rewrite"] or plan["env"]:
        refuse_strange(job, requested, settings)
    for name in (*plan["rewrite"], STAMP):
        if not hasattr(resources, name):
            raise Unchanged(f"there is no resource {name} (run: advisor hook install)")
    if set(GPU_AXES) & set(plan["rewrite"]):
        if set(GPU_AXES) & set(requested):
            raise Unchanged("what it sets of its GPUs itself is not the advisor's to write")
        if not {"ngpus"} & set(requested) and ":ngpus=" not in str(requested.get("select", "")):
            raise Unchanged("it asks for no GPUs")
    for name, value in sorted(plan["rewrite"].items()):
        if name == "select":
            difference(str(requested.get(name, "")), value, settings)
            changes.append((resources, name, pbs.select(value)))
        elif name in (FREQ, *GPU_AXES) or (
            name == THREADS and not {"select", "nodes", THREADS} & set(requested)
        ):
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
    stamp = plan["stamp"]
    if changes:
        refuse_beyond(plan, requested, queue_of(job), settings)
        stamp += written_mark(plan["rewrite"], requested)
    return [(resources, STAMP, stamp), *changes, (variables, DECISION, plan["decision"])]


def written_mark(rewrite, requested):
    """Return what is put behind the stamp: how the job was left, and what stood there before."""
    final_values = {n: str(rewrite.get(n, requested.get(n, ""))) for n in LOOKED_AT}
    original_values = {n: str(requested.get(n, "")) for n in rewrite}
    words = {"left": {n: v for n, v in final_values.items() if v}, "before": original_values}
    text = WROTE + json.dumps(words, separators=(",", ":"), sort_keys=True)
    if len(text) > MAX_WROTE:
        raise Unchanged("what it asks for is too long to be kept")
    return text


def is_count(name, settings):
    """Tell whether a variable is a number of threads; OMP_NUM_THREADS is PBS's own."""
    form = re.match(r"[A-Z][A-Z0-9_]*_NUM_THREADS\Z", name, re.ASCII)
    return name != "OMP_NUM_THREADS" and (form is not None or name in settings["counts"])


def refuse_strange(job, requested, settings):
    """Raise Unchanged for what the installed list does not know."""
    installed_names = set(settings["resources"]) | set(settings["host_resources"])
    names = [n for n in requested if n != "select"]
    for part in str(requested.get("select", "")).split("+"):
        names += [word.split("=")[0].strip() for word in part.split(":") if "=" in word]
    strange = [n for n in names if n not in installed_names]
    strange += attributes(job, set(settings["harmless"]) | set(settings["attributes"]))
    if strange:
        raise Unchanged("the hook does not know " + ", ".join(strange))


def difference(old, new, settings):
    """Raise Unchanged where a select is more than the job's own with a kind of node added.

    All words must be the same, letter for letter, but for ompthreads and, of a single chunk,
    fewer ncpus.
    """
    olds, news = old.split("+"), new.split("+")
    if not old or len(olds) != len(news):
        raise Unchanged("the advisor does not make chunks")
    # As many of both, by the check above: zip's own, strict=, came with Python 3.10.
    for old_words, new_words in zip(olds, news):
        old_words, new_words = old_words.split(":"), new_words.split(":")
        if len(new_words) < len(old_words):
            raise Unchanged("the advisor takes nothing out of a chunk")
        single = len(olds) == 1 and (old_words[0] == "1" or "=" in old_words[0])
        for old_word, new_word in zip(old_words + [""] * len(new_words), new_words):
            name, _, value = new_word.partition("=")
            number = int(value) if value.isdigit() else 0
            fewer = single and name == "ncpus" and old_word.startswith("ncpus=")
            if old_word == new_word or (
                number and name == THREADS and old_word.split("=")[0] in ("", name)
            ):
                continue
            if not old_word and name in settings["host_resources"]:
                continue
            if not (fewer and 0 < number <= amount(old_word.split("=")[1])):
                raise Unchanged(
                    f"the advisor does not write {new_word} for {old_word or 'nothing'}"
                )


def refuse_beyond(plan, requested, queue, settings):
    """Raise Unchanged for nodes the queue has not, or for more than the job has of its nodes.

    More threads than a rank has cores, fewer cores of whole nodes, a cap where others may run or
    that is no step of the nodes. The server completes the job after the hook: each way must do.
    """
    if not settings["inventory"]:
        raise Unchanged("there is no inventory (run: advisor hook install)")
    inventory = json.loads(settings["inventory"])
    queue = (queue or inventory["default"]).split("@")[0]
    classes, ways = inventory["queues"].get(queue), inventory["defaults"].get(queue)
    if not classes or not ways:
        raise Unchanged(f"queue {queue} is not in the inventory")
    threads = [int(value) for value in plan["env"].values()]
    cap = int(plan["rewrite"].get(FREQ, 0))
    of_host = (*OF_HOST, *settings["host_resources"])
    resource_names = {n for kind in classes for n in kind["resources"]} | set(
        settings["host_resources"]
    )
    for default in ways:
        place, old_chunks = chunks(requested, default, of_host)
        new_chunks = chunks({**requested, **plan["rewrite"]}, default, of_host)[1]
        together = sum(count * count_of(chunk, "ncpus") for count, chunk in new_chunks)
        for (_, old_chunk), (count, new_chunk) in zip(old_chunks, new_chunks):
            most = count_of(
                old_chunk, THREADS, count_of(old_chunk, "ncpus") // count_of(old_chunk, "mpiprocs")
            )
            largest = max([*threads, count_of(new_chunk, THREADS)])
            if largest > most:
                raise Unchanged(f"{largest} threads are more than a rank has: {most}")
            looked_at = {name: value for name, value in new_chunk.items() if name in resource_names}
            kinds = [kind for kind in classes if within(looked_at, kind["resources"])]
            refuse_impossible(kinds, count, new_chunk, place, queue)
            alone = [has_alone(place, kind) for kind in kinds]
            if count_of(new_chunk, "ncpus") < count_of(old_chunk, "ncpus") and any(alone):
                raise Unchanged("its nodes are whole, so no cores are taken")
            cores = together if "pack" in place else count_of(new_chunk, "ncpus")
            if cap and not all(
                has or cores >= kind["resources"]["ncpus"] for has, kind in zip(alone, kinds)
            ):
                raise Unchanged("its nodes may be shared, so no cap is written")
            if cap:
                refuse_frequency(cap, kinds, settings["steps_mhz"])


def refuse_impossible(kinds, count, chunk, place, queue):
    """Raise Unchanged unless hosts of these kinds have room for so many equal chunks."""
    fit = 0
    for kind in kinds:
        chunks_per_node = kind["resources"]["ncpus"] // count_of(chunk, "ncpus")
        fit += kind["nodes"] * (1 if "scatter" in place else int(chunks_per_node))
    if fit < count:
        shown = ":".join(f"{name}={value}" for name, value in chunk.items())
        raise Unchanged(f"queue {queue} has no nodes for {count} of {shown}")


def refuse_frequency(cap, kinds, steps):
    """Raise Unchanged for a cap that is no frequency step of any of these kinds of hosts, in MHz.

    ``steps`` are those of the node types by their features, "" of one without; none where the
    installation knew no node types.
    """
    if cap > MAX_MHZ:
        raise Unchanged(f"{cap} MHz is no processor's frequency")
    step_lists = [] if steps else [[cap]]
    for kind in kinds:
        has = {f"{n}={part}" for n, v in kind["resources"].items() for part in str(v).split(",")}
        feature_steps = [numbers for feature, numbers in steps.items() if feature in has]
        step_lists += feature_steps or [steps.get("", ())]
    if not any(cap in numbers for numbers in step_lists):
        raise Unchanged(f"{cap} MHz is no frequency step of its nodes")


def chunks(requested, default, of_host):
    """Return a job's placement and its chunks, each with its count, as the server completes it.

    ``of_host``: the resources that go into the chunk which the server makes without a select.
    """
    requested = {name: str(value) for name, value in requested.items()}
    select_text = requested.get("select") or (
        "" if "nodes" in requested else default["job"].get("select", "")
    )
    place = str(requested.get("place") or default["place"] or "free")
    if select_text:
        parts = []
        for part in select_text.split("+"):
            words = part.split(":")
            count = int(words.pop(0)) if words[0].isdigit() else 1
            parts.append((count, {**default["chunk"], **dict(w.split("=", 1) for w in words)}))
        return place, parts
    if "nodes" in requested:
        body, _, sharing = requested["nodes"].partition("#")
        parts = []
        for part in body.split("+"):
            words = part.split(":")
            numbers = {n: int(v) for n, v in (w.split("=") for w in words if "=" in w)}
            ranks = numbers.get("ppn", 1)
            chunk = {"ncpus": str(ranks * numbers.get("cpp", 1)), "mpiprocs": str(ranks)}
            count = int(words[0]) if words[0].isdigit() else 1
            parts.append((count, {**default["chunk"], **chunk}))
        return "scatter:" + sharing, parts
    job = {**default["chunk"], **default["job"], **requested}
    return "pack", [(1, {name: value for name, value in job.items() if name in of_host})]


def count_of(chunk, name, none=1):
    """Return a number of a chunk, ``none`` where it has it not; at least 1."""
    return max(1, int(chunk.get(name) or none))


def has_alone(place, kind):
    """Tell whether a job has a host of a kind for itself: its place with the vnodes' sharing."""
    words = place.split(":")
    placement = [word for word in words if word in ("excl", "exclhost", "shared")]
    return all(alone(placement[-1:], sharing, kind["parted"]) for sharing in kind["sharings"])


def alone(placement, sharing, parted):
    """Tell it of one vnode, as PBS's scheduler does; ``placement`` is the job's word, or []."""
    if sharing == "ignore_excl":
        return False
    if sharing == "force_exclhost" or placement == ["exclhost"]:
        return True
    if sharing == "default_exclhost" and not placement:
        return True
    excl = (
        placement == ["excl"]
        or sharing == "force_excl"
        or (not placement and sharing == "default_excl")
    )
    return excl and not parted


def within(chunk, limits):
    """Tell whether each resource of a chunk is had: at most so much, or the very same."""
    for name, value in chunk.items():
        limit = limits.get(name)
        if name in NO_LIMIT:
            continue
        if isinstance(limit, (int, float)):
            if amount(value) > limit:
                return False
        elif value.lower() in ("false", "f", "no", "n"):
            if limit not in (None, "False"):
                return False
        elif limit == "True":
            if value.lower() not in ("true", "t", "yes", "y"):
                return False
        elif limit is None or value not in limit.split(","):
            return False
    return True


def amount(text):
    """Return a number or a size (``4gb``, ``100mw``: in bytes). Raises ValueError."""
    text = text.strip().lower()
    factor = 8 if text.endswith("w") else 1  # words
    text = text.rstrip("bw")
    if text[-1:] in ("k", "m", "g", "t", "p"):
        factor *= 1024 ** ("kmgtp".index(text[-1]) + 1)
        text = text[:-1]
    return float(text) * factor


def assign(changes):
    """Write all changes; when one fails, what was done is taken back."""
    former_values = []
    try:
        for where, name, value in changes:
            former_values.append((where, name, read(where, name)))
            write(where, name, value)
    except BaseException:  # the hook's alarm, too, which may come between any two of them
        for where, name, value in reversed(former_values):
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


# -- once all hooks are through ----------------------------------------------------------------


def look_again(job):
    """Take back what was written into a job that a later hook has changed, and record that.

    The server calls for each queue that a job comes into. Nothing can be unset here.
    """
    resources, variables = job.Resource_List, job.Variable_List
    stamp, mark, text = str(getattr(resources, STAMP, None) or "").partition(WROTE)
    if not mark or text.endswith(ALTERED):
        return
    words, requested, settings = json.loads(text), given(resources), read_settings()
    final_values, original_values = words["left"], words["before"]
    changed = sorted(changed_since(final_values, requested, settings))
    if not changed:
        return
    changes = [(resources, STAMP, stamp + mark + text + ALTERED)]
    if "select" in original_values and requested.get("select") is not None:
        text = restored(str(requested["select"]), original_values["select"], final_values["select"])
        changes.append((resources, "select", pbs.select(text)))
    for name in (FREQ, *GPU_AXES):
        if name in original_values and str(requested.get(name)) == final_values[name]:
            changes.append((resources, name, int(original_values[name] or 0)))
    if THREADS in original_values and str(requested.get(THREADS)) == final_values[THREADS]:
        # It was written where nobody said it: PBS's own.
        changes.append((resources, THREADS, int(requested.get("ncpus") or 1)))
    for word in str(variables.get(SET) or "").split():
        name, _, value = word.partition("=")
        if variables.get(name) == value:
            changes.append((variables, name, None))
    assign(changes)
    note_altered(settings["altered"], str(job.id), changed)
    pbs.logmsg(
        pbs.EVENT_ADMIN,
        f"advisor: {job.id}: another hook changed its {', '.join(changed)}: what the advisor "
        "wrote is taken back",
    )


def changed_since(final_values, requested, settings):
    """Return the names of what is not as the job was left; what the server fills in counts not."""
    inventory = json.loads(settings["inventory"] or '{"defaults": {}}')
    ways = [way for queue_ways in inventory["defaults"].values() for way in queue_ways]
    changed = {
        name for name, value in final_values.items() if str(requested.get(name, "")) != value
    }
    if "nodes" in final_values or changed:
        return changed
    default_places = {"free", "pack"} | {way["place"] for way in ways if "select" in final_values}
    if "place" not in final_values and str(requested.get("place") or "free") not in default_places:
        changed.add("place")
    if "select" not in final_values and not any("select" in way["job"] for way in ways):
        server_select = str(requested.get("select") or "1")  # by the server, of the job's resources
        words = dict(word.partition("=")[::2] for word in server_select.split(":")[1:])
        for name in ("ncpus", "mpiprocs", THREADS):
            allowed = {"", *(way["job"].get(name, "") for way in ways)}
            allowed = {final_values[name]} if name in final_values else allowed
            if words.get(name, "") not in allowed | ({"1"} if allowed == {""} else set()):
                changed.add("select")
        if server_select.split(":")[0] != "1":
            changed.add("select")
    return changed


def restored(current, original, final):
    """Return a select without the words that were written into it, where they still stand.

    Chunk by chunk; where a later hook made it other chunks, by the first one's words.
    """
    parts, originals, finals = (text.split("+") for text in (current, original, final))
    if not len(parts) == len(originals) == len(finals):
        originals, finals = originals[:1] * len(parts), finals[:1] * len(parts)
    return "+".join(map(restored_chunk, parts, originals, finals))


def restored_chunk(current, original, final):
    """Return one chunk of a select without the words that were written into it."""
    original_words, final_words = (
        dict(word.partition("=")[::2] for word in text.split(":")) for text in (original, final)
    )
    ours = {
        f"{n}={v}": f"{n}={original_words[n]}" if n in original_words else ""
        for n, v in final_words.items()
        if original_words.get(n) != v
    }
    words = (ours.get(word, word) for word in current.split(":"))
    return ":".join(word for word in words if word)


def note_altered(path, job, changed):
    """Leave for `advisor doctor` which job was changed last, by what, and how many there were."""
    count = 0
    try:
        status = os.lstat(path)
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
            with open(path) as file:
                count = int(json.load(file)["count"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    partial = path + ".new"
    try:
        if os.path.lexists(partial):
            os.unlink(partial)
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        with os.fdopen(handle, "w") as file:
            json.dump({"count": count + 1, "job": job, "changed": changed}, file)
        os.rename(partial, path)
    except OSError as error:
        pbs.logmsg(pbs.EVENT_ADMIN, f"advisor: {path}: {error.strerror}")


# -- what goes with a job from inside another --------------------------------------------------


def inherited(event):
    """Take out what the advisor set in the job from which this one is submitted (``qsub -V``)."""
    if event.type != pbs.QUEUEJOB:
        return
    variables = event.job.Variable_List or {}
    for word in str(variables.pop(SET, "")).split():
        name, _, value = word.partition("=")
        if name.isidentifier() and variables.get(name) == value:
            del variables[name]


def private(event):
    """Take out what the client sent for the daemon alone: everybody sees a job's variables."""
    if event.type != pbs.QUEUEJOB:
        return
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
