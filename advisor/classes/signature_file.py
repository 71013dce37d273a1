"""Signatures from a JSON file: one object, or a list of them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from advisor.core.signature import MEASURES, Signature
from advisor.errors import InputError

_MOST_BYTES = 200_000_000


def read_signatures(path: Path) -> tuple[list[Signature], bool]:
    """Return a file's signatures, and whether they are a list.

    Unknown keys are left alone, null is not measured. Raises InputError that names file, number of
    the signature (from 1) and key.
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
    found = [_signature(item, f"{path}, signature {n}") for n, item in enumerate(items, 1)]
    return found, isinstance(data, list)


def _signature(item: object, where: str) -> Signature:
    if not isinstance(item, Mapping):
        raise InputError(f'{where}: must be an object like {{"cpi": 0.7, "gbs": 120}}')
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


def checked(value: object, where: str, name: str) -> float:
    """Return a measured number. Raises InputError for what cannot be one."""
    place = f"{where}, {name}"
    if type(value) not in (int, float):
        raise InputError(f"{place}: {json.dumps(value, default=str)[:80]} is not a number")
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InputError(f"{place}: {value} is not a finite number")
    if number < 0:
        raise InputError(f"{place}: {value} is negative")
    if not number and name in ("time_s", "cpus"):
        raise InputError(f"{place}: cannot be 0")
    return number
