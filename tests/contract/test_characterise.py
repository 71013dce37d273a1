"""``advisor characterise`` and ``advisor cc`` on real programs, compiled and run here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor import paths
from advisor.lab import valgrind
from advisor.lab.characterise_files import read_sites
from advisor.lab.characterise_io import io_streams, mount_point
from advisor.lab.characterise_runs import TracedCommand, timed_run, timing_library
from advisor.lab.twin import compile_twice
from advisor.ranking.files import read_phases
from advisor.ranking.streams import Characterisation
from advisor.store.rankings import characterisations
from advisor.store.reader import Reader

Run = Callable[..., Any]
KERNELS = paths.share("examples/kernels")

pytestmark = pytest.mark.skipif(
    not (shutil.which("cc") and shutil.which("objcopy")), reason="needs a C compiler and binutils"
)
with_valgrind = pytest.param(
    "valgrind",
    marks=pytest.mark.skipif(not valgrind.installed(), reason="needs valgrind"),
)
WAYS = ["cc", with_valgrind]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, _cache: Path) -> Iterator[Path]:
    """All kernels with their twins."""
    folder = tmp_path_factory.mktemp("kernels")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(_cache))
        for source in sorted(KERNELS.glob("*.c")):
            target = folder / source.stem
            words = ["-O2", "-fopenmp", str(source), "-o", str(target), "-lm"]
            assert compile_twice(words) == (0, "")
        yield folder


def characterise(advisor: Run, *command: object, way: str = "cc", threads: int = 2) -> Any:
    """Every region is a phase, however little of the time it took on a busy machine."""
    words = ("--json", "--threads", threads, "--trace", way, "--min-weight", "0.001%")
    done = advisor("characterise", *words, "--", *command)
    assert done.code == 0, done.err
    assert done.err == ""
    return done.json()


def phase_of(result: Any, function: str) -> Any:
    (found,) = [p for p in result["phases"] if p["name"].split(" ")[0] == function]
    return found


def streams_of(phase: Any) -> list[tuple[float, int, int, str]]:
    shown = ("size_kb", "stride_b", "dtype_b", "access")
    return sorted((tuple(s[k] for k in shown) for s in phase["streams"]), key=str)


def same(
    found: list[tuple[float, int, int, str]], truth: list[tuple[float, int, int, str]]
) -> None:
    """Strides, elements and sharing are exact, sizes are within 5 %."""
    assert sorted(f[1:] for f in found) == sorted(t[1:] for t in truth)
    for at, size in enumerate(sorted(f[0] for f in found)):
        assert size == pytest.approx(sorted(t[0] for t in truth)[at], rel=0.05)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("storage", "stride"), [("row", 208 * 8), ("column", 8)])
def test_matrix_product(advisor: Run, built: Path, way: str, storage: str, stride: int) -> None:
    n = 208
    result = characterise(advisor, built / "matmul", n, storage, way=way)
    phase = phase_of(result, "by_rows" if storage == "row" else "by_columns")
    kb = n * n * 8 / 1024
    same(streams_of(phase), [(kb, stride, 8, "C"), (kb / 2, 8, 8, "P")])
    assert phase["iterations"] == n**3 / 2
    assert phase["calls"] == 1
    assert phase["threads"] == 2
    assert phase["time_per_iter_us"] == pytest.approx(phase["time_s"] * 1e6 / (n**3 / 2), rel=1e-3)
    assert all(s["dominance"] > 0.99 for s in phase["streams"])


def test_bound_threads_do_not_leave_the_twin_one_core(
    advisor: Run, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OMP_PROC_BIND binds a program's first thread before its twin is executed in its place."""
    monkeypatch.setenv("OMP_PROC_BIND", "true")
    words = ("--json", "--trace", "cc", "--min-weight", "0.001%")
    done = advisor("characterise", *words, "--", built / "matmul", 208, "row")
    assert done.code == 0, done.err
    cpus = len(os.sched_getaffinity(0))
    phase = phase_of(done.json(), "by_rows")
    assert phase["threads"] == cpus
    assert phase["iterations"] == pytest.approx(208**3 / cpus, rel=0.1)


@pytest.mark.parametrize("way", WAYS)
def test_nbody(advisor: Run, built: Path, way: str) -> None:
    phase = phase_of(characterise(advisor, built / "nbody", 2400, 1, way=way), "forces")
    same(streams_of(phase), [(2400 * 32 / 1024, 32, 8, "C")])
    if way == "cc":
        assert phase["iterations"] == 2400**2 / 2


