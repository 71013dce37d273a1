"""Which microbenchmarks there are, and which of them a profile and a phase want."""

from __future__ import annotations

import pytest

from advisor.ranking.streams import Stream
from advisor.ranking.suite import FAMILIES, like, member, plan

GB = 2**30


def test_a_quick_profile_is_part_of_a_full_one() -> None:
    quick, full = plan("quick", 4, 64 * GB), plan("full", 4, 64 * GB)
    assert set(quick) - {m for m in quick if m.threads == 1} <= set(full)
    assert len(quick) < 130 < 400 < len(full) < 650
    assert len(set(full)) == len(full)


def test_every_family_is_measured_by_a_full_profile() -> None:
    measured = {m.name.rstrip("X") for m in plan("full", 2, 64 * GB)}
    assert measured == set(FAMILIES)


def test_a_profile_fits_into_a_quarter_of_the_memory() -> None:
    small = plan("full", 8, GB)
    assert max(m.memory_b for m in small) <= GB / 4
    assert {m.name for m in small} >= {"fma", "chain", "mbw1lc", "triad"}


def test_a_profile_of_one_thread_has_nothing_twice() -> None:
    one = plan("quick", 1, 64 * GB)
    assert len(set(one)) == len(one)
    assert {m.threads for m in one} == {1}


@pytest.mark.parametrize(
    ("made", "name", "request_"),
    [
        (member("mbw1c", 4, (1024, 8)), "mbw1c", "add 8 c:1048576:8"),
        (member("mbw1p", 4, (1024, 30000)), "mbw1pX", "add 8 p:1048576:30000"),
        (member("mbw2pc", 2, (64, 4), (32, 4)), "mbw2pc", "add2 4 c:65536:4 p:32768:4"),
        (member("mbw2r", 2, (64, 8), (32, 0)), "mbw2r", "random2 8 c:65536:8 p:32768:0"),
        (member("mbw1Up", 2, (6000, 6000)), "mbw1Up", "record 8 p:6144000:6000"),
        (member("mbw1cs", 2, (64, 2)), "mbw1cs", "add i2 c:65536:2"),
        (member("fma", 2), "fma", "fma 8"),
    ],
)
def test_names_and_zones(made: object, name: str, request_: str) -> None:
    assert (made.name, made.request()) == (name, request_)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("streams", "names"),
    [
        (
            (Stream(7812.5, 8000, 8, "C"), Stream(3906.25, 8, 8, "P")),
            ["mbw1cX", "mbwXA2hp", "mbw1lcX", "mbw1lp"],
        ),
        (
            (Stream(5000, 8, 8, "P"), Stream(4000, 0, 8, "C")),
            ["mbw1p", "mbw2r", "mbw1lp", "mbw1rc"],
        ),
        (
            (Stream(5000, 8, 8, "P", writes=True), Stream(5000, 8, 8, "P")),
            ["mbw1wp", "mbw2hp", "mbw1wp", "mbw1lp"],
        ),
        ((Stream(64000, 0, 8, "C"),), ["mbw1rc"]),
        ((Stream(1000, 4, 4, "P"),), ["mbw1p", "mbw1lpf"]),
        ((), []),
    ],
)
def test_what_a_phase_wants(streams: tuple[Stream, ...], names: list[str]) -> None:
    wanted = like(streams, 2)
    assert [m.name for m in wanted] == names
    for m in wanted:
        for zone in m.request().split()[2:]:
            _, size, stride = zone.split(":")
            assert int(stride) <= int(size) and int(stride) % m.family.dtype_b == 0


def test_wanted_zones_are_the_phases_own() -> None:
    one = like((Stream(7812.5, 8000, 8, "C"), Stream(3906.25, 8, 8, "P")), 2)[1]
    assert [(s.size_kb, s.stride_b) for s in one.streams] == [(7812.5, 8000), (3906.25, 8)]
