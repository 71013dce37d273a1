"""Dataclasses as JSON data and back: what is written, and what is said of what cannot be read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import pytest

from advisor.core.codec import FieldError, JsonForm, Record, load, to_plain, wire


class Pair(NamedTuple):
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Part(Record):
    name: str
    count: int = field(default=1, metadata=wire("how_many", omit=True))


@dataclass(frozen=True, slots=True)
class Own(JsonForm):
    """A class whose form has logic of its own, which is called."""

    value: int

    def to_dict(self) -> dict[str, Any]:
        return {"twice": 2 * self.value}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Own:
        return cls(data["twice"] // 2)


@dataclass(frozen=True, slots=True)
class Whole(Record):
    kind: Literal["a", "b"]
    parts: tuple[Part, ...] = ()
    pairs: tuple[tuple[str, float], ...] = ()
    names: frozenset[str] = frozenset()
    by_name: Mapping[str, Part] = field(default_factory=dict)
    share: float | None = None
    sure: bool = False
    own: Own | None = None


WHOLE = Whole(
    "b",
    (Part("x"), Part("y", 2)),
    (("p", 1), ("q", math.inf)),
    frozenset("zy"),
    {"n": Part("n", 3)},
    0.5,
    True,
    Own(4),
)


def test_a_record_is_written_and_read_back() -> None:
    data = WHOLE.to_dict()
    assert data == {
        "kind": "b",
        "parts": [{"name": "x"}, {"name": "y", "how_many": 2}],
        "pairs": [["p", 1], ["q", math.inf]],
        "names": ["y", "z"],
        "by_name": {"n": {"name": "n", "how_many": 3}},
        "share": 0.5,
        "sure": True,
        "own": {"twice": 8},
    }
    assert list(data) == ["kind", "parts", "pairs", "names", "by_name", "share", "sure", "own"]
    assert Whole.from_dict(json.loads(json.dumps(data))) == WHOLE
    assert load(Whole, {"kind": "a", "from a later version": 1}) == Whole("a")
    assert Part.from_dict({"name": "x", "how_many": 2.0}) == Part("x", 2)  # JSON has one kind
    assert to_plain({1: Pair(1, 2)}) == {"1": {"low": 1, "high": 2}}


@dataclass(frozen=True, slots=True)
class Shown(JsonForm):
    JSON = ("part", "words", "last")

    last: int
    hidden: int
    part: Part = field(metadata=wire(inline=True))

    @property
    def words(self) -> str:
        return f"{self.hidden} of them"


def test_properties_and_keys_of_a_part_stand_where_the_class_says() -> None:
    data = Shown(1, 2, Part("p", 3)).to_dict()
    assert list(data.items()) == [
        ("name", "p"),
        ("how_many", 3),
        ("words", "2 of them"),
        ("last", 1),
    ]


@pytest.mark.parametrize(
    ("change", "key", "message"),
    [
        ({"kind": "c"}, "kind", "must be one of a, b, not 'c'"),
        ({"kind": None}, "kind", "must be one of a, b, not None"),
        ({"parts": {}}, "parts", "must be a list"),
        ({"parts": [{"name": "x"}, 1]}, "parts[1]", "must have keys and values"),
        ({"parts": [{}]}, "parts[0].name", "is missing"),
        ({"parts": [{"name": 1}]}, "parts[0].name", "must be text, not 1"),
        (
            {"parts": [{"name": "x", "how_many": True}]},
            "parts[0].how_many",
            "must be a whole number, not True",
        ),
        (
            {"parts": [{"name": "x", "how_many": 1.5}]},
            "parts[0].how_many",
            "must be a whole number, not 1.5",
        ),
        ({"pairs": [["x"]]}, "pairs[0]", "must be a list of 2"),
        ({"pairs": [["x", "1"]]}, "pairs[0][1]", "must be a number, not '1'"),
        ({"by_name": []}, "by_name", "must have keys and values"),
        ({"by_name": {"n": {}}}, "by_name.n.name", "is missing"),
        ({"share": "much"}, "share", "must be a number, not 'much'"),
        ({"sure": 1}, "sure", "must be true or false, not 1"),
    ],
)
def test_what_cannot_be_read_is_named(change: dict[str, Any], key: str, message: str) -> None:
    with pytest.raises(FieldError) as error:
        Whole.from_dict({**WHOLE.to_dict(), **change})
    assert (error.value.key, str(error.value)) == (key, message)
