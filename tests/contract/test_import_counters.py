"""``advisor import --from``: what perf, LIKWID and PAPI counted becomes signatures."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.core.inventory import NodeType
from advisor.store.reader import Reader
from advisor.store.signatures import signatures
from advisor.store.writer import Writer


@pytest.fixture
def counted(advisor: Callable[..., Any], tmp_path: Path, store_path: Path) -> Callable[..., Any]:
    """Import a text as a file of a program's; a node type with 4 cores at up to 2 GHz."""
    with Writer(store_path) as store:
        node = NodeType("spr", cores=4, freq_khz=(2_000_000,), default_freq_khz=2_000_000)
        store.save_node_types([node], source="site")

    def run(source: str, text: str) -> Any:
        file = tmp_path / "counts"
        file.write_text(text)
        options = ("--from", source, "--node-type", "spr", "--application", "app")
        return advisor("import", file, *options, "--json")

    return run


PERF = """# started on Sun Nov 22 12:15:29 2026

8000.5,msec,task-clock,8000500000,100.00,3.9,CPUs utilized
12000000000,,cycles:u,8000000000,100.00,1.5,GHz
10000000000,,cpu_core/instructions/,8000000000,100.00,0.8,insn per cycle
2000000000,,fp_arith_inst_retired.256b_packed_double,8000000000,100.00,,
10000,MiB,uncore_imc_0/cas_count_read/,2000000000,100.00,,
10000,MiB,uncore_imc_1/cas_count_write/,2000000000,100.00,,
<not supported>,,cache-misses,0,100.00,,
2000000000,ns,duration_time,2000000000,100.00,,
"""


def as_perf_json(text: str) -> str:
    lines = []
    for row in text.splitlines():
        if row and row[0] != "#":
            value, unit, event, runtime, running, *_ = row.split(",")
            lines.append(
                json.dumps(
                    {
                        "counter-value": value,
                        "unit": unit,
                        "event": event,
                        "event-runtime": int(runtime),
                        "pcnt-running": float(running),
                    }
                )
            )
    return "\n".join(lines)


@pytest.mark.parametrize("form", [str, as_perf_json, lambda t: t.replace(",", ";")])
def test_perf(counted: Callable[..., Any], form: Callable[[str], str]) -> None:
    (found,) = counted("perf", form(PERF)).json()["signatures"]
    assert found["cpi"] == 1.2 and found["time_s"] == 2.0
    assert found["gflops"] == pytest.approx(4.0)  # 4 operations each
    assert found["gbs"] == pytest.approx(20000 * 2**20 / 2 / 1e9)
    assert found["tpi"] == pytest.approx(20000 * 2**20 / 64 / 1e10)
    assert found["cpu_util"] == pytest.approx(100.00625)


def test_a_count_that_cannot_be_is_dropped_and_named(counted: Callable[..., Any]) -> None:
    half = PERF.replace("cycles:u,8000000000,100.00", "cycles:u,4000000000,50.00")
    data = counted("perf", half).json()
    assert "cpi" not in data["signatures"][0] and "gbs" in data["signatures"][0]
    assert "dropped cycles: counted for 50 % of the time only" in data["notes"]
    most = 4 * 2e9 * 2 * 2  # cores x clock x time, and boost
    data = counted("perf", PERF.replace("12000000000", str(int(most * 1.1)))).json()
    assert "cpi" not in data["signatures"][0]
    assert "cycles: 3.52e+10 is more than 4 processors can do in 2 s" in " ".join(data["notes"])
    assert "dropped cache-misses: not counted" in data["notes"]


def test_arithmetic_that_was_not_counted_whole_is_missing(counted: Callable[..., Any]) -> None:
    lost = PERF + "<not counted>,,fp_arith_inst_retired.scalar_double,0,0.00,,\n"
    (found,) = counted("perf", lost).json()["signatures"]
    assert "gflops" not in found and found["cpi"] == 1.2
    lost = PERF + "<not supported>,,uncore_imc_2/cas_count_read/,0,100.00,,\n"
    (found,) = counted("perf", lost).json()["signatures"]
    assert "gbs" not in found and "tpi" not in found


