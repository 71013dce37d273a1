"""What an amount of energy is worth: kilowatt-hours, money, CO2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import fmean

from advisor.core.codec import JsonForm
from advisor.core.units import with_minus

J_PER_KWH = 3.6e6
"""Joules of a kilowatt-hour."""
HOURS = 24
"""Hours of a day, each with a price of its own."""


@dataclass(frozen=True, slots=True)
class Tariff:
    """What the site says of a kilowatt-hour: its price and the grams of CO2; None: not stated.

    Where the site states them by the hour of the day, ``price`` and ``co2_g`` are the day's means.
    """

    price: float | None = None
    currency: str = ""
    co2_g: float | None = None
    price_by_hour: tuple[float, ...] = ()
    co2_g_by_hour: tuple[float, ...] = ()

    @classmethod
    def of(cls, site: Mapping[str, object]) -> Tariff:
        """Return the tariff of a compiled site file, key ``electricity``."""
        stated = site.get("electricity")
        if not isinstance(stated, Mapping):
            return cls()
        price, by_hour = _mean_and_hours(stated.get("price_per_kwh"))
        co2_g, co2_by_hour = _mean_and_hours(stated.get("co2_g_per_kwh"))
        return cls(price, str(stated.get("currency") or ""), co2_g, by_hour, co2_by_hour)

    def during(self, start: datetime, duration_s: float) -> tuple[float | None, float | None]:
        """Return price and grams of CO2 of a kWh used evenly from ``start``, in local time."""
        hours = _hour_shares(start, duration_s) if self.hourly else ()
        return (
            _weighed(self.price_by_hour, hours, self.price),
            _weighed(self.co2_g_by_hour, hours, self.co2_g),
        )

    @property
    def hourly(self) -> bool:
        """Whether anything is stated by the hour of the day."""
        return bool(self.price_by_hour or self.co2_g_by_hour)

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


def _mean_and_hours(stated: object) -> tuple[float | None, tuple[float, ...]]:
    """Return what is stated of a kWh as the day's mean, and by the hour where it is so stated."""
    if isinstance(stated, Sequence) and not isinstance(stated, str):
        hours = tuple(float(value) for value in stated)
        return fmean(hours), hours
    return (None if stated is None else float(str(stated))), ()


def _hour_shares(start: datetime, duration_s: float) -> tuple[float, ...]:
    """Return which share of a duration lies in each hour of the day."""
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


def _weighed(by_hour: Sequence[float], hours: Sequence[float], mean: float | None) -> float | None:
    if not by_hour:
        return mean
    return sum(value * share for value, share in zip(by_hour, hours, strict=True))


def _amount(money: float) -> str:
    return f"{money:.2f}" if abs(money) >= 1 else f"{money:.2g}"
