"""``advisor import --from``: other programs' counts become signatures, EAR's jobs become runs."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.classes.ear import read_ear
from advisor.core.inventory import NodeType
from advisor.store.reader import Reader
from advisor.store.signatures import signatures
from advisor.store.writer import Writer

EAR4 = (
    "NODE_ID;JOB_ID;STEP_ID;USER_ID;GROUP_ID;APP_ID;USER_ACC;ENERGY_TAG;POLICY;POLICY_TH;"
    "AVG.CPUFREQ;AVG.IMCFREQ;DEF.FREQ;TIME;CPI;TPI;GBS;IO_MBS;P.MPI;DC-NODE-POWER;DRAM-POWER;"
    "PCK-POWER;CYCLES;INSTRUCTIONS;CPU-GFLOPS"
)
EAR6 = (
    "JOBID;STEPID;USERID;GROUPID;ACCOUNTID;JOBNAME;ENERGY_TAG;JOB_START_TIME;JOB_END_TIME;"
    "JOB_START_DATE;JOB_END_DATE;JOB_EARL_START_TIME;JOB_EARL_END_TIME;POLICY;POLICY_TH;"
    "JOB_NPROCS;JOB_TYPE;JOB_DEF_FREQ;EARL_ENABLED;EAR_LEARNING_PHASE;NODENAME;AVG_CPUFREQ_KHZ;"
    "AVG_IMCFREQ_KHZ;DEF_FREQ_KHZ;TIME_SEC;CPI;TPI;MEM_GBS;IO_MBS;PERC_MPI;DC_NODE_POWER_W;"
    "DRAM_POWER_W;PCK_POWER_W;CYCLES;INSTRUCTIONS;STALLS_FETCH_DECODE;STALLS_RESOURCES;"
    "STALLS_MEMORY;CPU_GFLOPS;CPU_UTIL;GPU0_POWER_W;GPU0_FREQ_KHZ;GPU0_UTIL_PERC;GPU1_POWER_W;"
    "GPU1_FREQ_KHZ;GPU1_UTIL_PERC;NODEMGR_DC_NODE_POWER_W;NODEMGR_TIME_SEC"
)


def row4(node: str = "n1", job: str = "7", step: str = "0", **cells: object) -> str:
    values = dict(
        zip(EAR4.split(";"),
            f"{node};{job};{step};ann;g;solver;physics; ;monitoring;0.0;2400000;2000000;2400000;"
            "100.0;0.5;0.02;20.0;1.5;30.0;300.25;10.0;200.0;1000000;2000000;50.0".split(";"),
            strict=True)
    )  # fmt: skip
    return ";".join(str(v) for v in (values | cells).values())


def row6(**cells: object) -> str:
    values = dict.fromkeys(EAR6.split(";"), "0") | {
        "JOBID": "9", "STEPID": "1", "USERID": "bob", "ACCOUNTID": "chem", "JOBNAME": "md",
        "JOB_NPROCS": "32", "EARL_ENABLED": "1", "NODENAME": "n1", "DEF_FREQ_KHZ": "2100000",
        "TIME_SEC": "50.0", "CPI": "0.8", "TPI": "0.01", "MEM_GBS": "90.0",
        "DC_NODE_POWER_W": "410.5", "CYCLES": "800", "INSTRUCTIONS": "1000", "CPU_GFLOPS": "70",
        "CPU_UTIL": "99",
    }  # fmt: skip
    return ";".join(str(v) for v in (values | cells).values())


@pytest.fixture
def ear(advisor: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Import a header and rows as a file of EAR's."""

    def run(header: str, *rows: str, more: tuple[str, ...] = ("--json",)) -> Any:
        file = tmp_path / "ear.csv"
        file.write_text("\n".join([header, *rows]) + "\n")
        return advisor("import", file, "--from", "ear", "--node-type", "spr", *more)

    return run


