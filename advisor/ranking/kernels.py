"""Kernels that users bring: a loop of their own in C, measured beside the suite.

Corredor 2011, section 3.4: where no microbenchmark is similar to a phase, somebody writes one that
is. A kernel is a C function ``own_kernel`` of the type that ``walks.h`` declares, with the streams
it walks over. Standard library only: the daemon checks what users send of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from advisor.core.codec import FieldError, JsonForm, Record
from advisor.ranking.fields import items, number, number_or_none, text, whole
from advisor.ranking.streams import Stream
from advisor.ranking.suite import FAMILIES

MOST_STREAMS, MOST_SOURCE_B, MOST_PROFILES, MOST_TEXT = 3, 65536, 100, 300
"""Streams the program walks over at once; bytes of a source; profiles of one delivery, and
characters of a text in it."""


@dataclass(frozen=True, slots=True)
class Kernel(Record):
    """A kernel of a user's own: its C source, the file it came from, and its streams.

    ``adds`` is what an iteration adds to the returned sum where all elements hold 1, so that work
    that was left out is noticed; 0 where nobody checks.
    """

    name: str
    file: str
    source: str
    streams: tuple[Stream, ...]
    adds: float = 0.0


def kernel_name(data: Mapping[str, Any], path: tuple[str | int, ...]) -> str:
    """Return a kernel's name. Raises FieldError for one that the suite uses itself."""
    name = text(data, "microbenchmark", path)
    if name.rstrip("X") in FAMILIES or name in FAMILIES:
        raise FieldError((*path, "microbenchmark"), f"{name} is one of the suite; choose another")
    if not name.isprintable() or len(name) > 100 or " " in name:
        raise FieldError((*path, "microbenchmark"), "must be one word of at most 100 characters")
    return name


def kernel_streams(data: Mapping[str, Any], path: tuple[str | int, ...]) -> tuple[Stream, ...]:
    """Return a kernel's streams. Raises FieldError for what the program cannot walk over."""
    entries = items(data, "streams", path)
    streams = tuple(Stream.from_dict(s, (*path, "streams", n)) for n, s in enumerate(entries))
    if not 1 <= len(streams) <= MOST_STREAMS:
        raise FieldError((*path, "streams"), f"there must be 1 to {MOST_STREAMS}")
    for n, stream in enumerate(streams):
        if stream.dtype_b not in (4, 8) or stream.dtype_b != streams[0].dtype_b:
            raise FieldError((*path, "streams", n, "dtype_b"), "must be 4 or 8, the same for all")
        if stream.stride_b % stream.dtype_b or stream.stride_b > stream.size_kb * 1024:
            raise FieldError(
                (*path, "streams", n, "stride_b"), "must be whole elements, within size_kb"
            )
    return streams


@dataclass(frozen=True, slots=True)
class SentProfiles(JsonForm):
    """Profiles of somebody's own kernels on one node type, and where they were measured.

    ``profiles`` are the fields of ``advisor.store.profiles.StoredProfile`` less node type,
    contributor and scope.
    """

    node_type: str
    machine: Mapping[str, Any]
    host: str
    kernel: str
    compiler: str
    profiles: tuple[dict[str, Any], ...]


def read_sent_profiles(data: object) -> SentProfiles:
    """Read the profiles of somebody's own kernels as ``advisor lab bench`` sends them.

    Raises FieldError.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("machine"), Mapping):
        raise FieldError((), "must have node_type, machine and profiles")
    entries = items(data, "profiles", ())
    if not 1 <= len(entries) <= MOST_PROFILES:
        raise FieldError(("profiles",), f"there must be 1 to {MOST_PROFILES}")
    host, kernel, compiler = (_line(data, key, ()) for key in ("host", "kernel", "compiler"))
    machine = data["machine"]
    for key in machine:
        _line(machine, key, ("machine",))
    profiles = tuple(_profile(p, ("profiles", n)) for n, p in enumerate(entries))
    name = text(data, "node_type", ())
    return SentProfiles(name, machine, host, kernel, compiler, profiles)


def _line(data: Mapping[str, Any], key: str, path: tuple[str | int, ...]) -> str:
    """Return a short text, "" for none. Raises FieldError for what is not one printed line."""
    value = str(data.get(key) or "")
    if not (key + value).isprintable() or len(value) > MOST_TEXT:
        raise FieldError((*path, key), f"must be one line of at most {MOST_TEXT} characters")
    return value


def _profile(data: Mapping[str, Any], path: tuple[str | int, ...]) -> dict[str, Any]:
    streams = kernel_streams(data, path)
    return {
        "microbenchmark": kernel_name(data, path),
        "streams": tuple(s.to_dict() for s in streams),
        "threads": whole(data, "threads", path, least=1, most=65536),
        "time_per_iter_us": number(data, "time_per_iter_us", path, least=0, above=True),
        "spread": number(data, "spread", path, least=0),
        "repeats": whole(data, "repeats", path, least=1),
        "energy_per_iter_nj": number_or_none(data, "energy_per_iter_nj", path) or None,
        "meter": _line(data, "meter", path),
    }
