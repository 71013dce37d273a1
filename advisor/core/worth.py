"""What an amount of energy is worth: kilowatt-hours, money, CO2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_J_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True)
class Tariff:
    """What the site says of a kilowatt-hour: its price and the grams of CO2; None: not stated."""

    price: float | None = None
    currency: str = ""
    co2_g: float | None = None

    @classmethod
    def of(cls, site: Mapping[str, object]) -> Tariff:
        """Return the tariff of a compiled site file, key ``electricity``."""
        stated = site.get("electricity")
        if not isinstance(stated, Mapping):
            return cls()
        price, co2_g = stated.get("price_per_kwh"), stated.get("co2_g_per_kwh")
        return cls(
            None if price is None else float(price),
            str(stated.get("currency") or ""),
            None if co2_g is None else float(co2_g),
        )

    @property
    def stated(self) -> bool:
        """Whether the site states a price or CO2."""
        return self.price is not None or self.co2_g is not None

    def words(self, energy_j: float) -> str:
        """Return an energy (J) with its worth: ``0.37 kWh, 0.09 EUR, 140 g CO2``."""
        parts = [format_kwh(energy_j / _J_PER_KWH)]
        kwh = energy_j / _J_PER_KWH
        if self.price is not None:
            parts.append(f"{_amount(kwh * self.price)} {self.currency}".rstrip())
        if self.co2_g is not None:
            grams = kwh * self.co2_g
            parts.append(
                f"{grams / 1000:.3g} kg CO2" if abs(grams) >= 1000 else f"{grams:.3g} g CO2"
            )
        return ", ".join(parts)

    def to_dict(self, energy_j: float) -> dict[str, object]:
        """Return the JSON form of an energy's (J) worth; None where the site states nothing."""
        kwh = energy_j / _J_PER_KWH
        return {
            "kwh": kwh,
            "money": None if self.price is None else kwh * self.price,
            "currency": self.currency,
            "co2_kg": None if self.co2_g is None else kwh * self.co2_g / 1000,
        }


def format_kwh(kwh: float) -> str:
    """Return an energy in the unit of electricity bills."""
    if abs(kwh) < 0.1:
        return f"{kwh * 1000:.3g} Wh"
    return f"{kwh / 1000:.4g} MWh" if abs(kwh) >= 1e4 else f"{kwh:.4g} kWh"


def _amount(money: float) -> str:
    return f"{money:.2f}" if abs(money) >= 1 else f"{money:.2g}"
