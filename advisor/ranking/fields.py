"""Read the fields of records that people write or send: each mistake names its place.

Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from advisor.core.codec import FieldError

T = TypeVar("T", bound=str)

_HUGE = 1e15
"""No number of a record is larger, so that none is lost in arithmetic."""


def items(
    data: Mapping[str, Any], key: str, path: tuple[str | int, ...]
) -> list[Mapping[str, Any]]:
    """Return a list of records, none where the key is not there. Raises FieldError."""
    value = data.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise FieldError((*path, key), "must be a list")
    for n, item in enumerate(value):
        if not isinstance(item, Mapping):
            raise FieldError((*path, key, n), "must have keys and values")
    return value


def text(data: Mapping[str, Any], key: str, path: tuple[str | int, ...]) -> str:
    """Return a name that must be there. Raises FieldError."""
    value = data.get(key)
    if not isinstance(value, str | int | float) or not str(value).strip():
        raise FieldError((*path, key), "is missing" if value is None else "must be a name")
    return str(value)


def one_of(
    data: Mapping[str, Any], key: str, path: tuple[str | int, ...], allowed: Sequence[T]
) -> T:
    """Return one of the words that are allowed. Raises FieldError."""
    for value in allowed:
        if data.get(key) == value:
            return value
    raise FieldError((*path, key), f"must be one of {', '.join(allowed)}")


def number(
    data: Mapping[str, Any],
    key: str,
    path: tuple[str | int, ...],
    *,
    least: float,
    most: float = math.inf,
    whole: bool = False,
    above: bool = False,
    default: float | None = None,
) -> float:
    """Return a number within limits, ``above``: more than ``least``. Raises FieldError."""
    value = data.get(key, default)
    if value is None:
        raise FieldError((*path, key), "is missing")
    try:
        amount = float("x" if isinstance(value, bool) else value)
    except (TypeError, ValueError):
        raise FieldError((*path, key), f"must be a number, not {value!r}") from None
    good = math.isfinite(amount) and least <= amount <= most and not (above and amount <= least)
    if not good or amount > _HUGE:
        limit = (
            f"between {least:g} and {most:g}"
            if math.isfinite(most)
            else (f"{'above' if above else 'at least'} {least:g}")
        )
        if good:
            limit = f"at most {_HUGE:g}"
        raise FieldError((*path, key), f"must be {limit}, not {value!r}")
    if whole and amount != int(amount):
        raise FieldError((*path, key), f"must be a whole number, not {value!r}")
    return amount


def number_or_none(data: Mapping[str, Any], key: str, path: tuple[str | int, ...]) -> float | None:
    """Return a number from 0 up, None where the key is not there. Raises FieldError."""
    return None if data.get(key) is None else number(data, key, path, least=0)


def whole(
    data: Mapping[str, Any],
    key: str,
    path: tuple[str | int, ...],
    *,
    least: float,
    most: float = math.inf,
    default: int | None = None,
) -> int:
    """Return a whole number within limits. Raises FieldError."""
    return int(number(data, key, path, least=least, most=most, whole=True, default=default))


def flag(data: Mapping[str, Any], key: str, path: tuple[str | int, ...]) -> bool:
    """Return what is true or false, false where the key is not there."""
    return bool(data.get(key, False))
