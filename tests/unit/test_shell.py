"""Reading shell scripts: the commands, where they stand, and what is not followed."""

from __future__ import annotations

import sys
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.script_use import MAX_SCRIPT, use_of_script
from advisor.core.shell import MAX_COMMANDS, MAX_PROBLEMS, ShellCommand, read_shell
from advisor.core.shell_words import MAX_DEPTH


def places(script: str) -> dict[str, str]:
    """First word of each command -> L(oop) F(unction) S(ubstituted) B(ackground)."""

    def marks(c: ShellCommand) -> str:
        flags = zip("LFSB", (c.loop, c.function, c.substituted, c.background), strict=True)
        return "".join(letter for letter, on in flags if on)

    return {c.words[0]: marks(c) for c in read_shell(script).commands}


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("srun ./a 'x y' \"b $(date) c\" > out 2>&1", {"date": "S", "srun": ""}),
        ("for i in 1 2; do srun ./a $i; done; b", {"srun": "L", "b": ""}),
        ("for ((i=0;i<3;i++)); do\n srun $i &\ndone\nwait", {"srun": "LB", "wait": ""}),
        ("f() {\n echo hi\n}\nf", {"echo": "F", "f": ""}),
        ("function g {\n date\n}\nfunction h() { ls; }", {"date": "F", "ls": "F"}),
        (
            "case $x in\n a) echo a;;\n b|c) srun b ;;\nesac\nlast",
            {"echo": "", "srun": "", "last": ""},
        ),
        ("(cd x; srun a) & wait", {"cd": "B", "srun": "B", "wait": ""}),
        ("{ a; b; } &\nc && d &\ne", {"a": "B", "b": "B", "c": "B", "d": "B", "e": ""}),
        ("if [ -f x ]; then a; else b; fi", {"[": "", "a": "", "b": ""}),
        ("while read l; do a; done < <(ls)", {"read": "L", "a": "L", "ls": "S"}),
        ("cat <<EOF\nsrun bad\nEOF\n./good", {"cat": "", "./good": ""}),
        ("cat <<-'EOF' > f\n\tsrun $(bad)\n\tEOF\ngood", {"cat": "", "good": ""}),
        ("arr=(1 2 3)\nb=( $(seq 3) )\na", {"arr=": "", "seq": "S", "b=": "", "a": ""}),
        ("[[ $x == y && ( $z < 3 ) ]] && a", {"[[": "", "a": ""}),
        ("if (( x > 3 )); then a; fi", {"((": "", "a": ""}),
        ("awk '{print}\nEND{}' f; a", {"awk": "", "a": ""}),
        ("a | b |& c && d || e", {"a": "", "b": "", "c": "", "d": "", "e": ""}),
        ("until a; do sleep 1; done", {"a": "L", "sleep": "L"}),
        ("x=`a b`; time c; ! d", {"a": "S", "x=`a b`": "", "c": "", "d": ""}),
        ("a \\\n  b # c\n# d\ne#f", {"a": "", "e#f": ""}),
    ],
)
def test_commands_and_where_they_stand(script: str, found: dict[str, str]) -> None:
    assert read_shell(script).problem == ""
    assert places(script) == found


def test_words_are_without_quotes_and_variables_as_written() -> None:
    (command,) = read_shell("srun -n $N \"$A ${B:-3}\" 'c $d' e\\ f $'g\\n' --x=\"y z\"").commands
    assert command.words == (
        "srun",
        "-n",
        "$N",
        "$A ${B:-3}",
        "c $d",
        "e f",
        "g\\n",
        "--x=y z",
    )


@pytest.mark.parametrize(
    "script",
    [
        "a 'b",
        'a "b',
        "a $(b",
        "if a; then b",
        "done",
        "cat <<EOF\nx",
        "case x in a) b;;",
        "a )",
        "cat <<EOF\n$(b)\nEOF",
        "`a",
        "echo ${x:-'}'}",
        "for x & y; do a; done",
    ],
)
def test_what_is_not_followed_is_named(script: str) -> None:
    assert read_shell(script).problem


