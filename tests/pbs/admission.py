"""What a PBS server does with a request after its hooks, and where its scheduler would run it.

Defaults, limits, routes and access as OpenPBS 23.06 applies them, in its order and with its words:
the queue's defaults before the server's, a maximum is a default too, a job without select is made
one chunk of all it asks for, default_chunk goes into the scheduler's select only, limits are held
to the sums over the chunks. Sizes are in bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

BUILT_IN = {
    "select": "",
    "place": "",
    "nodes": "",
    "nodect": "",
    "walltime": "",
    "cput": "",
    "min_walltime": "",
    "max_walltime": "",
    "software": "h",
    "arch": "h",
    "host": "h",
    "vnode": "h",
    "ncpus": "nh",
    "mem": "nh",
    "vmem": "nh",
    "mpiprocs": "nh",
    "ompthreads": "h",
    "naccelerators": "nh",
    "accelerator_model": "h",
    "hbmem": "nh",
    "aoe": "h",
    "eoe": "h",
}
"""Resources every server knows; n: summed over the chunks, h: of a host, so one of a chunk."""
TYPES = {"ncpus": int, "mpiprocs": int, "ompthreads": int, "nodect": int, "naccelerators": int}
NOT_WITH_SELECT = '"-lresource=" cannot be used with "select" or "place", resource is: '
LIMITS = "Job violates queue and/or server resource limits"
NO_DESTINATION = "Job rejected by all possible destinations"


class RefusedError(Exception):
    """The server does not take the job: its words."""


def flags(state: Mapping[str, Any], name: str) -> str:
    """Return a resource's flags. Raises RefusedError for one the server does not know."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    if name not in state["resources"]:
        raise RefusedError(f"Unknown resource: {name}")
    found = state["resources"][name]
    summed = "n" if found.get("type") in ("long", "size", "float") and "n" in found["flag"] else ""
    return found["flag"].replace("n", "") + summed if "h" in found.get("flag", "") else ""


def check_given(state: Mapping[str, Any], wants: Mapping[str, str], *, user: bool) -> None:
    """Check what a request asks for, before or after the hooks. Raises RefusedError."""
    for name in wants:
        flags(state, name)
        if user and "r" in state["resources"].get(name, {}).get("flag", ""):
            raise RefusedError(f"Cannot set attribute, read only or insufficient permission {name}")
    if "select" in wants or "place" in wants:
        for name in wants:
            if name != "select" and ("h" in flags(state, name) or name == "nodes"):
                raise RefusedError(NOT_WITH_SELECT + name)
    for _, chunk in chunks(wants.get("select", "")):
        for name in chunk:
            if "h" not in flags(state, name):
                raise RefusedError(f"Resource invalid in 'select' specification: {name}")


def chunks(select: str) -> list[tuple[int, dict[str, str]]]:
    """Return count and resources of each kind of chunk. Raises RefusedError."""
    found = []
    for part in filter(None, select.split("+")):
        words = part.split(":")
        count = int(words.pop(0)) if words[0].isdecimal() else 1
        chunk: dict[str, str] = {}
        for word in words:
            name, equals, value = word.partition("=")
            if not (equals and value) or name in chunk:
                raise RefusedError(f"Illegal attribute or resource value Resource_List.{word}")
            chunk[name] = value
        found.append((count, chunk))
    if select and not sum(count for count, _ in found):
        raise RefusedError("Illegal attribute or resource value Resource_List.select")
    return found


