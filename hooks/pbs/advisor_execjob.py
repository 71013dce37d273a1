"""Execution hook of PBS: applies a job's frequency cap on its nodes and meters their energy.

Runs as root under pbs_mom on every node of a job. At begin and prologue the cap asked for by
`cpu_freq_mhz` is written to scaling_max_freq of the job's CPUs; what stood there before is on
disk first. At epilogue resources_used gets the node's energy (`energy_j`, and one node more in
`energy_nodes`) and the cap that really held (`cpu_freq_mhz`); PBS adds them up over the nodes.
`gpu_freq_mhz` and `gpu_power_w` are set, on those GPUs that are surely the job's alone, by
advisor-node-gpus, which is in the configuration; `advisor_gpus` tells what they had and took.
At end, or when the job is
found to be gone (after a crash of pbs_mom), what stood there comes back; a reboot does that by
itself. While a job is suspended its cap is lifted and its meter stands still; where PBS does not
tell of that, a job that had another on its nodes meanwhile is accounted for as neither capped nor
metered. Whatever happens, the job goes on.

Python 3.6 to 3.12, the standard library only, also under -OO. Settings come from the hook's
configuration file (JSON, written by `advisor hook install`).
"""

import glob
import json
import os
import re
import subprocess
import time

import pbs

DEFAULTS = {
    "state_dir": "",
    "sys_root": "/sys",
    "boot_id": "/proc/sys/kernel/random/boot_id",
    "max_power_w": 500.0,
    "parted": [],
    "sharings": {},
    "gpu_program": "",
    "gpu_states": "/run/advisor-gpus",
    "gpu_timeout_s": 10.0,
    "python": "/usr/bin/python3",
}
FREQ, ENERGY, NODES = "cpu_freq_mhz", "energy_j", "energy_nodes"
GPUS = "advisor_gpus"
GPU_AXES = {"gpu_freq_mhz": ("gpu_freq_khz", 1000), "gpu_power_w": ("gpu_power_w", 1)}
UUIDS = re.compile(r"^CUDA_VISIBLE_DEVICES=(GPU-[0-9a-f-]{36}(?:,GPU-[0-9a-f-]{36})*)$", re.M)
STUCK = "a former cap could not be lifted"
# The zones whose joules add up to a node's: cores and uncore are in their packages already.
ZONE = re.compile(r"intel-rapl:\d+(?::\d+)?$")
COUNTED = re.compile(r"(package-\d+(?:-die-\d+)?|dram)$")
DRAFT = re.compile(r"\..+\.(\d+)\.[0-9a-f]{8}\.draft$")
CPUSETS = (
    "fs/cgroup/cpuset/pbs*/jobid/{}/cpuset.cpus",
    "fs/cgroup/pbs*/jobid/{}/cpuset.cpus",
    "fs/cgroup/cpuset/pbs*.slice/pbs*-{}.slice/cpuset.cpus",
)


def main(event):
    """Do what the event asks for. Raises whatever goes wrong."""
    settings = read_settings()
    kind = event.type
    if kind in events("EXECJOB_BEGIN", "EXECJOB_PROLOGUE"):
        start(event.job, settings, at_prologue=kind in events("EXECJOB_PROLOGUE"))
    elif kind in events("EXECJOB_EPILOGUE"):
        account(event.job, settings)
    elif kind in events("EXECJOB_POSTSUSPEND"):
        suspend(event.job, settings)
    elif kind in events("EXECJOB_PRERESUME"):
        resume(event.job, settings)
    elif kind in events("EXECJOB_END", "EXECJOB_ABORT"):
        finish(event.job.id, settings)
    elif kind in events("EXECHOST_PERIODIC"):
        look_after(list(event.job_list.keys()), settings)
    elif kind in events("EXECHOST_STARTUP"):
        drop_old_boots(settings)


def events(*names):
    """Return the numbers of events; a release that lacks one never sends it."""
    return [getattr(pbs, name) for name in names if hasattr(pbs, name)]


