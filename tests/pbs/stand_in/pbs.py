"""Stands in for the ``pbs`` module a hook imports inside pbs_server or pbs_mom.

As strict as the real one where that was measured: resources are known by name and type, select
and place are objects, most attributes and all PBS_O_ variables are read-only, an unset value is
None, accept and reject raise SystemExit and end all writing. Python 3.6, as the hooks.
"""

import re
from typing import Any, Dict, List, Optional, Tuple

EVENT_ERROR, EVENT_ADMIN, EVENT_JOB, EVENT_DEBUG = 1, 4, 8, 0x100
QUEUEJOB, POSTQUEUEJOB = 1, 0x8000000
EXECJOB_BEGIN, EXECJOB_PROLOGUE, EXECJOB_EPILOGUE, EXECJOB_END = 64, 128, 256, 512
EXECJOB_LAUNCH, EXECHOST_PERIODIC, EXECHOST_STARTUP, EXECJOB_ABORT = 2048, 4096, 8192, 0x40000
EXECJOB_POSTSUSPEND, EXECJOB_PRERESUME = 0x80000, 0x100000

hook_config_filename: Optional[str] = None
LOG: List[Tuple[int, str]] = []
CONF: Dict[str, str] = {}
NODE = "node1"
_event: Optional["Event"] = None


class UnsetResourceNameError(Exception):
    """No such resource."""


class UnsetAttributeNameError(Exception):
    """No such attribute."""


class BadResourceValueTypeError(Exception):
    """A value of another type than the resource's."""


class BadAttributeValueError(Exception):
    """Not to be written, or not so."""


class EventIncompatibleError(AttributeError):
    """Not an attribute of this kind of event."""


class _Text:
    def __init__(self, value: str) -> None:
        if not isinstance(value, str):
            raise TypeError(f"not text: {value!r}")
        self._value = value

    def __str__(self) -> str:
        return self._value

    __repr__ = __str__


class select(_Text):
    """A select; raises for text that is none."""

    def __init__(self, value: str) -> None:
        super().__init__(value)
        for chunk in value.split("+"):
            words = chunk.split(":")
            if words[0].isdigit():
                words.pop(0)
            for word in words:
                name, equals, _ = word.partition("=")
                if not equals or name not in RESOURCES:
                    raise BadAttributeValueError(f"bad select {value!r}")


class place(_Text):
    """A placement; raises for text that is none."""

    def __init__(self, value: str) -> None:
        super().__init__(value)
        known = r"free|pack|scatter|vscatter|excl|shared|exclhost|group=\w+"
        if not re.fullmatch(rf"({known})(:({known}))*", value):
            raise BadAttributeValueError(f"bad place {value!r}")


class size(_Text):
    """An amount of memory."""


class duration(int):
    """A time; shows as it was written."""

    def __new__(cls, value: str) -> "duration":
        parts = [int(p) for p in str(value).split(":")]
        made = super().__new__(cls, sum(p * 60**i for i, p in enumerate(reversed(parts))))
        made._text = str(value)
        return made

    _text: str

    def __str__(self) -> str:
        return self._text


RESOURCES: Dict[str, Any] = {
    "select": select,
    "place": place,
    "ncpus": int,
    "nodes": str,
    "nodect": int,
    "mem": size,
    "vmem": size,
    "mpiprocs": int,
    "ompthreads": int,
    "walltime": duration,
    "arch": str,
    "host": str,
    "vnode": str,
    "node_type": str,
    "cput": duration,
    "naccelerators": int,
    "accelerator": str,
    "accelerator_model": str,
    "hbmem": size,
    "accelerator_memory": size,
    "software": str,
    "bigmem": str,
    "aoe": str,
    "eoe": str,
    "min_walltime": duration,
    "max_walltime": duration,
    "advisor_stamp": str,
    "cpu_freq_mhz": int,
    "energy_j": int,
    "energy_nodes": int,
    "ngpus": int,
    "gpu_freq_mhz": int,
    "gpu_power_w": int,
    "advisor_gpus": str,
}


def _writable() -> None:
    if _event is None or _event.over:
        raise BadAttributeValueError("not writable any more")