def complete(
    state: Mapping[str, Any], queue: Mapping[str, Any], given: Mapping[str, str]
) -> tuple[dict[str, Any], str]:
    """Return Resource_List and schedselect of a request in a queue. Raises RefusedError."""
    wants: dict[str, Any] = dict(given)
    server = state["server"]
    for owner in (queue, server):
        for name, value in owner.get("resources_default", {}).items():
            wants.setdefault(name, str(value))
    for owner in (queue, server):
        for name, value in owner.get("resources_max", {}).items():
            if name not in ("select", "place"):
                wants.setdefault(name, str(value))
    if "nodes" in wants and "select" not in wants:
        _from_nodes(state, wants, given)
    elif "select" not in wants:
        inside = [n for n in sorted(wants) if "h" in flags(state, n)]
        wants["select"] = "1" + "".join(f":{n}={wants[n]}" for n in inside)
        wants["place"] = "pack"
    wants.setdefault("place", "free")
    parts = []
    sums: dict[str, float] = {}
    total = 0
    for count, chunk in chunks(wants["select"]):
        for owner in (queue, server):
            for name, value in owner.get("default_chunk", {}).items():
                chunk.setdefault(name, str(value))
        total += count
        parts.append(":".join([str(count), *(f"{n}={v}" for n, v in chunk.items())]))
        for name, value in chunk.items():
            if "n" in flags(state, name):
                sums[name] = sums.get(name, 0.0) + count * amount(value)
    for name, value in sums.items():
        wants[name] = int(value) if name in TYPES else shown_size(value)
    wants["nodect"] = total
    return wants, "+".join(parts)


