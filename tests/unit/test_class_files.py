"""EAR's files of one tag, its configuration, and what a site learns from its own jobs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from advisor.classes.earconf import find_ear_conf, read_ear_conf
from advisor.classes.files import (
    Extremes,
    Medoids,
    Peaks,
    check_folder,
    lines_of,
    read_files,
    read_values,
    write_files,
)
from advisor.classes.peaks import PROCESSORS
from advisor.classes.setup import SetupSources, setup_of
from advisor.classes.train import (
    TrainingRow,
    greedy_start,
    paper_start,
    park_jun,
    silhouette,
    train,
)
from advisor.core.inventory import Inventory, NodeType
from advisor.errors import InputError, RefusedError

GOOD = {
    "roofline": "921.6 22732.8",
    "extremes": "0.25 0.75 0.02 0.03 200 300 80 120",
    "medoids": "-1 -1 1.2 -1 1 1.2 -0.8 1.5 0.2 0.1 -0.2 0.3",
}


def fill(folder: Path, **lines: str) -> Path:
    folder.mkdir(exist_ok=True)
    for kind, line in lines.items():
        (folder / f"{kind}.x.data").write_text(line)
    return folder


@pytest.mark.parametrize(
    "kind, line, where",
    [
        ("roofline", "921.6", "line 1: 1 value, but roofline has 2"),
        ("roofline", "921.6 22732.8 1", "line 1: 3 values, but roofline has 2"),
        ("roofline", "921,6 22732.8", "value 1 (peak memory bandwidth): '921,6' has a decimal"),
        ("roofline", "921.6 nan", "value 2 (peak floating performance): 'nan' is not a finite"),
        ("roofline", "-1 5", "value 1 (peak memory bandwidth): '-1' is negative"),
        ("roofline", "0 5", "value 1 (peak memory bandwidth): '0' cannot be 0"),
        ("roofline", "22732.8 921.6", "line 1: the peaks are swapped"),
        ("roofline", "1 2\n3 4", "line 2: there is more than the one line"),
        ("roofline", "", "line 1: 0 values, but roofline has 2"),
        ("extremes", "0 0.75 0.02 0.03 200 300 80 120", "value 1 (CPI std): '0' cannot be 0"),
        ("extremes", "0.25 x 0.02 0.03 200 300 80 120", "value 2 (CPI mean): 'x' is not a number"),
        ("extremes", "0.25 -1 0.02 0.03 200 300 80 120", "value 2 (CPI mean): '-1' is negative"),
        ("medoids", "1 2 3", "line 1: 3 values, but medoids has 12"),
        ("medoids", "1 2 3 4 5 6 7 8 9 10 11 inf", "value 12 (MIX MEM_GBS): 'inf' is not a finite"),
    ],
)
def test_a_mistake_is_one_line_with_file_and_place(
    tmp_path: Path, kind: str, line: str, where: str
) -> None:
    fill(tmp_path, **(GOOD | {kind: line}))
    with pytest.raises(InputError) as raised:
        check_folder(tmp_path)
    text = str(raised.value)
    assert text.startswith(str(tmp_path / f"{kind}.x.data")) and where in text and "\n" not in text


def test_a_folder_without_mistakes(tmp_path: Path) -> None:
    assert check_folder(fill(tmp_path, **GOOD)) == ["x"]
    (tmp_path / "roofline.6148.b.data").write_text("1 10\n\n")
    assert check_folder(tmp_path) == ["6148.b", "x"]
    for kind, other in (("medoids", "extremes"), ("extremes", "medoids")):
        folder = fill(tmp_path / kind, **{kind: GOOD[kind]})
        with pytest.raises(InputError, match=f"{kind}.x.data is there without {other}.x.data"):
            check_folder(folder)
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="has no class files"):
        check_folder(tmp_path / "none")
    with pytest.raises(InputError, match="cannot be read"):
        check_folder(tmp_path / "nowhere")


@pytest.mark.parametrize("order", ["page", "ear"])
def test_what_is_written_is_read_back(tmp_path: Path, order: str) -> None:
    extremes = Extremes((0.25, 0.02, 200, 80), (0.75, 0.03, 300, 120))
    medoids = Medoids((-1, -1, 1.2, -1), (1, 1.2, -0.8, 1.5), (0.2, 0.1, -0.2, 0.3))
    lines = lines_of(extremes, medoids, order)  # type: ignore[arg-type]
    values = {kind: tuple(v) for kind, v in lines.items()}
    paths = write_files(tmp_path / "new", "x", values | {"roofline": Peaks(921.6, 22732.8)})
    assert (tmp_path / "new" / "roofline.x.data").read_text() == "921.6 22732.8\n"
    assert len(paths) == 3 == len(list((tmp_path / "new").iterdir()))
    folders = dict.fromkeys(GOOD, tmp_path / "new")
    found = read_files("x", folders, order)  # type: ignore[arg-type]
    assert (found.extremes, found.medoids) == (extremes, medoids) and not found.problems
    swapped = read_values(tmp_path / "new" / "extremes.x.data", "extremes")
    assert swapped[4:6] == ((200, 300) if order == "page" else (80, 120))


def test_a_write_that_fails_changes_nothing(tmp_path: Path) -> None:
    fill(tmp_path, **GOOD)
    before = {p.name: p.read_text() for p in tmp_path.iterdir()}
    with pytest.raises(InputError):  # peaks the wrong way round
        write_files(tmp_path, "x", {"extremes": (1.0,) * 8, "roofline": (10.0, 1.0)})
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == before


def test_peaks_on_paper() -> None:
    assert PROCESSORS["EPYC 9654"].peaks(2) == (921.6, 22732.8)
    assert Peaks(921.6, 22732.8).ridge == pytest.approx(24.6666666667)


EAR_CONF = """
# Tag=not_this
Tag=6148 default=yes max_power=800 error_power=900
TAG=9654 max_power=1500
Island=0 Nodes=n[1-2] EARDBD_IP=n1
island=3 nodes=m[01-04],k1 tag=9654
"""


def test_ear_conf_says_tag_and_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ear" / "ear.conf"
    path.parent.mkdir()
    path.write_text(EAR_CONF)
    ear = read_ear_conf(path)
    assert ear.tags == ("6148", "9654")
    first, third = ear.place_of(["n2"]), ear.place_of(["x", "m03"])
    assert first and (first.tag, first.island, first.max_power_w) == ("6148", 0, 800.0)
    assert third and (third.tag, third.island) == ("9654", 3) and ear.place_of(["x"]) is None
    fill(tmp_path / "ear" / "coeffs", roofline="1 10")
    folder = tmp_path / "ear" / "coeffs" / "island3"
    folder.mkdir()
    (folder / "roofline.9654.data").write_text("1 10")
    inventory = Inventory.of([NodeType("gen5", cores=4, nodes=("m01", "m02"))])
    place = setup_of("gen5", SetupSources({}, inventory, tmp_path, ear))
    assert place.tag == "9654" and place.files.peaks == (1, 10)
    site = {"node_types": {"gen5": {"classes": {"tag": "typo"}}}}
    with pytest.raises(InputError, match=r"ear\.conf has no tag 'typo'"):
        setup_of("gen5", SetupSources(site, inventory, tmp_path, ear))
    with pytest.raises(InputError, match="node type 'gen6' is unknown"):
        setup_of("gen6", SetupSources({}, inventory, tmp_path))
    assert find_ear_conf() is None
    monkeypatch.setenv("EAR_ETC", str(tmp_path))
    assert find_ear_conf() == path


@pytest.mark.parametrize(
    "line, where",
    [
        ("Island=0 Nodes=n1 tag=7", "line 2: tag '7' is unknown (known: a)"),
        ("Island=x Nodes=n1", "line 2: island 'x' is not a number"),
        ("Island=0", "line 2: an island without Nodes="),
        ("Island=", "line 2: island without a"),
        ("Island=0 Nodes=n[1-", "line 2: Nodes: "),
    ],
)
def test_mistakes_in_ear_conf(tmp_path: Path, line: str, where: str) -> None:
    path = tmp_path / "ear.conf"
    path.write_text(f"Tag=a\n{line}\n")
    with pytest.raises(InputError) as raised:
        read_ear_conf(path)
    assert f"{path}, {where}" in str(raised.value)


POINTS = [(1, 1), (1, 2), (2, 1), (6, 1), (7, 1), (6, 2), (4, 6), (4, 7), (5, 6)]
GROUPS = [{0, 1, 2}, {3, 4, 5}, {6, 7, 8}]


def test_park_and_jun_by_hand() -> None:
    assert paper_start(POINTS) == [5, 3, 2]
    assert park_jun(POINTS, [5, 3, 2]) == ([6, 3, 0], 6.0)
    labels = [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert 0.6 < silhouette(POINTS, labels) < 1
    assert silhouette(POINTS, [0, 1, 2] * 3) < 0


@pytest.mark.parametrize("repeated", range(9))
def test_rows_that_repeat_one_another_do_not_swallow_the_start(repeated: int) -> None:
    points = POINTS + [POINTS[repeated]] * 99
    best = min((park_jun(points), park_jun(points, greedy_start(points))), key=lambda m: m[1])
    medoids = {POINTS.index(points[m]) for m in best[0]}
    assert all(medoids & group for group in GROUPS)


def rows(count: int, applications: int) -> list[TrainingRow]:
    draw = random.Random(14)
    bases = ((0.4, 0.005, 800.0, 40.0), (1.6, 0.05, 100.0, 280.0), (0.9, 0.02, 350.0, 130.0))
    return [
        TrainingRow(
            f"app{i % applications}",
            f"w{i}",
            tuple(x * draw.lognormvariate(0, 0.1) for x in bases[i % 3]),  # type: ignore[arg-type]
        )
        for i in range(count)
    ]


def test_training_names_the_classes() -> None:
    trained = train(rows(60, 12))
    assert [g.name for g in trained.groups] == ["cpu-bound", "memory-bound", "mixed"]
    assert [{i % 3 for i in g.rows} for g in trained.groups] == [{0}, {1}, {2}]
    assert trained.silhouette > 0.7 and "least" in trained.groups[0].why


def test_too_little_is_refused() -> None:
    for count, applications in ((29, 12), (60, 7)):
        with pytest.raises(RefusedError, match="are too few: 30 of 8 are needed"):
            train(rows(count, applications))
    same = [TrainingRow(f"a{i}", "w", (1.0, 0.1, float(i), float(i))) for i in range(40)]
    with pytest.raises(RefusedError, match="CPI is the same in all 40 rows"):
        train(same)
    two = [TrainingRow(f"a{i}", "w", (i % 2 + 1.0,) * 4) for i in range(40)]
    with pytest.raises(RefusedError, match="fewer than 3 different"):
        train(two)
