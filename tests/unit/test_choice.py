"""What a job gets of its models' options: bounds, other node types, pins, trials."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import pytest

from advisor.core.configuration import Configuration
from advisor.core.feasible import Constraints
from advisor.core.inventory import Inventory, NodeType
from advisor.core.option import Z90, Option, pack_options
from advisor.core.policy import Axes, ColdStart, Policy
from advisor.core.request import JobRequest
from advisor.core.settings import Pin
from advisor.core.trial_points import PERCENT, TrialPoints, needed_unseen
from advisor.service.choice import Choice, choose, class_obstacle, cold_start_of, trial_of
from advisor.service.snapshot import Snapshot
from advisor.store.records import StoredModel
from advisor.store.trials import TrialsUnderWay, key_of

LOW, TOP = 1_200_000, 2_000_000
OWN = NodeType(
    "own",
    feature="own",
    partitions=("batch",),
    sockets=2,
    cores=16,
    memory_mb=64_000,
    freq_khz=(TOP,),
    default_freq_khz=TOP,
    nodes=("a1", "a2"),
)
OTHER = replace(OWN, name="other", feature="other", freq_khz=(LOW, TOP), nodes=("b1", "b2"))
JOB = JobRequest(
    "slurm", "cli_filter", "ada", 1000, nodes=1, ntasks=1, exclusive=True, time_limit_s=0
)
COLD = ColdStart("apply", min_applications=5, classes=("mixed",))
POLICY = Policy(
    mode="apply", goal="min_energy", axes=Axes("override", "override", "override"), cold_start=COLD
)
KEPT = replace(POLICY, axes=replace(POLICY.axes, node_type="keep"))
SLOW = replace(POLICY, max_slowdown=9.0)
CONFIRMED, REFUTED = {"state": "confirmed"}, {"state": "refuted"}


def option(
    threads: int,
    energy_j: float,
    time_s: float = 100.0,
    *,
    on: str = "own",
    freq: int = TOP,
    error: float = 0.005,
    **flags: bool,
) -> Option:
    around = math.exp(Z90 * error)
    return Option(
        Configuration(on, 1, 1, threads, freq),
        time_s,
        time_s / around,
        time_s * around,
        energy_j,
        energy_j / around,
        energy_j * around,
        **{"confirmed": True, **flags},
    )


WRITTEN = option(16, 100.0)


def model(*options: Option, name: str = "bspline", **more: Any) -> StoredModel:
    node_type = options[0].configuration.node_type
    values: dict[str, Any] = {
        "state": "active",
        "energy_quality": "measured",
        "stats": {},
        **more,
    }
    return StoredModel(
        ("own", "other").index(node_type),
        "stencil",
        "default",
        node_type,
        "all",
        "",
        1,
        name,
        state_reason="",
        n_train=12,
        options_blob=pack_options(options),
        created_at="",
        updated_at="",
        **values,
    )


def by_class(*options: Option, **cold: Any) -> StoredModel:
    """A model of an application never swept, of which one run as written is known."""
    base = {
        "class": "mixed",
        "applications": 99,
        "own": WRITTEN.configuration.to_dict(),
        **cold,
    }
    return model(*options, name="class", stats={"cold_start": base})


def points(*values: tuple[float, float, float, float]) -> dict[str, object]:
    """Scale of time, expected improvement, and the most time and energy, of each option."""
    quantiles = tuple(NormalDist().inv_cdf(p / 100) for p in PERCENT)
    return TrialPoints(quantiles, values).to_dict()


def ask(
    *models: StoredModel,
    policy: Policy = POLICY,
    pin: Pin | None = None,
    site: Snapshot | None = None,
    job: JobRequest = JOB,
    **more: Any,
) -> Choice:
    """Choose for a job that is written as the first option of the first model."""
    site, own = site or Snapshot(), models[0]
    baseline = site.rows(own)[0]
    constraints = Constraints(
        job,
        baseline.configuration("own"),
        policy,
        Inventory.of([OWN, OTHER]),
        "batch",
        landing=(OWN,),
        **more,
    )
    return choose(site, {m.node_type: m for m in models}, own, baseline, constraints, pin)


def where(choice: Choice | None) -> tuple[str, int] | None:
    """The node type and threads that a job gets, None for as written."""
    if choice is None or choice.chosen is None:
        return None
    return choice.chosen.configuration.node_type, choice.chosen.configuration.threads_per_node


def codes(choice: Choice) -> list[str]:
    return [r.code for r in choice.reasons]


def details(choice: Choice, code: str) -> tuple[str, ...]:
    return next(r.details for r in choice.reasons if r.code == code)


# -- all models ------------------------------------------------------------------------------------


def test_a_limit_that_rules_out_another_node_types_option_is_no_longer_one() -> None:
    """A remembered choice is for the time limits under which it was made."""
    own, other, site = model(WRITTEN), model(option(16, 20.0, 350.0, on="other")), Snapshot()
    long, short = (replace(JOB, time_limit_s=s) for s in (1000, 300))
    assert where(ask(own, other, policy=SLOW, site=site, job=long)) == ("other", 16)
    assert where(ask(own, other, policy=SLOW, site=site, job=short)) is None


@pytest.mark.parametrize(
    "more",
    [
        {"state": "suspended"},
        {"energy_quality": "estimated"},
        {"name": "class"},
        {"name": "transfer"},
    ],
)
def test_models_of_other_node_types_that_no_job_follows(more: dict[str, str]) -> None:
    moved = option(16, 20.0, on="other")
    assert where(ask(model(WRITTEN), model(moved))) == ("other", 16)
    assert where(ask(model(WRITTEN), model(moved, **more))) is None


def test_estimates_that_the_policy_refuses_are_named_where_they_could_count() -> None:
    estimate = model(option(16, 20.0, on="other"), name="transfer")
    assert details(ask(model(WRITTEN), estimate), "estimates-refused")[0] == "other"
    accepting = replace(POLICY, estimated_node_types="accept")
    for choice in (
        ask(model(WRITTEN), estimate, policy=KEPT),
        ask(model(WRITTEN), estimate, policy=accepting),
        ask(model(WRITTEN)),
    ):
        assert "estimates-refused" not in codes(choice)


def test_the_job_as_written_is_no_option_but_its_equal_elsewhere_is() -> None:
    alone = ask(model(WRITTEN, option(8, 90.0, 200.0)))
    assert (where(alone), alone.alternatives) == (None, ())
    assert codes(alone) == ["slowdown", "no-candidates"]
    late = replace(JOB, time_limit_s=100)
    assert where(ask(model(WRITTEN, option(12, 80.0, 90.0)), job=late)) == ("own", 12)
    equal = ask(model(WRITTEN), model(option(16, 100.0, on="other")))
    assert [a.configuration.node_type for a in equal.alternatives] == ["other"]


def test_each_alternative_is_shown_once() -> None:
    choice = ask(model(WRITTEN, option(12, 80.0), option(8, 90.0)))
    assert where(choice) == ("own", 12)
    assert [a.configuration.threads_per_node for a in choice.alternatives] == [12, 8]
    nothing = ask(model(WRITTEN, option(12, 99.0), option(8, 99.5)))
    assert where(nothing) is None
    assert [a.configuration.threads_per_node for a in nothing.alternatives] == [12, 8]


def test_what_is_estimated_says_so() -> None:
    estimate: Any = {"confirmed": False, "estimated": True}
    sizes = model(WRITTEN, option(12, 80.0, **estimate), name="sizes")
    assert where(ask(sizes)) == ("own", 12)
    assert codes(ask(sizes)) == ["chosen"]
    similar = by_class(WRITTEN, option(12, 80.0, **estimate), applications=7)
    assert details(ask(similar), "class-estimated")[0] == "7 applications, 0 of them mixed"
    assert codes(ask(by_class(WRITTEN, option(12, 80.0)))) == ["chosen", "confirmed"]
    moved = model(option(16, 20.0, on="other", **estimate), name="transfer")
    accepting = replace(POLICY, estimated_node_types="accept")
    assert (
        details(ask(model(WRITTEN), moved, policy=accepting), "node-type-estimated")[0] == "other"
    )
    assert codes(ask(model(WRITTEN), model(option(16, 20.0, on="other")))) == [
        "chosen",
        "confirmed",
    ]


# -- pins ------------------------------------------------------------------------------------------


def test_of_the_options_that_fit_a_pin_the_best_for_the_goal_is_taken() -> None:
    """A pin need not save anything, nor keep the slowdown."""
    own = model(WRITTEN, option(8, 300.0, 300.0), option(12, 200.0, 200.0))
    other = model(option(8, 400.0, on="other", freq=LOW), option(12, 150.0, on="other", freq=LOW))
    assert where(ask(own, other, pin=Pin(nodes=1, freq_khz=LOW))) == ("other", 12)
    assert where(ask(own, other, pin=Pin(node_type="other"))) == ("other", 12)
    own = model(WRITTEN, option(8, 300.0, 300.0), option(8, 50.0, freq=LOW))  # it has no such step
    pinned = ask(own, pin=Pin(threads_per_node=8))
    assert (where(pinned), pinned.pinned, codes(pinned)) == (("own", 8), True, ["pinned"])
    guess = by_class(WRITTEN, option(8, 50.0, confirmed=False, estimated=True))
    assert codes(ask(guess, pin=Pin(threads_per_node=8))) == ["pinned", "class-estimated"]


def test_a_pin_of_the_job_as_written_is_kept() -> None:
    choice = ask(model(WRITTEN, option(12, 50.0)), pin=Pin(threads_per_node=16))
    assert (where(choice), choice.pinned, codes(choice)) == (None, True, ["pinned"])


def test_a_pin_that_cannot_be_had_says_what_is_in_its_way() -> None:
    """What rules out other points is not what is in the pin's way."""
    slow = replace(JOB, time_limit_s=150)
    own = model(WRITTEN, option(8, 50.0, 200.0), option(12, 50.0, freq=LOW))
    choice = ask(own, pin=Pin(threads_per_node=8), job=slow)
    assert (where(choice), choice.pinned) == (None, False)
    assert codes(choice)[-1] == "pin-impossible"
    assert {"time-limit", "not-in-inventory"} <= set(codes(choice))
    why = details(choice, "pin-impossible")[0]
    assert "time limit" in why and "inventory" not in why
    torn = ask(own, pin=Pin(threads_per_node=16, problems=("nodes='two'",)))
    assert (torn.pinned, details(torn, "pin-impossible")) == (False, ("nodes='two'",))
    unknown = ask(model(WRITTEN, option(8, 50.0)), pin=Pin(threads_per_node=7))
    assert details(unknown, "pin-impossible") == ("it is not among the options left for this job",)


