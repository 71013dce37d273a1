"""``advisor lab bench``: real microbenchmarks on this machine, profiles in a real store."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.cli.bench import rate
from advisor.errors import AdvisorError
from advisor.instruments.bench import Repetitions, due, measure, session
from advisor.instruments.characterise_io import mount_point
from advisor.instruments.native import SOURCES
from advisor.ranking.streams import Stream
from advisor.ranking.suite import Microbenchmark, member, plan
from advisor.store.file_systems import io_profiles
from advisor.store.profiles import (
    Bench,
    StoredProfile,
    Wanted,
    profiles,
    save_profiles,
    want,
    wanted,
)
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from tests.pictures import kept

Advisor = Callable[..., Any]
MOST_PER_SECOND = 5e11
"""No core makes so many iterations a second: work that was left out would look like this."""


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tested is what is measured and kept, not how sure it is."""
    monkeypatch.setattr("advisor.instruments.bench.RUN_S", 0.005)


def test_every_family_runs_and_does_its_work() -> None:
    some: dict[str, Microbenchmark] = {}
    for one in plan("full", 2, 2**30):
        some.setdefault(one.name, one)
    found = measure(list(some.values()), budget_s=0.0)
    assert len(found) == 1  # what there is no time for is not measured
    for one in some.values():
        (alone,) = measure([one], budget_s=0.0)
        assert len(alone.seconds) >= 2 and min(alone.iterations) > 0
        each = [s / i for s, i in zip(alone.seconds, alone.iterations, strict=True)]
        assert 1 / MOST_PER_SECOND < min(each) <= alone.time_per_iter_us / 1e6 <= max(each), one


@pytest.mark.parametrize("operation", ["load", "muladd", "record", "random", "write", "copy2"])
def test_integers_of_every_size_are_added_up_without_a_loss(operation: str) -> None:
    """A sum in the element's own type would be wrong after 127 of a byte."""
    with session() as asked:
        for size_b in (4, 2, 1):
            stride = 0 if operation == "random" else size_b
            zones = [f"p:65536:{stride}"] * (2 if operation == "copy2" else 1)
            assert asked.ask(f"run {operation} i{size_b} 2 0.001 {' '.join(zones)}")[1] > 0


def test_what_is_not_sure_is_repeated_and_all_as_often_as_asked_for() -> None:
    one = plan("quick", 1, 2**28)[0]
    sure = Repetitions(one, [1.0, 1.001, 1.0, 1.001], [1] * 4)  # t(0.975, 3) = 3.18: 0.09 %
    loose = Repetitions(one, [1.0, 1.5, 1.0, 1.5], [1] * 4)
    assert due([sure, loose]) == [loose]
    assert due([sure, loose], 30) == [loose, sure]


@pytest.mark.parametrize("line", ["sum += run(w, m);", "sum += run(w, m); n = 0;"])
def test_work_that_is_left_out_is_noticed(tmp_path: Path, line: str) -> None:
    """The checked sum is no ornament: a loop that stops early is an error."""
    folder = tmp_path / "microbench"
    shutil.copytree(SOURCES / "microbench", folder)
    source = (folder / "mbw.c").read_text()
    assert source.count("sum += run(w, m);") == 1
    (folder / "mbw.c").write_text(source.replace("sum += run(w, m);", line))
    request = "run add 8 2 0.01 p:1048576:8"
    with session(folder) as asked:
        if line.endswith("n = 0;"):
            with pytest.raises(AdvisorError, match="the work was not done"):
                asked.ask(request)
        else:
            assert asked.ask(request)[1] > 0


