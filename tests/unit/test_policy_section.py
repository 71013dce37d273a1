"""A key is defined by one field: what follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from pydantic import ValidationError

from advisor.core.inventory import HARDWARE, Gpus, NodeType
from advisor.core.keys import Between, Hourly, Share, Written, marks_of
from advisor.policy.fields import READINGS
from advisor.policy.section import section
from advisor.policy.site_schema import NodeTypeSection
from advisor.schedulers.cluster import Node


@dataclass(frozen=True)
class Fan:
    """The fan of a node.

    ``spare`` is no key.
    """

    speed: Annotated[Literal["", "low", "high"], "how fast it turns"] = ""
    share: Annotated[float, Share(0.1, 0.5), "of the node's power"] = 0.25
    blades: Annotated[int, Between(2, 9), "how many"] = 3
    noise_db: Annotated[float | tuple[float, ...] | None, Hourly(0, 100), "by the hour"] = None
    steps_khz: Annotated[tuple[int, ...], Written.FREQUENCIES, "its clocks"] = ()
    spare: str = ""


def said(**keys: object) -> tuple[str, str]:
    with pytest.raises(ValidationError) as caught:
        section(Fan)(**keys)
    (error,) = caught.value.errors(include_url=False)
    return str(error["loc"][0]), error["msg"]


def test_a_field_is_read_as_its_type_and_marks_say() -> None:
    written = {
        "speed": "High",
        "share": "12%",
        "blades": "4",
        "noise_db": ["1"] * 24,
        "steps_khz": "2 GHz",
    }
    assert section(Fan).model_validate(written).model_dump() == {
        "speed": "high",
        "share": 0.12,
        "blades": 4,
        "noise_db": [1.0] * 24,
        "steps_khz": [2_000_000],
    }
    assert section(Fan)().model_dump(exclude_unset=True) == {}
    assert said(speed="medium")[0] == "speed"
    assert said(share="60%") == ("share", "60% is out of range")
    assert said(blades="1") == ("blades", "1 is out of range")
    assert said(noise_db=["1"] * 23) == ("noise_db", "23 values")
    assert said(spare="x")[0] == "spare"


def test_its_meaning_bounds_and_default_are_in_the_schema() -> None:
    schema = section(Fan).model_json_schema()
    assert schema["description"] == "The fan of a node."
    keys = schema["properties"]
    assert (
        keys["blades"].items()
        >= {"description": "how many", "default": 3, "minimum": 2, "maximum": 9}.items()
    )
    assert keys["speed"]["enum"] == ["low", "high"]


def test_every_way_of_writing_has_a_reading() -> None:
    assert set(READINGS) == set(Written)


def test_what_is_said_of_a_node_are_the_fields_of_a_node_type() -> None:
    assert set(NodeTypeSection.model_fields) == {*marks_of(NodeType), "classes"}
    assert set(NodeTypeSection().gpus.model_dump()) == set(marks_of(Gpus))
    assert set(HARDWARE) < set(marks_of(NodeType)) and Node("n").hardware == (1, 1, 1, 0)
