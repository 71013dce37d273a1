"""``advisor lab characterise``: what it stores, writes and says, and how it ends."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from advisor.instruments.characterise_runs import timing_library
from advisor.ranking.files import read_phases
from advisor.ranking.streams import Characterisation
from advisor.store.rankings import characterisations
from advisor.store.reader import Reader
from tests.contract.characterise.programs import NEEDS_CC, PLAIN, Run, characterise, source

pytestmark = [pytest.mark.slow, NEEDS_CC]


def test_the_report_is_for_people(advisor: Run, built: Path) -> None:
    words = ("--threads", 2, "--min-weight", "0.1%")
    done = advisor("characterise", *words, "--", built / "triad", 200_000, 20)
    assert done.code == 0 and done.err == ""
    assert "triad.c:" in done.out and "P private" in done.out and "remainder" in done.out
    assert "with advisor cc" in done.out


def test_what_is_found_is_stored_and_written(
    advisor: Run, built: Path, store_path: Path, tmp_path: Path
) -> None:
    file = tmp_path / "phases.yaml"
    command = ("--", built / "triad", 200_000, 20)
    words = ("--application", "tri", "--workload", "small", "--threads", 2, "--min-weight", "0.1%")
    done = advisor("characterise", *words, "--output", file, *command)
    assert done.code == 0, done.err
    assert f"stored in {store_path}" in done.out
    with Reader(store_path) as reader:
        (stored,) = characterisations(reader, "tri", "small")
        assert characterisations(reader, "tri", user="nobody") == []
        assert "local" in reader.inventory().node_types
    assert (stored.node_type, stored.scope) == ("local", "own")
    found = Characterisation.from_dict(stored.record)
    assert read_phases(file) == found
    phase = next(p for p in found.phases if p.name.startswith("triad"))
    assert sorted((s.stride_b, s.access, s.writes) for s in phase.streams) == [
        (8, "P", False),
        (8, "P", False),
        (8, "P", True),
    ]
    assert found.threads == 2 and found.method == "advisor cc"
    assert 0 < phase.time_s < found.time_s and phase.iterations == 20 * 100_000
    # a second one takes its place; a file can be stored under another name
    assert advisor("characterise", *words, *command).code == 0
    done = advisor("characterise", "--input", file, "--node-type", "hsw", "--json")
    assert done.code == 0 and done.json()["node_type"] == "hsw"
    with Reader(store_path) as reader:
        assert [c.node_type for c in characterisations(reader, "tri")] == ["hsw", "local"]


def test_what_cannot_be_stored_is_shown_and_can_be_kept(
    advisor: Run, built: Path, tmp_path: Path
) -> None:
    command = ("--workload", "w", "--db", "/proc/none/a.db", "--", built / "triad", 9000, 9)
    done = advisor("characterise", *command)
    assert done.code == 1 and "remainder" in done.out
    kept = tmp_path / "state" / "advisor" / "phases" / "triad-w.yaml"
    assert "not stored: " in done.out and f"advisor lab characterise --input {kept}" in done.out
    assert advisor("characterise", "--input", kept).code == 0
    done = advisor("characterise", "--output", tmp_path / "kept.yaml", *command)
    assert done.code == 0 and f"the phases are in {tmp_path / 'kept.yaml'}" in done.out
    assert read_phases(tmp_path / "kept.yaml").phases


def test_without_a_trace_nothing_is_stored(advisor: Run, built: Path, store_path: Path) -> None:
    done = advisor("characterise", "--trace", "none", "--json", "--", built / "triad", 9000, 9)
    assert done.code == 0 and done.json()["stored"] == "not stored: no trace (--trace none)"
    assert not store_path.exists()
    assert all(p["streams"] == [] for p in done.json()["phases"])


def test_regions_of_no_weight_leave_one_phase(advisor: Run, built: Path) -> None:
    words = ("--json", "--trace", "cc", "--min-weight", "99.9%")
    done = advisor("characterise", *words, "--", built / "triad", 900, 1)
    assert done.code == 0, done.err
    (phase,) = done.json()["phases"]
    assert phase["name"] == "whole program" and phase["weight"] == 1.0


def test_being_ended_ends_the_command_too(built: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    timing_library()  # compiled before, so that the first child is the command
    triad = str(built / "triad")
    argv = [sys.executable, "-m", "advisor", "characterise", "--", triad, "9000", "9999999"]
    with subprocess.Popen(argv, env={**os.environ, "TMPDIR": str(folder)}) as process:
        deadline = time.monotonic() + 30
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while time.monotonic() < deadline and not children.read_text().strip():
            time.sleep(0.02)
        (child,) = children.read_text().split()
        time.sleep(0.3)  # until it is the program, not the fork of ours
        process.terminate()
        assert process.wait(30) == 130
    assert not Path(f"/proc/{child}").exists()
    assert list(folder.iterdir()) == []


def test_nothing_is_left_where_the_job_runs(
    advisor: Run, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    characterise(advisor, built / "triad", 100_000, 2)
    assert list(work.iterdir()) == []


def test_the_commands_own_failure_is_passed_on(advisor: Run, tmp_path: Path) -> None:
    program = tmp_path / "plain"
    source(tmp_path, "plain.c", PLAIN)
    subprocess.run(["cc", "-o", program, tmp_path / "plain.c"], check=True)
    crashed = advisor("characterise", "--", program, "crash")
    assert (crashed.code, crashed.out) == (134, "")
    assert crashed.err == f"advisor: {program}: killed by SIGABRT; nothing is stored\n"
    failed = advisor("characterise", "--json", "--", "sh", "-c", "exit 7")
    assert failed.code == 7
    assert failed.err == "advisor: sh: exit code 7; nothing is stored\n"
    answer = failed.json()
    assert (answer["error"], answer["exit_code"]) == ("sh: exit code 7; nothing is stored", 7)


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        ([], 2, "nothing to run"),
        (["--input", "/no/such.yaml"], 1, "cannot read /no/such.yaml"),
        (["--input", "x.yaml", "--", "true"], 2, "not both"),
        (["--repeat", "0", "--", "true"], 2, "--repeat"),
        (["--", "/no/such/program"], 1, "cannot run /no/such/program"),
        (["--threads", "0", "--", "true"], 2, "--threads"),
        (["--min-weight", "lots", "--", "true"], 2, "lots"),
        (["--limit", "soon", "--", "true"], 2, "soon"),
        (["--trace", "cc", "--", "true"], 1, "no traced twin of true"),
    ],
)
def test_mistakes_are_one_line(advisor: Run, argv: list[str], code: int, message: str) -> None:
    done = advisor("characterise", *argv)
    assert done.code == code
    assert message in done.err and done.err.count("\n") == 1


def test_a_twin_older_than_its_program_is_not_believed(
    advisor: Run, built: Path, tmp_path: Path
) -> None:
    for name in ("triad", "triad.traced"):
        shutil.copy2(built / name, tmp_path / name)
    now = (tmp_path / "triad.traced").stat().st_mtime
    os.utime(tmp_path / "triad", (now + 60, now + 60))
    done = advisor("characterise", "--", tmp_path / "triad", 1000, 1)
    assert done.code == 1 and "older than its program" in done.err