def read_settings():
    """Return the settings of the configuration file laid over the defaults."""
    settings = dict(DEFAULTS)
    name = os.environ.get("PBS_HOOK_CONFIG_FILE") or getattr(pbs, "hook_config_filename", None)
    if name:
        with open(name) as file:
            stored = json.load(file)
        settings.update({k: type(settings[k])(stored[k]) for k in settings if k in stored})
    if not settings["state_dir"]:
        conf = pbs.get_pbs_conf()
        home = conf.get("PBS_MOM_HOME") or conf.get("PBS_HOME") or "/var/spool/pbs"
        settings["state_dir"] = os.path.join(home, "mom_priv", "advisor")
    return settings


def say(job, text):
    """Put one line about a job into pbs_mom's log."""
    pbs.logjobmsg(job, "advisor: " + text)


# -- a job's life ------------------------------------------------------------------------------


def start(job, settings, at_prologue):
    """Cap the job's CPUs and begin to count; at prologue counting begins again."""
    path = state_path(job.id, settings)
    state = load(path)
    if state is not None and at_prologue and state["boot"] == boot_id(settings):
        if state["energy"] is not None:
            state["energy"] = begin_energy(settings)
            save(path, state)
        return
    # of a run of this job that was not ended here
    former_caps = finish_state(path, settings) if state is not None else {}
    cpus, whole_node, why = job_cpus(job, settings)
    state = {
        "job": job.id,
        "boot": boot_id(settings),
        "asked_khz": wanted_khz(job),
        "before": former_caps,
        "energy": begin_energy(settings) if whole_node else None,
        "whole": whole_node,
        "why": why,
    }
    if set_others_aside(path, cpus, whole_node, settings) or former_caps:
        why, cpus = STUCK, None
    cap_cpus(path, state, cpus, why, settings)
    save(path, state)
    set_gpus(job, settings)


def cap_cpus(path, state, cpus, why, settings):
    """Cap CPUs as a job asked for, once what stood there is on disk."""
    job, cap_khz = state["job"], state["asked_khz"]
    state["applied_khz"] = 0
    if not cap_khz:
        return
    folders, problem = policies(cpus, settings) if cpus is not None else ([], why)
    if problem:
        say(job, "runs without its cap: " + problem)
        return
    state["before"] = {f: read(os.path.join(f, "scaling_max_freq")) for f in folders}
    save(path, state)
    state["applied_khz"] = cap(job, state["before"], cap_khz)


def set_others_aside(path, cpus, whole_node, settings):
    """Lift the caps of jobs that cannot run beside this one: they are gone, or suspended.

    Tells whether one stays: it would be taken for what stood there before.
    """
    folders, stuck = set(policies(cpus or [], settings)[0]), False
    for other_path in states(settings):
        state = load(other_path) if other_path != path else None
        if state is None or state["boot"] != boot_id(settings):  # the periodic hook drops it
            continue
        if whole_node or state.get("whole") or folders & set(state["before"]):
            set_aside(other_path, state)
            stuck = stuck or bool(state["before"])
    return stuck


def set_aside(path, state):
    """Lift a job's cap; where nothing told of its suspension, remember that it did not hold."""
    failed = restore(state["before"])
    if failed:
        say(state["job"], "its cap could not be lifted, and will be tried again: " + failed)
    else:
        state["before"] = {}
    if not state.get("suspended"):
        state["applied_khz"] = 0
        state["why"] = "another job ran on its node while it was suspended"
        state["energy"] = None
    save(path, state)


def suspend(job, settings):
    """Lift the cap of a job that is suspended, and stop to count."""
    path = state_path(job.id, settings)
    state = load(path)
    if state is None or state["boot"] != boot_id(settings) or state.get("suspended"):
        return
    if state["energy"] is not None:
        count(state["energy"], settings)
    failed = restore(state["before"])
    if failed:
        say(state["job"], "its cap could not be lifted: " + failed)
    else:
        state["before"] = {}
    state["suspended"] = True
    save(path, state)


def resume(job, settings):
    """Cap and count again as before a job was suspended."""
    path = state_path(job.id, settings)
    state = load(path)
    if state is None or not state.get("suspended"):
        return
    cpus, whole_node, why = job_cpus(job, settings)
    if set_others_aside(path, cpus, whole_node, settings) or restore(state["before"]):
        why, cpus = STUCK, None
    held_khz = state["applied_khz"]
    cap_cpus(path, state, cpus, why, settings)
    if held_khz and state["applied_khz"]:
        state["applied_khz"] = max(held_khz, state["applied_khz"])
    else:  # not capped once is not capped
        state["applied_khz"] = 0
    if state["energy"] is not None:
        go_on(state["energy"], settings)
    state["suspended"] = False
    save(path, state)


