"""`advisor demo`: measured programs, real fits, real decisions; the same everywhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ADVISOR = [sys.executable, "-m", "advisor"]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """A user's surroundings, with settings that must not count."""
    return {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data"),
        "ADVISOR_DB": str(tmp_path / "mine.db"), "ADVISOR": "off", "OMP_NUM_THREADS": "3",
    }  # fmt: skip


def test_it_shows_what_is_saved_and_touches_nothing(home: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [*ADVISOR, "demo"], env=home, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert "D. Loghin and Y. M. Teo" in done.stdout and "CC BY 4.0" in done.stdout
    lines = done.stdout.splitlines()
    assert "takes        1 node of opteron48, 37 threads, 2.1 GHz: 2.04 min, 70.9 kJ" in lines
    assert "rewritten    OMP_NUM_THREADS=37" in lines
    table = {line.split()[0]: line for line in lines if line.endswith(" of 48")}
    assert len(table) == 7
    assert table["SP"].split()[1:] == ["48", "->", "37", "−15.8", "%", "−12.3", "%", "−15.8", "%",
                                       "14", "of", "48"]  # fmt: skip
    assert "unchanged" in table["EP"]
    assert "most of all SP: 16 % less energy, 12 % faster" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_its_figures_are_the_measured_ones(home: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [*ADVISOR, "demo", "--json"], env=home, cwd=tmp_path, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    shown = {p["application"]: p for p in json.loads(done.stdout)["programs"]}
    # data/raw/amd/data-sp.csv: 48 cores 139.9 s and 84240 J, 37 cores 122.65 s and 70920 J
    assert shown["SP"]["energy_pct"] == pytest.approx(100 * (70920 / 84240 - 1))
    assert shown["SP"]["time_pct"] == pytest.approx(100 * (122.65 / 139.9 - 1))
    for program in shown.values():
        assert program["best_energy_pct"] <= program["energy_pct"] + 1e-9 <= 1e-6
        assert program["runs"] <= 15 and program["measured"] == 48


def test_the_readme_shows_its_picture(home: dict[str, str], tmp_path: Path) -> None:
    """``advisor demo --plot docs/pictures/demo.svg`` makes it; the words in it are the same."""
    drawn = tmp_path / "new.svg"
    subprocess.run(
        [*ADVISOR, "demo", "--json", "--plot", str(drawn)], env=home, check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    kept = ROOT / "docs" / "pictures" / "demo.svg"
    assert words(drawn) == words(kept)
    head = (ROOT / "README.md").read_text().splitlines()[:25]
    assert any("docs/pictures/demo.svg" in line for line in head)


def test_the_readme_has_its_table(home: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [*ADVISOR, "demo", "--json"], env=home, cwd=tmp_path, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    readme = (ROOT / "README.md").read_text()
    for p in json.loads(done.stdout)["programs"]:
        if p["changed"]:
            energy, time = (f"−{-p[key]:.1f} %" for key in ("energy_pct", "time_pct"))
            threads = f"{p['advised']['threads_per_node']} of 48"
            assert f"| {p['application']} | {threads} | {energy} | {time} | {p['runs']} |" in readme


def words(svg: Path) -> list[str]:
    """Return what stands in a picture."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg.read_text())
