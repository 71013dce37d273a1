"""``advisor lab profile``: from the profiler's files to profiles of scales that never ran."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.errors import InputError
from advisor.plotting.threads import GraphPanel, RadarPanel, text_of
from advisor_lab.profile.appendix import read_profile
from advisor_lab.profile.memory import curve_error, norm_distances
from advisor_lab.profile.metrics import total
from advisor_lab.profile.regression import determination, relative_error, weights_of
from tests.pictures import kept
from tests.profiled import grid_profile, write_runs

pytestmark = pytest.mark.slow
SETUP = """
complexity:
  NThreads: [sqrt(NPC), NPC]
  default: {SIZE: [x, x^2], NPC: [x]}
metrics: {NThreads: {}, LSys: {}, F0load: {}, MPIrecvBytes: {}}
"""
EXAMPLE: dict[str, Any] = {
    "application": "example",
    "appScale": {"n": 1},
    "threads": [
        {
            "threadId": 0,
            "processId": 0,
            "instructionMix": {
                "instructions_analyzed": 1282,
                "load_instructions": [
                    {"total_instructions": 101, "mix": [{"vector_size": 1, "int_32bits": 101}]}
                ],
                "store_instructions": [
                    {
                        "total_instructions": 100,
                        "mix": [{"vector_size": 2, "float_64bits": 60, "float_64bits_mmx": 40}],
                    }
                ],
                "int_arith_instructions": 303,
                "int_arith_add_instructions": [
                    {"total_instructions": 303, "mix": [{"vector_size": 1, "int_64bits": 303}]}
                ],
                "int_cmp_instructions": [
                    {
                        "total_instructions": 130,
                        "misc_instructions": 26,
                        "mix": [{"vector_size": 1, "int_64bits": 104}],
                    }
                ],
                "bitwise_instructions": 103,
                "conversion_instructions": 205,
                "address_arith_instructions": 204,
                "control_instructions": 136,
            },
            "mpiInstructionMix": [
                {"MPI_instructions_analyzed": 7, "p2pCommunicationRoutines": {"MPI_Isend": 4}}
            ],
            "ilp": [{"windowSize": 54, "statistics": {"arithmetic_mean": 2.1225}}],
            "dataReuseDistribution": [
                {"cacheLineSize": 128, "statistics": {"dataCDF": [[0, 0.9651], [1, 0.9701]]}}
            ],
            "registerAccesses": {"reads": 1964, "writes": 891},
            "memoryFootprint": {"total_distinct_addresses_byte_granularity": 404},
        }
    ],
}


def write(tmp_path: Path, data: object, name: str = "p.json") -> Path:
    path = tmp_path / name
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


# -- reading ---------------------------------------------------------------------------------------


def test_what_the_profiler_writes_becomes_metrics(tmp_path: Path) -> None:
    run, missing = read_profile(write(tmp_path, EXAMPLE), {})
    values = run.threads[0, 0].values
    wanted = {
        "LSys": 1282,
        "F0load": 101 / 1282,
        "F0mem": 201 / 1282,
        "F0int": 741 / 1282,
        "F0intOnly": 303 / 1282,
        "F0addr": 204 / 1282,
        "F0control": 136 / 1282,
        "F0fp": 0,
        "ILP0": 2.1225,
        "F0regreads": 1964 / 1282,
        "MPIinstructions": 7,
        "MPIisend": 4,
        "footprint_bytes": 404,
    }
    assert {n: total(values[n]) for n in wanted} == pytest.approx(wanted)
    store = values["F0store"]
    assert isinstance(store, dict) and store[2, 64] == pytest.approx(100 / 1282)
    integers = values["F0int"]
    assert isinstance(integers, dict)
    assert integers[1, 0] == pytest.approx((26 + 103 + 205) / 1282)  # no length is known of these
    assert values["D0dreuse128"] == ((0, 0.9651), (1, 0.9701)) and values["D0dreuse"] == ()
    assert any("64-byte lines (D0dreuse)" in m for m in missing)


def test_mistakes_in_a_profile_are_one_line_with_file_and_key(tmp_path: Path) -> None:
    thread = EXAMPLE["threads"][0]

    def with_thread(**changes: object) -> dict[str, Any]:
        return {**EXAMPLE, "threads": [{**thread, **changes}]}

    without = {k: v for k, v in thread.items() if k != "processId"}
    cases: list[tuple[object, str]] = [
        ('{"a": [ "b": 1 ]}', r"p\.json:1: broken JSON"),
        ({**EXAMPLE, "application": ""}, "application: is missing"),
        ({**EXAMPLE, "threads": []}, "threads: is missing"),
        ({k: v for k, v in EXAMPLE.items() if k != "appScale"}, "appScale: is missing"),
        ({**EXAMPLE, "appScale": {"n": "many"}}, r"appScale\.n: 'many' is not a number"),
        ({**EXAMPLE, "threads": [without]}, r"threads\[0\]\.processId: is missing"),
        ({**EXAMPLE, "threads": [thread, thread]}, r"threads\[1\]: .* stand there twice"),
        (with_thread(ilp=[{"statistics": {"span": -1}}]), r"ilp\[0\]\.statistics\.span"),
        (with_thread(mpiCommunicationVector=[{"source": 5}]), r"source: 5 is none of 1"),
        (with_thread(instructionMix=[7], registerAccesses=[]), "registerAccesses: must be"),
        ([1], "a profile is a JSON object"),
    ]
    for data, message in cases:
        with pytest.raises(InputError, match=rf"p\.json.*{message}|{message}") as caught:
            read_profile(write(tmp_path, data), {})
        assert "p.json" in str(caught.value) and "\n" not in str(caught.value)


def test_numbers_of_the_manual_by_hand() -> None:
    distance = np.array([1.0, 2, 16, 512, 1024])
    norm, logarithm = norm_distances(distance, np.full(5, 1024.0))
    assert norm == pytest.approx(distance / 1024)
    assert logarithm == pytest.approx([1.0, 1.1, 1.4, 1.9, 2.0])
    seen, made = np.array([10.0, 20, 40]), np.array([12.0, 18, 50])
    assert determination(seen, made) == pytest.approx(0.768571, abs=1e-6)
    assert relative_error(seen, made) == pytest.approx(0.183333, abs=1e-6)
    seen, made = np.array([0.5, 0.5, 0.52]), np.array([0.6, 0.4, 0.7])
    assert determination(seen, made) == pytest.approx(-195.5)
    assert relative_error(seen, made) == pytest.approx(0.248718, abs=1e-6)
    curves = ((1, 0.5), (2, 0.7), (4, 0.9)), ((1, 0.45), (2, 0.75), (4, 0.9))
    assert curve_error(*curves) == pytest.approx(0.1 / 3)
    assert weights_of(np.array([1.0, 4, 100]), "m^-1/2") == pytest.approx([1, 0.5, 0.1])
    assert weights_of(np.array([0.0, 4]), "m^-2").tolist() == [1, 1]


# -- tables ----------------------------------------------------------------------------------------


def test_a_table_is_fitted_by_its_setup(advisor: Callable[..., Any], tmp_path: Path) -> None:
    rows = "".join(f"{n},{p},{7 * n * n / p + 30}\n" for n in (10, 20, 40, 80) for p in (1, 2, 4))
    table = write(tmp_path, "n,p,work\n" + rows, "t.csv")
    setup = write(
        tmp_path,
        "parameters: [n, p]\nthreads: [p]\ncomplexity: {default: {n: [x, x^2], p: [x]}}\n",
        "s.yaml",
    )
    done = advisor(
        "profile", "fit", "--table", table, "--setup", setup, "--at", "n=1000,p=8,16", "--json"
    ).json()
    (model,) = done["models"]
    assert (model["metricName"], model["predictorTerms"]) == ("work", ["(n^2)/p"])
    assert model["model"]["coefficients"] == pytest.approx([30, 7])
    assert [(p["at"], round(p["value"])) for p in done["predictions"]] == [
        ({"n": 1000, "p": 8}, 875030),
        ({"n": 1000, "p": 16}, 437530),
    ]
    assert "(n^2)/p" in advisor("profile", "fit", "--table", table, "--setup", setup).out


def test_no_interval_of_what_was_always_above_0_falls_below_it(
    advisor: Callable[..., Any], tmp_path: Path
) -> None:
    """Four noisy times gave 23 s (90 %: -20638 to 20684 s)."""
    table = write(tmp_path, "p,T,balance\n8,21,-3\n16,21.9,4\n32,22.1,-2\n64,23.3,3\n", "t.csv")
    setup = write(tmp_path, "parameters: [p]\nthreads: [p]\n", "s.yaml")
    argv = ("profile", "fit", "--table", table, "--setup", setup, "--at", "p=8192", "--json")
    ends = {p["metricName"]: p["interval"] for p in advisor(*argv).json()["predictions"]}
    assert ends["T"][0] == 0 < ends["T"][1] and ends["balance"][0] < 0


def test_a_share_keeps_its_bounds_and_boundaries_hold_after_the_query(
    advisor: Callable[..., Any], tmp_path: Path
) -> None:
    """(20 + x^3) / (100 + 3 x^3) tends to 1/3 (equation 3); 50 - 2 x is never below 1."""
    rows = "".join(
        f"{x},{100 + 3 * x**3},{(20 + x**3) / (100 + 3 * x**3)},{50 - 2 * x}\n"
        for x in (1, 2, 3, 5, 8, 12)
    )
    table = write(tmp_path, "x,LSys,F0int,left\n" + rows, "t.csv")
    setup = write(
        tmp_path,
        "parameters: [x]\ncomplexity: {default: [x, x^3]}\nmetrics:\n  LSys: {}\n"
        "  F0int: {type: instrPercentage}\n"
        '  left: {terms: [x], boundaries: "{1, Infinity}"}\n',
        "s.yaml",
    )
    done = advisor(
        "profile", "fit", "--table", table, "--setup", setup, "--at", "x=50,5000,24,40", "--json"
    ).json()
    found = {(p["metricName"], p["at"]["x"]): p["value"] for p in done["predictions"]}
    assert found["F0int", 50] == pytest.approx(0.333298, abs=1e-6)
    assert found["F0int", 5000] == pytest.approx(1 / 3, abs=1e-6)
    assert (found["left", 24], found["left", 40]) == (pytest.approx(2), 1)


def test_models_that_are_no_sums_of_terms(advisor: Callable[..., Any], tmp_path: Path) -> None:
    rows = "".join(f"{x},{x / (x + 10)}\n" for x in range(1, 60, 3))
    table = write(tmp_path, "x,share\n" + rows, "t.csv")
    for kind in ("NearestNeighbors", "RandomForest", "NeuralNetwork"):
        setup = write(tmp_path, f"metrics: {{share: {{model: {kind}, terms: [x]}}}}\n", "s.yaml")
        done = advisor(
            "profile", "fit", "--table", table, "--setup", setup, "--at", "x=20,1000", "--json"
        ).json()
        near, far = (p["value"] for p in done["predictions"])
        assert near == pytest.approx(2 / 3, rel=0.08) and 0.6 < far < 1.5, kind
        assert done["models"][0]["R2"] > 0.9


def test_mistakes_of_tables_and_setups_are_one_line(
    advisor: Callable[..., Any], tmp_path: Path
) -> None:
    good = "n,work\n1,2\n2,4\n3,6\n"
    for text, setup, message in (
        ("n,n,work\n1,1,2\n", "", "t.csv:1: column 'n' is listed twice"),
        ("n,work\n1,two\n", "", "t.csv:2: work: 'two' is not a number"),
        ("n,work\n1\n", "", "t.csv:2: 1 cells, the header has 2"),
        ("n,work\n", "", "t.csv: there are no rows"),
        (good, "parameters: [m]", "there is no column 'm'"),
        (good, "metrics: {work: {}, work: {}}", "s.yaml:1: metrics.work: given twice"),
        (good, "metrics: {works: {}}", "s.yaml: metrics.works: "),
        (good, "metrics: {work: {terms: [q]}}", "s.yaml:1: metrics.work.terms: "),
        (good, "metrics: {work: {terms: [n, n^2, n^3]}}", "t.csv: work: 3 terms"),
        (good, "metrics: {work: {model: Forest}}", "s.yaml:1: metrics.work.model: "),
        (good, 'metrics: {work: {constraints: "{Ture}"}}', "(did you mean True?)"),
        (good, "complexity: {default: [x^]}", "s.yaml:1: complexity.default.0: "),
        ("n,work\n0,2\n1,4\n2,6\n", "complexity: {default: [log2(x)]}", "term log2(n)"),
        (good, "[", "s.yaml:1: "),
    ):
        table = write(tmp_path, text, "t.csv")
        options = ("--setup", write(tmp_path, setup, "s.yaml")) if setup else ()
        done = advisor("profile", "fit", "--table", table, *options)
        assert done.code in (1, 2) and message in done.err, done.err
        assert done.err.count("\n") == 1 and done.out == ""
    zero = write(tmp_path, "n,work\n1,0\n2,4\n3,6\n", "t.csv")
    done = advisor("profile", "fit", "--table", zero)
    assert done.code == 0 and "t.csv: work: the value is 0 at n=1: it has no weights" in done.err


# -- applications ----------------------------------------------------------------------------------


@pytest.fixture
def study(advisor: Callable[..., Any], tmp_path: Path) -> Path:
    """Meshes of 9 to 36 processes at three sizes, and one to test with: classified and fitted."""
    train = [grid_profile((n, n), size) for n in (3, 4, 5, 6) for size in (24, 72)]
    write_runs(tmp_path / "train", train)
    write_runs(tmp_path / "test", [grid_profile((7, 7), 96)])
    write(tmp_path, SETUP, "setup.yaml")
    assert advisor("profile", "import", tmp_path / "train").code == 0
    assert advisor("profile", "import", tmp_path / "test", "--role", "test").code == 0
    return tmp_path


def test_from_runs_to_a_profile_that_never_ran(advisor: Callable[..., Any], study: Path) -> None:
    found = advisor("profile", "classify", "grid", "--method", "communication", "--json").json()
    assert found["topology"] == "mesh2d" and len(found["classes"]) == 9
    assert [len(r["threads"]) for r in found["classes"][4]["runs"]][-1] == 25
    done = advisor("profile", "fit", "grid", "--setup", study / "setup.yaml", "--json").json()
    models = {(m["class"], m["metricName"]): m for m in done["models"]}
    assert models["E", "LSys"]["predictorTerms"] == ["(SIZE^2)/NPC"]
    assert models["E", "NThreads"]["predictorTerms"] == ["NPC", "sqrt(NPC)"]
    assert models["E", "F0load"]["metricType"] == "vinstrPercentage"
    assert models["E", "LSys"]["MRE_test"] < 1e-3
    written = advisor(
        "profile",
        "extrapolate",
        "grid",
        "--at",
        "NPC=10000,400",
        "--at",
        "SIZE=3000",
        "--output",
        study / "far",
        "--json",
    ).json()
    paths = {f["at"]["NPC"]: Path(f["file"]) for f in written["files"]}
    run, _ = read_profile(paths[10000], {})
    interior = run.threads[101, 0]
    law = 20000 + 60 * 3000**2 / 10000 + 4 * 900
    assert interior.count == 9604 and run.processes == 10000
    assert total(interior.values["LSys"]) == pytest.approx(law, rel=1e-3)
    assert total(interior.values["F0load"]) == pytest.approx(0.3, rel=1e-3)
    assert total(interior.values["MPIrecvBytes"]) == pytest.approx(4 * 800 * 3000)
    vector = interior.values["MPIcommVector"]
    assert isinstance(vector, tuple)
    wanted = [(1, 2.4e6, 50), (100, 2.4e6, 50), (9900, 2.4e6, 50), (9999, 2.4e6, 50)]
    assert np.array(vector) == pytest.approx(np.array(wanted))
    advisor(
        "profile",
        "extrapolate",
        "grid",
        "--at",
        "NPC=400,SIZE=3000",
        "--threads",
        "process",
        "--output",
        study / "each",
    )
    each, _ = read_profile(next((study / "each").iterdir()), {})
    assert len(each.threads) == 400
    law = 20000 + 60 * 3000**2 / 400 + 2 * 900
    assert total(each.threads[0, 0].values["LSys"]) == pytest.approx(law, rel=1e-3)


def test_models_are_shown_adjusted_and_steps_done_again(
    advisor: Callable[..., Any], study: Path
) -> None:
    advisor("profile", "classify", "grid", "--method", "profile", "--classes", "2")
    setup = write(
        study,
        "complexity: {default: {SIZE: [x^2], NPC: [x]}}\nmetrics: {LSys: {terms: "
        "[(SIZE^2)/NPC, NPC]}, F0load: {}}\n",
        "two.yaml",
    )
    assert advisor("profile", "fit", "grid", "--setup", setup).code == 0
    shown = advisor("profile", "show", "grid", "--class", "A", "--metric", "LSys", "--json").json()
    assert shown["models"][0]["predictorTerms"] == ["(SIZE^2)/NPC", "NPC"]
    done = advisor(
        "profile",
        "adjust",
        "grid",
        "--class",
        "A",
        "--metric",
        "LSys",
        "--drop-last",
        "1",
        "--json",
    ).json()
    terms = {m["metricName"]: m["predictorTerms"] for m in done["models"]}
    assert terms["LSys"] == ["(SIZE^2)/NPC"]
    done = advisor(
        "profile",
        "adjust",
        "grid",
        "--metric",
        "F0load",
        "--type",
        "vnumeric",
        "--model",
        "NearestNeighbors",
        "--terms",
        "NPC,SIZE",
        "--json",
    ).json()
    assert {m["modelType"] for m in done["models"]} == {"NearestNeighbors"}
    done = advisor("profile", "adjust", "grid", "--exclude", "NPC=9,SIZE=24", "--json").json()
    assert done["excluded"] == [{"NPC": 9, "SIZE": 24}]
    shown = advisor("profile", "show", "grid", "--json").json()
    assert len(shown["train"]) == 7
    one = ("profile", "show", "grid", "--class", "A", "--metric", "LSys")
    drawn = advisor(*one, "--along", "SIZE", "--at", "NPC=36", "--plot", study / "trend.svg")
    assert "predicted LSys" in drawn.out and "a model   b train" in drawn.out
    assert "predicted LSys" in (study / "trend.svg").read_text()
    kept(study / "trend.svg", "trend")
    drawn = advisor(*one, "--along", "NPC,SIZE", "--log", "--plot", study / "map.svg")
    assert "* within the trained region" in drawn.out
    assert "trained region" in (study / "map.svg").read_text()
    kept(study / "map.svg", "map")
    steps = advisor("profile", "history", "grid", "--json").json()["steps"]
    assert [s["action"] for s in steps] == [
        "import",
        "import",
        "classify",
        "fit",
        "adjust",
        "adjust",
        "adjust",
    ]
    assert advisor("profile", "redo", "grid", "4").code == 0
    shown = advisor("profile", "show", "grid", "--class", "A", "--metric", "LSys", "--json").json()
    assert shown["models"][0]["predictorTerms"] == ["(SIZE^2)/NPC", "NPC"]
    for words, message in (
        (("adjust", "grid"), "nothing to change"),
        (("adjust", "grid", "--metric", "LSys", "--drop-last", "9"), "LSys has 2 terms"),
        (("adjust", "grid", "--exclude", "NPC=7"), "no run is at NPC=7"),
        (("adjust", "grid", "--metric", "LSys", "--terms", "q"), "there is no parameter 'q'"),
        (("show", "grid", "--metric", "LSYS"), "did you mean LSys?"),
        (("show", "gird"), "did you mean grid?"),
        (("redo", "grid", "99"), "there is no step 99"),
        (("show", "grid", "--plot", "x.svg"), "pictures are of one metric of one class"),
        (("show", "grid", "--class", "A", "--metric", "LSys", "--along", "n"), "no parameter 'n'"),
        (("extrapolate", "grid", "--at", "NPC=4", "--output", "o"), "a value of SIZE"),
        (("classify", "grid", "--classes", "12"), "fewer than the 12 classes"),
    ):
        done = advisor("profile", *words)
        assert done.code in (1, 2, 3) and message in done.err, done.err


def test_classes_are_drawn(advisor: Callable[..., Any], tmp_path: Path) -> None:
    write_runs(tmp_path / "train", [grid_profile((n,), 40) for n in (4, 5)])
    advisor("profile", "import", tmp_path / "train")
    for kind, text in (
        ("radar", "class C"),
        ("graph", "NPC=4, SIZE=40"),
        ("components", "ponent 2"),
    ):
        path = tmp_path / f"{kind}.svg"
        done = advisor(
            "profile",
            "classify",
            "grid",
            "--method",
            "communication",
            "--picture",
            kind,
            "--plot",
            path,
        )
        assert done.code == 0 and text in path.read_text()
        kept(path, kind)
    mesh = GraphPanel("mesh", [(0, 0), (1, 0), (0, -1), (1, -1)], "ABCD", [(0, 1)])
    assert text_of(mesh, 80).splitlines()[1:] == ["A B", "C D"]
    assert text_of(RadarPanel("A", ["x"], [], [0.5]), 28).endswith("x  0.50 ##########")


def test_what_cannot_be_imported_leaves_nothing(
    advisor: Callable[..., Any], tmp_path: Path
) -> None:
    good, other = grid_profile((4,), 40), grid_profile((5,), 40)
    other["appScale"] = {"NPC": 5, "WIDTH": 40}
    folder = write_runs(tmp_path / "mixed", [good, other])
    done = advisor("profile", "import", folder)
    assert done.code == 1 and "run01.json: appScale: its parameters are NPC, WIDTH" in done.err
    assert "no application profiles" in advisor("profile", "show", "grid").err
    twice = write_runs(tmp_path / "twice", [good, {**good, "more": 1}])
    done = advisor("profile", "import", twice)
    assert "run01.json repeats run00.json at NPC=4, SIZE=40; run00.json is used" in done.err
    unscaled = {k: v for k, v in good.items() if k != "appScale"}
    folder = write_runs(tmp_path / "unscaled", [unscaled])
    assert "--scale" in advisor("profile", "import", folder).err
    done = advisor("profile", "import", folder, "--scale", "NPC=4,SIZE=44", "--json").json()
    assert done["applications"][0]["runs"][0]["scale"] == {"NPC": 4, "SIZE": 44}


def test_profiles_are_imported_as_a_shell_names_them(advisor: Any, tmp_path: Path) -> None:
    for n in (4, 8):
        profile = {
            "application": "a",
            "appScale": {"P": n},
            "threads": [
                {"processId": p, "threadId": 0, "instructionMix": {"instructions_analyzed": 9}}
                for p in range(n)
            ],
        }
        (tmp_path / f"{n}.json").write_text(json.dumps(profile))
    files = sorted(tmp_path.glob("*.json"))
    done = advisor("profile", "import", *files)
    assert done.code == 0 and "a: 2 runs to learn from, 2 new" in done.out, done.err
    assert advisor("profile", "redo", "a", "1").code == 0
    assert advisor("profile", "classify", "a", "--by", "profile").code == 0
    none = advisor("profile", "import", tmp_path / "none" / "*.json")
    assert none.code == 1 and none.err.count("\n") == 1
    assert "there is no file" in none.err and "name a folder" in none.err
