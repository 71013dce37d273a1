"""``advisor import --from ear``: EAR's jobs become signatures and runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.classes.ear import read_ear
from advisor.core.inventory import NodeType
from advisor.store.reader import Reader
from advisor.store.signatures import signatures
from advisor.store.writer import Writer
from tests.contract.ear_rows import EAR4, EAR6, row4, row6


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
        "7",
        "0",
        "solver",
        2,
    )
    assert first["cpi"] == 1.0 and first["gbs"] == 30.0 and first["tpi"] == pytest.approx(0.03)
    assert first["time_s"] == 110.0 and second["application"] == "other"
    with Reader(store_path) as reader:
        (stored,) = signatures(reader, "solver")
        (run,) = reader.observations("solver")
    s, o = stored.signature, run.observation
    assert (s.release, s.source, s.cpus, s.contributor, s.account, s.scope) == (
        "4",
        "ear",
        64,
        "ann",
        "physics",
        "all",
    )
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
            True,
            False,
            True,
        ]


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
        (EAR6, row6()[:120], "line 2, "),
        (EAR6, row6() + ";1", "line 2: 49 cells"),
        (EAR6, row6(NODENAME=""), "line 2, NODENAME: is blank"),
        (EAR6, row6(DEF_FREQ_KHZ="1e300"), "line 2, DEF_FREQ_KHZ: 1e+300 is too large"),
        (EAR6.replace(";", ","), row6(), "line 1: columns are separated by commas"),
        (row6(), row6(), "line 1: no header"),
        (EAR6.replace("MEM_GBS", "X"), row6(), "line 1, MEM_GBS: the column is missing"),
        (EAR6.replace("IO_MBS", "CPI"), row6(), "line 1, CPI: the column is there twice"),
        (EAR6, "", "line 1: there is only a header"),
        (EAR6, row6(JOBNAME=""), "step 1 of job 9 names no application"),
    ],
)
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


def test_of_a_job_only_the_programs_step_is_a_run(
    ear: Callable[..., Any], store_path: Path
) -> None:
    """Its batch step and a step of 1 s are not: neither has counters, nor the program's length."""
    none = {"CPI": 0, "TPI": 0, "MEM_GBS": 0, "CYCLES": 0, "INSTRUCTIONS": 0, "CPU_GFLOPS": 0}
    rows = [
        row6(STEPID=4294967291, TIME_SEC=325, DC_NODE_POWER_W=250.25, **none),
        row6(STEPID=0, TIME_SEC=1, DC_NODE_POWER_W=120.75, **none),
        row6(STEPID=1, TIME_SEC=323),
        row6(STEPID=2, TIME_SEC=2, DC_NODE_POWER_W=121.5),
        row6(JOBID=10, STEPID=4294967291, TIME_SEC=300, DC_NODE_POWER_W=405.5),
    ]
    data = ear(EAR6, *rows).json()
    assert (data["imported"], data["new_signatures"]) == (2, 2)
    assert ["skipped" in row for row in data["signatures"]] == [True, True, False, True, False]
    assert [note.partition(" skipped")[0] for note in data["notes"]] == ["1 step"] * 3
    with Reader(store_path) as reader:
        assert sorted(o.observation.time_s for o in reader.observations("md")) == [300, 323]


def test_a_run_far_from_others_like_it_is_skipped(ear: Callable[..., Any]) -> None:
    rows = [row6(JOBID=j, TIME_SEC=t) for j, t in enumerate((100, 103, 99, 3))]
    data = ear(EAR6, *rows).json()
    assert data["imported"] == 3
    assert (
        "1 run skipped: more than 5 times from the usual time at their configuration"
        in (data["notes"])
    )


def test_the_files_nodes_find_their_type(
    advisor: Callable[..., Any], store_path: Path, tmp_path: Path
) -> None:
    with Writer(store_path) as store:
        types = [NodeType("spr", cores=64, nodes=("n1",)), NodeType("gen", cores=8, nodes=("n2",))]
        store.save_node_types(types, source="site")
    file = tmp_path / "ear.csv"
    file.write_text("\n".join([EAR6, row6(), row6(JOBID=8, NODENAME="n2.cluster")]) + "\n")
    assert advisor("import", file, "--from", "ear", "--json").json()["imported"] == 2
    with Reader(store_path) as reader:
        places = {
            o.observation.job_id: o.observation.configuration.node_type
            for o in reader.observations("md")
        }
    assert places == {"9.1": "spr", "8.1": "gen"}
    file.write_text("\n".join([EAR6, row6(JOBID=7, NODENAME="old1")]) + "\n")
    refused = advisor("import", file, "--from", "ear")
    assert refused.code == 1 and "node 'old1' of job 7 is of no node type" in refused.err
    assert "--retired" in refused.err
    assert advisor("import", file, "--from", "ear", "--node-type", "haswell").code == 1
    taken = advisor("import", file, "--from", "ear", "--node-type", "haswell", "--retired")
    assert taken.code == 0 and "is not in the inventory" not in taken.err
    same = advisor("import", file, "--from", "ear", "--node-type", "spr", "--retired", "--again")
    assert same.code == 0, same.err


def test_ears_own_phases_stand_beside_our_class(
    ear: Callable[..., Any], tmp_path: Path, store_path: Path
) -> None:
    with Writer(store_path) as store:
        store.save_node_types([NodeType("spr", cores=64, nodes=("n1",))], source="site")
    events = tmp_path / "events.txt"
    events.write_text(
        "Event_ID  Timestamp  Event_type  Job_id  Step_id  Value  node_id\n"
        "1  2026-11-01 10:00:00  CPU_BOUND  9  1  233000  n1\n"
        "2  2026-11-01 10:00:00  MEM_BOUND  9  1  27000  n1\n"
        "3  2026-11-01 10:00:00  ENERGY_SAVING  9  1  4  n1\n"
    )
    row = row6(TIME_SEC=260, CPI="0.9", MEM_GBS="110.0")
    done = ear(EAR6, row, more=("--events", str(events)))
    assert "EAR's phases of step 1 of job 9: cpu-bound 233 s, memory-bound 27 s" in done.out
    assert "agree in 0 of 1 steps" in done.err
    assert "EAR was cpu-bound for 233 of 260 s, the whole step is memory-bound to us: " in done.err
    events.write_text("a b\n")
    assert "line 1, EVENT_TYPE: the column is missing" in (
        ear(EAR6, row, more=("--events", str(events))).err
    )