class Resources:
    """Resource_List or resources_used."""

    def __init__(self, values: Dict[str, Any]) -> None:
        found = {n: (v if v is None else RESOURCES[n](v)) for n, v in values.items()}
        object.__setattr__(self, "_values", found)
        object.__setattr__(self, "written", [])

    def keys(self) -> List[str]:
        return [n for n in RESOURCES if self._values.get(n) is not None]

    def __str__(self) -> str:
        return ",".join(f"{name}={self._values[name]}" for name in self.keys())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in RESOURCES:
            raise AttributeError(f"'pbs_resource' object has no attribute '{name}'")
        return self._values.get(name)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _writable()
        if name not in RESOURCES:
            raise UnsetResourceNameError(f"resource attribute '{name}' not found")
        if type(value) is not RESOURCES[name]:
            raise BadResourceValueTypeError(f"{name} takes no {type(value).__name__}")
        self._values[name] = value
        self.written.append(name)

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def __delattr__(self, name: str) -> None:
        _writable()
        if _event is not None and _event.type == POSTQUEUEJOB:
            raise BadAttributeValueError("a resource is not unset any more")  # it would stay
        if name not in RESOURCES:
            raise UnsetResourceNameError(f"resource attribute '{name}' not found")
        self._values[name] = None
        self.written.append(name)


class Variables(Dict[str, str]):
    """Variable_List: what PBS itself sets is not to be written."""

    def __setitem__(self, name: str, value: str) -> None:
        _writable()
        if name.startswith("PBS_O_") or not isinstance(value, str):
            raise BadAttributeValueError(f"env variable '{name}' is readonly")
        super().__setitem__(name, value)


class Job:
    """A job; only what the real module lets a hook write is writable."""

    _names = (
        "Checkpoint",
        "Join_Path",
        "Keep_Files",
        "Mail_Points",
        "Priority",
        "Rerunable",
        "Hold_Types",
        "Execution_Time",
        "depend",
        "stagein",
        "stageout",
        "umask",
        "group_list",
        "sandbox",
        "block",
        "create_resv_from_job",
        "tolerate_node_failures",
        "sched_hint",
        "estimated",
        "exec_host",
        "_connect_server",
        "id",
        "Job_Name",
        "Account_Name",
        "project",
        "queue",
        "interactive",
        "executable",
        "argument_list",
        "Submit_arguments",
        "array_indices_submitted",
        "Resource_List",
        "resources_used",
        "Variable_List",
        "exec_vnode",
        "exec_host2",
        "euser",
        "run_count",
    )

    def __init__(self, data: Dict[str, Any]) -> None:
        values: Dict[str, Any] = dict.fromkeys(self._names)
        values.update(data)
        values["estimated"] = ""  # an empty one, as the real module has it
        values["_connect_server"] = "pbs1"
        values["Resource_List"] = Resources(data.get("Resource_List", {}))
        values["resources_used"] = Resources(data.get("resources_used", {}))
        values["Variable_List"] = Variables(data.get("Variable_List", {}))
        object.__setattr__(self, "_values", values)
        object.__setattr__(self, "_ms", data.get("ms", True))

    @property
    def attributes(self) -> List[str]:
        return list(self._names)

    def in_ms_mom(self) -> bool:
        return bool(self._ms)

    def __getattr__(self, name: str) -> Any:
        if name not in self._names:
            raise AttributeError(f"job attribute '{name}' not found")
        return self._values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        _writable()
        if name not in ("Job_Name", "project", "Account_Name", "queue"):
            raise BadAttributeValueError(f"<{name}> is readonly")
        self._values[name] = value


class Event:
    """The event a hook runs for."""

    over = False
    answer: Optional[Tuple[str, str]] = None

    def __init__(self, kind: int, requestor: str, parameters: Dict[str, Any]) -> None:
        self.__dict__.update(type=kind, requestor=requestor, requestor_host="login1")
        self.__dict__["_param"] = parameters

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_param"][name]
        except KeyError:
            raise EventIncompatibleError(f'"{name}" not found in self._param') from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise BadAttributeValueError(f"event attribute '{name}' is readonly")

    def accept(self, ecode: int = 0) -> None:
        self._end("accept", "")
        raise SystemExit(str(ecode))

    def reject(self, emsg: str = "", ecode: int = 255) -> None:
        self._end("reject", emsg)
        raise SystemExit(str(ecode))

    def _end(self, word: str, text: str) -> None:
        self.__dict__.update(over=True, answer=(word, text))


def event() -> Event:
    """Return the event at hand."""
    assert _event is not None
    return _event


def logmsg(level: int, text: str) -> None:
    """Write one line into the log."""
    if not isinstance(level, int) or not isinstance(text, str) or "\n" in text:
        raise TypeError(f"logmsg({level!r}, {text!r})")
    LOG.append((level, text))


def logjobmsg(job: str, text: str) -> None:
    """Write one line about a job into the log."""
    logmsg(EVENT_JOB, f"{job};{text}")


def get_pbs_conf() -> Dict[str, str]:
    """Return pbs.conf."""
    return CONF


def get_local_nodename() -> str:
    """Return this host's short name."""
    return NODE
