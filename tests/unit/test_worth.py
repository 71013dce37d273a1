"""What energy is worth, in words and numbers, with and without a tariff."""

from __future__ import annotations

from datetime import datetime

import pytest

from advisor.core.worth import Tariff, format_kwh

STATED = Tariff.of(
    {"electricity": {"price_per_kwh": 0.25, "currency": "EUR", "co2_g_per_kwh": 380}}
)


def test_a_site_that_states_nothing_has_energy_only() -> None:
    assert Tariff.of({}) == Tariff()
    assert Tariff().words(3.6e6) == "1 kWh"
    worth = {"kwh": 1.0, "money": None, "currency": "", "co2_kg": None}
    assert Tariff().worth(3.6e6).to_dict() == worth


@pytest.mark.parametrize(
    ("energy_j", "words"),
    [
        (14_400, "4 Wh, 0.001 EUR, 1.52 g CO2"),  # 0.004 kWh x 0.25, x 380
        (3.6e6, "1 kWh, 0.25 EUR, 380 g CO2"),
        (36e6, "10 kWh, 2.50 EUR, 3.8 kg CO2"),
        (0, "0 Wh, 0 EUR, 0 g CO2"),
    ],
)
def test_money_and_co2_follow_the_tariff(energy_j: float, words: str) -> None:
    assert STATED.words(energy_j) == words


def test_the_json_form_has_the_same_numbers() -> None:
    assert STATED.worth(7.2e6).to_dict() == {
        "kwh": 2.0,
        "money": 0.5,
        "currency": "EUR",
        "co2_kg": pytest.approx(0.76),
    }


@pytest.mark.parametrize(
    ("kwh", "text"),
    [
        (0.05, "50 Wh"),
        (0.1, "0.1 kWh"),
        (12345, "12.35 MWh"),
        (-2, "−2 kWh"),
        (-89e-6, "−0.089 Wh"),
    ],
)
def test_kilowatt_hours_have_a_unit_people_read(kwh: float, text: str) -> None:
    assert format_kwh(kwh) == text


@pytest.mark.parametrize(
    ("start", "duration_s", "price"),
    [
        ("2026-01-31T06:00", 3600, 6),  # the price of hour h is h
        ("2026-01-31T06:30", 3600, 6.5),
        ("2026-01-31T23:00", 7200, 11.5),  # midnight: half 23, half 0
        ("2026-01-31T06:00", 86400, 11.5),
        ("2026-01-31T06:00", 90000, (276 + 6) / 25),  # a day and one hour
        ("2026-01-31T06:30", 0, 6),
    ],
)
def test_a_kilowatt_hour_costs_what_its_hours_do(
    start: str, duration_s: float, price: float
) -> None:
    stated = {"price_per_kwh": list(range(24)), "co2_g_per_kwh": 100}
    tariff = Tariff.of({"electricity": stated})
    assert tariff.hourly and tariff.price == 11.5
    money, co2_g = tariff.during(datetime.fromisoformat(start), duration_s)
    assert money == pytest.approx(price) and co2_g == 100
