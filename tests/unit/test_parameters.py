"""Numbers of launcher lines, and the families that are left without them."""

from __future__ import annotations

import pytest

from advisor.core.parameters import parameters_of, parse_number, parse_sizes, sized_line
from advisor.core.recognise import ApplicationRule, recognise
from advisor.core.script import advisor_lines
from advisor.core.settings import stated


@pytest.mark.parametrize(
    ("line", "family", "size"),
    [
        ("-n 4000000", "-n {}", {"n": 4e6}),
        ("--size=4e6", "--size={}", {"size": 4e6}),
        ("n=4M", "n={}", {"n": 4e6}),
        ("-n4000", "-n{}", {"n": 4000}),
        ("64x64x32", "{}x{}x{}", {"arg1": 64, "arg1.2": 64, "arg1.3": 32}),
        ("--grid 64x64", "--grid {}x{}", {"grid": 64, "grid.2": 64}),
        ("run 100 7", "run {} {}", {"arg2": 100, "arg3": 7}),
        ("in_625K.txt", "in_{}.txt", {"in": 625e3}),
        ("-i data/in_10.h5 -v", "-i data/in_{}.h5 -v", {"in": 10}),
        ("input10.dat", "input{}.dat", {"input": 10}),
        ("/opt/app-2.3/mesh3d.msh", "/opt/app-2.3/mesh3d.msh", {}),
        ("-x -1 0", "-x -1 0", {}),
        ("--mem 64Ki", "--mem {}", {"mem": 65536}),
        ("", "", {}),
    ],
)
def test_lines(line: str, family: str, size: dict[str, float]) -> None:
    found = parameters_of(line)
    assert found.family == family
    assert found.size == size


def test_two_sizes_are_one_family_and_another_word_is_another() -> None:
    assert parameters_of("-n 1e6 -s lj").family == parameters_of("-n 4M -s lj").family
    assert parameters_of("-n 1e6 -s lj").family != parameters_of("-n 1e6 -s eam").family


def test_sizes_of_the_command_line() -> None:
    assert parse_sizes("n=4e6, nodes=64") == {"n": 4e6, "nodes": 64}
    for text, why in (
        ("n", "is not NAME=NUMBER"),
        ("n=x", "n: 'x' is not a number"),
        ("", "no size is given"),
        ("n=1,n=2", "n is given twice"),
        ("n=0", "a parameter is above 0"),
    ):
        with pytest.raises(ValueError, match=why):
            parse_sizes(text)
    with pytest.raises(ValueError, match="out of range"):
        parse_number("1e999")
    with pytest.raises(ValueError, match="-4 is out of range; a parameter is above 0"):
        parse_number("-4")


@pytest.mark.parametrize(
    ("line", "sizes", "ignore", "expected"),
    [
        ("-s 4M --seed 17 in.lj", {"n": 4e6}, ["seed"], "-s _ --seed _ in.lj n=4000000"),
        ("64x64x32", {"n": 64.0}, [], "_x_x32 n=64"),
        ("in_625K.txt -v", {}, [], "in_625K.txt -v"),
        ("default", {"n": 1.5, "m": 2.0}, [], "n=1.5 m=2"),
        ("50% -n {} 7", {"n": 7.0}, [], "50% -n {} _ n=7"),
    ],
)
def test_a_line_that_names_its_sizes(
    line: str, sizes: dict[str, float], ignore: list[str], expected: str
) -> None:
    named = sized_line(line, sizes, ignore)
    assert named == expected
    assert sizes.items() <= parameters_of(named).size.items()


def test_sizes_that_are_stated_name_the_workload() -> None:
    script = "#ADVISOR size.n=4e6\nsrun ./sim input.cfg\n"
    wanted = {"n": ("4e6", "#ADVISOR line")}
    settings = stated({"ADVISOR_SIZE_M": "2k", "ADVISOR_SIZE_X": "-1"}, advisor_lines(script))
    assert settings.values["size.n"] == wanted["n"]
    found = recognise(script, stated=settings.values)
    assert found.workload == "input.cfg n=4000000 m=2000"
    assert [r.code for r in found.how] == ["application-launcher", "setting-refused"]


def test_a_site_rule_names_parameters() -> None:
    rule = ApplicationRule.from_dict(
        {
            "name": "lj",
            "executable": ["lmp"],
            "arguments": [r"-v x (?P<size>\S+)"],
            "parameters": {"n": "{size}"},
            "ignore": ["seed"],
        },
    )
    for size, seed in (("4M", 1), ("4e6", 2)):
        found = recognise(f"srun lmp -in in.lj -v x {size} --seed {seed}", rules=[rule])
        assert (found.application, found.workload) == ("lj", "-in in.lj -v x _ --seed _ n=4000000")