@pytest.mark.parametrize("way", WAYS)
def test_stencil_does_not_take_two_arrays_for_one(advisor: Run, built: Path, way: str) -> None:
    phase = phase_of(characterise(advisor, built / "stencil", 802, 6, way=way), "step")
    part = 400 * 802 * 8 / 1024
    same(streams_of(phase), [(part, 8, 8, "P"), (part, 8, 8, "P")])
    assert {s["writes"] for s in phase["streams"]} == {True, False}
    assert phase["iterations"] == 6 * 800 * 800 / 2
    assert phase["calls"] == 6


@pytest.mark.parametrize("way", WAYS)
def test_random_access_is_told_apart(advisor: Run, built: Path, way: str) -> None:
    table = phase_of(characterise(advisor, built / "table", 500_000, 400_000, way=way), "look_up")
    same(streams_of(table), [(500_000 * 8 / 1024, 0, 8, "C")])
    (stream,) = table["streams"]
    assert stream["random"] and stream["dominance"] < 0.01
    spmv = phase_of(characterise(advisor, built / "spmv", 40_000, 16, 3, way=way), "multiply")
    entries = 40_000 * 16 / 1024
    same(
        streams_of(spmv),
        [
            (40_000 * 8 / 1024, 0, 8, "C"),
            (entries / 2 * 8, 8, 8, "P"),
            (entries / 2 * 4, 4, 4, "P"),
        ],
    )
    assert spmv["iterations"] == 3 * 40_000 * 16 / 2


def test_one_thread_has_it_all_for_itself(advisor: Run, built: Path) -> None:
    phase = phase_of(characterise(advisor, built / "matmul", 200, threads=1), "by_rows")
    kb = 200 * 200 * 8 / 1024
    same(streams_of(phase), [(kb, 1600, 8, "P"), (kb, 8, 8, "P")])
    assert phase["iterations"] == 200**3
    assert phase["threads"] == 1


def test_the_report_is_for_people(advisor: Run, built: Path) -> None:
    words = ("--threads", 2, "--min-weight", "0.1%")
    done = advisor("characterise", *words, "--", built / "triad", 200_000, 20)
    assert done.code == 0 and done.err == ""
    assert "triad.c:" in done.out and "P private" in done.out and "remainder" in done.out
    assert "with advisor cc" in done.out


