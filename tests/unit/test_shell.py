"""Reading shell scripts: the commands, where they stand, and what is not followed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.shell import ShellCommand, read_shell


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
        "srun", "-n", "$N", "$A ${B:-3}", "c $d", "e f", "g\\n", "--x=y z",
    )  # fmt: skip


@pytest.mark.parametrize(
    "script",
    ["a 'b", 'a "b', "a $(b", "if a; then b", "done", "cat <<EOF\nx", "case x in a) b;;", "a )",
     "cat <<EOF\n$(b)\nEOF", "`a", "echo ${x:-\"y\"}", "for x & y; do a; done"],
)  # fmt: skip
def test_what_is_not_followed_is_named(script: str) -> None:
    assert read_shell(script).problem


def test_after_what_is_not_followed_the_next_line_is_read() -> None:
    assert [c.words for c in read_shell("a 'b\nsrun ./c").commands] == [("a",), ("srun", "./c")]
    assert ("srun", "./c") in [c.words for c in read_shell("done\nsrun ./c").commands]


def test_comments_are_no_text_and_here_documents_are() -> None:
    shell = read_shell("# OMP\na # OMP\ncat <<EOF\nMKL\nEOF\n")
    assert "OMP" not in shell.text and "MKL" in shell.text


@given(st.text(alphabet="ab ;&|<>()'\"`$\\\n{}[]=#!ifdones", max_size=60))
def test_no_text_breaks_it(text: str) -> None:
    shell = read_shell(text)
    assert all(c.words for c in shell.commands)