def test_threads_have_a_core_each_whatever_a_site_tells_openmp(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_PROC_BIND", "true")
    monkeypatch.setenv("OMP_THREAD_LIMIT", "1")
    cpus = os.sched_getaffinity(0)
    with session() as asked:
        asked.ask(f"run chain 8 {len(cpus)} 0.001")
        threads = [int(t.name) for t in Path(f"/proc/{asked.pid}/task").iterdir()]
        assert sorted(next(iter(os.sched_getaffinity(t))) for t in threads) == sorted(cpus)
        assert all(len(os.sched_getaffinity(t)) == 1 for t in threads)


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ("run nothing 8 1 0.1", "there is no such microbenchmark"),
        ("run add 3 1 0.1 c:1024:8", "8 or 4 bytes"),
        ("run add i8 1 0.1 c:1024:8", "an integer i4, i2 or i1"),
        ("run add 8 0 0.1 c:1024:8", "threads: 1 to 1024"),
        ("run add 8 1 no c:1024:8", "seconds: above 0"),
        ("run add 8 1 0.1 x:1024:8", "a zone is"),
        ("run add 8 1 0.1 c:1024:12", "whole elements"),
        ("run add 8 1 0.1 c:1024:2048", "not more than its zone"),
        ("run add 8 1 0.1", "not its number of zones"),
        ("run add 8 1 0.1 c:1024:0", "only random ones"),
        ("run random 8 1 0.1 c:1024:8", "used at random"),
        ("run add 8 2 0.1 p:9000000000000000:8", "no memory"),
        ("again", "again after one"),
        ("", "again after one"),
    ],
)
def test_requests_that_cannot_be(request_: str, why: str) -> None:
    with session() as asked:
        with pytest.raises(AdvisorError, match=why):
            asked.ask(request_)
        assert asked.ask("run chain 8 1 0.001")[0] > 0


def test_measured_and_measured_again(advisor: Advisor, store_path: Path) -> None:
    argv = ("bench", "--here", "--node-type", "mine", "--budget", "0.5s")
    data = advisor(*argv, "--json").json()
    (one,) = data["node_types"]
    assert data["schema"] == "advisor/bench/1"
    assert one["node_type"] == "mine" and one["profiles"] >= 1 and one["gflop_s"] > 0
    assert one["machine"]["cores"] >= 1 and one["kernel"] and one["compiler"]
    shown = advisor("bench", "show", "--json").json()["node_types"][0]
    assert len(shown["profiles"]) == one["profiles"] and shown["measured_at"]
    first = shown["profiles"][0]
    assert first["microbenchmark"] == "fma" and first["time_per_iter_us"] > 0
    told = advisor(*argv)
    assert told.code == 0 and "no time for" in told.out
    again = advisor("bench", "show", "--json").json()["node_types"][0]["profiles"]
    keys = {(p["microbenchmark"], str(p["streams"]), p["threads"]) for p in again}
    assert len(keys) == len(again)
    with sqlite3.connect(store_path) as db:
        assert db.execute("SELECT count(*) FROM benches").fetchone() == (2,)


def test_profiles_are_shown(advisor: Advisor, store_path: Path, tmp_path: Path) -> None:
    def profile(name: str, us: float, *zones: tuple[float, int]) -> StoredProfile:
        streams = tuple(s.to_dict() for s in member(name, 4, *zones).streams)
        return StoredProfile("mine", name, streams, 4, us, 0.01, 9, 12.5, "rapl")

    bench = Bench("mine", {"cores": 4}, "n1", "6.1", "cc 12", "ann")
    several = [profile("mbw1c", 0.001 * s / 64, (kb, s)) for kb in (16, 64) for s in (64, 192)]
    peaks = [profile("fma", 0.0001), profile("triad", 0.002, (64, 8), (64, 8), (64, 8))]
    with Writer(store_path) as store:
        save_profiles(store, bench, [*several, *peaks])
    told = advisor("bench", "show").out
    # 1 to 3 ns over 16 to 64 KB, on logarithmic axes
    shown = (
        "mine",
        "48.0",
        "80.0",
        "n1",
        "stride 192 B",
        "size (KB), mine",
        "\n3 ┤",
        "\n1 ┤",
        " 64\n",
    )
    for text in shown:
        assert text in told
    assert "0.1" in advisor("bench", "show", "--microbenchmark", "fma").out
    assert advisor("bench", "show", "--plot", tmp_path / "p.svg").code == 0
    assert "stride 64 B" in (tmp_path / "p.svg").read_text()
    kept(tmp_path / "p.svg", "bench")
    across = advisor("bench", "show", "--across").out
    assert "size (KB), stride 64 B" in across and "a mine" in across
    both = advisor("bench", "show", "--microbenchmark", "mbw1c", "--microbenchmark", "fma").out
    assert "mbw1c, fma: time per iteration" in both and "mbw1c, stride 64 B" in both
    forgotten = advisor("bench", "forget", "--microbenchmark", "a", "--microbenchmark", "b")
    assert forgotten.code == 2 and "which kernel" in forgotten.err
    bad = advisor("bench", "show", "--microbenchmark", "none")
    assert bad.code == 2 and "there are: fma, mbw1c, triad" in bad.err


