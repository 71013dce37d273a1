"""The YAML files of rankings: phases of an application, profiles, kernels, thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from advisor.core.codec import FieldError
from advisor.drafts import write_whole
from advisor.errors import InputError
from advisor.ranking.kernels import MOST_SOURCE_B, Kernel, kernel_name, kernel_streams
from advisor.ranking.similarity import Profile, Thresholds
from advisor.ranking.streams import Characterisation, Stream

MAX_BYTES = 10_000_000
"""Largest file that is read."""


def read_phases(path: Path) -> Characterisation:
    """Read a phase file. Raises InputError with the file and the line of what is wrong."""
    text, data = read_yaml(path)
    if not isinstance(data, dict):
        raise InputError(f"{path} is not a phase file", hint="its keys are application and phases")
    try:
        return Characterisation.from_dict(data)
    except FieldError as error:
        raise InputError(place(path, text, error)) from None


def read_profiles(path: Path) -> list[Profile]:
    """Read a list of profiles. Raises InputError with the file, line and key of what is wrong."""
    text, data = read_yaml(path)
    if not isinstance(data, list) or not data:
        raise InputError(
            f"{path} is not a list of profiles",
            hint="each has microbenchmark, node_type, time_per_iter_us and streams",
        )
    try:
        return [_profile(item, n) for n, item in enumerate(data)]
    except FieldError as error:
        raise InputError(place(path, text, error)) from None


def _profile(item: Any, n: int) -> Profile:
    if not isinstance(item, dict):
        raise FieldError((n,), "must have keys and values")
    names = {}
    for key in ("microbenchmark", "node_type"):
        value = item.get(key)
        if not isinstance(value, str) or not value.strip():
            raise FieldError((n, key), "is missing" if value is None else "must be a name")
        names[key] = value
    time = _positive(item, n, "time_per_iter_us")
    energy = item.get("energy_per_iter_nj")
    if energy is not None:
        energy = _positive(item, n, "energy_per_iter_nj")
    streams = item.get("streams")
    if not isinstance(streams, list) or not streams:
        raise FieldError((n, "streams"), "must be a list of streams")
    for k, stream in enumerate(streams):
        if not isinstance(stream, dict):
            raise FieldError((n, "streams", k), "must have keys and values")
    return Profile(
        names["microbenchmark"],
        names["node_type"],
        time,
        tuple(Stream.from_dict(s, (n, "streams", k)) for k, s in enumerate(streams)),
        energy,
        int(_positive(item, n, "threads")) if item.get("threads") is not None else 0,
        _positive(item, n, "spread") if item.get("spread") else 0.0,
    )


def _positive(item: dict[str, Any], n: int, key: str) -> float:
    value = item.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e15:
        raise FieldError((n, key), f"must be above 0, not {value!r}")
    return float(value)


def read_kernels(path: Path) -> list[Kernel]:
    """Read a list of kernels of a user's own: microbenchmark, source, streams, perhaps adds.

    A source lies beside the file. Raises InputError with the file, line and key of what is wrong.
    """
    text, data = read_yaml(path)
    if not isinstance(data, list) or not data:
        raise InputError(
            f"{path} is not a list of kernels", hint="each has microbenchmark, source and streams"
        )
    try:
        kernels = [_kernel(path, item, n) for n, item in enumerate(data)]
        for n, kernel in enumerate(kernels):
            if any(k.name == kernel.name and k.streams == kernel.streams for k in kernels[:n]):
                raise FieldError((n,), f"{kernel.name} is listed twice with these streams")
    except FieldError as error:
        raise InputError(place(path, text, error)) from None
    return kernels


def _kernel(path: Path, item: Any, n: int) -> Kernel:
    if not isinstance(item, dict):
        raise FieldError((n,), "must have keys and values")
    for key in item:
        if key not in ("microbenchmark", "source", "streams", "adds"):
            raise FieldError((n, key), "there are microbenchmark, source, streams and adds")
    name, streams = kernel_name(item, (n,)), kernel_streams(item, (n,))
    if not isinstance(item.get("source"), str):
        raise FieldError((n, "source"), "must be a file of C")
    source = path.parent / item["source"]
    try:
        if source.stat().st_size > MOST_SOURCE_B:
            raise FieldError((n, "source"), f"{source} is larger than {MOST_SOURCE_B >> 10} KB")
        code = source.read_text(encoding="utf-8")
    except OSError as error:
        raise FieldError((n, "source"), f"cannot read {source}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise FieldError((n, "source"), f"{source} is not text in UTF-8") from None
    adds = _positive(item, n, "adds") if item.get("adds") is not None else 0.0
    return Kernel(name, source.name, code, streams, adds)


def read_thresholds(path: Path) -> Thresholds:
    """Read ``ranking.yaml``. Raises InputError with the file and key of what is wrong."""
    _, data = read_yaml(path)
    if not isinstance(data, dict):
        raise InputError(f"{path} holds no thresholds", hint="see config/ranking.yaml")
    try:
        return Thresholds.from_dict(data)
    except InputError as error:
        raise InputError(f"{path}: {error.message}", hint=error.hint) from None


def write_phases(path: Path, characterisation: Characterisation) -> None:
    """Write a phase file in one step. Raises InputError when it cannot be written."""
    text = yaml.safe_dump(characterisation.to_dict(), sort_keys=False, allow_unicode=True)
    try:
        write_whole(path, text)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error


def read_yaml(path: Path) -> tuple[str, Any]:
    """Return a YAML file's text and data. Raises InputError with the line of what is wrong."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path} is larger than such a file can be (10 MB)")
        text = path.read_text(encoding="utf-8")
        return text, yaml.safe_load(text)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text in UTF-8") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or "not YAML"
        raise InputError(f"{where}: {problem}") from None


def place(path: Path, text: str, error: FieldError) -> str:
    """Return what is wrong with its file, line and key: ``f.yaml:3: phases[0].weight: ...``."""
    return f"{path}:{_line(yaml.compose(text), error.path)}: {error.key}: {error}"


def _line(node: yaml.Node | None, path: Sequence[str | int]) -> int:
    """Return the line of a path in a document, of the nearest that is there."""
    line = node.start_mark.line + 1 if node else 1
    for part in path:
        child: yaml.Node | None = None
        if isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            child = node.value[part] if part < len(node.value) else None
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == part:
                    line, child = key.start_mark.line + 1, value
                    break
        if child is None:
            break
        if isinstance(part, int):
            line = child.start_mark.line + 1
        node = child
    return line
