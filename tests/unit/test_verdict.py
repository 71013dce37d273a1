"""The verdict of two lines: what a job gets, and whether it is applied."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.core.configuration import Configuration
from advisor.core.decision import Alternative, Decision, Effect
from advisor.core.policy import Policy, UserLimits
from advisor.core.reasons import reason
from advisor.views.verdict import against, verdict

ASKED = Configuration("skl", 1, 1, 32, 2_400_000)
FEWER = replace(ASKED, threads_per_node=4)
SAVES = Alternative(
    FEWER, 100.5, 870.0, Effect(0.005, -0.02, 0.03), Effect(-0.13, -0.15, -0.11), confirmed=True
)
ADVICE = Decision(
    "d",
    "2026-01-01T00:00:00+00:00",
    "slurm",
    "explain",
    "ann",
    "",
    Policy(mode="advise"),
    "cg",
    "default",
    ASKED,
    SAVES,
    reasons=(reason("chosen", "it"), reason("mode-advise")),
    energy_quality="measured",
)
APPLIED = replace(
    ADVICE,
    policy=Policy(mode="apply"),
    reasons=ADVICE.reasons[:1],
    environment={"OMP_NUM_THREADS": "4"},
)


def lines(policy: Decision | None, yours: Decision | None = None, missing: str = "") -> list[str]:
    said = verdict(policy, yours or policy, missing)
    return [said.what, said.applied]


def nothing(*reasons: tuple[str, ...]) -> Decision:
    return replace(ADVICE, chosen=None, reasons=tuple(reason(*r) for r in reasons))


def test_advice_is_said_in_these_words() -> None:
    assert lines(ADVICE) == [
        "WOULD SAVE 13 % energy (11 to 15), time +0.5 % (-2 to +3): 4 cores, not 32",
        "NOT APPLIED: the site only advises · a apply it for me",
    ]
    assert verdict(ADVICE, ADVICE).can_apply


def test_what_is_applied_will_save() -> None:
    assert lines(APPLIED) == [
        "WILL SAVE 13 % energy (11 to 15), time +0.5 % (-2 to +3): 4 cores, not 32",
        "APPLIED: the site's policy does it · c choose otherwise",
    ]
    assert lines(ADVICE, APPLIED)[1] == "APPLIED: as you chose · c choose otherwise"


def test_another_node_type_is_promised_only_as_far_as_queues_permit() -> None:
    there = SAVES._replace(configuration=replace(FEWER, node_type="bdw"))
    moved = replace(APPLIED, chosen=there)
    assert lines(moved)[1] == (
        "APPLIED: the site's policy does it, queues permitting · c choose otherwise"
    )
    assert lines(ADVICE, moved)[1].startswith("APPLIED: as you chose, queues permitting ·")
    assert lines(replace(ADVICE, chosen=there))[1] == (
        "NOT APPLIED: the site only advises; queues must permit it, too · a apply it for me"
    )


def test_what_one_asked_not_to_have_can_be_asked_for_again() -> None:
    advised = replace(ADVICE, policy=Policy(mode="advise"))
    assert (
        lines(APPLIED, advised)[1] == "NOT APPLIED: you asked for advice only · a apply it for me"
    )


def test_nothing_is_offered_that_the_site_refuses() -> None:
    only = Policy(mode="advise", user_limits=UserLimits(mode="advise"))
    said = verdict(replace(ADVICE, policy=only), replace(ADVICE, policy=only))
    assert said.applied == "NOT APPLIED: the site only advises" and not said.can_apply
    guess = replace(ADVICE, policy=Policy(mode="apply"), energy_quality="estimated")
    said = verdict(guess, guess)
    assert said.what.startswith("WOULD SAVE about 13 % energy")
    assert "its energy is an estimate" in said.applied and not said.can_apply


@pytest.mark.parametrize(
    ("codes", "what", "applied"),
    [
        ([("baseline-is-best", "edp")], "the job as written is best for goal edp", "as written"),
        ([("unconfirmed", "3"), ("no-candidates",)], "3 promising options", "t measure"),
        ([("opted-out", "your choices file")], "you opted out", "as you wrote them"),
    ],
)
def test_nothing_to_change_says_why(codes: list[tuple[str, ...]], what: str, applied: str) -> None:
    said = lines(nothing(*codes))
    assert said[0].startswith("CHANGES NOTHING: ") and what in said[0]
    assert said[1].startswith("NOTHING TO APPLY: ") and applied in said[1]


def test_other_gains_and_other_numbers() -> None:
    faster = SAVES._replace(time=Effect(-0.10, -0.12, -0.08), energy=Effect(0.031, 0.02, 0.04))
    assert lines(replace(APPLIED, chosen=faster))[0] == (
        "WILL SAVE 10 % time (8 to 12), energy +3 % (+2 to +4): 4 cores, not 32"
    )
    sharp = SAVES._replace(energy=Effect(-0.13, -0.132, -0.128))
    assert "SAVE 13.0 % energy (12.8 to 13.2)" in lines(replace(ADVICE, chosen=sharp))[0]
    nan = float("nan")
    unknown = SAVES._replace(energy=Effect(nan, nan, nan))
    assert "energy not known" in lines(replace(ADVICE, chosen=unknown))[0]
    same = SAVES._replace(time=Effect(0.0, -0.0004, 0.0004))
    assert "time 0 % (0 to 0)" in lines(replace(ADVICE, chosen=same))[0]
    assert lines(None, None, "knl is not in the inventory")[0] == (
        "NO ADVICE: knl is not in the inventory"
    )
    pinned = replace(ADVICE, chosen=SAVES._replace(configuration=ASKED))
    assert "you pinned what the job asks for already" in lines(pinned)[0]


def test_what_differs() -> None:
    assert against(ASKED, replace(ASKED, freq_khz=1_900_000)) == "1.9 GHz, not 2.4"
    assert against(ASKED, replace(FEWER, freq_khz=1_900_000)) == "4 cores, 1.9 GHz"
    assert against(ASKED, replace(ASKED, node_type="milan")) == "milan, not skl"
    two = replace(ASKED, nodes=2)
    assert against(two, replace(two, threads_per_node=1)) == "1 core a node, not 32"