# -- trials ----------------------------------------------------------------------------------------


ESTIMATE = option(12, 80.0, confirmed=False)
"""An option that no run confirmed."""
WORTH = points((0.0, 0.0, 0.0, 0.0), (0.01, 0.1, 0.0, -0.2))
"""As written nothing is to be gained, at the other option a trial is worth it."""


def test_the_first_jobs_of_a_class_try_what_is_worth_it() -> None:
    choice = ask(
        by_class(WRITTEN, ESTIMATE, option(8, 50.0, 300.0), trial_points=WORTH),
        job=replace(JOB, time_limit_s=200),
    )
    assert where(choice) is None
    trial = choice.trial
    assert where(trial) == ("own", 12)
    assert trial is not None and trial.chosen is not None and trial.chosen.estimated
    assert codes(trial) == ["time-limit", "class-estimated", "class-trial"]
    assert details(trial, "class-trial") == ("1", "2")


@pytest.mark.parametrize(
    ("policy", "cold"),
    [
        (replace(POLICY, mode="advise"), {}),
        (replace(POLICY, cold_start=replace(COLD, mode="advise")), {}),
        (replace(POLICY, cold_start=replace(COLD, trials=0)), {}),
        (POLICY, {"class": "gpu"}),
        (POLICY, {"applications": 4}),
        (POLICY, {"trials": [REFUTED] * 2}),
        (POLICY, {"trial_points": None}),
        (POLICY, {"unlike": "none is like it"}),
        (POLICY, {"own": option(8, 1.0).configuration.to_dict()}),
        (POLICY, {"own": None}),
    ],
)
def test_jobs_that_try_nothing(policy: Policy, cold: dict[str, Any]) -> None:
    assert (
        ask(by_class(WRITTEN, ESTIMATE, **{"trial_points": WORTH, **cold}), policy=policy).trial
        is None
    )


