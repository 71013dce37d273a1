"""What reads and writes of files take on other node types (``advisor/ranking/io.py``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from advisor.core.codec import FieldError
from advisor.core.option import Z90
from advisor.ranking.io import CACHED, SHARED, UNKNOWN, IoProfile, IoTimes, io_on, without_io
from advisor.ranking.streams import Characterisation, IoStream, Phase

READS = IoStream("/scratch", "read", False, 1 << 20, 1000, 4.0)  # 4 ms a call
PHASE = Phase("solve", 0.6, 6.0, 1e6, 6.0, io=(READS,))
APP = Characterisation(
    "app",
    (PHASE,),
    node_type="old",
    time_s=10.0,
    io=(replace(READS, operation="write", time_s=1.0, calls=250),),
)


def profiles(name: str, factor: float, operations: Sequence[str] = ("read", "write")) -> IoTimes:
    """A disk that takes 1 ms for 64 KB and 4 ms for 1 MB, times ``factor``."""
    return IoTimes(
        IoProfile(name, "/scratch", operation, False, block, us * factor)
        for operation in operations
        for block, us in ((65536, 1000.0), (1 << 20, 4000.0))
    )


def test_io_is_taken_out_of_phases_and_of_the_run() -> None:
    bare = without_io(APP)
    (phase,) = bare.phases
    assert [phase.time_s, phase.time_per_iter_us] == pytest.approx([2.0, 2.0]) and not phase.io
    assert bare.time_s == pytest.approx(10.0 - 4.0 - 1.0) and bare.io == ()
    assert bare.remainder_s == pytest.approx(3.0)
    plain = replace(APP, io=(), phases=(replace(PHASE, io=()),))
    assert without_io(plain) is plain


def test_it_goes_with_the_profile_of_its_file_system() -> None:
    slow = io_on(APP, profiles("old", 1.0), profiles("new", 3.0), "new", 1.0)
    assert [slow.phases_s, slow.rest_s] == pytest.approx([12.0, 3.0])
    wider = math.exp(Z90 * SHARED)
    assert [slow.low_s, slow.high_s] == pytest.approx([15.0 / wider, 15.0 * wider])
    assert slow.error_of(15.0) == pytest.approx(SHARED) and slow.notes == ()
    base = profiles("old", 1.0)
    same = io_on(APP, base, base, "old", 1.0)
    assert (same.phases_s, same.rest_s, same.low_s, same.high_s) == (4.0, 1.0, 5.0, 5.0)
    assert same.error_of(10.0) == 0.0


def test_between_sizes_by_logarithms_and_beyond_them_in_proportion() -> None:
    disk = profiles("old", 1.0)
    assert disk.block_us(replace(READS, block_b=256 << 10)) == pytest.approx(2000.0)
    assert disk.block_us(replace(READS, block_b=4 << 20)) == pytest.approx(16000.0)
    assert disk.block_us(replace(READS, block_b=512)) == pytest.approx(1000.0)
    assert disk.block_us(replace(READS, random=True)) is None


def test_without_a_profile_it_is_as_long_within_a_factor_of_two_and_said() -> None:
    other = io_on(APP, profiles("old", 1.0), profiles("new", 3.0, ["write"]), "new", 1.0)
    assert [other.phases_s, other.rest_s] == pytest.approx([4.0, 3.0])
    high = 4.0 * math.exp(Z90 * UNKNOWN) + 3.0 * math.exp(Z90 * SHARED)
    assert other.high_s == pytest.approx(high)
    assert "its I/O on /scratch is taken to be as fast on new" in other.notes[0]


def test_what_the_page_cache_served_goes_with_memory() -> None:
    fast = replace(READS, time_s=READS.time_s / CACHED / 1.01)
    app = replace(APP, phases=(replace(PHASE, io=(fast,)),), io=())
    cached = io_on(app, profiles("old", 1.0), profiles("new", 3.0), "new", 0.5)
    assert cached.phases_s == pytest.approx(fast.time_s * 0.5)


def cached(name: str, past_us: float, cached_us: float) -> IoTimes:
    """A file system that takes so long for 1 MB past and by the page cache."""
    return IoTimes(
        [IoProfile(name, "/scratch", "read", False, 1 << 20, past_us, True, 0.0, cached_us)]
    )


@pytest.mark.parametrize(
    ("each_us", "low_us", "high_us"),
    [
        (90.0, 45.0, 45.0),  # all from the page cache: as the page caches are to one another
        (10000.0, 400.0, 400.0),  # all past it
        (1000.0, 50 * 8 ** (1 / 2), 50 + 350 / 11),  # a mixture, or as far in between
    ],
)
def test_page_cache_and_file_system_are_told_apart_by_what_calls_take(
    each_us: float, low_us: float, high_us: float
) -> None:
    reads = replace(READS, time_s=READS.calls * each_us / 1e6)
    app = replace(APP, phases=(), io=(reads,))
    there = io_on(app, cached("old", 10000.0, 100.0), cached("new", 400.0, 50.0), "new", 1.0)
    wider, seconds = math.exp(Z90 * SHARED), READS.calls / 1e6
    low_us, high_us = sorted((low_us, high_us))
    assert [there.low_s, there.high_s] == pytest.approx(
        [seconds * low_us / wider, seconds * high_us * wider]
    )
    assert there.notes == ()


def test_where_they_cannot_be_told_apart_both_are_in_the_interval_and_it_is_said() -> None:
    reads = replace(READS, time_s=READS.calls * 60e-6)
    app = replace(APP, phases=(), io=(reads,), time_s=1.0)
    there = io_on(app, cached("old", 70.0, 50.0), cached("new", 7000.0, 50.0), "new", 1.0)
    assert there.low_s < READS.calls * 60e-6 and there.high_s > READS.calls * 6000e-6
    assert "wait for it or for the page cache" in there.notes[0]
    whole_s = 0.94 + there.rest_s
    assert whole_s * math.exp(Z90 * there.error_of(whole_s)) >= 0.94 + there.high_s - 1e-9


def test_a_phase_is_never_all_io() -> None:
    most = replace(APP, phases=(replace(PHASE, io=(replace(READS, time_s=60.0),)),), io=())
    assert without_io(most).phases[0].time_s == pytest.approx(0.06)
    base = profiles("old", 1.0)
    assert io_on(most, base, base, "old", 1.0).phases_s == pytest.approx(5.94)


def test_io_is_stored_and_read_again() -> None:
    assert Characterisation.from_dict(APP.to_dict()) == replace(
        APP, phases=(replace(PHASE, time_per_iter_us=6.0),)
    )
    assert "io" not in replace(APP, io=()).to_dict()
    bad = APP.to_dict() | {"io": [READS.to_dict() | {"operation": "erase"}]}
    with pytest.raises(FieldError, match="must be one of read, write") as error:
        Characterisation.from_dict(bad)
    assert error.value.key == "io[0].operation"
    assert math.isclose(sum(s.time_s for s in APP.io), 1.0)