def test_the_nodes_of_a_step_are_joined(ear: Callable[..., Any], store_path: Path) -> None:
    with Writer(store_path) as store:
        store.save_node_types([NodeType("spr", cores=64)], source="site")
    other = row4("n2", TIME=110.0, GBS=40.0, CYCLES=3000000, INSTRUCTIONS=2000000, TPI=0.04)
    data = ear(EAR4, row4(), other, row4(step="1", APP_ID="other")).json()
    assert (data["imported"], data["skipped"], data["applications"]) == (2, 0, ["solver", "other"])
    first, second = data["signatures"]
    assert (first["job"], first["step"], first["application"], first["nodes"]) == (
        "7", "0", "solver", 2,
    )  # fmt: skip
    assert first["cpi"] == 1.0 and first["gbs"] == 30.0 and first["tpi"] == pytest.approx(0.03)
    assert first["time_s"] == 110.0 and second["application"] == "other"
    with Reader(store_path) as reader:
        (stored,) = signatures(reader, "solver")
        (run,) = reader.observations("solver")
    s, o = stored.signature, run.observation
    assert (s.release, s.source, s.cpus, s.contributor, s.account, s.scope) == (
        "4", "ear", 64, "ann", "physics", "all",
    )  # fmt: skip
    assert (o.source, o.job_id, o.configuration) == ("job", "7.0", s.configuration)
    assert o.configuration.nodes == 2 and o.configuration.threads_per_node == 64
    assert o.configuration.freq_khz == 2_400_000 and o.contributor == "ann"


def test_a_node_type_that_there_is_not_ends_with_one_line(
    ear: Callable[..., Any], tmp_path: Path, store_path: Path
) -> None:
    """So the site file says, applied or not; where nothing says anything, any name will do."""
    site = tmp_path / "config" / "site.yaml"
    site.parent.mkdir()
    site.write_text("version: 1\nnode_types: {spx: {cores: 8, nodes: x1}, gen: {}}\n")
    done = ear(EAR4, row4())
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "ear.csv: its rows have no place: node type 'spr' is unknown (known: gen, spx)" in (
        done.err
    )
    assert "did you mean --node-type spx?" in done.err and not store_path.exists()
    site.write_text("version: 1\nnode_types: {spr: {cores: 8, nodes: n1}}\n")
    done = ear(EAR4, row4(), row4(step="1", NODE_ID="x1"))
    assert "ear.csv, line 3, NODE_ID: node 'x1' is not of this node type (n1)" in done.err
    assert not store_path.exists()
    site.unlink()
    assert ear(EAR4, row4()).code == 0


def test_energy_is_the_sum_of_node_power_and_time(ear: Callable[..., Any]) -> None:
    rows = [row6(), row6(NODENAME="n2", TIME_SEC="40.0", DC_NODE_POWER_W="390.5")]
    (found,) = ear(EAR6, *rows).json()["signatures"]
    assert found["energy_j"] == 410.5 * 50 + 390.5 * 40 and found["energy"] == "measured"
    assert (found["power_w"], found["time_s"]) == (400.5, 50.0)


def test_the_same_power_at_a_limit_is_no_measurement(
    ear: Callable[..., Any], store_path: Path
) -> None:
    rows = [
        row6(DC_NODE_POWER_W=p, STEPID=n)
        for n, p in enumerate(("800.000000", "512.125", "800.000000"))
    ]
    data = ear(EAR6, *rows).json()
    assert [s["energy"] for s in data["signatures"]] == ["clamped", "measured", "clamped"]
    assert data["energy"] == {"measured": 1, "estimated": 0, "missing": 2} and data["notes"]
    with Reader(store_path) as reader:
        powers = {s.signature.job_id: s.signature.power_w for s in signatures(reader)}
        assert powers == {"9.0": None, "9.1": 512.125, "9.2": None}
        assert [o.observation.energy_j is None for o in reader.observations("md")] == [
            True, False, True,
        ]  # fmt: skip


def test_two_nodes_of_the_same_power_are_measured(ear: Callable[..., Any]) -> None:
    (found,) = ear(EAR6, row6(), row6(NODENAME="n2")).json()["signatures"]
    assert found["energy_j"] == 2 * 410.5 * 50 and found["energy"] == "measured"
    more = [row6(), row6(NODENAME="n2"), row6(STEPID=2)]
    assert {s["energy"] for s in ear(EAR6, *more).json()["signatures"]} == {"clamped"}


def test_a_lone_round_power_above_all_others_is_a_limit(ear: Callable[..., Any]) -> None:
    powers = ("800.000000", "512.125319", "531.377808", "499.871234")
    rows = [row6(DC_NODE_POWER_W=p, STEPID=n) for n, p in enumerate(powers)]
    energies = [s["energy"] for s in ear(EAR6, *rows).json()["signatures"]]
    assert energies == ["clamped", "measured", "measured", "measured"]


