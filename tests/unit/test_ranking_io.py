"""What reads and writes of files take on other node types (``advisor/ranking/io.py``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from advisor.ranking.fields import FieldError
from advisor.ranking.io import CACHED, SHARED, UNKNOWN, IoProfile, IoTimes, io_on, without_io
from advisor.ranking.streams import Characterisation, IoStream, Phase

READS = IoStream("/scratch", "read", False, 1 << 20, 1000, 4.0)  # 4 ms a call
PHASE = Phase("solve", 0.6, 6.0, 1e6, 6.0, io=(READS,))
APP = Characterisation("app", (PHASE,), node_type="old", time_s=10.0,
                       io=(replace(READS, operation="write", time_s=1.0, calls=250),))  # fmt: skip


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
    assert slow.off_s == pytest.approx(15.0 * SHARED) and slow.notes == ()
    base = profiles("old", 1.0)
    same = io_on(APP, base, base, "old", 1.0)
    assert (same.phases_s, same.rest_s, same.off_s) == (4.0, 1.0, 0.0)


def test_between_sizes_by_logarithms_and_beyond_them_in_proportion() -> None:
    disk = profiles("old", 1.0)
    assert disk.block_us(replace(READS, block_b=256 << 10)) == pytest.approx(2000.0)
    assert disk.block_us(replace(READS, block_b=4 << 20)) == pytest.approx(16000.0)
    assert disk.block_us(replace(READS, block_b=512)) == pytest.approx(1000.0)
    assert disk.block_us(replace(READS, random=True)) is None


def test_without_a_profile_it_is_as_long_within_a_factor_of_two_and_said() -> None:
    other = io_on(APP, profiles("old", 1.0), profiles("new", 3.0, ["write"]), "new", 1.0)
    assert [other.phases_s, other.rest_s] == pytest.approx([4.0, 3.0])
    assert other.off_s == pytest.approx(4.0 * UNKNOWN + 3.0 * SHARED)
    assert "its I/O on /scratch is taken to be as fast on new" in other.notes[0]


def test_what_the_page_cache_served_goes_with_memory() -> None:
    fast = replace(READS, time_s=READS.time_s / CACHED / 1.01)
    app = replace(APP, phases=(replace(PHASE, io=(fast,)),), io=())
    cached = io_on(app, profiles("old", 1.0), profiles("new", 3.0), "new", 0.5)
    assert cached.phases_s == pytest.approx(fast.time_s * 0.5)


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
