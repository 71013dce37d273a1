"""A reason from an older stamp or store may lack details; its sentence still reads."""

from advisor.core.reasons import TEXTS, Reason


def test_no_reason_shows_a_placeholder() -> None:
    for code in TEXTS:
        for details in ((), ("3",), ("3", "5%")):
            text = Reason(code, details).text
            assert "{" not in text and "}" not in text, text
