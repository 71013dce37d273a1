"""What a job may take, exactly at each bound: time, memory, nodes, threads, frequency, the axes."""

from __future__ import annotations

import math
from dataclasses import fields, make_dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.cache_key import key_maker
from advisor.core.configuration import Configuration
from advisor.core.feasible import Constraints, axis_kept, feasible, feasible_rows
from advisor.core.inventory import Inventory, NodeType
from advisor.core.option import Option, Row, row_of
from advisor.core.policy import Axes, AxisRule, Policy
from advisor.core.reasons import reason
from advisor.core.request import JobRequest
from advisor.core.requested_configuration import configuration_of
from advisor.core.script_use import NO_USE

STEPS = (1_200_000, 1_600_000, 2_000_000)
TOP = STEPS[-1]
OWN = NodeType(
    "own",
    feature="own",
    partitions=("batch",),
    sockets=2,
    cores=16,
    memory_mb=64_000,
    freq_khz=STEPS,
    default_freq_khz=TOP,
    nodes=("a1", "a2"),
)
OTHER = replace(OWN, name="other", feature="other", nodes=("b1", "b2"))
OVERRIDE = Axes("override", "override", "override")


def job(**asked: Any) -> JobRequest:
    fields = {"nodes": 1, "ntasks": 1, "exclusive": True, "time_limit_s": 0} | asked
    return JobRequest("slurm", "cli_filter", "ada", 1000, **fields)


def constraints(
    request: JobRequest | None = None,
    *,
    axes: Axes = OVERRIDE,
    nodes: int = 1,
    ranks: int = 1,
    other: NodeType = OTHER,
    own: NodeType = OWN,
    threads: int = 16,
    **more: Any,
) -> Constraints:
    return Constraints(
        request or job(),
        Configuration("own", nodes, ranks, threads, TOP),
        Policy(axes=axes),
        Inventory.of([own, other]),
        more.pop("partition", "batch"),
        **{"landing": (own,), **more},
    )


def row(
    threads: int = 16,
    freq: int = TOP,
    time_s: float = 100.0,
    hi_s: float = 101.0,
    *,
    nodes: int = 1,
    ranks: int = 1,
) -> Row:
    where = Configuration("own", nodes, ranks, threads, freq)
    return row_of(Option(where, time_s, time_s * 0.99, hi_s, 100, 99, 101, confirmed=True))


def why(x: Constraints, wanted: Row | None = None, node_type: str = "own") -> str:
    """Return what rules out a row, "" if nothing does; both forms of the question agree."""
    one = wanted or row()
    rows, dropped = feasible_rows(node_type, [one], x)
    assert len(rows) + dropped.total() == 1
    options, reasons = feasible([one.option(node_type)], x)
    assert len(options) == len(rows) and len(reasons) == dropped.total()
    assert [reason.code for reason in reasons] == [reason.code for reason in dropped]
    return next((":".join((reason.code, *reason.details)) for reason in dropped), "")


# -- time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("more_s", "fits"), [(0, True), (1e-9, False), (-1e-9, True)])
@pytest.mark.parametrize(
    ("asked", "ends_s"),
    [
        ({"time_limit_s": 101}, math.inf),
        ({"time_limit_s": 161, "signal_before_s": 60}, math.inf),
        ({"time_limit_s": 0}, 101.0),
        ({"time_limit_s": 500}, 101.0),
        ({"time_limit_s": 101}, 500.0),
    ],
)
def test_an_end_surely_within_the_limit(
    asked: dict[str, Any], ends_s: float, more_s: float, fits: bool
) -> None:
    x = constraints(job(**asked), use=replace(NO_USE, ends_after_s=ends_s))
    assert x.limit_s == 101
    assert why(x, row(hi_s=101 + more_s)) == ("" if fits else "time-limit")
    several, dropped = feasible_rows("own", [row(hi_s=101 + more_s), row(hi_s=90)], x)
    assert len(several) == 1 + fits and dropped[reason("time-limit")] == (not fits)


