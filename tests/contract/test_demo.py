"""`advisor demo`: measured programs, real fits, real decisions; the same everywhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from examples import demo as example

pytestmark = pytest.mark.slow
ADVISOR = [sys.executable, "-m", "advisor"]
ROOT = Path(__file__).resolve().parents[2]


def demo(home: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the demo in a user's surroundings, with settings that must not count."""
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "XDG_DATA_HOME": str(home / "data"),
        "ADVISOR_DB": str(home / "mine.db"),
        "ADVISOR": "off",
        "OMP_NUM_THREADS": "3",
    }
    return subprocess.run(
        [*ADVISOR, "demo", *options], env=env, cwd=home, capture_output=True, text=True, check=True
    )


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where its picture is."""
    return tmp_path_factory.mktemp("drawn") / "new.svg"


@pytest.fixture(scope="module")
def programs(drawn: Path) -> list[dict[str, Any]]:
    """What it says of each program, as JSON."""
    answer = json.loads(demo(drawn.parent, "--json", "--plot", str(drawn)).stdout)
    shown: list[dict[str, Any]] = answer["programs"]
    return shown


def test_it_shows_what_is_saved_and_touches_nothing(tmp_path: Path) -> None:
    done = demo(tmp_path)
    assert done.stderr == ""
    assert "D. Loghin and Y. M. Teo" in done.stdout and "CC BY 4.0" in done.stdout
    lines = done.stdout.splitlines()
    assert "takes        1 node of opteron48, 37 threads, 2.1 GHz: 2.04 min, 70.9 kJ" in lines
    assert "rewritten    OMP_NUM_THREADS=37" in lines
    table = {line.split()[0]: line for line in lines if line.endswith(" of 48")}
    assert len(table) == 7
    assert table["SP"].split()[1:] == [
        "48",
        "->",
        "37",
        "−15.8",
        "%",
        "−12.3",
        "%",
        "−15.8",
        "%",
        "15",
        "of",
        "48",
    ]
    assert "unchanged" in table["EP"]
    assert "most of all SP: 16 % less energy, 12 % faster" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    closed = ["sh", "-c", '"$@" >&-', "sh", *ADVISOR, "demo"]
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(closed, env=env, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr == "advisor: cannot write the output: Bad file descriptor\n"


def test_its_figures_are_the_measured_ones(programs: list[dict[str, Any]]) -> None:
    shown = {p["application"]: p for p in programs}
    # data/raw/amd/data-sp.csv: 48 cores 139.9 s and 84240 J, 37 cores 122.65 s and 70920 J
    assert shown["SP"]["energy_pct"] == pytest.approx(100 * (70920 / 84240 - 1))
    assert shown["SP"]["time_pct"] == pytest.approx(100 * (122.65 / 139.9 - 1))
    for program in shown.values():
        assert program["best_energy_pct"] <= program["energy_pct"] + 1e-9 <= 1e-6
        assert program["runs"] <= 15 and program["measured"] == 48


@pytest.mark.usefixtures("programs")
def test_the_readme_shows_its_picture(drawn: Path) -> None:
    """``advisor demo --plot docs/pictures/demo.svg`` makes it; the words in it are the same."""
    kept = ROOT / "docs" / "pictures" / "demo.svg"
    assert words(drawn) == words(kept)
    head = (ROOT / "README.md").read_text().splitlines()[:25]
    assert any("docs/pictures/demo.svg" in line for line in head)


def test_the_readme_has_its_table(programs: list[dict[str, Any]]) -> None:
    readme = (ROOT / "README.md").read_text()
    for p in programs:
        if p["changed"]:
            energy, time = (f"−{-p[key]:.1f} %" for key in ("energy_pct", "time_pct"))
            threads = f"{p['advised']['threads_per_node']} of 48"
            assert f"| {p['application']} | {threads} | {energy} | {time} | {p['runs']} |" in readme


def words(svg: Path) -> list[str]:
    """Return what stands in a picture."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg.read_text())


def test_a_busy_machine_is_noticed_in_place_of_a_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make demo` beside other programs ended in "worse than promised"."""
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(example, "advisor", lambda *words: asked.append(words))
    begin = example.Cores(there=100.0, busy=50.0, ours=10.0)
    monkeypatch.setattr(example.Cores, "now", lambda: example.Cores(200.0, 120.0, 46.0))
    example.judge("local-1", begin.others())
    assert "Other processes took 34 % of this machine's cores" in capsys.readouterr().out
    assert not asked
    monkeypatch.setattr(example.Cores, "now", lambda: example.Cores(200.0, 120.0, 78.0))
    example.judge("local-1", begin.others())
    assert asked == [("why", "local-1")]


def test_other_processes_are_seen_and_children_are_not() -> None:
    """Of a child that was waited for the time is ours."""
    spin = [sys.executable, "-c", "import time\nwhile time.process_time() < 1: pass"]
    begin = example.Cores.now()
    subprocess.run(spin, check=True)
    middle = example.Cores.now()
    assert middle.ours - begin.ours >= 1
    spinning = [subprocess.Popen(spin) for _ in range(2)]
    while sum(Path(f"/proc/{p.pid}/stat").read_text().split()[2] != "Z" for p in spinning):
        time.sleep(0.05)
    seconds = middle.others() * (example.Cores.now().there - middle.there)
    for process in spinning:
        process.wait()
    assert seconds > 1.5
