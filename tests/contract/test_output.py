"""Where a verb prints to never makes it fail badly: locales, a full disk, a closed output.

An interpreter takes its encoding and its open files when it starts. For each kind of start one
interpreter loads what the verbs need, once, and forks for every call (`forking.py`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from advisor_tui import demo

from advisor.cli import VERBS

pytestmark = pytest.mark.slow
FORKING = Path(__file__).with_name("forking.py")
ADVISOR = (sys.executable, "-m", "advisor")
SCRIPT = """#!/bin/bash
#SBATCH -N 1
#SBATCH --exclusive
# résumé − of what this does →
srun ./cg-solver n=4e6
"""
HEADER = "nodes,ranks_per_node,threads_per_node,freq_khz,time_s,energy_j\n"
CALLS = (
    ("options", "cg-solver"),
    ("options", "cg-solver", "--all", "--view", "lines"),
    ("options", "nosuch"),
    ("report",),
    ("why", "4711"),
    ("explain", "job.sh"),
    ("explain", "job.sh", "--diff"),
    ("rank", "cg-solver"),
    ("choose",),
    ("choose", "cg-solver", "--goal", "edp"),
    ("policy", "show"),
    ("site", "show"),
    ("doctor",),
    ("train", "job.sh", "--dry-run"),
    ("fit", "cg-solver", "--dry-run"),
    ("evaluate", "grid.csv", "--model", "polynomial"),
    ("pareto", "grid.csv", "--x", "time_s:min", "--y", "energy_j:min"),
    ("tui",),
)


Call = tuple[str, ...]
JSON = tuple((*call, "--json") for call in CALLS)
HELP = tuple((*verb.split(), "--help") for verb in VERBS)
PLAIN_C = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@dataclass(frozen=True)
class Done:
    """What one call returned and printed."""

    code: int
    out: bytes
    err: bytes


Made = dict[tuple[Call, str], Done]


class Starts:
    """Makes calls in forks of interpreters that were started in different ways."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.example = folder / "example.db"
        demo.build(self.example, "ann")
        self._count = 0

    def place(self) -> Path:
        """Return a new folder with a script, a grid and a store with something of everything."""
        self._count += 1
        place = self.folder / str(self._count)
        place.mkdir()
        shutil.copy(self.example, place / "advisor.db")
        (place / "job.sh").write_text(SCRIPT, encoding="utf-8")
        rows = "".join(
            f"1,1,{t},{f},{1e8 / t / f + 5:.4f},{t * 3 + f / 1e5:.3f}\n"
            for t in (1, 2, 4, 8)
            for f in (1_200_000, 1_500_000, 1_800_000, 2_100_000)
        )
        (place / "grid.csv").write_text(HEADER + rows)
        return place

    def environment(self, place: Path, **more: str) -> dict[str, str]:
        """Return the variables of a user in that folder, without a locale."""
        foreign = ("PYTHON", "LC_", "LANG", "ADVISOR", "XDG_")
        base = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        own = {"ADVISOR_DB": "advisor.db", "ADVISOR_CONFIG_DIR": "config", "ADVISOR_SOCKET": "s"}
        xdg = {f"XDG_{name}_HOME": name.lower() for name in ("STATE", "CONFIG", "CACHE")}
        return {**base, **{k: f"{place}/{v}" for k, v in {**own, **xdg}.items()}, **more}

    def make(
        self,
        calls: Sequence[tuple[Call, str]],
        variables: Mapping[str, str] | None = None,
        *,
        closed: str = "",
    ) -> Made:
        """Make calls one after another, each in a place of its own.

        A call's output goes to a file, a device that is named, or "gone": a pipe nobody reads.
        ``closed``: what a shell closes before the interpreter starts.
        """
        more = dict(variables or {})
        places = [self.place() for _ in calls]
        jobs = [
            {
                "argv": call,
                "to": to,
                "place": str(place),
                "variables": self.environment(place, **more),
            }
            for (call, to), place in zip(calls, places, strict=True)
        ]
        plan = self.folder / f"{self._count}.json"
        plan.write_text(json.dumps({"jobs": jobs, "closed": closed}))
        subprocess.run(
            ["sh", "-c", f'"$@" {closed}', "sh", sys.executable, FORKING, plan],
            env=self.environment(self.folder, **more),
            check=True,
            timeout=300,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
        codes = json.loads(plan.read_text())
        return {
            call: Done(code, read(place / "out"), read(place / "err"))
            for call, place, code in zip(calls, places, codes, strict=True)
        }


def read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def each(to: str, *calls: Sequence[Call]) -> list[tuple[Call, str]]:
    return [(call, to) for some in calls for call in some]


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> Starts:
    return Starts(tmp_path_factory.mktemp("starts"))


@pytest.fixture(scope="module")
def usual(starts: Starts) -> Made:
    """What is made where nothing is said of a locale."""
    full = each("/dev/full", CALLS, JSON, HELP)
    return starts.make([*each("", CALLS), *full, *each("gone", CALLS)])


UNBUFFERED: list[Call] = [("--help",), ("options", "--help"), ("--version",)]
"""What argparse prints itself; it would hide that it cannot."""


@pytest.fixture(scope="module")
def unbuffered(starts: Starts) -> Made:
    return starts.make(each("/dev/full", CALLS, UNBUFFERED), {"PYTHONUNBUFFERED": "1"})


@pytest.fixture(scope="module")
def closed(starts: Starts) -> list[Made]:
    return [starts.make(each("", CALLS), closed=what) for what in (">&-", "<&- >&- 2>&-")]


@pytest.fixture(scope="module")
def utf8(starts: Starts) -> Made:
    return starts.make(each("", CALLS), {"LC_ALL": "C.UTF-8"})


@pytest.fixture(scope="module")
def latin1(starts: Starts, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """What is made in a Latin-1 locale, compiled for this where the system has none."""
    folder = tmp_path_factory.mktemp("locale")
    name = "en_US.ISO-8859-1"
    maker = shutil.which("localedef")
    if maker is None:
        pytest.skip("no localedef")
    made = subprocess.run(
        [maker, "-i", "en_US", "-f", "ISO-8859-1", str(folder / name)], capture_output=True
    )
    if made.returncode > 1:
        pytest.skip("localedef lacks its sources")
    variables = {"LOCPATH": str(folder), "LC_ALL": name}
    return starts.make(each("", CALLS, JSON, HELP), variables)


@pytest.fixture(scope="module")
def plain(starts: Starts) -> Made:
    """What is made in the locale C, ASCII and nothing else."""
    return starts.make(each("", CALLS, JSON), PLAIN_C)


def assert_plain(done: Done, what: object) -> None:
    assert b"Traceback" not in done.err and b"Exception ignored" not in done.err, (what, done)
    assert done.err.count(b"\n") <= 3, (what, done.err)
    assert done.code in (0, 1, 2, 3), (what, done)


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_any_locale(call: Call, utf8: Made, latin1: Made, plain: Made) -> None:
    there = utf8[call, ""]
    assert_plain(there, call)
    for made in (latin1, plain):
        done = made[call, ""]
        assert_plain(done, call)
        assert done.code == there.code, done.err
        done = made[(*call, "--json"), ""]
        assert_plain(done, call)
        if done.out and call[0] != "tui":
            assert json.loads(done.out.decode("ascii")), call


def test_minus_signs_and_columns_survive(starts: Starts, utf8: Made) -> None:
    """What the locale lacks is printed as what looks most like it, one character each."""
    wide = utf8[CALLS[0], ""].out.decode()
    ascii_ = starts.make([(CALLS[0], "")], {"PYTHONIOENCODING": "ascii"})
    plain = ascii_[CALLS[0], ""].out.decode("ascii")
    assert "−" in wide and "−" not in plain and "-" in plain
    for there, here in zip(wide.splitlines(), plain.splitlines(), strict=True):
        if unicodedata.normalize("NFKD", there).isascii() or "−" in there:
            assert len(there) == len(here)


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_a_full_disk_is_one_line(call: Call, usual: Made, unbuffered: Made) -> None:
    there = usual[call, ""]
    as_json = (*call, "--json")
    for made, one in ((usual, call), (usual, as_json), (unbuffered, call)):
        done = made[one, "/dev/full"]
        assert_plain(done, one)
        assert b"No space left" in done.err or not there.out, (one, done.err)
        assert done.code in (1, 2, 3), one


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_a_closed_output_and_a_gone_reader(call: Call, usual: Made, closed: list[Made]) -> None:
    there = usual[call, ""]
    for made, heard in zip(closed, (True, False), strict=True):
        done = made[call, ""]
        assert_plain(done, call)
        lost = there.code == 0 and there.out
        assert done.code == (1 if lost else there.code), done
        assert (b"Bad file descriptor" in done.err) == (heard and bool(lost)), done
    done = usual[call, "gone"]
    assert_plain(done, call)
    if there.code == 0:
        assert (done.code, done.err) == (0, b"")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verbs_help(verb: str, usual: Made, latin1: Made) -> None:
    assert latin1[(*verb.split(), "--help"), ""].code == 0
    full = usual[(*verb.split(), "--help"), "/dev/full"]
    assert_plain(full, verb)
    assert full.code == 1 and b"No space left" in full.err


@pytest.mark.parametrize("call", UNBUFFERED, ids=" ".join)
def test_help_on_a_full_disk_is_no_success(call: Call, unbuffered: Made) -> None:
    done = unbuffered[call, "/dev/full"]
    assert done.code == 1 and b"No space left" in done.err


@pytest.mark.parametrize("to", ["", "/dev/full"])
def test_a_process_of_its_own_prints_the_same(starts: Starts, usual: Made, to: str) -> None:
    """What is forked here is what a user starts."""
    place = starts.place()
    with Path(to or place / "out").open("wb") as output:
        done = subprocess.run(
            [*ADVISOR, *CALLS[0]],
            cwd=place,
            env=starts.environment(place),
            stdout=output,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            timeout=120,
        )
    assert Done(done.returncode, read(place / "out"), done.stderr) == usual[CALLS[0], to]


def test_the_store_never_becomes_standard_output(starts: Starts) -> None:
    """With 0, 1 and 2 closed, what is opened next must not take their numbers."""
    place = starts.place()
    before = (place / "advisor.db").read_bytes()
    code = "import sys\nfrom advisor.cli import main\nsys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        ["sh", "-c", '"$@" <&- >&- 2>&-', "sh", sys.executable, "-c", code, "options", "cg-solver"],
        cwd=place,
        env=starts.environment(place),
        timeout=120,
    )
    assert done.returncode == 1
    assert (place / "advisor.db").read_bytes() == before
