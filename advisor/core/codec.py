"""Dataclasses as plain JSON data and back, by their fields' types. Standard library only.

A dataclass that inherits :class:`JsonForm` has ``to_dict``, a :class:`Record` ``from_dict``, too.
Each field has a key of its own name; ``metadata=wire(...)`` says what differs. A class whose form
has more to it defines either method itself, and records that hold it follow. What is read is not
converted: text is text.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache, partial
from operator import attrgetter
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

KeyPath = tuple[str | int, ...]
"""Keys and indices that lead to a value."""
Read = Callable[[Any, KeyPath], Any]
T = TypeVar("T")
R = TypeVar("R", bound="Record")
_WIRE = "wire"
_PLAIN = frozenset({str, int, float, bool, type(None)})


class FieldError(ValueError):
    """A field of a record is missing or wrong; ``path`` says which one."""

    def __init__(self, path: Sequence[str | int], message: str) -> None:
        super().__init__(message)
        self.path = tuple(path)

    @property
    def key(self) -> str:
        """The path as people write it: ``phases[0].weight``."""
        parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path)
        return "".join(parts).lstrip(".")


@dataclass(frozen=True, slots=True)
class AtLeast:
    """The least that a number is, or that a list has items: what a schema says of it."""

    value: float


@dataclass(frozen=True, slots=True)
class Above:
    """What a number is larger than."""

    value: float


@dataclass(frozen=True, slots=True)
class AtMost:
    """The most that a number is, that a list has items, or a text characters."""

    value: float


@dataclass(frozen=True, slots=True)
class Matches:
    """The regular expression that a text matches."""

    pattern: str


Count = Annotated[int, AtLeast(0)]


@dataclass(frozen=True, slots=True)
class Wire:
    """How a field stands in the JSON form, where that is not as usual."""

    name: str = ""
    """Its key, where that is not the field's name."""
    omit: bool = False
    """It is left out where it has its default, or is false where it has none."""
    inline: bool = False
    """Its own keys stand among the record's; it is not read."""
    read: Callable[[Mapping[str, Any], str, KeyPath], Any] | None = None
    """Takes the record's data, the key and the record's path, returns the field's value; it is
    called where the key is missing, too."""


_AS_USUAL = Wire()


def wire(name: str = "", **more: Any) -> Mapping[str, Wire]:
    """Return the metadata of a field: see :class:`Wire`."""
    return {_WIRE: Wire(name, **more)}


def wire_of(part: Field[Any]) -> Wire:
    """Return how a field stands in the JSON form."""
    wire: Wire = part.metadata.get(_WIRE, _AS_USUAL)
    return wire


class JsonForm:
    """A dataclass with a JSON form, which nothing need be able to read back."""

    __slots__ = ()
    JSON: ClassVar[tuple[str, ...]] = ()
    """What the form has, in its order, where properties are part of it; () for the fields."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        keys, values_of, special = _form(cast(Hashable, type(self)))
        data: dict[str, Any] = {}
        for key, value in zip(keys, values_of(self), strict=True):
            if key in special:
                default, inline = special[key]
                if inline:
                    data |= to_plain(value)
                    continue
                if value == default:
                    continue
            data[key] = value if type(value) in _PLAIN else to_plain(value)
        return data


class Record(JsonForm):
    """A dataclass with a JSON form that is read back."""

    __slots__ = ()

    @classmethod
    def from_dict(cls: type[R], data: object, path: KeyPath = ()) -> R:
        """Read the JSON form back; see :func:`load`."""
        return load(cls, data, path)


def load(kind: type[T], data: object, path: KeyPath = ()) -> T:
    """Read a dataclass's JSON form; unknown keys are ignored. Raises FieldError.

    ``path`` leads to the record in what it is a part of.
    """
    if not isinstance(data, Mapping):
        raise FieldError(path, "must have keys and values")
    values: dict[str, Any] = {}
    for name, key, read, read_part, required in _readers(cast(Any, kind)):
        if read_part is not None:
            values[name] = read_part(data, key, path)
        elif key in data:
            values[name] = read(data[key], (*path, key))
        elif required:
            raise FieldError((*path, key), "is missing")
    return kind(**values)


def to_plain(value: object) -> Any:
    """Return a value as JSON has it: records as objects, sets sorted, arrays as lists."""
    if type(value) in _PLAIN:
        return value
    if (form := getattr(value, "to_dict", None)) is not None:
        return form()
    if isinstance(value, Mapping):
        return {str(key): to_plain(part) for key, part in value.items()}
    if isinstance(value, AbstractSet):
        return sorted(map(to_plain, value))
    if hasattr(value, "_fields"):  # a NamedTuple
        return {name: to_plain(getattr(value, name)) for name in cast(Any, value)._fields}
    if hasattr(value, "__dataclass_fields__"):
        return JsonForm.to_dict(cast(Any, value))
    if isinstance(value, list | tuple):
        return [to_plain(part) for part in value]
    # an array of numbers, or one of them; this module knows no numpy
    return cast(Any, value).tolist() if hasattr(value, "tolist") else value


@cache
def _form(kind: Hashable) -> tuple[list[str], Callable[[Any], Any], dict[str, tuple[object, bool]]]:
    """Return keys, what gets their values, and of some the default and whether inline."""
    parts = {f.name: f for f in fields(cast(Any, kind))}
    names = getattr(kind, "JSON", ()) or tuple(parts)
    forms = {n: wire_of(parts[n]) if n in parts else _AS_USUAL for n in names}
    special = {
        form.name or n: (_omitted_value(parts[n]) if form.omit else MISSING, form.inline)
        for n, form in forms.items()
        if form.omit or form.inline
    }
    keys = [form.name or n for n, form in forms.items()]
    single_field = len(names) == 1
    return (
        keys,
        (lambda r: (getattr(r, names[0]),)) if single_field else attrgetter(*names),
        special,
    )


def _omitted_value(part: Field[Any]) -> object:
    default = default_of(part)
    return False if default is MISSING else default


def default_of(part: Field[Any]) -> object:
    """Return a field's default, MISSING where it has none."""
    return part.default if part.default_factory is MISSING else part.default_factory()


