"""What site.yaml may say of the classes of a node type's jobs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from advisor.policy.fields import Reads, Strict, Word, number, refuse, text_of


def _folder(value: object) -> str:
    text = text_of(value, "a folder")
    if not text or not text.isprintable() or len(text) > 1000:
        refuse(f"{text!r} is not a folder")
    return text


class LimitSection(Strict):
    """Limits of one class, by the strategy `default`."""

    cpi: Annotated[float, number(0, 1000)] = Field(description="cycles per instruction")
    gbs: Annotated[float, number(0, 1e6)] = Field(description="memory traffic of one node in GB/s")


class LimitsSection(Strict):
    """Where cpu-bound ends and memory-bound begins, in place of what is built in."""

    cpu: LimitSection = Field(description="cpu-bound: at most these")
    memory: LimitSection = Field(description="memory-bound: at least these")


class ClassesSection(Strict):
    """Where EAR's files of a node type are, and its limits."""

    tag: Word = Field(
        default="", description="EAR's tag, in the names of its files; default: the node type"
    )
    folder: Annotated[str, Reads(_folder, {"type": "string"})] = Field(
        default="",
        description="the folder of roofline.TAG.data, extremes.TAG.data and medoids.TAG.data; "
        "default: that of ear.conf, else `classes` beside this file",
    )
    limits: LimitsSection | None = Field(
        default=None, description="limits of the strategy `default`; default: by processor"
    )

    @model_validator(mode="after")
    def _tag_in_a_file_name(self) -> ClassesSection:
        if self.tag.startswith("."):
            refuse("begins with a point", key="tag")
        return self