def test_the_last_trial_that_the_policy_grants() -> None:
    choice = ask(by_class(WRITTEN, ESTIMATE, trial_points=WORTH, trials=[REFUTED]))
    assert where(choice.trial) == ("own", 12)


def test_no_trial_where_only_another_node_type_has_the_point() -> None:
    low = option(12, 80.0, freq=LOW, confirmed=False)  # its steps are not in the inventory
    other = model(option(12, 200.0, on="other", freq=LOW))
    assert ask(by_class(WRITTEN, low, trial_points=WORTH), other).trial is None


def test_a_trial_of_a_job_now() -> None:
    site, tried = Snapshot(), by_class(WRITTEN, ESTIMATE, option(8, 99.0), trial_points=WORTH)
    choice = ask(tried, site=site)

    def now(model: StoredModel = tried, job: JobRequest = JOB) -> Choice:
        return trial_of(site, model, job, POLICY, choice)

    assert where(now()) == ("own", 12)
    assert now().alternatives == choice.alternatives != ()
    assert now(job=replace(JOB, array=True)) is choice
    assert now(job=replace(JOB, held=True)) is choice
    site.trials = TrialsUnderWay(stopped=frozenset({("own", "mixed")}))
    assert now() == replace(choice, reasons=(*now().reasons[:1], *choice.reasons))
    assert details(now(), "trials-stopped")[1] == "mixed"
    nameless = by_class(WRITTEN, ESTIMATE, **{"class": None})
    assert where(now(nameless)) == ("own", 12)
    site.trials = TrialsUnderWay(stopped=frozenset({("own", "unknown")}))
    assert where(now()) == ("own", 12)
    assert details(now(nameless), "trials-stopped")[1] == "unknown"
    site.trials = TrialsUnderWay({key_of(tried)}, frozenset({("own", "mixed")}))
    assert codes(now()) == ["trial-pending", *codes(choice)]
    nothing = replace(choice, trial=None)
    assert trial_of(Snapshot(), tried, JOB, POLICY, nothing) is nothing


