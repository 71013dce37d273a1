"""EAR's rules by hand-worked numbers: each strategy, the phases before them, which one holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.classes.base import Like, Setup
from advisor.classes.classify import Classifier, typical
from advisor.classes.default import limits_of
from advisor.classes.files import FileOrder
from advisor.classes.setup import SetupSources, setup_of
from advisor.classes.signature_file import read_signatures
from advisor.core.inventory import Inventory, NodeType
from advisor.core.signature import Signature
from advisor.errors import InputError

LIMITS = {"cpu": {"cpi": 0.4, "gbs": 180.0}, "memory": {"cpi": 0.4, "gbs": 250.0}}
PEAKS = "921.6 22732.8"
EXTREMES = "0.25 0.75 0.02 0.03 200 300 80 120"
MEDOIDS = "-1 -1 1.2 -1 1 1.2 -0.8 1.5 0.2 0.1 -0.2 0.3"
ALL = {"roofline": PEAKS, "extremes": EXTREMES, "medoids": MEDOIDS}


def setup(
    folder: Path,
    files: dict[str, str] | None = None,
    *,
    cores: int = 64,
    like: Like = "page",
    order: FileOrder | None = None,
    limits: object = LIMITS,
) -> Setup:
    folder.mkdir(exist_ok=True)
    for kind, line in (files or {}).items():
        (folder / f"{kind}.x.data").write_text(line + "\n")
    classes = {"tag": "x", "folder": str(folder), "limits": limits}
    site = {"node_types": {"T": {"classes": classes}}}
    inventory = Inventory.of([NodeType("T", cores=cores)])
    return setup_of("T", SetupSources(site, inventory, folder.parent), like=like, order=order)


def class_of(place: Setup, **measures: float) -> str:
    return Classifier(place).classify(Signature(**measures)).name  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "cpi, gbs, page, ear6",
    [
        (0.30, 100.0, "cpu-bound", "cpu-bound"),
        (0.40, 180.0, "cpu-bound", "mixed"),
        (0.40, 180.1, "mixed", "mixed"),
        (0.40, 250.0, "memory-bound", "mixed"),
        (0.39, 260.0, "mixed", "mixed"),
        (0.60, 180.0, "mixed", "mixed"),
        (1.50, 400.0, "memory-bound", "memory-bound"),
        (0.0, 0.0, "unknown", "unknown"),
    ],
)
def test_default(tmp_path: Path, cpi: float, gbs: float, page: str, ear6: str) -> None:
    assert class_of(setup(tmp_path), cpi=cpi, gbs=gbs) == page
    assert class_of(setup(tmp_path, like="ear6"), cpi=cpi, gbs=gbs) == ear6


def test_limits_that_overlap_are_the_cpus_first(tmp_path: Path) -> None:
    limits = {"cpu": {"cpi": 0.5, "gbs": 300.0}, "memory": {"cpi": 0.4, "gbs": 250.0}}
    place = setup(tmp_path, limits=limits)
    assert class_of(place, cpi=0.45, gbs=260) == "cpu-bound"
    assert class_of(place, cpi=0.45, gbs=301) == "memory-bound"


@pytest.mark.parametrize(
    "processor, limits",
    [
        (("", 0, 0), (0.6, 30, 0.8, 100)),
        (("GenuineIntel", 6, 106), (0.6, 30, 0.8, 100)),
        (("GenuineIntel", 6, 143), (0.4, 180, 0.4, 250)),
        (("GenuineIntel", 6, 207), (0.4, 180, 0.4, 250)),
        (("AuthenticAMD", 23, 49), (0.6, 250, 0.9, 350)),
        (("AuthenticAMD", 25, 17), (0.45, 250, 0.6, 350)),
        (("AuthenticAMD", 26, 2), (0.6, 400, 0.9, 500)),
    ],
)
def test_limits_by_processor(processor: tuple[str, int, int], limits: tuple[float, ...]) -> None:
    assert limits_of(*processor)[0] == limits


@pytest.mark.parametrize(
    "gflops, gbs, name",
    [
        (10000, 400, "cpu-bound"),
        (9866, 400, "mixed"),
        (22732.8, 921.6, "cpu-bound"),
        (5000, 691.2, "memory-bound"),
        (5000, 691.1, "mixed"),
        (100, 0, "cpu-bound"),
        (0, 700, "memory-bound"),
        (0, 0, "unknown"),
    ],
)
def test_roofline(tmp_path: Path, gflops: float, gbs: float, name: str) -> None:
    assert class_of(setup(tmp_path, {"roofline": PEAKS}), gflops=gflops, gbs=gbs) == name


def test_ear6_divides_the_traffic_by_the_processors(tmp_path: Path) -> None:
    place = setup(tmp_path, {"roofline": PEAKS}, like="ear6", cores=192)
    assert class_of(place, gflops=5000, gbs=691.2) == "mixed"
    assert class_of(place, gflops=5000, gbs=691.2, cpus=1) == "memory-bound"


@pytest.mark.parametrize(
    "cpi, tpi, gflops, gbs, distances, name, other_order",
    [
        (0.50, 0.01, 500, 60, (0.32016, 4.14035, 2.27871), "cpu-bound", "memory-bound"),
        (1.00, 0.05, 150, 250, (4.32355, 0.24109, 1.87300), "memory-bound", "mixed"),
        (0.75, 0.03, 300, 120, (2.10713, 2.30868, 0.42426), "mixed", "memory-bound"),
        (0.75, 0.03, 600, 100, (1.62865, 3.28519, 1.80069), "cpu-bound", "memory-bound"),
        (0.90, 0.04, 250, 200, (3.30341, 1.09659, 0.90139), "mixed", "memory-bound"),
        (0.60, 0.02, 420, 110, (1.23920, 3.17027, 1.34931), "cpu-bound", "memory-bound"),
    ],
)
def test_kmedoids(
    tmp_path: Path,
    cpi: float,
    tpi: float,
    gflops: float,
    gbs: float,
    distances: tuple[float, ...],
    name: str,
    other_order: str,
) -> None:
    measures = {"cpi": cpi, "tpi": tpi, "gflops": gflops, "gbs": gbs}
    found = Classifier(setup(tmp_path, ALL)).classify(Signature(**measures))  # type: ignore[arg-type]
    assert (found.name, found.strategy) == (name, "kmedoids")
    assert list(found.distances) == ["cpu-bound", "memory-bound", "mixed"]
    assert tuple(found.distances.values()) == pytest.approx(distances, abs=1e-5)
    assert class_of(setup(tmp_path, ALL, order="ear"), **measures) == other_order


def test_a_tie_of_cpu_and_memory_is_mixed(tmp_path: Path) -> None:
    files = {"extremes": "1 1 1 1 1 1 1 1", "medoids": "-1 0 0 0 1 0 0 0 5 0 0 0"}
    found = Classifier(setup(tmp_path, files)).classify(Signature(cpi=1, tpi=1, gflops=1, gbs=1))
    assert found.name == "mixed" and tuple(found.distances.values()) == (1, 1, 5)
    assert class_of(setup(tmp_path, files), cpi=0, tpi=0, gflops=0, gbs=0) == "unknown"


@pytest.mark.parametrize(
    "files, strategy",
    [
        ("", "default"),
        ("roofline", "roofline"),
        ("medoids extremes", "kmedoids"),
        ("medoids extremes roofline", "kmedoids"),
        ("medoids roofline", "roofline"),
        ("extremes", "default"),
    ],
)
def test_which_strategy_holds(tmp_path: Path, files: str, strategy: str) -> None:
    place = setup(tmp_path, {kind: ALL[kind] for kind in files.split()})
    assert next(s.NAME for s in Classifier(place).available) == strategy


def test_a_broken_file_is_as_good_as_none_and_named(tmp_path: Path) -> None:
    place = setup(tmp_path, ALL | {"medoids": "1 2 nan"})
    found = Classifier(place).classify(Signature(gflops=5000, gbs=700))
    assert found.strategy == "roofline" and "medoids.x.data" in " ".join(found.reasons)
    with pytest.raises(InputError, match=r"medoids\.x\.data, line 1, value 3"):
        Classifier(place, "kmedoids")


@pytest.mark.parametrize(
    "cpi, gbs, gflops, io_mbs, mpi_calls_s, gpu_util, name",
    [
        (0.30, 10, 1, 0, 0, 0, "busy-waiting"),
        (0.40, 10, 1, 0, 0, 0, "cpu-bound"),
        (0.30, 10, 6.4, 0, 0, 0, "cpu-bound"),
        (0.90, 20, 50, 10.0, 0, 0, "mixed"),
        (0.90, 20, 50, 10.1, 0, 0, "io-bound"),
        (0.90, 20, 50, 500, 20001, 0, "mpi-bound"),
        (0.30, 10, 1, 500, 0, 0, "io-bound"),
        (0.30, 10, 1, 0, 0, 60, "busy-waiting"),
        (0.90, 20, 50, 0, 0, 1, "gpu"),
        (0, 0, 0, 0, 0, 0, "unknown"),
        (0.90, 20, 50, 0, 20000, 0, "mixed"),
        (0.30, 10, 1, 500, 20001, 0, "busy-waiting"),
    ],
)
def test_phases_come_first(
    tmp_path: Path,
    cpi: float,
    gbs: float,
    gflops: float,
    io_mbs: float,
    mpi_calls_s: float,
    gpu_util: float,
    name: str,
) -> None:
    s = Signature(
        cpi=cpi, gbs=gbs, gflops=gflops, io_mbs=io_mbs, mpi_calls_s=mpi_calls_s, gpu_util=gpu_util
    )
    for wanted in ("", "default"):
        assert Classifier(setup(tmp_path), wanted).classify(s).name == name


def test_what_a_strategy_lacks_the_next_one_decides(tmp_path: Path) -> None:
    found = Classifier(setup(tmp_path, ALL)).classify(Signature(gflops=5000, gbs=700))
    assert (found.name, found.strategy) == ("memory-bound", "roofline")
    assert found.agreement == {
        "kmedoids": "unknown",
        "roofline": "memory-bound",
        "default": "unknown",
    }
    assert "kmedoids lacks cpi, tpi" in found.reasons
    alone = Classifier(setup(tmp_path, ALL), "kmedoids").classify(Signature(gflops=5000, gbs=700))
    assert (alone.name, alone.strategy) == ("unknown", "kmedoids")


def test_stable_is_the_share_of_draws_that_keep_the_class(tmp_path: Path) -> None:
    classifier = Classifier(setup(tmp_path, {"roofline": "100 1000"}))
    assert classifier.classify(Signature(gflops=1, gbs=90)).stable == 1.0
    on_the_limit = classifier.classify(Signature(gflops=1, gbs=75)).stable
    assert 0.2 < on_the_limit < 0.8
    near = classifier.classify(Signature(gflops=1, gbs=78)).stable
    assert on_the_limit < near <= 1.0
    wide = classifier.classify(Signature(gflops=1, gbs=90), {"gbs": 0.3}).stable
    assert wide < 1.0
    far, by_draws = Signature(gflops=1, gbs=90), classifier.available[0]
    by_draws.steady = lambda *_: False  # type: ignore[method-assign]
    assert classifier.classify(far).stable == 1.0  # the shortcut says what the draws say


def test_several_runs_count_as_one_of_the_newest_scale() -> None:
    runs = [
        Signature(cpi=c, tpi=t, source="ear", release=r)
        for c, t, r in ((1.0, 0.1, "6"), (1.2, 0.3, "6"), (1.1, 0.2, "6"), (9.0, 99.0, "4"))
    ]
    signature, errors, count = typical(runs)
    assert (signature.cpi, signature.tpi, count) == (1.1, 0.2, 3)
    assert errors["tpi"] == pytest.approx(0.5)


def test_the_hack_variables_name_the_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind, line in ALL.items():
        folder = tmp_path / ("R" if kind == "roofline" else "M")
        folder.mkdir(exist_ok=True)
        (folder / f"{kind}.x.data").write_text(line)
    empty = tmp_path / "empty"
    monkeypatch.setenv("HACK_ROOFLINE_COEFF_PATH", str(tmp_path / "R"))
    assert [s.NAME for s in Classifier(setup(empty)).available] == ["roofline", "default"]
    monkeypatch.setenv("HACK_MEDOIDS_COEFF_PATH", str(tmp_path / "M"))
    names = [s.NAME for s in Classifier(setup(empty)).available]
    assert names == ["kmedoids", "roofline", "default"]
    names = [s.NAME for s in Classifier(setup(empty, like="ear6")).available]
    assert names == ["kmedoids", "default"]  # its sources let one variable serve for all


def test_ear6_also_looks_beside_the_folder(tmp_path: Path) -> None:
    (tmp_path / "island0roofline.x.data").write_text(PEAKS)
    place = setup(tmp_path / "island0", like="ear6")
    assert [s.NAME for s in Classifier(place).available] == ["roofline", "default"]


@pytest.mark.parametrize(
    "text, where",
    [
        ('{"cpi": NaN}', "signature 1, cpi: nan is not a finite number"),
        ('[{}, {"gbs": -1}]', "signature 2, gbs: -1 is negative"),
        ('{"cpi": "0,5"}', 'signature 1, cpi: "0,5" is not a number'),
        ('{"cpi": true}', "signature 1, cpi: true is not a number"),
        ('{"time_s": 0}', "signature 1, time_s: cannot be 0"),
        ('{"cpus": 0.5}', "signature 1, cpus: 0.5 is not a whole number"),
        ("[1]", "signature 1: must be an object"),
        ('{"cpi": 1', "line 1, column 10: not JSON"),
        ('{"cpi": 1e999}', "signature 1, cpi: inf is not a finite number"),
    ],
)
def test_a_file_that_makes_no_sense(tmp_path: Path, text: str, where: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(InputError) as raised:
        read_signatures(path)
    assert str(raised.value).startswith(f"{path}, ") and where in str(raised.value)


def test_a_file_of_signatures(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps([{"cpi": 1, "gbs": None, "more": "x"}, {"cpus": 64.0}]))
    found, many = read_signatures(path)
    assert many and found[0].cpi == 1 and found[0].gbs is None and found[1].cpus == 64
    path.write_text("{}")
    assert read_signatures(path)[1] is False