def test_what_ear_did_not_count_is_missing(ear: Callable[..., Any], store_path: Path) -> None:
    off = {"EARL_ENABLED": 0, "TIME_SEC": 0, "CPI": 0, "MEM_GBS": 0, "CYCLES": 0, "TPI": 0}
    rows = [
        row6(**off, INSTRUCTIONS=0, NODEMGR_TIME_SEC=33.0, NODEMGR_DC_NODE_POWER_W=250.5),
        row6(STEPID=2, MEM_GBS=0, TPI=0),
        row6(STEPID=3, GPU0_POWER_W=60, GPU0_UTIL_PERC=40, GPU1_FREQ_KHZ=1000000),
    ]
    first, second, third = ear(EAR6, *rows).json()["signatures"]
    assert first["cpi"] is None and first["gbs"] is None and first["time_s"] == 33.0
    assert first["energy_j"] == 33.0 * 250.5
    assert second["cpi"] == 0.8 and second["gbs"] is None and second["tpi"] is None
    assert (first["gpu_util"], third["gpu_util"]) == (None, 20.0)
    with Reader(store_path) as reader:
        (three, *_) = signatures(reader, "md")
        assert three.signature.configuration is not None
        assert three.signature.configuration.ranks_per_node == 32


def test_the_same_job_is_there_once(ear: Callable[..., Any], tmp_path: Path) -> None:
    assert ear(EAR6, row6()).json()["new_signatures"] == 1
    again = ear(EAR6, row6(), row6(), row6(STEPID=2)).json()  # the report was appended twice
    assert (again["imported"], again["skipped"], again["new_signatures"]) == (1, 1, 1)
    assert again["signatures"][0]["time_s"] == 50.0


LOOPS = (
    "JOBID;STEPID;NODENAME;DEF_FREQ_KHZ;ITER_TIME_SEC;CPI;TPI;MEM_GBS;DC_NODE_POWER_W;CYCLES;"
    "INSTRUCTIONS;GFLOPS;LOOPID;ITERATIONS\n"
    "9;1;n1;2100000;1.5;0.5;0.01;30.0;400.5;100;200;10;1;5\n"
    "9;1;n1;2100000;0.5;0.5;0.01;30.0;404.5;300;200;10;1;9"
)


def test_the_time_of_an_iteration_is_no_run_time(ear: Callable[..., Any], store_path: Path) -> None:
    refused = ear(LOOPS)
    assert refused.code == 1 and "loops" in refused.err and not store_path.exists()
    data = ear(LOOPS, more=("--application", "md", "--json")).json()
    (found,) = data["signatures"]
    assert (found["cpi"], found["time_s"], found["energy_j"]) == (1.0, None, None)
    assert data["imported"] == 0
    with Reader(store_path) as reader:
        assert reader.observations("md") == [] and len(signatures(reader, "md")) == 1