def test_no_limit_rules_nothing_out() -> None:
    assert constraints(job(time_limit_s=0, signal_before_s=60)).limit_s == math.inf
    assert why(constraints(job(time_limit_s=0)), row(hi_s=1e9)) == ""


@pytest.mark.parametrize(
    ("time_s", "hi_s", "fits"),
    [(100, 101, True), (100.001, 101, False), (100, 101.001, False), (99, 100, True)],
)
def test_where_no_limit_is_known_both_ends_are_those_as_written(
    time_s: float, hi_s: float, fits: bool
) -> None:
    x = constraints(job(time_limit_s=None), as_written_s=(100.0, 101.0))
    assert why(x, row(time_s=time_s, hi_s=hi_s)) == ("" if fits else "time-limit-unknown")
    for free in (constraints(job(time_limit_s=None)), replace(x, request=job(time_limit_s=0))):
        assert why(free, row(time_s=time_s, hi_s=hi_s)) == ""


@given(st.integers(60, 200), st.integers(0, 60), st.floats(-1e-6, 1e-6))
def test_what_may_be_taken_ends_before_any_signal(limit_s: int, before_s: int, off: float) -> None:
    x = constraints(job(time_limit_s=limit_s + before_s, signal_before_s=before_s))
    hi_s = limit_s + off
    rows, _ = feasible_rows("own", [row(time_s=10, hi_s=hi_s)], x)
    assert bool(rows) == (hi_s + before_s <= limit_s + before_s)


@pytest.mark.parametrize(
    ("limit_s", "longest_s", "same"),
    [(200, 150.0, True), (200, 200.0, True), (199, 199.5, False), (150, 200.0, False)],
)
def test_a_limit_counts_for_a_remembered_choice_where_it_rules_something_out(
    limit_s: int, longest_s: float, same: bool
) -> None:
    limited, free = (constraints(job(time_limit_s=s)) for s in (limit_s, 0))
    assert (limited.key(longest_s) == free.key(longest_s)) == same


def test_a_choice_without_a_known_limit_is_remembered_apart() -> None:
    unknown = constraints(job(time_limit_s=None), as_written_s=(100.0, 101.0))
    free = replace(unknown, request=job(time_limit_s=0))
    assert unknown.key(1.0) != free.key(1.0)
    assert free.key(1.0) == replace(free, as_written_s=None).key(1.0)
    assert free.key(1.0) == replace(unknown, as_written_s=None).key(1.0)


@pytest.mark.parametrize(
    "more",
    [
        {"baseline": Configuration("own", 1, 1, 8, TOP)},
        {"policy": Policy(max_slowdown=0.2)},
        {"partition": "long"},
        {"whole": False},
        {"threads_kept": "x"},
        {"threads_unset": "x"},
        {"freq_kept": "x"},
        {"node_type_kept": "x"},
        {"cores_kept": "x"},
        {"obstacles": {"other": ("a", "b")}},
        {"freq_cap_khz": TOP},
        {"need_mb": 1.0},
        {"use": replace(NO_USE, cores="x")},
        {"landing": (OWN, OTHER)},
    ],
)
def test_whatever_bounds_a_choice_tells_it_from_others(more: dict[str, Any]) -> None:
    x = constraints()
    assert replace(x, **more).key(1.0) != x.key(1.0)


@pytest.mark.parametrize(
    "asked",
    [
        {"explicit": frozenset({"threads"})},
        {"memory_per_node_mb": 1.0},
        {"memory_per_cpu_mb": 1.0},
        {"default_memory_mb": (1.0, 0.0)},
        {"exclusive": False},
        {"nodes": 2},
        {"ntasks": 2},
        {"ntasks_per_node": 1},
        {"cpus_per_task": 4},
        {"environment": {"OMP_NUM_THREADS": "4"}},
        {"freq_low_khz": 1},
    ],
)
def test_whatever_bounds_a_request_tells_its_choice_from_others(asked: dict[str, Any]) -> None:
    assert constraints(job(**asked)).key(1.0) != constraints().key(1.0)


