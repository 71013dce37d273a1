"""The streams that are found in real programs, compiled and run here, are those of their source."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from advisor.instruments.characterise_files import (
    AccessSite,
    BarrierInterval,
    TracedProcess,
    TracedRegion,
)
from advisor.instruments.characterise_streams import find_phase
from advisor.instruments.twin import compile_twice
from tests.contract.characterise.programs import (
    NEEDS_CC,
    PLAIN,
    WAYS,
    Run,
    characterise,
    phase_of,
    same,
    source,
    streams_of,
)

pytestmark = [pytest.mark.slow, NEEDS_CC]


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


@pytest.mark.parametrize("alone", [0, 200, 600, 800, 820, 1000, 1200])
def test_a_thread_that_begins_late_makes_no_part_larger(alone: int) -> None:
    """Of 1200 rows one thread takes the first ``alone``, then both take turns."""
    rows = (range(alone), *(range(n, 1200, 2) for n in (alone, alone + 1)))
    sites = []
    for thread, mine in enumerate(([*rows[0], *rows[1]], [*rows[2]])):
        lines = frozenset(8 * row + line for row in mine for line in range(8))
        if lines:
            lo, hi = 64 * min(lines), 64 * (max(lines) + 1)
            zone = BarrierInterval(0, lo, hi, len(lines), 2**64, lines)
            words = 8 * len(lines)
            sites.append(
                AccessSite(
                    1, 0, thread, 8, 8, False, words, words // 8, {8: words - 1}, hi - lo, zone
                )
            )
    regions = (TracedRegion(0, 1, 0),)
    process = TracedProcess(1, Path("p"), True, 0, False, regions, (), tuple(sites))
    (stream,) = find_phase(process, 0, l1_bytes=1).streams
    assert stream.size_kb == pytest.approx(1200 * 512 / 1024 / len(sites), rel=0.1)


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