@pytest.mark.parametrize(
    "header, row, where",
    [
        (EAR6, row6(CPI="nan"), "line 2, CPI: 'nan' is not a finite number"),
        (EAR6, row6(CPI="-0.5"), "line 2, CPI: '-0.5' is negative"),
        (EAR6, row6(CPI="0,5"), "line 2, CPI: '0,5' has a decimal comma"),
        (EAR6, row6(TIME_SEC="0"), "line 2, TIME_SEC: a time of 0"),
        (EAR6, row6(STEPID="sb"), "line 2, STEPID: 'sb' is the batch script's step"),
        (EAR6, row6(JOBID="x"), "line 2, JOBID: 'x' is not a number"),
        (EAR6, row6(MEM_GBS=""), "line 2, MEM_GBS: is blank"),
        (EAR6, row6()[:120], "line 2, "), (EAR6, row6() + ";1", "line 2: 49 cells"),
        (EAR6, row6(NODENAME=""), "line 2, NODENAME: is blank"),
        (EAR6, row6(DEF_FREQ_KHZ="1e300"), "line 2, DEF_FREQ_KHZ: 1e+300 is too large"),
        (EAR6.replace(";", ","), row6(), "line 1: columns are separated by commas"),
        (row6(), row6(), "line 1: no header"),
        (EAR6.replace("MEM_GBS", "X"), row6(), "line 1, MEM_GBS: the column is missing"),
        (EAR6.replace("IO_MBS", "CPI"), row6(), "line 1, CPI: the column is there twice"),
        (EAR6, "", "line 1: there is only a header"),
        (EAR6, row6(JOBNAME=""), "step 1 of job 9 names no application"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_nothing_is_imported(
    ear: Callable[..., Any], store_path: Path, tmp_path: Path, header: str, row: str, where: str
) -> None:
    done = ear(header, row)
    assert done.code == 1 and json.loads(done.out)["schema"] == "advisor/error/1"
    assert done.err.count("\n") == 1 and str(tmp_path / "ear.csv") in done.err
    assert where in done.err
    good = ear(header, row6(JOBID="1"), row) if header == EAR6 and row else done
    assert good.code == 1 and not store_path.exists()


def test_a_node_of_another_type(ear: Callable[..., Any], store_path: Path) -> None:
    with Writer(store_path) as store:
        store.save_node_types([NodeType("spr", cores=64, nodes=("n2",))], source="site")
    assert "line 2, NODENAME: node 'n1' is not of this node type" in ear(EAR6, row6()).err
    assert ear(EAR6, row6(NODENAME="n2.cluster")).code == 0


def test_a_header_may_lack_a_semicolon(tmp_path: Path) -> None:
    path = tmp_path / "ear.csv"
    path.write_text(f"{EAR6.replace('FREQ;EARL', 'FREQEARL')}\n{row6()}\n")
    (step,) = read_ear(path).steps
    assert (step.application, step.time_s, step.energy) == ("md", 50.0, "measured")


def test_a_header_may_list_gpus_that_rows_lack(tmp_path: Path) -> None:
    path = tmp_path / "ear.csv"
    path.write_text(f"{EAR4};GPU1_POWER;GPU1_FREQ;GPU1_UTIL\n{row4()}\n")
    (step,) = read_ear(path).steps
    assert step.gpu_util is None and step.cpi == 0.5


# -- perf, LIKWID, PAPI ----------------------------------------------------------------------------


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
            lines.append(json.dumps({
                "counter-value": value, "unit": unit, "event": event,
                "event-runtime": int(runtime), "pcnt-running": float(running),
            }))  # fmt: skip
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
        json.dumps({"interval": t + 0.5, "counter-value": "1000000000.0", "unit": "",
                    "event": event, "event-runtime": 1, "pcnt-running": 100.0})
        for t in (0, 1) for event in ("cycles", "instructions")
    )  # fmt: skip
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
        ("perf", "<not supported>,,cycles,0,100.00,,", "nothing that a signature is made of"),
        ("likwid", "hello\n", "no table of likwid-perfctr"),
        ("likwid", "Metric,HWThread 0,HWThread 1\nRuntime (RDTSC) [s],1.0\n",
         "line 2, Runtime (RDTSC) [s]: 2 cells, but the table has 3"),
        ("likwid", "Metric,HWThread 0\nRuntime (RDTSC) [s],x\n",
         "line 2, Runtime (RDTSC) [s]: 'x' is not a number"),
        ("papi", "{}", "there are no threads in it"), ("papi", "{", "line 1, column 2: not JSON"),
        ("papi", '{"threads": {"0": {"regions": {"0": {"name": "r", "PAPI_TOT_CYC": "-1"}}}}}',
         "thread 0, region r, PAPI_TOT_CYC: '-1' is negative"),
        ("papi", " ", "is empty"),
    ],
)  # fmt: skip
def test_mistakes_in_counts(
    counted: Callable[..., Any], tmp_path: Path, store_path: Path,
    source: str, text: str, where: str,
) -> None:  # fmt: skip
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
    region = {"name": "all", "parent_region_id": "-1", "cycles": "9",
              "real_time_nsec": "2000000000", "PAPI_TOT_CYC": "3000000000",
              "PAPI_TOT_INS": "2000000000", "PAPI_DP_OPS": "8000000000"}  # fmt: skip
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
    done = advisor("import", tmp_path / "counts", "--from", "perf", "--node-type", "spr",
                   "--application", "app")  # fmt: skip
    assert done.code == 0
    assert "node type spr is not in the inventory: its cores, nodes and tag are not" in done.err