def test_threads_that_a_script_states_tell_its_choice_from_others() -> None:
    """A larger node type is used as far as the script states, or whole."""
    scripts = ("srun app\n", f"export OMP_NUM_THREADS={OWN.cores}\nsrun app\n")
    free, stating = (constraints(job(script=script)) for script in scripts)
    large = replace(OTHER, cores=2 * OWN.cores)
    assert free.baseline == stating.baseline == configuration_of(stating.request, OWN)
    assert free.natural(large) != stating.natural(large)
    assert free.key(1.0) != stating.key(1.0)


def test_every_field_is_part_of_the_key_or_says_why_not() -> None:
    """A field that is added counts at once: forgotten, it would serve another job's choice."""
    for kind, instance in ((JobRequest, job()), (Constraints, constraints())):
        added = make_dataclass("Added", [("added", int, 0)], bases=(kind,), frozen=True)
        values = {f.name: getattr(instance, f.name) for f in fields(kind)}
        key = key_maker(added)
        assert key(added(**values)) != key(added(**values, added=1)), kind
        for part in fields(kind):
            assert all(isinstance(why, str) or callable(why) for why in part.metadata.values())
            assert part.metadata or not part.type.startswith("Mapping"), f"{part.name} has no hash"


# -- the axes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", ["frequency", "threads", "node_type"])
@pytest.mark.parametrize(
    ("rule", "free"),
    [  # where may it change: (lower, not set), (higher, not set), (lower, set), (higher, set)
        ("keep", ()),
        ("fill", ("lower open", "higher open")),
        ("cap", ("lower open", "lower set")),
        ("override", ("lower open", "higher open", "lower set", "higher set")),
    ],
)
def test_what_a_rule_lets_change(axis: str, rule: AxisRule, free: tuple[str, ...]) -> None:
    other = {"frequency", "threads", "node_type"} - {axis}
    for lower in (True, False):
        for explicit in (True, False):
            request = job(explicit=frozenset({axis} if explicit else other))
            case = f"{'lower' if lower else 'higher'} {'set' if explicit else 'open'}"
            kept = axis_kept(axis, rule, request, lower=lower)
            expected = reason("axis-keep" if rule == "keep" else "user-set", axis)
            assert kept == (None if case in free else expected)


# -- shape and threads ---------------------------------------------------------------------------


def test_nodes_and_ranks_are_the_user_s() -> None:
    x = constraints(job(nodes=2, ntasks=4, exclusive=True), nodes=2, ranks=2)
    assert why(x, row(nodes=2, ranks=2)) == ""
    for nodes, ranks in ((1, 2), (2, 1), (1, 4), (4, 1), (2, 4)):
        assert why(x, row(nodes=nodes, ranks=ranks)) == "allocation-kept"


@pytest.mark.parametrize(
    ("threads", "reason"),
    [(17, "threads-own"), (32, "threads-own"), (16, ""), (15, "no-room"), (14, ""), (1, "no-room")],
)
def test_threads_only_become_fewer_and_share_out_evenly(threads: int, reason: str) -> None:
    x = constraints(job(ntasks=2), ranks=2)
    assert why(x, row(threads, ranks=2)).partition(":")[0] == reason


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"threads_kept": "t"}, "threads-own:t"),
        ({"cores_kept": "c"}, ""),
        ({"threads_kept": "t", "whole": False}, ""),
        ({"cores_kept": "c", "whole": False}, "cores-kept:c"),
        ({"threads_unset": "u"}, "threads-unset:u"),
        ({"axes": Axes(threads="keep")}, "axis-keep:threads"),
        ({"axes": Axes()}, ""),
    ],
)
def test_what_keeps_the_threads(more: dict[str, Any], code: str) -> None:
    x = constraints(**more)
    assert why(x, row(8)) == code
    assert why(x, row(16)) == ""
    mine = replace(x, request=job(explicit=frozenset({"threads"})))
    if more.get("axes") == Axes():
        assert why(mine, row(8)) == "user-set:threads"


