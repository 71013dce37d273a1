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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from advisor_tui import demo

from advisor.cli import VERBS

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
    ("evaluate", "grid.csv"),
    ("pareto", "grid.csv", "--x", "time_s:min", "--y", "energy_j:min"),
    ("tui",),
)


Call = tuple[str, ...]
HELP = tuple((verb, "--help") for verb in VERBS)
PLAIN_C = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@dataclass(frozen=True)
class Done:
    """What one call returned and printed."""

    code: int
    out: bytes
    err: bytes


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
        calls: Sequence[Call],
        variables: Mapping[str, str] | None = None,
        *,
        to: str = "",
        closed: str = "",
    ) -> dict[Call, Done]:
        """Make calls one after another, each in a place of its own.

        ``to``: a file for the output, or "gone": a pipe nobody reads; ``closed``: what a shell
        closes before the interpreter starts.
        """
        jobs = [
            {"argv": call, "place": str(place), "to": to, "variables": self.environment(place)}
            for call in calls
            for place in [self.place()]
        ]
        for job in jobs:
            job["variables"].update(variables or {})  # type: ignore[attr-defined]
        plan = self.folder / f"{self._count}.json"
        plan.write_text(json.dumps({"jobs": jobs, "closed": closed}))
        subprocess.run(
            ["sh", "-c", f'"$@" {closed}', "sh", sys.executable, FORKING, plan],
            env=self.environment(self.folder, **(variables or {})), check=True, timeout=300,
            stdin=subprocess.DEVNULL, capture_output=True,
        )  # fmt: skip
        codes = json.loads(plan.read_text())
        return {
            call: Done(
                code,
                *(
                    path.read_bytes() if path.exists() else b""
                    for path in (Path(str(job["place"]), name) for name in ("out", "err"))
                ),
            )
            for call, job, code in zip(calls, jobs, codes, strict=True)
        }


Made = Callable[..., dict[Call, Done]]


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> Starts:
    return Starts(tmp_path_factory.mktemp("starts"))


@pytest.fixture(scope="module")
def made(starts: Starts) -> Made:
    """`Starts.make`, which makes the same calls once only."""

    @cache
    def kept(
        calls: Sequence[Call], variables: tuple[tuple[str, str], ...], to: str, closed: str
    ) -> dict[Call, Done]:
        return starts.make(calls, dict(variables), to=to, closed=closed)

    def make(
        calls: Sequence[Call] = CALLS, *, to: str = "", closed: str = "", **variables: str
    ) -> dict[Call, Done]:
        return kept(tuple(calls), tuple(sorted(variables.items())), to, closed)

    return make


@pytest.fixture(scope="module")
def latin1(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a Latin-1 locale, compiled for this where the system has none."""
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
    return {"LOCPATH": str(folder), "LC_ALL": name}


def with_json(calls: Sequence[Call]) -> tuple[Call, ...]:
    return tuple((*call, "--json") for call in calls)


def assert_plain(done: Done, what: object) -> None:
    assert b"Traceback" not in done.err and b"Exception ignored" not in done.err, (what, done)
    assert done.err.count(b"\n") <= 3, (what, done.err)
    assert done.code in (0, 1, 2, 3), (what, done)


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_any_locale(made: Made, call: Call, latin1: dict[str, str]) -> None:
    utf8 = made(LC_ALL="C.UTF-8")[call]
    assert_plain(utf8, call)
    for variables in (latin1, PLAIN_C):
        done = made(**variables)[call]
        assert_plain(done, (call, variables))
        assert done.code == utf8.code, (variables, done.err)
        done = made(with_json(CALLS), **variables)[(*call, "--json")]
        assert_plain(done, (call, variables))
        if done.out and call[0] != "tui":
            assert json.loads(done.out.decode("ascii")), call


def test_minus_signs_and_columns_survive(made: Made) -> None:
    """What the locale lacks is printed as what looks most like it, one character each."""
    wide = made(LC_ALL="C.UTF-8")[CALLS[0]].out.decode()
    plain = made(CALLS[:1], PYTHONIOENCODING="ascii")[CALLS[0]].out.decode("ascii")
    assert "−" in wide and "−" not in plain and "-" in plain
    for there, here in zip(wide.splitlines(), plain.splitlines(), strict=True):
        if unicodedata.normalize("NFKD", there).isascii() or "−" in there:
            assert len(there) == len(here)


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_a_full_disk_is_one_line(made: Made, call: Call) -> None:
    there = made()[call]
    for done in (
        made(to="/dev/full")[call],
        made(with_json(CALLS), to="/dev/full")[(*call, "--json")],
        made(to="/dev/full", PYTHONUNBUFFERED="1")[call],
    ):
        assert_plain(done, call)
        assert b"No space left" in done.err or not there.out, (call, done.err)
        assert done.code in (1, 2, 3), call


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_a_closed_output_and_a_gone_reader(made: Made, call: Call) -> None:
    there = made()[call]
    for closed in (">&-", "<&- >&- 2>&-"):
        done = made(closed=closed)[call]
        assert_plain(done, (call, closed))
        assert done.code == there.code, (closed, done)
    done = made(to="gone")[call]
    assert_plain(done, call)
    if there.code == 0:
        assert (done.code, done.err) == (0, b"")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verbs_help(made: Made, verb: str, latin1: dict[str, str]) -> None:
    assert made(HELP, **latin1)[(verb, "--help")].code == 0
    full = made(HELP, to="/dev/full")[(verb, "--help")]
    assert_plain(full, verb)
    assert full.code == 1 and b"No space left" in full.err


def test_a_process_of_its_own_prints_the_same(starts: Starts, made: Made) -> None:
    """What is forked here is what a user starts."""
    for to, known in (("", made()), ("/dev/full", made(to="/dev/full"))):
        for call in (CALLS[0], ("nosuch",)):
            place = starts.place()
            with Path(to or place / "out").open("wb") as output:
                done = subprocess.run(
                    [*ADVISOR, *call], cwd=place, env=starts.environment(place), stdout=output,
                    stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=120,
                )  # fmt: skip
            printed = b"" if to else (place / "out").read_bytes()
            if call in known:
                assert Done(done.returncode, printed, done.stderr) == known[call]
            else:
                assert done.returncode == 2 and not printed


def test_the_store_never_becomes_standard_output(starts: Starts) -> None:
    """With 0, 1 and 2 closed, what is opened next must not take their numbers."""
    place = starts.place()
    before = (place / "advisor.db").read_bytes()
    code = "import sys\nfrom advisor.cli import main\nsys.exit(main(sys.argv[1:]))"
    subprocess.run(
        ["sh", "-c", '"$@" <&- >&- 2>&-', "sh", sys.executable, "-c", code, "options", "cg-solver"],
        cwd=place, env=starts.environment(place), check=True, timeout=120,
    )  # fmt: skip
    assert (place / "advisor.db").read_bytes() == before
