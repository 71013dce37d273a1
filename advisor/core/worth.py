"""What an amount of energy is worth: kilowatt-hours, money, CO2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import fmean
from typing import Annotated

from advisor.core.codec import JsonForm, Record
from advisor.core.keys import Hourly, Written
from advisor.core.units import with_minus

J_PER_KWH = 3.6e6
"""Joules of a kilowatt-hour."""
HOURS = 24
"""Hours of a day, each with a price of its own."""


@dataclass(frozen=True, slots=True)
class Tariff(Record):
    """What the site says of a kilowatt-hour, key ``electricity``; None: not stated."""

    price_per_kwh: Annotated[
        float | tuple[float, ...] | None,
        Hourly(0, 1000),
        "the price of a kWh, or 24 of them by the hour",
    ] = None
    currency: Annotated[str, Written.WORD, "of the price, like EUR"] = ""
    co2_g_per_kwh: Annotated[
        float | tuple[float, ...] | None,
        Hourly(0, 5000),
        "grams of CO2 per kWh, or 24 of them by the hour",
    ] = None

    @classmethod
    def of(cls, site: Mapping[str, object]) -> Tariff:
        """Return the tariff of a compiled site file."""
        return cls.from_dict(site.get("electricity") or {})

    @property
    def price(self) -> float | None:
        """The price of a kWh, the day's mean where it differs by the hour; None: not stated."""
        return _mean(self.price_per_kwh)

    @property
    def co2_g(self) -> float | None:
        """Grams of CO2 of a kWh, the day's mean where they differ by the hour."""
        return _mean(self.co2_g_per_kwh)

    def during(self, start: datetime, duration_s: float) -> tuple[float | None, float | None]:
        """Return price and grams of CO2 of a kWh used evenly from ``start``, in local time."""
        hours = _hour_shares(start, duration_s) if self.hourly else ()
        return (
            _weighed(self.price_per_kwh, hours),
            _weighed(self.co2_g_per_kwh, hours),
        )

    @property
    def hourly(self) -> bool:
        """Whether anything is stated by the hour of the day."""
        return any(isinstance(s, Sequence) for s in (self.price_per_kwh, self.co2_g_per_kwh))

    def words(self, energy_j: float) -> str:
        """Return an energy (J) with its worth: ``0.37 kWh, 0.09 EUR, 140 g CO2``."""
        parts = [format_kwh(energy_j / J_PER_KWH)]
        kwh = energy_j / J_PER_KWH
        if self.price is not None:
            parts.append(self.money(kwh * self.price))
        if self.co2_g is not None:
            parts.append(format_co2(kwh * self.co2_g))
        return ", ".join(parts)

    def money(self, amount: float) -> str:
        """Return an amount of money with its currency."""
        return with_minus(f"{_amount(amount)} {self.currency}".rstrip())

    def worth(self, energy_j: float) -> EnergyWorth:
        """Return what an energy (J) is worth; None where the site states nothing."""
        kwh = energy_j / J_PER_KWH
        return EnergyWorth(
            kwh,
            None if self.price is None else kwh * self.price,
            self.currency,
            None if self.co2_g is None else kwh * self.co2_g / 1000,
        )


@dataclass(frozen=True, slots=True)
class EnergyWorth(JsonForm):
    """What an energy is worth; None where the site does not state it."""

    kwh: float
    money: float | None
    currency: str
    co2_kg: float | None


def format_kwh(kwh: float) -> str:
    """Return an energy in the unit of electricity bills."""
    if abs(kwh) < 0.1:
        return with_minus(f"{kwh * 1000:.3g} Wh")
    return with_minus(f"{kwh / 1000:.4g} MWh" if abs(kwh) >= 1e4 else f"{kwh:.4g} kWh")


def format_co2(grams: float) -> str:
    """Return grams of CO2 in a unit that keeps the number short."""
    if abs(grams) >= 1e7:
        return with_minus(f"{grams / 1e6:.3g} t CO2")
    return with_minus(f"{grams / 1000:.3g} kg CO2" if abs(grams) >= 1000 else f"{grams:.3g} g CO2")


def _mean(stated: float | Sequence[float] | None) -> float | None:
    return fmean(stated) if isinstance(stated, Sequence) else stated


def _hour_shares(start: datetime, duration_s: float) -> tuple[float, ...]:
    """Return which share of a duration lies in each hour of the day."""
    # Bounded, as a damaged record may lead beyond the last year that datetime has.
    end = start + timedelta(seconds=max(1.0, min(duration_s, 366 * 86400.0)))
    days, rest = divmod((end - start).total_seconds(), 86400)
    shares = [days * 3600.0] * HOURS
    moment, end = start, start + timedelta(seconds=rest)
    while moment < end:
        following = moment.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
        shares[moment.hour] += (min(following, end) - moment).total_seconds()
        moment = following
    total = sum(shares)
    return tuple(share / total for share in shares)


def _weighed(stated: float | Sequence[float] | None, hour_shares: Sequence[float]) -> float | None:
    if not isinstance(stated, Sequence):
        return stated
    return sum(value * share for value, share in zip(stated, hour_shares, strict=True))


def _amount(money: float) -> str:
    return f"{money:.2f}" if abs(money) >= 1 else f"{money:.2g}"