# -- what every method of the prior must support ---------------------------------------------------


BEYOND_TIME, BEYOND_ENERGY, WITHIN = (0, 0, 0.3, -0.5), (0, 0, 0.0, 0.1), (0, 0, 0.0, -0.5)
"""What most some method expects: out of max_slowdown, out of min_saving, within both."""
GUESSES = [option(t, e, confirmed=False, estimated=True) for t, e in ((12, 60.0), (8, 80.0))]


@pytest.mark.parametrize("doubt", [BEYOND_TIME, BEYOND_ENERGY])
def test_no_job_is_the_first_at_a_doubted_option(doubt: tuple[float, ...]) -> None:
    values: Any = (WITHIN, doubt, WITHIN)
    choice = ask(by_class(WRITTEN, *GUESSES, trial_points=points(*values)))
    assert where(choice) == ("own", 8)
    assert codes(choice) == ["class-doubted", "chosen", "class-estimated"]
    assert details(choice, "class-doubted") == ("1",)
    for free in (points(WITHIN, WITHIN, WITHIN), points(WITHIN, WITHIN, doubt), None):  # type: ignore[arg-type]
        choice = ask(by_class(WRITTEN, *GUESSES, trial_points=free))
        assert where(choice) == ("own", 12)
        assert codes(choice) == ["chosen", "class-estimated"]


def test_where_all_options_are_doubted_nothing_changes() -> None:
    values: Any = (WITHIN, BEYOND_TIME, BEYOND_TIME)
    doubted = by_class(WRITTEN, *GUESSES, trial_points=points(*values))
    choice = ask(doubted)
    assert (where(choice), choice.alternatives, codes(choice)) == (None, (), ["class-doubted"])
    assert details(choice, "class-doubted") == ("2",)
    nothing = ask(by_class(WRITTEN, option(12, 99.0), trial_points=points(*values[:2])))
    assert (where(nothing), codes(nothing)) == (None, ["saving-too-small"])
    elsewhere = ask(doubted, model(option(12, 70.0, on="other")))
    assert where(elsewhere) == ("other", 12)
    advised = ask(doubted, policy=replace(POLICY, cold_start=replace(COLD, mode="advise")))
    assert (where(advised), codes(advised)) == (("own", 12), ["chosen", "class-estimated"])


# -- after trials ----------------------------------------------------------------------------------


def test_after_trials_only_what_one_confirmed_is_used() -> None:
    guess = option(8, 20.0, confirmed=False, estimated=True)
    slow = option(4, 10.0, 200.0)
    tried = by_class(WRITTEN, option(12, 80.0), guess, slow, trials=[REFUTED, CONFIRMED])
    choice = ask(tried)
    assert where(choice) == ("own", 12)
    assert codes(choice) == ["slowdown", "chosen", "trial-confirmed"]
    assert details(choice, "slowdown")[2] == "90 %"  # it is as sure as the policy asks
    refuted = ask(by_class(WRITTEN, option(12, 80.0), guess, trials=[REFUTED] * 2))
    assert (where(refuted), codes(refuted)) == (None, ["trials-refuted"])