def test_intervals_of_perf_are_summed(counted: Callable[..., Any]) -> None:
    rows = [
        f"     {t}.000100,{value},,{event},1000000000,100.00,,"
        for t in (1, 2)
        for event, value in (("cycles", 3000000000), ("instructions", 2000000000))
    ]
    (found,) = counted("perf", "\n".join(rows)).json()["signatures"]
    assert (found["cpi"], found["time_s"]) == (1.5, 2.0001)
    as_json = "\n".join(
        json.dumps(
            {
                "interval": t + 0.5,
                "counter-value": "1000000000.0",
                "unit": "",
                "event": event,
                "event-runtime": 1,
                "pcnt-running": 100.0,
            }
        )
        for t in (0, 1)
        for event in ("cycles", "instructions")
    )
    assert counted("perf", as_json).json()["signatures"][0]["time_s"] == 1.5


@pytest.mark.parametrize(
    "source, text, where",
    [
        ("perf", "1,22,msec,task-clock,1220499,100.00,0.012,CPUs utilized", "a decimal comma"),
        ("perf", "1,22;msec;task-clock;1;100,00;0,012;CPUs utilized", "decimal comma"),
        ("perf", "-5,,cycles,1,100.00,,", "line 1, cycles: '-5' is negative"),
        ("perf", "nan,,cycles,1,100.00,,", "line 1, cycles: 'nan' is not a finite number"),
        ("perf", "5,,cycles", "line 1, cycles: the row ends before"),
        ("perf", "5 cycles", "line 1: not what perf stat -x, or -j writes"),
        ("perf", '{"event" : "cycles", "counter-value"', "line 1: not JSON"),
        ("perf", '{"event" : "cycles", "pcnt-running": 100}', "line 1, counter-value: is missing"),
        ("perf", "<not supported>,,cycles,0,100.00,,", "no value of a signature is in it"),
        ("likwid", "hello\n", "no table of likwid-perfctr"),
        (
            "likwid",
            "Metric,HWThread 0,HWThread 1\nRuntime (RDTSC) [s],1.0\n",
            "line 2, Runtime (RDTSC) [s]: 2 cells, but the table has 3",
        ),
        (
            "likwid",
            "Metric,HWThread 0\nRuntime (RDTSC) [s],x\n",
            "line 2, Runtime (RDTSC) [s]: 'x' is not a number",
        ),
        ("papi", "{}", "there are no threads in it"),
        ("papi", "{", "line 1, column 2: not JSON"),
        (
            "papi",
            '{"threads": {"0": {"regions": {"0": {"name": "r", "PAPI_TOT_CYC": "-1"}}}}}',
            "thread 0, region r, PAPI_TOT_CYC: '-1' is negative",
        ),
        ("papi", " ", "is empty"),
    ],
)
def test_mistakes_in_counts(
    counted: Callable[..., Any],
    tmp_path: Path,
    store_path: Path,
    source: str,
    text: str,
    where: str,
) -> None:
    done = counted(source, text)
    assert done.code == 1 and done.err.count("\n") == 1, done.err
    assert str(tmp_path / "counts") in done.err and where in done.err
    with Reader(store_path) as reader:
        assert signatures(reader) == [] and reader.workloads() == []


LIKWID = """STRUCT,Info,3,,
CPU name:,Intel(R) Xeon(R) Platinum 8360Y CPU @ 2.40GHz,,,
TABLE,Group 1 Raw,MEM_DP,5,
Event,Counter,HWThread 0,HWThread 1,
INSTR_RETIRED_ANY,FIXC0,1000000000,3000000000,
CPU_CLK_UNHALTED_CORE,FIXC1,2000000000,4000000000,
CAS_COUNT_RD,MBOX0C0,30000000,0,
CAS_COUNT_WR,MBOX0C1,10000000,0,
TABLE,Group 1 Raw Stat,MEM_DP,1,
Event,Counter,Sum,Min,Max,Avg
INSTR_RETIRED_ANY STAT,FIXC0,4000000000,1,1,1
TABLE,Group 1 Metric,MEM_DP,6,
Metric,HWThread 0,HWThread 1,,
Runtime (RDTSC) [s],10.0,10.0,,
CPI,2,1.3333,,
Energy [J],1000,0,,
Power [W],100,0,,
Power DRAM [W],20,0,,
DP [MFLOP/s],1500,2500,,
SP [MFLOP/s],500,0,,
Memory bandwidth [MBytes/s],150000.5,0,,
TABLE,Group 1 Metric Stat,MEM_DP,1,
Metric,Sum,Min,Max,Avg
Memory bandwidth [MBytes/s] STAT,150000.5,0,150000.5,75000
"""


