"""What a trace holds: it keeps its limits, and tells the parts of a region and its files apart."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from advisor.instruments.characterise_files import read_sites
from advisor.instruments.characterise_io import io_streams, mount_point
from advisor.instruments.characterise_runs import TracedCommand, timed_run
from advisor.instruments.twin import compile_twice
from tests.contract.characterise.programs import NEEDS_CC, Run, phase_of, same, source, streams_of

LONG = """
#include <stdlib.h>
int main(void) {
    volatile char *a = malloc(1 << 26);
    for (unsigned long k = 0; k < 3000000; k++) a[k * 2654435761u % (1 << 26)] = 1;
    return 0;
}
"""

pytestmark = [pytest.mark.slow, NEEDS_CC]


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
