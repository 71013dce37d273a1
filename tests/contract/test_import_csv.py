"""``advisor import``: what it takes, what it refuses, and that it takes nothing twice."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.core.observation import Observation
from advisor.store.csvfile import Terms, read_csv
from advisor.store.opening import caller
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from tests.another_user import as_user

HEADER = "nodes,ranks_per_node,threads_per_node,freq_khz,time_s,energy_j"
Run = Callable[..., Any]


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    path = tmp_path / "grid.csv"
    path.write_text(
        f"{HEADER},fom,note\n"
        "1,2,4,1200000,10.5,300,5.5,first\n"
        "2,2,8,0,5.25,,,7\n"
        "2,2,8,2.4 GHz,5.5,0,,1.50\n"
    )
    return path


@pytest.fixture
def take(advisor: Run) -> Run:
    """Import a file with the arguments that are always needed."""

    def run(path: Path, *more: object) -> Any:
        return advisor("import", path, "--application", "app", "--node-type", "hsw", *more)

    return run


def stored(path: Path) -> list[Observation]:
    with Reader(path) as reader:
        return [o.observation for o in reader.observations("app")]


# -- what it takes -------------------------------------------------------------------------------


def test_every_column_is_kept(take: Run, grid: Path, store_path: Path) -> None:
    done = take(grid, "--workload", "big", "--meter", "rapl")
    assert (done.code, done.err) == (0, "")
    assert "imported 3 runs of app (workload big) on hsw" in done.out
    assert "energy measured in 1, missing in 2 (rapl)" in done.out
    assert "everybody's jobs" in done.out
    assert "next: advisor fit app --workload big" in done.out
    me = caller()
    assert stored(store_path) == [
        Observation(
            Configuration("hsw", 1, 2, 4, 1_200_000),
            10.5,
            300.0,
            5.5,
            "measured",
            "rapl",
            "import",
            me,
            scope="all",
            extra={"note": "first"},
        ),
        Observation(
            Configuration("hsw", 2, 2, 8, 0),
            5.25,
            None,
            None,
            "missing",
            "",
            "import",
            me,
            scope="all",
            extra={"note": 7},
        ),
        Observation(
            Configuration("hsw", 2, 2, 8, 2_400_000),
            5.5,
            None,
            None,
            "missing",
            "",
            "import",
            me,
            scope="all",
            extra={"note": 1.5},
        ),
    ]
    with Reader(store_path) as reader:
        assert [w.name for w in reader.workloads("app")] == ["big"]


def test_json(take: Run, grid: Path) -> None:
    done = take(grid, "--json", "--scope", "account", "--account", "bio", "--contributor", "ann")
    assert done.json() == {
        "schema": "advisor/import/1",
        "file": str(grid),
        "application": "app",
        "workload": "default",
        "node_type": "hsw",
        "imported": 3,
        "skipped": 0,
        "scope": "account",
        "contributor": "ann",
        "account": "bio",
        "energy": {"measured": 1, "estimated": 0, "missing": 2},
        "impossible_energies": 0,
        "extra_columns": ["note"],
        "next": "advisor fit app",
    }


def test_estimated_energy_is_marked(take: Run, grid: Path, store_path: Path) -> None:
    done = take(grid, "--energy", "estimated")
    assert "energy estimated in 1, missing in 2" in done.out
    assert [o.energy_quality for o in stored(store_path)] == ["estimated", "missing", "missing"]


def test_no_energy_at_all_is_said(take: Run, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{HEADER}\n1,1,1,0,1.5,\n1,1,2,0,1.2,0.0\n")
    assert "only their time can be modelled" in take(path).out


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + HEADER.encode() + b"\r\n1,1,4,0,1.5,20\r\n",
        b'"nodes","ranks_per_node","threads_per_node","freq_khz","time_s","energy_j"\n'
        b'"1","1","4","0","1.5","20"\n',
        b"\n" + HEADER.encode() + b"\n\n1,1,4,0,1.5,20\n,,,,,\n\n",
        b" time_s , energy_j,nodes,ranks_per_node,freq_khz,threads_per_node\n1.5, 20 ,1,1,0,4",
        b"," + HEADER.encode() + b"\n0,1.0,1.0,4.0,0.0,1.5,2e1\n",
    ],
    ids=["bom-crlf", "quoted", "blank-lines", "order-and-spaces", "pandas-index"],
)
def test_dialects(take: Run, tmp_path: Path, store_path: Path, content: bytes) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    assert take(path).err == ""
    [run] = stored(store_path)
    assert (run.configuration, run.time_s, run.energy_j) == (
        Configuration("hsw", 1, 1, 4, 0),
        1.5,
        20.0,
    )


def test_a_node_type_outside_the_inventory_is_said(take: Run, grid: Path, store_path: Path) -> None:
    with Writer(store_path) as store:
        store.save_node_types([NodeType("skl")], source="site")
    done = take(grid)
    assert done.code == 0
    assert "hsw is not in the inventory (skl)" in done.err


def test_many_rows(take: Run, tmp_path: Path, store_path: Path) -> None:
    path = tmp_path / "big.csv"
    rows = (f"1,1,{n % 64 + 1},{1_200_000 + n},{1 + n / 7},{n % 3}\n" for n in range(20_000))
    path.write_text(HEADER + "\n" + "".join(rows))
    assert take(path, "--json").json()["imported"] == 20_000
    assert len(stored(store_path)) == 20_000


def test_a_long_file_is_counted_while_it_is_read(tmp_path: Path) -> None:
    path, seen = tmp_path / "big.csv", set[tuple[int, int]]()
    path.write_text(HEADER + "\n" + "1,1,4,1200000,2.5,3\n" * 4001)
    table = read_csv(path, Terms("bdw", "ann"), lambda done, of: seen.add((done, of)))
    assert len(table.observations) == 4001
    # first as text, when nobody knows how many there are, then as runs
    assert seen == {(2000, 0), (4000, 0), (0, 4001), (2000, 4001), (4000, 4001)}


def test_extra_columns_may_have_any_name_and_cells_several_lines(
    take: Run, tmp_path: Path, store_path: Path
) -> None:
    names = ["self", "index", "line", *(f"c{i}" for i in range(150))]
    path = tmp_path / "wide.csv"
    path.write_text(
        f"{HEADER},{','.join(names)}\n"
        + "".join(f'1,1,{t},0,1.5,20,"a\nb",{"7," * 151}x\n' for t in (4, 8))
    )
    assert take(path).err == ""
    runs = stored(store_path)
    assert [set(r.extra) for r in runs] == [set(names), set(names)]
    assert [runs[0].extra[n] for n in ("self", "index", "c149")] == ["a\nb", 7, "x"]
    path.write_text(f'{HEADER},note\n1,1,4,0,1.5,20,"a\nb"\n1,1,4,0,none,20,\n')
    assert "line 4, time_s: 'none' is not a number" in take(path).err


# -- twice ---------------------------------------------------------------------------------------


def test_nothing_is_taken_twice(take: Run, grid: Path, store_path: Path) -> None:
    take(grid)
    done = take(grid)
    assert done.code == 0
    assert "3 runs of grid.csv already imported" in done.out
    assert "imported 3 runs" not in done.out
    assert take(grid, "--json").json()["skipped"] == 3
    assert len(stored(store_path)) == 3
    renamed = grid.rename(grid.with_name("moved.csv"))
    assert take(renamed, "--json").json()["imported"] == 0


def test_a_file_that_grew_brings_only_its_new_runs(take: Run, grid: Path, store_path: Path) -> None:
    take(grid)
    with grid.open("a") as file:
        file.write("4,2,8,0,2.5,,,late\n")
    data = take(grid, "--json").json()
    assert (data["imported"], data["skipped"]) == (1, 3)
    assert stored(store_path)[-1].extra == {"note": "late"}


def test_repeats_in_one_file_are_kept(take: Run, tmp_path: Path, store_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text(f"{HEADER}\n" + "1,1,4,0,2,20\n" * 3)
    assert take(path, "--json").json()["imported"] == 3
    assert take(path, "--json").json()["skipped"] == 3
    assert len(stored(store_path)) == 3


def test_again_and_elsewhere(take: Run, grid: Path, tmp_path: Path, store_path: Path) -> None:
    take(grid)
    assert take(grid, "--again", "--json").json()["imported"] == 3
    assert take(grid, "--workload", "other", "--json").json()["imported"] == 3
    assert take(grid, "--node-type", "skl", "--json").json()["imported"] == 3
    assert take(grid, "--contributor", "ann", "--json").json()["imported"] == 3
    other = tmp_path / "second-campaign.csv"
    other.write_text(f"{HEADER}\n1,2,4,1200000,10.5,300\n")
    assert take(other, "--json").json()["imported"] == 1
    assert len(stored(store_path)) == 16


def test_runs_that_a_further_column_tells_apart_are_no_repeats(take: Run, tmp_path: Path) -> None:
    """Runs of several batch sizes became repeats of one configuration, and nothing said so."""
    rows = [
        f"1,1,{threads},0,{400 / threads * (1 + 20 / batch):.3f},9000,{batch}"
        for threads in (2, 4, 8)
        for batch in (8, 16, 64)
    ]
    lines = [f"{row},{number}" for number, row in enumerate([*rows, *rows])]
    path = tmp_path / "training.csv"
    path.write_text("\n".join([f"{HEADER},batch,started", *lines]) + "\n")
    done = take(path)
    assert done.code == 0 and done.err.count("\n") == 1
    assert "batch acts like an axis" in done.err and "differ by up to 167 %" in done.err
    assert "--parameters batch makes each value a workload" in done.err
    sized = take(path, "--parameters", "batch", "--again")
    assert (sized.code, sized.err) == (0, "")


# -- what it refuses -----------------------------------------------------------------------------


def test_every_mistake_is_said_with_line_and_column(
    take: Run, tmp_path: Path, store_path: Path
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(
        f"{HEADER},fom,note\n"
        "1,1,4,0,1.5,20,,ok\n"
        "0,1.5,x,-1,nan,-3,0,\n"
        "1,4,2,1900,0,inf,-1,\n"
        '1,1,4,0,"1,5",20,,"a\nb"\n'
        "1,1,4,,-2,nan,,\n"
        "1,1\n"
        "1,1,4,0,1e400,1_0,,\n"
        "99999999999,1,4,0,1,1,,\n"
    )
    done = take(path)
    assert done.code == 1 and done.out == ""
    head, *lines = done.err.splitlines()
    assert head == f"advisor: {path}: 20 mistakes, nothing was imported"
    assert [line.strip() for line in lines] == [
        "line 3, nodes: '0' is not a whole number from 1 up",
        "line 3, ranks_per_node: '1.5' is not a whole number from 1 up",
        "line 3, threads_per_node: 'x' is not a number",
        "line 3, freq_khz: '-1' is not a frequency in kHz; 1.9 GHz is 1900000",
        "line 3, time_s: 'nan' is not a finite number",
        "line 3, energy_j: '-3' is negative; leave it blank when it was not measured",
        "line 3, fom: '0' is not above 0",
        "line 4, freq_khz: '1900' is not a frequency in kHz; 1.9 GHz is 1900000",
        "line 4, time_s: '0' is not above 0",
        "line 4, energy_j: 'inf' is not a finite number",
        "line 4, fom: '-1' is not above 0",
        "line 4, threads_per_node: 2 is less than the 4 ranks per node; count ranks x threads",
        "line 5, time_s: '1,5' has a decimal comma; write a point",
        "line 7, freq_khz: is blank; write 0 where no cap can be set",
        "line 7, time_s: '-2' is not above 0",
        "line 7, energy_j: 'nan' is not a finite number",
        "line 8: 2 cells, but the header has 8 columns",
        "line 9, time_s: '1e400' is not a finite number",
        "line 9, energy_j: '1_0' is not a number",
        "line 10, nodes: '99999999999' is too large",
    ]
    assert not store_path.exists()


def test_a_mistake_leaves_the_store_as_it_was(take: Run, grid: Path, store_path: Path) -> None:
    take(grid)
    with grid.open("a") as file:
        file.write("1,1,4,0,1.5,20,,\n1,1,4,0,none,20,,\n")
    done = take(grid)
    assert "1 mistake, nothing was imported" in done.err and "line 6, time_s" in done.err
    assert len(stored(store_path)) == 3


def test_names_are_said_to_be_stored_only_once_they_are(
    advisor: Run, grid: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("threads,time_s\nmany,1\n")
    named = ("--application", "[x]", "--node-type", "n1")
    refused = advisor("import", str(bad), *named)
    assert refused.code == 1 and "stored as" not in refused.err
    taken = advisor("import", str(grid), *named)
    assert taken.code == 0, taken.err
    assert "stored as application '_x_', as jobs are recognised" in taken.err
    assert "of _x_ " in taken.out


def test_fit_without_a_store_says_so_whatever_is_named(advisor: Run, tmp_path: Path) -> None:
    for named in ((), ("A",)):
        result = advisor("fit", *named, "--db", str(tmp_path / "none.db"))
        assert result.code != 0 and "there is no store" in result.err


def test_a_file_full_of_mistakes_is_cut_short(take: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(f"{HEADER}\n" + "1,1,4,1900,1,1\n" * 500)
    lines = take(path).err.splitlines()
    assert lines[0].endswith("500 mistakes, nothing was imported")
    assert lines[-1].strip() == "and 400 more"
    assert len(lines) == 102


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (HEADER.encode(), "no runs"),
        (b"nodes;ranks_per_node;time_s\n1;2;3,5\n", "line 1: columns are separated by semicolons"),
        (HEADER.replace(",", "\t").encode() + b"\n", "separated by tabs"),
        (b"nodes,time_s\n1,2\n", "line 1, ranks_per_node: column is missing"),
        (HEADER.replace("freq_khz", "freq_MHz").encode(), "freq_khz: column is missing; is it"),
        (HEADER.encode() + b",time_s\n", "line 1, time_s: column given twice"),
        (HEADER.encode() + b'\n1,1,"4,0,1,1\n', "line 2: not CSV"),
        (HEADER.encode() + b"\n1,1,4,0,1,\xfc\n", "line 2: byte 0xfc is not UTF-8"),
        (b"\x7fELF\x00\x01\x80\xff", "is not UTF-8"),
        (HEADER.encode() + b",node_type\n1,1,4,0,1,1,skl\n", "line 2, node_type: 'skl', but"),
    ],
)
def test_files_that_make_no_sense(
    take: Run, tmp_path: Path, store_path: Path, content: bytes, what: str
) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    done = take(path)
    assert done.code == 1 and done.out == ""
    assert what in done.err and str(path) in done.err and "Traceback" not in done.err
    assert not store_path.exists()


def test_a_results_summary_is_imported(take: Run, tmp_path: Path) -> None:
    path = tmp_path / "summary.yml"
    path.write_text(
        "".join(
            f"- parameters: {{nodes: 1, threadCount: {t}, cpuFrequency: {f}}}\n"
            f"  objectives: {{seconds: {100 / t}, totalEnergy: {50 + t}}}\n"
            for t in (1, 2, 4)
            for f in (1200000, 2200000)
        )
    )
    assert "--time-key" in take(path).err
    done = take(path, "--time-key", "seconds")
    assert done.code == 0
    assert "imported 6 runs" in done.out
    assert "6 runs of summary.yml already imported" in take(path, "--time-key", "seconds").out
    assert take(path, "--only", "nodes").code == 2
    assert "no runs with nodes=3" in take(path, "--only", "nodes=3").err


def test_files_that_cannot_be_read(take: Run, tmp_path: Path) -> None:
    assert "No such file" in take(tmp_path / "none.csv").err
    assert "Is a directory" in take(tmp_path).err


def test_arguments_that_make_no_sense(advisor: Run, take: Run, grid: Path) -> None:
    assert advisor("import", grid).code == 2
    assert take(grid, "--scope", "account").code == 2
    assert take(grid, "--scope", "everyone").code == 2
    for name in ("", "a\nb", "x" * 300):
        done = take(grid, "--workload", name)
        assert done.code == 1 and "is not a name for a workload" in done.err


# -- whose runs ----------------------------------------------------------------------------------


@pytest.fixture
def shared_store() -> Iterator[Path]:
    """A store that its owner lets everybody write."""
    if os.geteuid():
        pytest.skip("needs two users")
    with tempfile.TemporaryDirectory(prefix="advisor-test-") as name:
        Path(name).chmod(0o777)
        path = Path(name) / "advisor.db"
        Writer(path).close()
        path.chmod(0o666)
        yield path


def test_who_does_not_own_the_store_imports_only_for_themselves(
    take: Run, shared_store: Path
) -> None:
    path = shared_store.with_name("g.csv")
    path.write_text(f"{HEADER}\n1,1,4,0,1.5,20\n")
    path.chmod(0o644)

    def attempt(*more: str) -> Callable[[], str]:
        def task() -> str:
            done = take(path, "--db", shared_store, *more)
            return f"{done.code} {done.out}{done.err}"

        return task

    for more in (("--scope", "all"), ("--contributor", "root"), ("--scope", "account")):
        answer = as_user(attempt(*more, "--account", "bio"))
        assert answer.startswith("3 ") and "is not yours" in answer, answer
        assert "advisor store promote app --scope all --contributor nobody" in answer
    answer = as_user(attempt())
    assert answer.startswith("0 ") and "jobs of nobody only" in answer, answer
    with Reader(shared_store) as reader:
        [found] = reader.observations("app")
        assert (found.observation.contributor, found.observation.scope) == ("nobody", "own")


def test_a_file_of_several_programs_is_refused(advisor: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "grid.csv"
    header = "application,nodes,ranks_per_node,threads_per_node,freq_khz,time_s,energy_j\n"
    file.write_text(header + "a,1,1,1,0,1,100\nb,1,1,1,0,9,900\n")
    for words in (("import", file, "--application", "x", "--node-type", "y"), ("evaluate", file)):
        done = advisor(*words)
        assert done.code == 1 and done.err.count("\n") == 1
        assert "2 different ones by their column application (a, b)" in done.err
