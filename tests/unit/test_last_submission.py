"""What is said of a script's last submission."""

from __future__ import annotations

from advisor.views.last_submission import DifferingOption, LastSubmission


def test_values_of_another_submission_reach_no_terminal_as_orders() -> None:
    last = LastSubmission(
        "d1", "2026-11-26T12:00:00", {"select": DifferingOption("1", "2\x1b[2J\x07:ncpus=4\n")}
    )
    assert last.line().isprintable() and "select=2?[2J?:ncpus=4?" in last.line()
