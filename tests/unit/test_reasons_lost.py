"""A reason from an older stamp or store may lack details; its sentence still reads."""

import re

from advisor.core.reasons import KINDS, Reason


def test_no_reason_shows_a_placeholder() -> None:
    for code in KINDS:
        for details in ((), ("3",), ("3", "5%")):
            text = Reason(code, details).text
            assert "{" not in text and "}" not in text, text


def test_one_thing_is_counted_in_the_singular() -> None:
    plurals = re.compile(
        r"(only |: )?\b1 (promising )?(options|applications) |\b1 \w+ (do|are|were) "
    )
    for code in (code for code, kind in KINDS.items() if kind.one):
        one, two = Reason(code, ("1", "5%", "90%", "9")), Reason(code, ("2", "5%", "90%", "9"))
        assert "1 " in one.text and not plurals.search(one.text), code
        assert one.text.replace("1 ", "2 ", 1) != two.text, code
    assert Reason("slowdown", ("1", "5%", "90%")).text == (
        "1 option exceeds 5% slowdown at 90% confidence"
    )