def test_after_what_is_not_followed_the_next_line_is_read() -> None:
    assert [c.words for c in read_shell("a 'b\nsrun ./c").commands] == [("a",), ("srun", "./c")]
    assert ("srun", "./c") in [c.words for c in read_shell("done\nsrun ./c").commands]


def test_comments_are_no_text_and_here_documents_are() -> None:
    shell = read_shell("# OMP\na # OMP\ncat <<EOF\nMKL\nEOF\n")
    assert "OMP" not in shell.text and "MKL" in shell.text


@pytest.mark.parametrize("end", [" EOF", "EOF ", "\tEOF", "EOF\r"])
def test_a_here_document_goes_on_past_an_end_that_is_not_alone_on_its_line(end: str) -> None:
    shell = read_shell(f"cat <<EOF\nsrun ./a\n{end}\nsrun ./b\nEOF\nsrun ./c\n")
    assert [c.words for c in shell.commands] == [("cat",), ("srun", "./c")]


def test_tabs_before_the_end_do_not_count_where_it_says_so() -> None:
    shell = read_shell("cat <<-EOF\n\tsrun ./a\n EOF\n\t\tEOF\nsrun ./c\n")
    assert [c.words for c in shell.commands] == [("cat",), ("srun", "./c")]


@given(st.text(alphabet="ab ;&|<>()'\"`$\\\n{}[]=#!ifdones", max_size=60))
def test_no_text_breaks_it(text: str) -> None:
    shell = read_shell(text)
    assert all(c.words for c in shell.commands)


# -- scripts made to be hard to read ---------------------------------------------------------------


def calls_to_read(script: str) -> int:
    """How many functions are called to read a script; the time differs from machine to machine."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        read_shell(script)
    finally:
        sys.setprofile(before)
    return calls


def nested(levels: int, inner: str = "a") -> str:
    return '"$(' * levels + inner + ')"' * levels


@pytest.mark.parametrize(
    "script",
    [
        nested(10_000),
        nested(MAX_DEPTH + 1),
        '"$(' * 20_000,
        f"{nested(9)}\n" * 1_000,
        ('"$(' * 9 + "\n") * 2_000,
        "$(" * 20_000,
        "[[ a\n" * 10_000,
        "[[ a " * 10_000,
        "[[ " + "a ] " * 10_000,
        "if [[ ( \n" * 5_000,
    ],
    ids=lambda script: repr(script[:12]),
)
def test_a_script_made_to_be_hard_to_read_is_given_up_soon(script: str) -> None:
    script = script[:MAX_SCRIPT]
    assert calls_to_read(script) < 2 * MAX_SCRIPT  # one look at every character, hardly more
    assert use_of_script(f"srun ./app\n{script}").obstacle[0] == "script-not-understood"


def test_commands_inside_of_commands_are_read_so_deep_and_no_deeper() -> None:
    shell = read_shell(f"echo {nested(MAX_DEPTH, 'srun ./app')}")
    assert not shell.problem and ("srun", "./app") in [c.words for c in shell.commands]
    assert read_shell(nested(MAX_DEPTH + 1)).problem


def test_after_many_problems_the_rest_is_not_read() -> None:
    def last(problems: int) -> tuple[str, ...]:
        return read_shell("[[ a\n" * problems + "srun ./last").commands[-1:][0].words

    assert last(MAX_PROBLEMS - 1) == ("srun", "./last")
    assert not read_shell("[[ a\n" * MAX_PROBLEMS + "srun ./last").commands


@pytest.mark.parametrize("line", ["x=`a`\n", "cd a\n", "echo $(a; b; c)\n", "a | b\n"])
def test_a_script_of_too_many_commands_is_not_read_to_its_end(line: str) -> None:
    shell = read_shell(line * 50_000 + "srun ./last")
    assert shell.problem == f"it has more than {MAX_COMMANDS} commands"
    assert len(shell.commands) <= MAX_COMMANDS + 3
    assert not read_shell("cd a\n" * MAX_COMMANDS).problem