def account(job, settings):
    """Tell PBS what the node used, and which cap held."""
    path = state_path(job.id, settings)
    state = load(path)
    if state is None:
        say(job.id, "its energy is not known: the hook did not see it begin")
        return
    if state["asked_khz"]:
        job.resources_used[FREQ] = int(state["applied_khz"] // 1000)
    took = lift_gpus(job.id, settings)
    if took:
        host = pbs.get_local_nodename().split(".")[0]
        job.resources_used[GPUS] = json.dumps({host: took})  # PBS puts those of all nodes together
    energy = state["energy"]
    if energy is None:
        say(job.id, "its energy is not reported: " + state["why"])
        return
    if not state.get("suspended"):  # else it is ended before it went on
        count(energy, settings)
    if energy["problem"]:
        say(job.id, "its energy is not known: " + energy["problem"])
    else:
        job.resources_used[ENERGY] = round(energy["total_j"])
        job.resources_used[NODES] = 1


def finish(job, settings):
    """Put everything back as it was before a job."""
    path = state_path(job, settings)
    if os.path.exists(path):
        finish_state(path, settings)
    lift_gpus(job, settings)


def finish_state(path, settings):
    """Put back what a state file names, then drop it; where that fails it stays.

    Returns what has still to be put back.
    """
    state = load(path)
    failed = ""
    if state is not None and state["boot"] == boot_id(settings):
        failed = restore(state["before"])
    if failed:
        say(state["job"], "its cap could not be lifted, and will be tried again: " + failed)
        return state["before"]
    os.unlink(path)
    return {}


def look_after(running, settings):
    """Read the counters of running jobs; end what is left of jobs that are gone."""
    for path in states(settings):
        state = load(path)
        if state is None or state["job"] not in running or state["boot"] != boot_id(settings):
            finish_state(path, settings)
        elif state["energy"] is not None and not state.get("suspended"):
            count(state["energy"], settings)
            save(path, state)
    for name in gpu_states(settings):
        if name not in running:
            lift_gpus(name, settings)


def drop_old_boots(settings):
    """After a reboot the kernel's own limits hold again, so old states are only dropped."""
    for path in states(settings):
        state = load(path)
        if state is None or state["boot"] != boot_id(settings):
            finish_state(path, settings)


# -- what a job has of its node ----------------------------------------------------------------


def wanted_khz(job):
    """Return the cap a job asks for in kHz, 0 for none."""
    value = job.Resource_List[FREQ] if hasattr(job.Resource_List, FREQ) else None
    return int(value) * 1000 if value else 0


def job_cpus(job, settings):
    """Return (the job's CPUs or None, whether it has the node for itself, why not)."""
    everyone = sorted(
        int(re.search(r"(\d+)$", path).group(1))
        for path in glob.glob(os.path.join(cpu_root(settings), "cpu[0-9]*"))
    )
    cpu_count, several = given_here(job, settings)
    if has_alone(job, settings, several) or cpu_count >= cores(everyone, settings):
        return everyone, True, ""
    for pattern in CPUSETS:
        # Brackets, as of 12[3], would be a pattern of their own.
        pattern = os.path.join(settings["sys_root"], pattern.format(glob.escape(job.id)))
        for path in glob.glob(pattern):
            cpus = cpu_list(read(path))
            if cpus:
                return cpus, False, "other jobs may share this node"
    return None, False, "other jobs may share this node, and it has no cpuset of its own"


def has_alone(job, settings, parted):
    """Tell whether a job has this host for itself: its place with the sharing of its vnodes."""
    words = str(job.Resource_List["place"] or "").split(":")
    placement = [word for word in words if word in ("excl", "exclhost", "shared")][-1:]
    host = pbs.get_local_nodename().split(".")[0]
    sharings = settings["sharings"].get(host) or ["default_shared"]
    return all(alone(placement, sharing, parted) for sharing in sharings)


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


def given_here(job, settings):
    """Return (CPUs PBS gave the job on this node, whether a vnode may be a part of the node).

    exec_host names the host of each chunk; the vnodes of the chunk may have any name.
    """
    host = pbs.get_local_nodename().split(".")[0]
    total, names = 0, set()
    for part in parts_here(job):
        name, _, resources = part.partition(":")
        number = re.search(r"(?:^|:)ncpus=(\d+)", resources)
        if number:
            total += int(number.group(1))
            names.add(name.split(".")[0])
    return total, host in settings["parted"] or bool(names - {host})


def parts_here(job):
    """Return what the job has of each vnode of this host, ``VNODE:ncpus=4:ngpus=1``."""
    host = pbs.get_local_nodename().split(".")[0]
    chunks = re.findall(r"\(([^)]*)\)", str(job.exec_vnode or ""))
    text = str(getattr(job, "exec_host", None) or "")
    hosts = [h.split("/")[0].split(".")[0] for h in text.split("+")] if text else []
    return [
        part
        for position, chunk in enumerate(chunks)
        for part in chunk.split("+")
        if host
        == (
            hosts[position]
            if len(hosts) == len(chunks)
            else re.split(r"[:\[.]", part, maxsplit=1)[0]
        )
    ]


def cores(cpus, settings):
    """Return the number of cores; hardware threads of one core count once."""
    core_names = set()
    for cpu in cpus:
        name = os.path.join(cpu_root(settings), f"cpu{cpu}", "topology", "thread_siblings_list")
        try:
            core_names.add(read(name))
        except OSError:
            core_names.add(str(cpu))
    return max(1, len(core_names))


def gpus_here(job):
    """Return how many GPUs PBS gave the job on this node."""
    return sum(
        int(number) for part in parts_here(job) for number in re.findall(r":ngpus=(\d+)", part)
    )


def cpu_list(text):
    """Return the numbers of ``0-3,8``."""
    numbers = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def cpu_root(settings):
    """Return the folder of the CPUs in /sys."""
    return os.path.join(settings["sys_root"], "devices", "system", "cpu")


# -- frequency ---------------------------------------------------------------------------------


def policies(cpus, settings):
    """Return the cpufreq folders of CPUs, each policy once, and "" or why they cannot be used."""
    by_path = {}
    for cpu in cpus:
        folder = os.path.join(cpu_root(settings), f"cpu{cpu}", "cpufreq")
        if os.path.isdir(folder):
            # The folders of CPUs of one policy are links to one place.
            by_path[os.path.realpath(folder)] = folder
    if not by_path:
        return [], "this node has no cpufreq in /sys"
    cpu_set = set(cpus)
    for folder in by_path:
        try:
            sharing_cpus = set(
                cpu_list(read(os.path.join(folder, "affected_cpus")).replace(" ", ","))
            )
        except (OSError, ValueError):
            sharing_cpus = set()
        if sharing_cpus - cpu_set:
            return [], "its CPUs share their frequency with others"
    return sorted(by_path), ""


def cap(job, former_caps, cap_khz):
    """Write the cap and return the one that holds in kHz, 0 when it is not taken."""
    holds = 0
    for folder in sorted(former_caps):
        name = os.path.join(folder, "scaling_max_freq")
        try:
            lowest = number(os.path.join(folder, "cpuinfo_min_freq"), 0)
            # Never above what stood there: the site may have put it there.
            target_khz = min(max(cap_khz, lowest), int(former_caps[folder]))
            write(name, str(target_khz))
            holds = max(holds, int(read(name)))
        except (OSError, ValueError) as error:
            restore(former_caps)
            say(job, f"runs without its cap: {name}: {error}")
            return 0
    if holds > cap_khz:
        say(job, f"asked for at most {cap_khz} kHz, this node gives {holds} kHz")
    return holds


def restore(former_caps):
    """Put the former caps back; return "" or what could not be."""
    failed = ""
    for folder in sorted(former_caps):
        name = os.path.join(folder, "scaling_max_freq")
        try:
            if os.path.exists(name):
                write(name, former_caps[folder])
        except OSError as error:
            failed = f"{name}: {error.strerror}"
    return failed


# -- GPUs --------------------------------------------------------------------------------------


def set_gpus(job, settings):
    """Set what a job asks for on its GPUs here; what a former job left on them goes first."""
    limits = {
        axis: int(job.Resource_List[n] or 0) * per
        for n, (axis, per) in GPU_AXES.items()
        if hasattr(job.Resource_List, n)
    }
    words = [f"{axis}={value}" for axis, value in sorted(limits.items()) if value > 0]
    if not gpus_here(job) or not (words or gpu_states(settings)):
        return
    gpus, why = job_gpus(job, settings)
    if gpus:
        run_gpu_program(job.id, settings, "set", gpus, *words)
    elif words:
        say(job.id, "runs without its GPU limits: " + why)


def job_gpus(job, settings):
    """Return which GPUs are the job's alone, in words of advisor-node-gpus, "" and why not.

    PBS's own hook pbs_cgroups, which is before this one, writes their UUIDs. Without it they are
    known only where the job has all of its node.
    """
    number = gpus_here(job)
    home = os.path.dirname(os.path.dirname(settings["state_dir"]))
    path = os.path.join(home, "aux", job.id + ".env")
    try:
        text = read(path)
    except OSError:
        text = ""
    if "CUDA_VISIBLE_DEVICES=" in text:
        uuids = UUIDS.search(text)
        if uuids is None:
            return "", f"{path} names no whole GPUs"
        if len(set(uuids.group(1).split(","))) != number:
            return "", f"{path} names others than the {number} that PBS gave it"
        return uuids.group(1), ""
    if has_alone(job, settings, given_here(job, settings)[1]):
        return f"all:{number}", ""
    return "", "other jobs may share this node, and no hook pbs_cgroups says which GPUs are its own"


def lift_gpus(job, settings):
    """Put back what stood on a job's GPUs; return what they had and took, "" for unknown."""
    if job not in gpu_states(settings):
        return ""
    took = run_gpu_program(job, settings, "lift")
    return took if re.match(r"[0-9./,-]+\Z", took) else ""


def gpu_states(settings):
    """Return the jobs on whose GPUs something was set."""
    folder = settings["gpu_states"]
    return [n for n in os.listdir(folder) if n[0] != "."] if os.path.isdir(folder) else []


def run_gpu_program(job, settings, action, *words):
    """Run advisor-node-gpus, log what it says, and return what it prints.

    As a process of its own, since a driver may hang: then it is left to itself.
    """
    if not settings["gpu_program"]:
        say(job, "runs without its GPU limits: this hook is not whole (run: advisor hook install)")
        return ""
    try:
        os.makedirs(settings["gpu_states"], mode=0o700, exist_ok=True)
        # Its text goes to standard input: a node has no file of it.
        process = subprocess.Popen(
            # Isolated: it runs as root, and imports nothing but the standard library.
            [settings["python"], "-IS", "-", action, settings["gpu_states"], job, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Its shorter name, text, came with Python 3.7.
            universal_newlines=True,
        )
        took, messages = process.communicate(
            settings["gpu_program"], timeout=settings["gpu_timeout_s"]
        )
    except OSError as error:
        took, messages = "", f"runs without its GPU limits: {error}"
    except subprocess.TimeoutExpired:
        process.kill()
        took, messages = (
            "",
            "the driver of its GPUs did not answer in {:g} s".format(settings["gpu_timeout_s"]),
        )
    for line in messages.splitlines():
        say(job, line)
    return took.strip()


# -- energy ------------------------------------------------------------------------------------


def begin_energy(settings):
    """Begin to count with the best meter there is: the whole node's, else its packages'."""
    energy = {"total_j": 0.0, "last": {}, "at": now_s(), "problem": ""}
    try:
        energy["last"], _ = counters(settings)
    except (OSError, ValueError) as error:
        energy["problem"] = str(error)
    return energy


def counters(settings):
    """Return (joules by counter, where each wraps). Raises ValueError when there is no meter."""
    cray = os.path.join(settings["sys_root"], "cray", "pm_counters")
    if os.path.isdir(cray):
        words = read(os.path.join(cray, "energy")).split()
        if len(words) < 2 or words[1] != "J" or float(words[0]) <= 0:
            raise ValueError(f"{cray}/energy is not like '1000 J'")
        try:
            boot = read(os.path.join(cray, "startup"))
        except OSError:
            boot = ""
        # Under another name after a restart, so that its counters are seen to have begun again.
        return {"node@" + boot: float(words[0])}, {}
    values, ranges = {}, {}
    root = os.path.join(settings["sys_root"], "class", "powercap")
    for name in sorted(os.listdir(root)) if os.path.isdir(root) else []:
        folder = os.path.join(root, name)
        if ZONE.match(name) and COUNTED.match(read(os.path.join(folder, "name"))):
            limit = number(os.path.join(folder, "max_energy_range_uj"), 0)
            if limit > 0:
                values[folder] = int(read(os.path.join(folder, "energy_uj"))) / 1e6
                ranges[folder] = limit / 1e6
    if not values:
        raise ValueError("this node has neither pm_counters nor RAPL")
    return values, ranges


def count(energy, settings):
    """Add what the counters moved since the last reading, a wrap included."""
    if energy["problem"]:
        return
    try:
        values, ranges = counters(settings)
        waited = now_s() - energy["at"]
        if set(values) != set(energy["last"]):
            raise ValueError("its counters began again")
        for name, value in values.items():
            moved = value - energy["last"][name]
            limit = ranges.get(name)
            if limit and waited * settings["max_power_w"] > limit:
                raise ValueError(f"{name} was not read for {waited:.0f} s and may have wrapped")
            if moved < 0 and not limit:
                raise ValueError("its counters began again")
            energy["total_j"] += moved if moved >= 0 else moved + limit
        energy["last"], energy["at"] = values, now_s()
    except (OSError, ValueError) as error:
        energy["problem"] = str(error)


def go_on(energy, settings):
    """Begin to count again, on top of what was counted."""
    if energy["problem"]:
        return
    try:
        values, _ = counters(settings)
        if set(values) != set(energy["last"]):
            raise ValueError("its counters began again")
        energy["last"], energy["at"] = values, now_s()
    except (OSError, ValueError) as error:
        energy["problem"] = str(error)


def now_s():
    """Return seconds that go on while the node sleeps, the same in every process."""
    # Python 3.6 does not name CLOCK_BOOTTIME.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


# -- files -------------------------------------------------------------------------------------


def boot_id(settings):
    """Return what tells one boot from the next."""
    try:
        return read(settings["boot_id"])
    except OSError:
        return ""


def state_path(job, settings):
    """Return a job's state file."""
    return os.path.join(settings["state_dir"], re.sub(r"[^\w.\[\]-]", "_", job) + ".json")


def states(settings):
    """Return all state files."""
    return sorted(glob.glob(os.path.join(glob.escape(settings["state_dir"]), "*.json")))


def load(path):
    """Return a state, None when there is none or it makes no sense."""
    try:
        with open(path) as file:
            state = json.load(file)
        return state if {"job", "boot", "before", "energy", "asked_khz"} <= set(state) else None
    except (OSError, ValueError, TypeError):
        return None


def save(path, state):
    """Write a state whole or not at all, and see it to the disk.

    Its draft is a file that nobody else has: pbs_mom may run hooks of one job beside each other.
    """
    folder, name = os.path.split(path)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    clear_drafts(folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    draft = os.path.join(folder, f".{name[:40]}.{os.getpid()}.{os.urandom(4).hex()}.draft")
    handle = os.open(draft, flags, 0o600)
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(draft, path)
    except BaseException:
        os.unlink(draft)
        raise


def clear_drafts(folder):
    """Remove the drafts of hooks that were killed."""
    for name in os.listdir(folder):
        match = DRAFT.match(name)
        try:
            if match and not os.path.exists("/proc/" + match.group(1)):
                os.unlink(os.path.join(folder, name))
        except OSError:  # another has cleared it
            pass


def read(path):
    """Return a small file's text."""
    with open(path) as file:
        return file.read(65536).strip()


def number(path, otherwise):
    """Return a file's number, ``otherwise`` where it has none."""
    try:
        return int(read(path))
    except (OSError, ValueError):
        return otherwise


def write(path, text):
    """Write a small file in one go, as sysfs wants it."""
    with open(path, "w") as file:
        file.write(text + "\n")


hook_event = pbs.event()
try:
    main(hook_event)
except BaseException as why:  # whatever it is, the alarm's KeyboardInterrupt too
    line = "".join(c if " " <= c <= "~" else " " for c in repr(why))[:400]
    pbs.logmsg(pbs.EVENT_ADMIN, "advisor: the execution hook failed: " + line)
hook_event.accept()