def test_more_threads_than_cores_have_no_room_even_as_asked() -> None:
    assert why(constraints(job(cpus_per_task=18), threads=18), row(18)) == "no-room"
    two = replace(OWN, threads_per_core=2)
    assert why(constraints(job(cpus_per_task=32), own=two, threads=32), row(32)) == ""
    assert why(constraints(job(cpus_per_task=33), own=two, threads=33), row(33)) == "no-room"


# -- nodes and memory ----------------------------------------------------------------------------


def test_no_more_nodes_than_a_partition_has() -> None:
    x = constraints(job(nodes=2, ntasks=2), nodes=2)
    assert why(x, row(nodes=2)) == ""
    few = replace(OWN, partition_nodes=(("batch", 1),))
    assert why(replace(x, inventory=Inventory.of([few])), row(nodes=2)) == "no-room"
    # where the partition is not known all nodes count
    assert why(replace(x, inventory=Inventory.of([few]), partition=""), row(nodes=2)) == ""
    one = replace(OWN, nodes=("a1",))
    for partition in ("", "batch"):
        gone = replace(x, inventory=Inventory.of([one]), partition=partition)
        assert why(gone, row(nodes=2)) == "no-room"


@pytest.mark.parametrize(
    ("asked", "fits"),
    [
        ({"memory_per_node_mb": 64_000.0}, True),
        ({"memory_per_node_mb": 64_001.0}, False),
        ({"memory_per_cpu_mb": 4_000.0}, True),
        ({"memory_per_cpu_mb": 4_001.0}, False),
    ],
)
def test_memory_for_all_threads(asked: dict[str, Any], fits: bool) -> None:
    assert why(constraints(job(**asked), landing=())) == ("" if fits else "no-room")
    unknown = replace(OWN, memory_mb=0)
    assert why(constraints(job(**asked), own=unknown, landing=())) == ""


def test_memory_that_profiles_predict_for_each_node() -> None:
    x = constraints(job(nodes=2, ntasks=2), nodes=2)
    assert why(replace(x, need_mb=128_000), row(nodes=2)) == ""
    assert why(replace(x, need_mb=128_001), row(nodes=2)).startswith("lacks-memory:1 rank a node")