def source(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


PLAIN = """
#include <stdlib.h>
int main(int argc, char **argv) {
    const long n = 100000;
    volatile double sum = 0;
    float *a = malloc(n * sizeof *a);
    for (long i = 0; i < n; i++) a[i] = i;
    for (int r = 0; r < 9; r++)
        for (long i = 0; i < n; i += 8) sum += a[i];
    if (argc > 1) abort();
    return 0;
}
"""


def test_without_openmp_the_program_is_one_phase(advisor: Run, tmp_path: Path) -> None:
    program = tmp_path / "plain"
    words = ["-O1", str(source(tmp_path, "plain.c", PLAIN)), "-o", str(program)]
    assert compile_twice(words) == (0, "")
    result = characterise(advisor, program)
    (phase,) = result["phases"]
    assert (phase["name"], phase["weight"], phase["threads"]) == ("whole program", 1.0, 1)
    strided = [s for s in phase["streams"] if s["stride_b"] == 32]
    assert [(s["dtype_b"], s["access"]) for s in strided] == [(4, "P")]
    assert strided[0]["size_kb"] == pytest.approx(400_000 / 1024, rel=0.01)


DYNAMIC = """
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    const long n = 1200;
    double *a = malloc(n * n * sizeof *a), sum = 0;
    for (long i = 0; i < n * n; i++) a[i] = i % 7;
#pragma omp parallel for schedule(dynamic, 1) reduction(+ : sum)
    for (long i = 0; i < n; i++)
        for (int again = 0; again < 3; again++)
            for (long j = 0; j < n; j++) sum += a[i * n + j];
    printf("%g\\n", sum);
    return 0;
}
"""


def test_rows_handed_out_one_by_one_are_private_parts(advisor: Run, tmp_path: Path) -> None:
    program = tmp_path / "dynamic"
    words = ["-O2", "-fopenmp", str(source(tmp_path, "d.c", DYNAMIC)), "-o", str(program)]
    assert compile_twice(words) == (0, "")
    (phase,) = characterise(advisor, program)["phases"]
    (stream,) = phase["streams"]
    assert (stream["stride_b"], stream["access"]) == (8, "P")
    assert stream["size_kb"] == pytest.approx(1200 * 1200 * 8 / 1024 / 2, rel=0.15)
    assert phase["iterations"] == 3 * 1200 * 1200 / 2


LOOPS = """
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    const long n = 60000;
    double *a = malloc(n * sizeof *a), *b = malloc(n * sizeof *b), *c = malloc(n * sizeof *c);
    for (long i = 0; i < n; i++) a[i] = b[i] = c[i] = 1;
#pragma omp parallel
    for (int step = 0; step < 11; step++) {
#pragma omp for
        for (long i = 0; i < n; i++) b[i] += a[n - 1 - i];
#pragma omp for
        for (long i = 0; i < n; i++)
            for (int k = 0; k < argc + 1; k++) ((volatile double *)c)[i] += 1;
#pragma omp for
        for (long i = 0; i < n; i++) ((float *)a)[2 * i] = b[i] + c[i];
    }
    printf("%g %g %g\\n", a[9], b[9], c[9]);
    return 0;
}
"""


def test_loops_behind_barriers_of_one_region(advisor: Run, tmp_path: Path) -> None:
    """Backwards, the same element again, and fields of an element: strides stay what they are."""
    program = tmp_path / "loops"
    words = ["-O1", "-fopenmp", str(source(tmp_path, "l.c", LOOPS)), "-o", str(program)]
    assert compile_twice(words) == (0, "")
    (phase,) = characterise(advisor, program)["phases"]
    half = 60_000 * 8 / 1024 / 2
    assert phase["streams"] and {s["access"] for s in phase["streams"]} == {"P"}
    assert all(s["size_kb"] == pytest.approx(half, rel=0.01) for s in phase["streams"])
    assert {(s["stride_b"], s["dtype_b"]) for s in phase["streams"]} == {(8, 8), (8, 4)}
    assert phase["iterations"] == 11 * 30_000 * 2


THREADS = """
#include <atomic>
#include <thread>
#include <vector>
int main() {
    const long n = 200000;
    std::vector<double> data(n, 1.0);
    std::atomic<long> total{0};
    std::vector<std::thread> threads;
    for (int k = 0; k < 2; k++)
        threads.emplace_back([&] {
            double sum = 0;
            for (int again = 0; again < 5; again++)
                for (long i = 0; i < n; i++) sum += data[i];
            total += (long)sum;
        });
    for (auto &thread : threads) thread.join();
    return total == 2 * 5 * n ? 0 : 1;
}
"""


@pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")
def test_threads_of_cpp_and_its_atomics(advisor: Run, tmp_path: Path) -> None:
    program = tmp_path / "threads"
    file = source(tmp_path, "threads.cc", THREADS)
    assert compile_twice(["g++", "-O2", str(file), "-o", str(program), "-pthread"]) == (0, "")
    (phase,) = characterise(advisor, program)["phases"]
    shared = [s for s in phase["streams"] if s["access"] == "C"]
    assert [(s["stride_b"], s["dtype_b"]) for s in shared] == [(8, 8)]
    assert shared[0]["size_kb"] == pytest.approx(200_000 * 8 / 1024, rel=0.01)
    assert phase["iterations"] == 5 * 200_000


def test_scripts_ranks_and_earlier_runs(advisor: Run, built: Path, tmp_path: Path) -> None:
    """Two processes at the same time are ranks: their mean counts, one of them is traced."""
    triad = f"{built / 'triad'} 200000 10"
    one = phase_of(characterise(advisor, "sh", "-c", triad), "triad")
    ranks = phase_of(characterise(advisor, "sh", "-c", f"{triad} & {triad}; wait"), "triad")
    after = phase_of(characterise(advisor, "sh", "-c", f"{triad}; {triad}"), "triad")
    assert (one["calls"], after["calls"]) == (10, 20)
    assert 10 <= ranks["calls"] <= 20
    assert streams_of(one) == streams_of(ranks) == streams_of(after)


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
        (8, "P", False), (8, "P", False), (8, "P", True),
    ]  # fmt: skip
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
    assert "not stored: " in done.out and f"advisor characterise --input {kept}" in done.out
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


LONG = """
#include <stdlib.h>
int main(void) {
    volatile char *a = malloc(1 << 26);
    for (unsigned long k = 0; k < 3000000; k++) a[k * 2654435761u % (1 << 26)] = 1;
    return 0;
}
"""