@cache
def _readers(kind: Hashable) -> list[tuple[str, str, Read, Any, bool]]:
    hints = get_type_hints(kind)
    forms = [(f, wire_of(f)) for f in fields(cast(Any, kind)) if f.init]
    return [
        (f.name, form.name or f.name, reader_of(hints[f.name]), form.read, default_of(f) is MISSING)
        for f, form in forms
    ]


def reader_of(kind: Any) -> Read:
    """Return what reads a value of a type; it raises FieldError for anything else."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return reader_of(parts[0])
    if origin in (Union, types.UnionType):
        return _optional([reader_of(p) for p in parts if p is not type(None)], type(None) in parts)
    if origin is Literal:
        return _checked(lambda v: v in parts, f"must be one of {', '.join(map(str, parts))}")
    if origin is tuple and parts[-1] is not Ellipsis:
        return _tuple_of([reader_of(p) for p in parts])
    if origin in (tuple, list, frozenset, set, Sequence):
        make, read_part = (tuple if origin is Sequence else origin), reader_of(parts[0])
        return lambda v, path: make(_items(v, path, read_part))
    if origin in (dict, Mapping):
        read_value = reader_of(parts[1])
        return lambda v, path: _entries(v, path, read_value)
    if hasattr(kind, "__dataclass_fields__"):
        if issubclass(kind, Record) or not hasattr(kind, "from_dict"):
            return getattr(kind, "from_dict", partial(load, kind))
        return lambda v, _: kind.from_dict(v)
    return _SCALARS.get(kind, lambda v, _: v)


def _checked(holds: Callable[[Any], bool], message: str) -> Read:
    def read(value: Any, path: KeyPath) -> Any:
        if not holds(value):
            raise FieldError(path, f"{message}, not {value!r}")
        return value

    return read


_SCALARS: dict[Any, Read] = {
    str: _checked(lambda v: isinstance(v, str), "must be text"),
    bool: _checked(lambda v: isinstance(v, bool), "must be true or false"),
    int: _checked(
        lambda v: type(v) is int or (type(v) is float and v.is_integer()), "must be a whole number"
    ),
    float: _checked(lambda v: type(v) in (int, float), "must be a number"),
}


def _optional(readers: Sequence[Read], none: bool) -> Read:
    def read(value: Any, path: KeyPath) -> Any:
        if value is None and none:
            return None
        for reader in readers[:-1]:
            try:
                return reader(value, path)
            except FieldError:
                continue
        return readers[-1](value, path)

    return read


def _items(value: Any, path: KeyPath, read: Read) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise FieldError(path, "must be a list")
    return [read(part, (*path, n)) for n, part in enumerate(value)]


def _tuple_of(readers: Sequence[Read]) -> Read:
    def read_all(value: Any, path: KeyPath) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or len(value) != len(readers):
            raise FieldError(path, f"must be a list of {len(readers)}")
        return tuple([read(value[n], (*path, n)) for n, read in enumerate(readers)])

    return read_all


def _entries(value: Any, path: KeyPath, read: Read) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise FieldError(path, "must have keys and values")
    return {str(key): read(part, (*path, str(key))) for key, part in value.items()}