def _from_nodes(state: Mapping[str, Any], wants: dict[str, Any], given: Mapping[str, str]) -> None:
    body, _, modifier = wants["nodes"].partition("#")
    asked = []
    for part in body.split("+"):
        words = part.split(":")
        count = int(words.pop(0)) if words[0].isdecimal() else 1
        numbers = {k: int(v) for k, v in (w.split("=") for w in words if "=" in w)}
        asked.append((count, numbers, [w for w in words if "=" not in w]))
    nodes = sum(count for count, _, _ in asked)
    tasks = sum(count * n.get("ppn", 1) * n.get("cpp", 1) for count, n, _ in asked)
    each = 1
    if "ncpus" in given:
        if int(given["ncpus"]) % tasks:
            raise RefusedError("Illegal attribute or resource value Resource_List.nodes")
        each = max(1, int(given["ncpus"]) // tasks)
    parts = []
    for count, numbers, properties in asked:
        ppn = numbers.get("ppn", 1)
        words = [str(count), f"ncpus={ppn * numbers.get('cpp', 1) * each}"]
        if "mem" in given:
            words.append(f"mem={int(amount(given['mem']) // 1024 // nodes)}KB")
        for name in properties:
            words.append(f"host={name}" if name in state["nodes"] else f"{name}=True")
        if ppn != 1:
            words.append(f"mpiprocs={ppn}")
        parts.append(":".join(words))
    wants["select"] = "+".join(parts)
    wants["place"] = "scatter:" + modifier if modifier in ("excl", "shared") else "scatter"


def enter(state: Mapping[str, Any], name: str, given: Mapping[str, str], user: str) -> bool:
    """Check that a job may enter a queue; False where it may later. Raises RefusedError."""
    queue = state["queues"].get(name)
    if queue is None:
        raise RefusedError("Unknown queue")
    if queue.get("enabled") != "True":
        return False
    if queue.get("acl_user_enable") == "True" and not allowed(queue.get("acl_users", ""), user):
        raise RefusedError("Unauthorized Request ")
    wants, select = complete(state, queue, given)
    execution = queue["queue_type"] == "Execution"
    for resource in [n for _, chunk in chunks(select) for n in chunk] if execution else []:
        flags(state, resource)
    for limit, worse in (("resources_min", 1), ("resources_max", -1)):
        limits = dict(queue.get(limit, {}))
        if worse < 0:
            limits = {**state["server"].get(limit, {}), **limits}
        for resource, value in limits.items():
            if resource in wants and (amount(value) - amount(wants[resource])) * worse > 0:
                raise RefusedError(LIMITS)
    return True


def allowed(users: str, user: str) -> bool:
    """Tell whether an access list has a user: the first entry that fits counts."""
    for entry in filter(None, (u.strip() for u in users.split(","))):
        if entry.lstrip("+-").split("@")[0] in (user, "+"):
            return not entry.startswith("-")
    return False


def submit(state: Mapping[str, Any], name: str, given: Mapping[str, str], user: str) -> str:
    """Return the queue a new job comes to rest in. Raises RefusedError in the server's words."""
    if not enter(state, name, given, user):
        raise RefusedError("Queue is not enabled")
    return route(state, name, given, user)


def arrive(state: Mapping[str, Any], name: str, given: Mapping[str, str], user: str) -> str:
    """Take a job that is held: a route does not move it yet. Raises RefusedError."""
    if not enter(state, name, given, user):
        raise RefusedError("Queue is not enabled")
    return name


def route(state: Mapping[str, Any], name: str, given: Mapping[str, str], user: str) -> str:
    """Follow a routing queue's destinations in order: the first that takes the job has it."""
    queue = state["queues"][name]
    if queue["queue_type"] != "Route" or queue.get("started") != "True":
        return name
    later = False
    for destination in queue.get("route_destinations", "").split(","):
        try:
            if enter(state, destination.strip(), given, user):
                return route(state, destination.strip(), given, user)
            later = True
        except RefusedError:
            continue
    if later:
        return name  # tried again after a while
    raise RefusedError(NO_DESTINATION)


# -- where it would run ----------------------------------------------------------------------------


def start(
    state: Mapping[str, Any], job: Mapping[str, Any], scheduled: frozenset[str]
) -> list[tuple[str, dict[str, str]]] | str:
    """Return (vnode, chunk) of each chunk where a job can run now, else PBS's comment."""
    found = _fit(state, job, scheduled, _used(state))
    if found is not None:
        return found
    if _fit(state, job, scheduled, {}) is None:
        return "Can Never Run: Not enough total nodes available"
    return "Not Running: Insufficient amount of resource: ncpus"


def _fit(
    state: Mapping[str, Any],
    job: Mapping[str, Any],
    scheduled: frozenset[str],
    used: Mapping[str, dict[str, Any]],
) -> list[tuple[str, dict[str, str]]] | None:
    wants = [chunk for count, chunk in chunks(job["schedselect"]) for _ in range(count)]
    words = job["Resource_List"]["place"].split(":")
    bound = {n for n, has in state["nodes"].items() if has.get("queue") == job["queue"]}
    names = [n for n, has in state["nodes"].items() if n in bound or not (bound or "queue" in has)]
    names = [n for n in names if not _taken(state, n, words, used)]
    if "pack" in words:
        tries = [
            [n for n in names if host_of(state, n) == h] for h in {host_of(state, n) for n in names}
        ]
        tries.sort(key=lambda t: names.index(t[0]))
    else:
        tries = [names]
    for some in tries:
        found = _greedy(state, wants, some, scheduled, used, "scatter" in words)
        if found is not None:
            return found
    return None


def is_excl(words: list[str], sharing: str) -> bool:
    """Tell whether a job has a vnode for itself, as the scheduler's is_excl()."""
    if sharing in ("force_excl", "force_exclhost"):
        return True
    if sharing == "ignore_excl":
        return False
    if "excl" in words or "exclhost" in words:
        return True
    return "shared" not in words and sharing in ("default_excl", "default_exclhost")


def is_exclhost(words: list[str], sharing: str) -> bool:
    """Tell whether a job has a vnode's host for itself, as the scheduler's is_exclhost()."""
    if sharing in ("force_exclhost", "ignore_excl"):
        return sharing == "force_exclhost"
    unsaid = not {"excl", "exclhost", "shared"} & set(words)
    return "exclhost" in words or (unsaid and sharing == "default_exclhost")


def _taken(
    state: Mapping[str, Any], name: str, words: list[str], used: Mapping[str, dict[str, Any]]
) -> bool:
    """Tell whether a vnode is another job's, or must be empty for this one and is not."""
    sharing = state["nodes"][name].get("sharing", "default_shared")
    others = [n for n in used if host_of(state, n) == host_of(state, name)]
    whole_host = is_exclhost(words, sharing)
    return any(
        used[n]["exclhost"]
        or (n == name and (used[n]["excl"] or is_excl(words, sharing)))
        or whole_host
        for n in others
    )


def _greedy(
    state: Mapping[str, Any],
    wants: list[dict[str, str]],
    names: list[str],
    scheduled: frozenset[str],
    used: Mapping[str, dict[str, Any]],
    spread: bool,
) -> list[tuple[str, dict[str, str]]] | None:
    left = {n: dict(used.get(n, {}).get("sums", {})) for n in names}
    found: list[tuple[str, dict[str, str]]] = []
    for chunk in wants:
        for name in names:
            has = {**state["nodes"][name], "host": host_of(state, name), "vnode": name}
            if spread and host_of(state, name) in {host_of(state, n) for n, _ in found}:
                continue
            if all(
                _has(has, left[name], resource, value)
                for resource, value in chunk.items()
                if resource in scheduled and resource not in ("mpiprocs", "ompthreads")
            ):
                for resource, value in chunk.items():
                    if "n" in flags(state, resource):
                        sums = left[name]
                        sums[resource] = sums.get(resource, 0.0) + amount(value)
                found.append((name, chunk))
                break
        else:
            return None
    return found


def host_of(state: Mapping[str, Any], vnode: str) -> str:
    """Return the host a vnode is of."""
    return str(state["nodes"][vnode].get("host", vnode))


def _has(has: Mapping[str, Any], taken: Mapping[str, float], name: str, value: str) -> bool:
    there = has.get(name)
    if re.fullmatch(r"\d+[kmgt]?[bw]?", value, re.IGNORECASE):
        return there is not None and amount(value) + taken.get(name, 0.0) <= amount(there)
    if value.lower() in ("true", "t", "y", "yes", "1"):
        return str(there).lower() == "true"
    if value.lower() in ("false", "f", "n", "no", "0"):
        return str(there).lower() != "true"
    return value in str(there).split(",")


def _used(state: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what running jobs have of each vnode."""
    found: dict[str, dict[str, Any]] = {}
    for job in state["jobs"].values():
        if job["job_state"] != "R":
            continue
        for part in re.findall(r"\(([^)]*)\)", job["exec_vnode"]):
            name, *words = part.split(":")
            node = found.setdefault(name, {"excl": False, "exclhost": False, "sums": {}})
            asked = job["Resource_List"]["place"].split(":")
            sharing = state["nodes"][name].get("sharing", "default_shared")
            node["excl"] = node["excl"] or is_excl(asked, sharing)
            node["exclhost"] = node["exclhost"] or is_exclhost(asked, sharing)
            for word in words:
                resource, _, value = word.partition("=")
                node["sums"][resource] = node["sums"].get(resource, 0.0) + amount(value)
    return found


def amount(value: object) -> float:
    """Return a number, a size in bytes, or a time in seconds."""
    text = str(value).strip().lower()
    if ":" in text:
        return sum(float(p) * 60.0**i for i, p in enumerate(reversed(text.split(":"))))
    factor: float = 8 if text.endswith("w") else 1
    text = text.rstrip("bw")
    if text[-1:] in ("k", "m", "g", "t"):
        factor *= 1024.0 ** ("kmgt".index(text[-1]) + 1)
        text = text[:-1]
    return float(text) * factor


def shown_size(value: float) -> str:
    """Return bytes as PBS shows a sum of sizes."""
    for letter in "gm":
        unit = 1024 ** ("kmgt".index(letter) + 1)
        if value % unit == 0:
            return f"{int(value // unit)}{letter}b"
    return f"{int(value // 1024)}kb"