@pytest.mark.parametrize(
    ("asked", "change", "fits"),
    [
        # stated: as much of it, however the other differs
        ({"memory_per_node_mb": 32_000.0}, {"memory_mb": 32_000}, True),
        ({"memory_per_node_mb": 32_000.0}, {"memory_mb": 31_999}, False),
        ({"memory_per_node_mb": 32_000.0}, {"memory_mb": 0}, True),
        ({"memory_per_cpu_mb": 100.0}, {"memory_mb": 32_000}, True),
        ({"memory_per_cpu_mb": 100.0}, {"cores": 15}, False),
        ({"memory_per_cpu_mb": 100.0, "default_memory_mb": (65_000.0, 0.0)}, {}, True),
        # the scheduler's default per node
        ({"default_memory_mb": (32_000.0, 0.0)}, {"memory_mb": 32_000}, True),
        ({"default_memory_mb": (32_000.0, 0.0)}, {"memory_mb": 31_999}, False),
        # per CPU: no fewer of them, and room for all
        ({"default_memory_mb": (0.0, 2_000.0)}, {"memory_mb": 32_000}, True),
        ({"default_memory_mb": (0.0, 2_000.0)}, {"memory_mb": 31_999}, False),
        ({"default_memory_mb": (0.0, 2_000.0)}, {"memory_mb": 0}, True),
        ({"default_memory_mb": (0.0, 2_000.0)}, {"cores": 15}, False),
        ({"default_memory_mb": (0.0, 2_000.0)}, {"cores": 17}, True),
        (
            {"default_memory_mb": (0.0, 2_000.0)},
            {"threads_per_core": 2, "memory_mb": 63_999},
            False,
        ),
        # all that a node has
        ({"default_memory_mb": (0.0, 0.0)}, {}, True),
        ({"default_memory_mb": (0.0, 0.0)}, {"memory_mb": 63_999}, False),
        ({"default_memory_mb": (0.0, 0.0)}, {"memory_mb": 64_001, "cores": 20}, True),
        # it is not known which: no less by any
        ({}, {}, True),
        ({}, {"memory_mb": 63_999}, False),
        ({}, {"cores": 15, "memory_mb": 65_000}, False),
    ],
)
def test_no_less_memory_on_another_node_type(
    asked: dict[str, Any], change: dict[str, Any], fits: bool
) -> None:
    x = constraints(job(cpus_per_task=8, **asked), other=replace(OTHER, **change), threads=8)
    assert why(x, row(8), "other") == ("" if fits else "no-room")
    x = constraints(
        job(cpus_per_task=8, **asked),
        other=replace(OTHER, **change),
        threads=8,
        landing=(OTHER, OWN),
    )
    assert why(x, row(8), "other") == ("" if fits else "no-room")


def test_all_memory_of_a_node_with_fewer_cores() -> None:
    x = constraints(
        job(default_memory_mb=(0.0, 0.0), cpus_per_task=8),
        threads=8,
        other=replace(OTHER, cores=15),
    )
    assert why(x, row(8), "other") == ""


@pytest.mark.parametrize(
    ("default", "reason"), [((70_000.0, 0.0), ""), ((0.0, 5_000.0), "no-room"), (None, "no-room")]
)
def test_a_default_per_node_holds_on_its_own_node_type(
    default: tuple[float, float] | None, reason: str
) -> None:
    """By default per CPU it may land where there are more of them."""
    larger = replace(OTHER, cores=20, memory_mb=96_000)
    x = constraints(job(default_memory_mb=default), other=larger, landing=(OWN, larger))
    assert why(x) == reason


# -- frequency -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "freq", "reason"),
    [
        ({}, 1_600_000, ""),
        ({}, TOP, ""),
        ({}, 1_700_000, "not-in-inventory:1.7 GHz on own"),
        ({"whole": False}, 1_600_000, "shared-nodes:frequency"),
        ({"whole": False}, TOP, ""),
        ({"freq_kept": "why"}, 1_600_000, "axis-bound:frequency is kept: why"),
        ({"freq_kept": "why"}, TOP, ""),
        ({"axes": Axes(frequency="keep")}, 1_600_000, "axis-keep:frequency"),
        ({"axes": Axes(frequency="keep")}, TOP, ""),
        ({"axes": Axes(frequency="cap")}, 1_600_000, ""),
        ({"axes": Axes(frequency="fill")}, 1_600_000, ""),
    ],
)
def test_what_keeps_the_frequency(more: dict[str, Any], freq: int, reason: str) -> None:
    assert why(constraints(**more), row(freq=freq)) == reason


CAPPED = replace(constraints(), baseline=Configuration("own", 1, 1, 16, 1_600_000))


@pytest.mark.parametrize(
    ("rule", "freqs"),
    [("override", STEPS), ("cap", STEPS[:2]), ("fill", STEPS[1:2]), ("keep", STEPS[1:2])],
)
def test_a_cap_of_the_user_is_lowered_at_most(rule: AxisRule, freqs: tuple[int, ...]) -> None:
    request = job(freq_khz=1_600_000, explicit=frozenset({"frequency"}))
    x = replace(
        CAPPED,
        request=request,
        freq_cap_khz=1_600_000,
        policy=Policy(axes=Axes(frequency=rule, node_type="override")),
    )
    for node_type in ("own", "other"):  # a cap that the user asked for holds on any
        rows, _ = feasible_rows(node_type, [row(freq=f) for f in STEPS], x)
        assert tuple(r.freq_khz for r in rows) == freqs


