"""What may stand in site.yaml of electricity."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from advisor.core.worth import HOURS
from advisor.policy.fields import Reads, Strict, Word, number, refuse


def _by_hour(low: float, high: float) -> Reads:
    """Return the reading of a number, or of one for each hour of the day from midnight on."""
    single = number(low, high)

    def check(value: object) -> object:
        if not isinstance(value, list):
            return single.check(value)
        if len(value) != HOURS:
            refuse(f"{len(value)} values", allowed=(f"one number, or {HOURS}: one for each hour",))
        return [single.check(entry) for entry in value]

    hours = {"type": "array", "items": single.schema, "minItems": HOURS, "maxItems": HOURS}
    return Reads(check, {"anyOf": [single.schema, hours]})


class ElectricitySection(Strict):
    """What a kilowatt-hour costs; without it savings are shown in kWh only.

    One number, or a list of 24: of each hour of the day, local time, the first from midnight on.
    """

    price_per_kwh: Annotated[float | list[float], _by_hour(0, 1000)] | None = Field(
        default=None, description="the price of a kWh, or 24 of them by the hour"
    )
    currency: Word = Field(default="", description="of the price, like EUR")
    co2_g_per_kwh: Annotated[float | list[float], _by_hour(0, 5000)] | None = Field(
        default=None, description="grams of CO2 per kWh, or 24 of them by the hour"
    )