def as_tables(text: str) -> str:
    lines = ["-" * 80, "Group 1: MEM_DP"]
    for row in text.splitlines():
        cells = [c for c in row.split(",") if c]
        if cells[0] in ("Event", "Metric"):
            lines += ["+-----+", "| " + " | ".join(cells) + " |", "+-----+"]
        elif cells[0] not in ("TABLE", "STRUCT", "CPU name:"):
            lines.append("|  " + "  |  ".join(cells) + "  |")
    return "\n".join([*lines, "+-----+"])


@pytest.mark.parametrize("form", [str, as_tables])
def test_likwid(counted: Callable[..., Any], form: Callable[[str], str]) -> None:
    (found,) = counted("likwid", form(LIKWID)).json()["signatures"]
    assert found["cpi"] == 1.5 and found["time_s"] == 10.0  # cycles over instructions
    assert found["gflops"] == pytest.approx(4.5) and found["gbs"] == pytest.approx(150.0005)
    assert found["power_w"] == 120.0 and found["tpi"] == pytest.approx(0.01)


def test_regions_of_likwid_are_joined_by_their_time(counted: Callable[..., Any]) -> None:
    text = "\n".join(
        f"TABLE,Region {name},Group 1 Metric,MEM,2,\nMetric,HWThread 0,\n"
        f"Runtime (RDTSC) [s],{seconds},\nMemory bandwidth [MBytes/s],{mbs},"
        for name, seconds, mbs in (("a", 1.0, 100000), ("b", 3.0, 20000))
    )
    (found,) = counted("likwid", text).json()["signatures"]
    assert found["gbs"] == pytest.approx(40.0) and found["time_s"] == 4.0


def test_papi(counted: Callable[..., Any]) -> None:
    region = {
        "name": "all",
        "parent_region_id": "-1",
        "cycles": "9",
        "real_time_nsec": "2000000000",
        "PAPI_TOT_CYC": "3000000000",
        "PAPI_TOT_INS": "2000000000",
        "PAPI_DP_OPS": "8000000000",
    }
    inner = region | {"name": "inner", "parent_region_id": "0"}
    threads = {"0": {"regions": {"0": region, "1": inner}}, "1": {"regions": {"0": region}}}
    (found,) = counted("papi", json.dumps({"threads": threads})).json()["signatures"]
    assert (found["cpi"], found["time_s"]) == (1.5, 2.0) and found["gflops"] == pytest.approx(8.0)


@pytest.mark.skipif(not shutil.which("perf"), reason="needs perf")
@pytest.mark.parametrize("form", [("-x", ","), ("-x", ";"), ("-j",)])
def test_what_perf_itself_writes(
    counted: Callable[..., Any], tmp_path: Path, form: tuple[str, ...]
) -> None:
    file = tmp_path / "perf.out"
    events = "task-clock,cycles,instructions,page-faults,duration_time"
    command = ["perf", "stat", *form, "-o", str(file), "-e", events, "sleep", "0.1"]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("perf may not count here")
    (found,) = counted("perf", file.read_text()).json()["signatures"]
    assert 0.05 < found["time_s"] < 5 and 0 < found["cpu_util"] < 100


def test_a_counters_file_names_no_application(advisor: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "x").write_text("5,,cycles,1,100.00,,")
    done = advisor("import", tmp_path / "x", "--from", "perf", "--node-type", "spr")
    assert done.code == 2 and "--application" in done.err


def test_a_node_type_that_nothing_describes_is_said_to_be_only_a_name(
    advisor: Callable[..., Any], tmp_path: Path, store_path: Path
) -> None:
    (tmp_path / "counts").write_text(PERF)
    done = advisor(
        "import",
        tmp_path / "counts",
        "--from",
        "perf",
        "--node-type",
        "spr",
        "--application",
        "app",
    )
    assert done.code == 0
    assert "node type spr is not in the inventory: its cores, nodes and tag are not" in done.err