@pytest.mark.parametrize(
    ("low", "rule", "fits"),
    [
        (1_600_000, "cap", True),
        (1_600_001, "cap", False),
        (1_600_001, "override", True),
        (None, "cap", True),
        (1_600_001, "keep", False),
    ],
)
def test_no_cap_below_the_user_s_least(low: int | None, rule: AxisRule, fits: bool) -> None:
    x = constraints(job(freq_low_khz=low), axes=Axes(frequency=rule))
    expected = "axis-keep:frequency" if low is None else "user-set:frequency"
    assert why(x, row(freq=1_600_000)) == ("" if fits else expected)


def test_another_node_type_runs_at_its_own_default() -> None:
    """The default is no change there, whatever the job has here; else the highest of its model."""
    slow = replace(OTHER, default_freq_khz=1_600_000)
    keep = Axes("keep", "override", "override")
    for other, free in ((slow, 1_600_000), (replace(slow, default_freq_khz=0), TOP)):
        x = constraints(axes=keep, other=other)
        rows, _ = feasible_rows("other", [row(freq=f) for f in STEPS], x)
        assert [r.freq_khz for r in rows] == [free]


def test_without_steps_only_no_cap_can_be_written() -> None:
    bare = replace(OWN, freq_khz=(), default_freq_khz=1_600_000)
    x = replace(constraints(own=bare), baseline=Configuration("own", 1, 1, 16, 1_600_000))
    rows, dropped = feasible_rows("own", [row(freq=f) for f in STEPS], x)
    assert [r.freq_khz for r in rows] == [1_600_000, TOP]
    assert dropped == {reason("no-frequency-steps", "own"): 1}


# -- node type -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({}, ""),
        ({"whole": False}, "shared-nodes:node type"),
        ({"node_type_kept": "why"}, "axis-bound:node type is kept: why"),
        ({"axes": Axes(node_type="keep")}, "axis-keep:node_type"),
        ({"axes": Axes(node_type="cap")}, "user-set:node_type"),
        ({"axes": Axes(node_type="fill")}, ""),
        (
            {"axes": Axes(node_type="fill"), "request": job(explicit=frozenset({"node_type"}))},
            "user-set:node_type",
        ),
        ({"partition": "long"}, "no-room"),
        ({"partition": ""}, "no-room"),
        ({"obstacles": {"other": ("node-type-later", "later")}}, "node-type-later:later"),
        ({"other": replace(OTHER, feature="")}, "not-in-inventory:a feature of other"),
        ({"obstacles": {"own": ("node-type-later", "later")}}, ""),
    ],
)
def test_what_keeps_the_node_type(more: dict[str, Any], code: str) -> None:
    x = constraints(**more)
    assert why(x, None, "other") == code
    if "obstacles" not in more and "partition" not in more:
        assert why(x) == ""  # its own stays, with nothing to write


def test_a_node_type_that_is_not_there() -> None:
    assert why(constraints(), None, "gone") == "not-in-inventory:gone"
    assert feasible_rows("gone", [row(), row()], constraints())[1].total() == 2


def test_a_shape_that_would_be_another_there_is_kept() -> None:
    """Eight tasks of four cores fill two of our nodes and one of theirs: not the same nodes."""
    wide = replace(OTHER, cores=32)
    request = job(nodes=None, ntasks=8, cpus_per_task=4)
    x = constraints(request, other=wide, nodes=2, ranks=4)
    assert why(x, row(32, nodes=1, ranks=8), "other") == ""
    uneven = job(nodes=None, ntasks=7, cpus_per_task=4)
    x = constraints(uneven, other=wide, nodes=2, ranks=4)
    assert why(x, row(28, nodes=1, ranks=7), "other") == "allocation-kept"


