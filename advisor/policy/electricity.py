"""What may stand in site.yaml of electricity."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from advisor.policy.fields import Strict, Word, number


class ElectricitySection(Strict):
    """What a kilowatt-hour costs; without it savings are shown in kWh only."""

    price_per_kwh: Annotated[float, number(0, 1000)] | None = Field(
        default=None, description="the price of a kWh"
    )
    currency: Word = Field(default="", description="of the price, like EUR")
    co2_g_per_kwh: Annotated[float, number(0, 5000)] | None = Field(
        default=None, description="grams of CO2 per kWh"
    )
