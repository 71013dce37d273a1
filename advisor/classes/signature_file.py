"""Signatures from a JSON file: one object, or a list of them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from advisor.core.nearest import nearest
from advisor.core.signature import MEASURES, Signature
from advisor.errors import InputError

_KEYS = (*MEASURES, "cpus")
_MOST_BYTES = 200_000_000
"""Largest file of signatures that is read. Chosen, not measured."""


def read_signatures(path: Path) -> tuple[list[Signature], bool]:
    """Return a file's signatures, and whether they are a list.

    null is not measured. A key that may be a misspelt measure is an error, any other unknown one is
    left alone. Raises InputError that names file, number of the signature (from 1) and key.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    if len(raw) > _MOST_BYTES:
        raise InputError(f"{path} is larger than {_MOST_BYTES // 1_000_000} MB")
    try:
        data = json.loads(raw.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        where = f"{path}, line {error.lineno}, column {error.colno}"
        raise InputError(f"{where}: not JSON: {error.msg}") from None
    except (UnicodeDecodeError, RecursionError):
        raise InputError(f"{path} is not JSON in UTF-8") from None
    items = data if isinstance(data, list) else [data]
    signatures = [_signature(item, f"{path}, signature {n}") for n, item in enumerate(items, 1)]
    return signatures, isinstance(data, list)


def _signature(item: object, where: str) -> Signature:
    if not isinstance(item, Mapping):
        raise InputError(f'{where}: must be an object like {{"cpi": 0.7, "gbs": 120}}')
    _check_keys(item, where)
    values: dict[str, Any] = {
        name: checked(item[name], where, name)
        for name in MEASURES
        if name in item and item[name] is not None
    }
    cpus = item.get("cpus")
    if cpus is not None:
        number = checked(cpus, where, "cpus")
        if number != int(number):
            raise InputError(f"{where}, cpus: {cpus} is not a whole number")
        values["cpus"] = int(number)
    return Signature(source="file", **values)


def _check_keys(item: Mapping[str, object], where: str) -> None:
    """Raise InputError for a key that may be a misspelt one, and where no key is known at all."""
    unknown = [key for key in item if key not in _KEYS]
    for key in unknown:
        close = nearest(key, _KEYS)
        if close and close[0] not in item:
            raise InputError(f"{where}: unknown key {key}", hint=f"did you mean {close[0]}?")
    if unknown and len(unknown) == len(item):
        raise InputError(f"{where}: unknown key {unknown[0]}", hint=f"known: {', '.join(_KEYS)}")


def checked(value: object, where: str, name: str) -> float:
    """Return a measured number. Raises InputError for what cannot be one."""
    place = f"{where}, {name}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{place}: {json.dumps(value, default=str)[:80]} is not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InputError(f"{place}: {value} is not a finite number")
    if number < 0:
        raise InputError(f"{place}: {value} is negative")
    if not number and name in ("time_s", "cpus"):
        raise InputError(f"{place}: cannot be 0")
    return number
