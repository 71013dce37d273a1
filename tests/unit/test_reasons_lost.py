"""A reason from an older stamp or store may lack details; its sentence still reads."""

from advisor.core.reasons import TEXTS, TEXTS_FOR_ONE, Reason


def test_no_reason_shows_a_placeholder() -> None:
    for code in TEXTS:
        for details in ((), ("3",), ("3", "5%")):
            text = Reason(code, details).text
            assert "{" not in text and "}" not in text, text


def test_one_thing_is_counted_in_the_singular() -> None:
    for code in TEXTS_FOR_ONE:
        one, two = Reason(code, ("1", "5%", "90%", "9")), Reason(code, ("2", "5%", "90%", "9"))
        assert "2 " in two.text and two.text.count("s ") != one.text.count("s "), code
    assert Reason("slowdown", ("1", "5%", "90%")).text == (
        "1 option exceeds 5% slowdown at 90% confidence"
    )