def test_reasons_are_counted_where_a_number_says_more() -> None:
    rows = [row(time_s=t, hi_s=t) for t in (50.0, 150.0, 160.0)]
    x = constraints(job(time_limit_s=100))
    _, reasons = feasible([r.option("own") for r in rows], x)
    assert [(r.code, r.details) for r in reasons] == [("time-limit", ("2",))]
    unknown = constraints(job(time_limit_s=None), as_written_s=(100.0, 100.0))
    _, reasons = feasible([r.option("own") for r in rows], unknown)
    assert [(r.code, r.details) for r in reasons] == [("time-limit-unknown", ("2",))]
    _, reasons = feasible([row(freq=f).option("own") for f in (1, 2)], constraints(freq_kept="x"))
    assert [r.code for r in reasons] == ["axis-bound"]


def test_no_options_are_no_reason() -> None:
    """Not even where the signal comes before the job's start."""
    assert feasible_rows("own", [], constraints()) == ([], {})
    x = constraints(job(time_limit_s=10, signal_before_s=60), freq_kept="x")
    assert feasible_rows("own", [row(freq=STEPS[0])], x)[1].keys() == {
        reason("axis-bound", "frequency is kept: x")
    }
    assert why(constraints(job(time_limit_s=10, signal_before_s=60))) == "time-limit"


def test_of_several_that_which_ends_at_the_limit_stays() -> None:
    rows, dropped = feasible_rows(
        "own", [row(hi_s=101), row(hi_s=102)], constraints(job(time_limit_s=101))
    )
    assert [r.time_hi_s for r in rows] == [101] and dropped == {reason("time-limit"): 1}
    unknown = constraints(job(time_limit_s=None), as_written_s=(100.0, 101.0))
    rows, dropped = feasible_rows("own", [row(hi_s=101), row(hi_s=102)], unknown)
    assert [r.time_hi_s for r in rows] == [101] and dropped == {reason("time-limit-unknown"): 1}


def test_on_its_own_node_type_a_job_is_what_it_was_found_to_be() -> None:
    x = replace(constraints(), baseline=Configuration("own", 1, 1, 12, 1_600_000))
    assert x.natural(OWN) == x.baseline
    kept = replace(x, policy=Policy(axes=Axes("keep", "keep", "keep")))
    rows, _ = feasible_rows("own", [row(t, f) for t in (8, 12, 16) for f in STEPS], kept)
    assert [r[2:4] for r in rows] == [(12, 1_600_000)]


def test_a_cap_on_threads_lets_fewer_of_the_user_s_own() -> None:
    request = job(explicit=frozenset({"threads"}))
    assert why(constraints(request, axes=Axes(threads="cap")), row(8)) == ""
    assert why(constraints(request, axes=Axes(threads="fill")), row(8)) == "user-set:threads"


def test_not_even_one_thread_has_room_on_too_many_nodes() -> None:
    for partition in ("", "batch"):
        x = constraints(job(nodes=3, ntasks=3), nodes=3, threads=1, partition=partition)
        assert why(x, row(1, nodes=3)) == "no-room"
    x = constraints(job(memory_per_node_mb=64_001.0), threads=1, landing=())
    assert why(x, row(1)) == "no-room"


def test_other_reasons_are_given_once_with_what_they_name() -> None:
    x = constraints(freq_kept="why")
    _, reasons = feasible([row(freq=f).option("own") for f in STEPS], x)
    assert [(r.code, r.details) for r in reasons] == [("axis-bound", ("frequency is kept: why",))]
    _, reasons = feasible([row(nodes=2).option("own")], constraints())
    assert [(r.code, r.details) for r in reasons] == [("allocation-kept", ())]