def test_a_trace_never_outgrows_its_limit(tmp_path: Path) -> None:
    """Millions of different lines, in a file of one megabyte, which holds what it should."""
    program, folder = tmp_path / "long", tmp_path / "sites"
    folder.mkdir()
    words = ["-O2", str(source(tmp_path, "long.c", LONG)), "-o", str(program)]
    assert compile_twice(words) == (0, "")
    limit = 1 << 20
    subprocess.run(
        [f"{program}.traced"],
        env={**os.environ, "ADVISOR_STREAMS": str(folder), "ADVISOR_STREAMS_BYTES": str(limit)},
        check=True,
    )
    assert sum(file.stat().st_size for file in folder.iterdir()) == limit
    (process,) = read_sites(folder)
    assert process.complete and not process.lost
    (busiest,) = [s for s in process.sites if s.count == 3_000_000]
    assert busiest.interval is not None and len(busiest.interval.lines) < 1024
    touched = len({k * 2654435761 % (1 << 26) // 64 for k in range(0, 3_000_000)}) * 64
    assert busiest.interval.footprint == pytest.approx(touched, rel=0.15)


def test_a_long_trace_is_ended_and_scaled(advisor: Run, built: Path) -> None:
    command = (built / "stencil", 402, 1500)
    words = ("--json", "--threads", 2, "--limit", "1s", "--min-weight", "0.001%")
    done = advisor("characterise", *words, "--", *command)
    assert done.code == 0, done.err
    result = done.json()
    assert result["trace"]["stopped"]
    phase = phase_of(result, "step")
    assert "of 1500 calls" in phase["note"]
    assert phase["iterations"] == pytest.approx(1500 * 400 * 400 / 2, rel=0.1)
    part = 200 * 402 * 8 / 1024
    same(streams_of(phase), [(part, 8, 8, "P"), (part, 8, 8, "P")])


PARTS = """#include <stdlib.h>
int main(int argc, char **argv) {
    const int n = 100000, turns = atoi(argv[1]);
    double *a = calloc(n, sizeof *a), sum = 0;
#pragma omp parallel
    for (int t = 0; t < turns; t++) {
#pragma omp for
        for (int i = 0; i < n; i++) a[i] += 1;
#pragma omp for reduction(+ : sum)
        for (int i = 0; i < n; i++)
            for (int k = 0; k < 20; k++) sum += a[i] / (1 + sum);
    }
    return sum < 0;
}
"""


def test_barriers_divide_a_region_into_parts(advisor: Run, tmp_path: Path) -> None:
    """Five turns of two loops: two barriers, each reached five times; the second loop is longer."""
    (tmp_path / "parts.c").write_text(PARTS)
    words = ["cc", "-g", "-O2", "-fopenmp", "parts.c", "-o", "parts"]
    subprocess.run(words, cwd=tmp_path, check=True)
    done = advisor("characterise", "--json", "--trace", "none", "--", tmp_path / "parts", 5)
    (phase,) = done.json()["phases"]
    first, second, rest = phase["parts"]
    assert [p["calls"] for p in phase["parts"]] == [5, 5, 1] and rest["until"] == "join"
    assert first["until"].startswith("parts.c:") and second["until"].startswith("parts.c:")
    assert sum(p["time_s"] for p in phase["parts"]) == pytest.approx(phase["time_s"], rel=1e-3)
    assert sum(p["weight"] for p in phase["parts"]) == pytest.approx(phase["weight"], rel=1e-3)


FILES = """#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) {
    static char block[4096];
    int file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; i < 10; i++)
        if (write(file, block, sizeof block) < 0) return 1;
    fsync(file);
#pragma omp parallel num_threads(2)
    for (int i = 0; i < 3; i++)
        if (pread(file, block, 512, (7 * i % 5) * 4096) < 0) perror("pread");
    FILE *again = fopen(argv[1], "r");
    fseek(again, 100, SEEK_SET);
    return fread(block, 1, 1000, again) != 1000;
}
"""


def test_reads_and_writes_of_files_are_seen_by_region(tmp_path: Path) -> None:
    """Ten writes of 4 KB in order; in the region two threads read thrice; then a stream."""
    (tmp_path / "files.c").write_text(FILES)
    words = ["cc", "-O1", "-fopenmp", "files.c", "-o", "files"]
    subprocess.run(words, cwd=tmp_path, check=True)
    data = tmp_path / "data"
    run = timed_run(TracedCommand((str(tmp_path / "files"), str(data)), 2, None, 0, True))
    (process,) = run.processes
    seen = {(a.write, a.region): a for a in process.accesses if a.file == data}
    assert set(seen) == {(True, None), (False, 0), (False, None)}
    writes, inside, outside = seen[True, None], seen[False, 0], seen[False, None]
    assert (writes.calls, writes.bytes, writes.jumps) == (10, 40960, 0)
    assert (inside.calls, inside.bytes) == (6, 3072) and inside.jumps >= 2
    assert (outside.calls, outside.bytes, outside.jumps) == (1, 1000, 1)
    (phases,) = [
        streams for region, streams in io_streams(run.processes, {}, 1e-9).items() if region
    ]
    assert phases[0].file_system == mount_point(data) and phases[0].block_b == 512
    assert phases[0].calls == 3  # of a thread