@pytest.mark.parametrize(
    "uncertain", [option(12, 96.0, error=0.02), option(12, 60.0, 104.0, error=0.02)]
)
def test_a_trial_that_kept_the_bounds_is_sure_only_for_jobs_like_its_own(
    uncertain: Option,
) -> None:
    choice = ask(by_class(WRITTEN, uncertain, option(4, 10.0, 200.0), trials=[CONFIRMED]))
    assert where(choice) == ("own", 12)
    assert details(choice, "slowdown")[2] == "50 %"
    another = by_class(WRITTEN, uncertain, trials=[CONFIRMED], own=None)
    choice = ask(another)
    assert where(choice) is None
    assert "trial-confirmed" not in codes(choice)


@pytest.mark.parametrize(
    "moved",
    [
        option(16, 50.0, 104.0, on="other", error=0.02),
        option(16, 96.0, on="other", error=0.02),
    ],
)
def test_a_trial_makes_no_option_of_another_node_type_surer(moved: Option) -> None:
    """Both bounds hold there at the policy's confidence: no trial ran on it."""
    missed = by_class(WRITTEN, option(12, 99.0), trials=[CONFIRMED])
    assert where(ask(missed, model(moved))) is None
    tried = by_class(WRITTEN, option(12, 96.5), trials=[CONFIRMED])
    assert where(ask(tried, model(moved))) == ("own", 12)
    unsure = by_class(WRITTEN, option(12, 60.0, 104.0, error=0.02), trials=[CONFIRMED])
    assert where(ask(unsure, model(option(16, 70.0, on="other")))) == ("own", 12)
    assert where(ask(missed, model(option(16, 70.0, on="other")))) == ("other", 16)
    choice = ask(tried, model(option(16, 50.0, on="other")))
    assert where(choice) == ("other", 16)
    assert codes(choice) == ["chosen", "confirmed"]


# -- what is recorded ------------------------------------------------------------------------------


def test_what_is_recorded_of_a_choice_by_class() -> None:
    tried = by_class(WRITTEN, ESTIMATE, like=["a"], trial_points=WORTH, trials=[REFUTED])
    choice = ask(tried, policy=replace(POLICY, cold_start=replace(COLD, trials=3)))
    assert cold_start_of(model(WRITTEN), choice) == {}
    assert cold_start_of(None, choice) == {}
    shown = {
        "class": "mixed",
        "strategy": None,
        "applications": 99,
        "like": ["a"],
        "method": None,
        "trials": [REFUTED],
    }
    assert cold_start_of(tried, choice) == {**shown, "trial": None, "intervals": None}
    trial = choice.trial
    assert trial is not None and trial.chosen is not None
    time, energy = trial.chosen.time, trial.chosen.energy
    assert cold_start_of(tried, trial) == {
        **shown,
        "trial": {"number": 2, "of": 3},
        "intervals": {"time": [time.lo, time.hi], "energy": [energy.lo, energy.hi]},
    }


def test_what_keeps_a_class_model_from_changing_jobs() -> None:
    choice = Choice(None, (), ())

    def why(
        cold: dict[str, Any] | None = None, policy: Policy = POLICY, seen: Choice | None = None
    ) -> tuple[str, ...]:
        obstacle = class_obstacle(by_class(WRITTEN, **cold or {}), policy, seen)
        return () if obstacle is None else (obstacle.code, *obstacle.details)

    few = {"applications": needed_unseen(POLICY.confidence) - 1}
    assert few["applications"] >= COLD.min_applications
    assert why() == ()
    assert why({"applications": 5}) == ()
    assert why({"applications": 4}) == ("class-few", "4", "own", "5")
    bare = class_obstacle(model(WRITTEN, name="class"), POLICY)
    assert bare is not None and bare.details == ("0", "own", "5")
    advise = replace(POLICY, cold_start=replace(COLD, mode="advise"))
    assert why(policy=advise) == ("cold-start-advise",)
    assert why({"class": "gpu"}) == ("class-not-listed", "gpu")
    assert why({"class": None}) == ("class-not-listed", "unknown")
    listed = replace(POLICY, cold_start=replace(COLD, classes=("unknown",)))
    assert why({"class": None}, listed) == ()
    assert why(policy=listed) == ("class-not-listed", "mixed")
    enough = {"applications": few["applications"] + 1}
    assert why(enough, seen=choice) == ()
    assert why(few, seen=choice)[0] == "class-unseen"
    assert why({**few, "trials": [CONFIRMED]}, seen=choice) == ()
    assert why(few) == ()