def test_profiles_of_another_machine_are_not_mixed(advisor: Advisor, store_path: Path) -> None:
    argv = ("bench", "--here", "--node-type", "mine", "--budget", "0.1s")
    assert advisor(*argv).code == 0
    with sqlite3.connect(store_path) as db:
        (machine,) = db.execute("SELECT machine FROM benches").fetchone()
        other = json.loads(machine) | {"processor": "Else 9000"}
        db.execute("UPDATE benches SET machine = ?", (json.dumps(other),))
    db.close()
    refused = advisor(*argv)
    assert refused.code == 3 and "Else 9000" in refused.err and "--replace" in refused.err
    assert advisor(*argv, "--replace").code == 0
    assert advisor(*argv).code == 0


def test_what_is_wanted_is_measured_first_and_waits_no_longer(
    advisor: Advisor, store_path: Path
) -> None:
    argv = ("bench", "--here", "--node-type", "mine", "--budget", "0.05s")
    nothing = advisor(*argv, "--wanted")
    assert nothing.code == 3 and "no ranking lacks a microbenchmark" in nothing.err
    one = member("mbw1p", 1, (777, 24))
    with Writer(store_path) as store:
        streams = tuple(s.to_dict() for s in one.streams)
        assert want(store, [Wanted(one.name, streams, "app: solve")] * 2) == 1
    assert advisor(*argv).code == 0
    with Reader(store_path) as store:
        assert wanted(store) == []
        found = profiles(store, "mine")[0]
    assert found.microbenchmark == "mbw1p"
    assert Stream.from_dict(found.streams[0]).size_kb == 777


def test_an_interrupt_keeps_what_was_measured(store_path: Path) -> None:
    argv = ["bench", "--here", "--node-type", "mine", "--budget", "60s", "--db", str(store_path)]
    with subprocess.Popen(
        [sys.executable, "-m", "advisor", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None and process.stdout is not None
        assert "within 2 %" in process.stderr.readline()  # the first is measured
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert "no time for" in process.stdout.read()
    with Reader(store_path) as store:
        assert profiles(store, "mine")


@pytest.mark.parametrize(
    ("argv", "code", "why"),
    [
        (("bench", "--budget", "soon"), 2, "soon"),
        (("bench", "--node-type", "none"), 1, "no node type none"),
        (("bench", "--here", "--node-type", "a", "--node-type", "b"), 2, "one node type"),
        (("bench", "--here", "--quick", "--meter", "none-such"), 2, "no meter is called"),
    ],
)
def test_mistakes(advisor: Advisor, argv: tuple[str, ...], code: int, why: str) -> None:
    done = advisor(*argv)
    assert done.code == code and why in done.err and "Traceback" not in done.err


def test_a_store_without_profiles_has_nothing_to_show(advisor: Advisor, store_path: Path) -> None:
    Writer(store_path).close()
    done = advisor("bench", "show")
    assert done.code == 3 and "no node type has profiles" in done.err


def test_a_file_system_is_measured_and_shown(
    advisor: Advisor, store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("advisor.instruments.file_system.RUN_S", 0.005)
    monkeypatch.setattr("advisor.instruments.file_system.FILE_B", 32 << 20)
    argv = ("bench", "--here", "--node-type", "mine", "--io", tmp_path, "--budget", "0.1s")
    done = advisor(*argv)
    assert done.code == 0 and "reads at random" in done.out and "stored in" in done.out
    assert list(tmp_path.glob(".advisor-io*")) == []  # nothing is left behind
    with Reader(store_path) as store:
        stored = io_profiles(store, "mine")
    assert len({(p.operation, p.random, p.block_b) for p in stored}) == len(stored) == 12
    assert all(p.time_per_op_us > 0 and p.repeats >= 2 for p in stored)
    assert all(p.cached_us is not None and p.cached_us > 0 for p in stored)
    assert {p.file_system for p in stored} == {mount_point(tmp_path)}
    assert "writes at random" in advisor("bench", "show").out
    for wrong, why in (("/proc", "too little free space"), (tmp_path / "none", "No such file")):
        bad = advisor("bench", "--here", "--io", wrong)
        assert bad.code == 1 and why in bad.err and bad.err.count("\n") == 1
    both = advisor(*argv, "--wanted")
    assert both.code == 2 and "leave out --wanted" in both.err


def test_a_peak_that_the_time_did_not_allow_is_not_zero() -> None:
    assert (rate(12.34, "GB/s"), rate(0.0, "GB/s")) == ("12.3 GB/s", "GB/s not measured")
