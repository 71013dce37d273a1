"""A long complete run in 64 KB: representative iterations in full, sums of the others."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from advisor.phases import complete
from advisor.phases.arrays import Floats
from advisor.phases.complete import BEGIN, END, ROOM, CompleteRun, load_complete
from advisor.phases.pairing import Baseline, RunEvents, replay
from advisor.phases.record import condensed, representative
from advisor.phases.sequence import find_iterations


def drawn(iterations: int, sites: int, seed: int, every: int = 0) -> CompleteRun:
    """Return a run whose iterations call so many sites twice; every nth one writes, for longer."""
    rng = np.random.default_rng(seed)
    names, seconds = [BEGIN], [3.0]
    for i in range(iterations):
        iteration = rng.normal(1, 0.02)
        for half in (1.0, 2.0):
            names += [f"app+{s:x}" for s in range(sites)]
            seconds += (half * iteration * rng.lognormal(-7, 0.05, sites)).tolist()
        if every and i % every == every - 1:
            names.append("app+write")
            seconds.append(0.05)
    times = np.concatenate([[0.0], np.cumsum(seconds)]).round(5).tolist()
    return CompleteRun(times, [*names, END], [(0.0, 0.0), (times[-1], 5.0)])


def took(run: CompleteRun, first: int, last: int) -> Floats:
    return np.diff(run.times[first : last + 1])


@pytest.mark.parametrize("every", [0, 20])
def test_a_long_run_takes_64_kb_and_keeps_what_others_are_paired_with(
    every: int, tmp_path: Path
) -> None:
    run = drawn(400, 20, 1, every)
    run.save(tmp_path / "complete.json")
    assert (tmp_path / "complete.json").stat().st_size <= ROOM + 200
    kept = load_complete(tmp_path / "complete.json")
    assert kept is not None and not kept.why
    assert kept.sites == run.sites and kept.readings == run.readings
    (theirs,) = find_iterations(run.times, run.sites)
    assert kept.phases is not None and kept.iterations() is kept.phases
    assert kept.phases[0].bounds.tolist() == theirs.bounds.tolist()
    assert np.abs(np.array(kept.times) - run.times).max() < 1e-4 * run.span_s
    parts = json.loads((tmp_path / "complete.json").read_text())["condensed"]
    ((first, behind),) = parts["kept"]
    assert behind - first == 2 * (every or 1)  # the two halves call the same sites
    events = int(theirs.bounds[first]), int(theirs.bounds[behind])
    assert took(kept, *events) == pytest.approx(took(run, *events), rel=1e-4)
    for begin, end in pairwise(theirs.bounds[:50].tolist()):
        mine, own = took(kept, begin, end), took(run, begin, end)
        assert mine.sum() == pytest.approx(own.sum(), rel=1e-3)
        names = run.sites[begin:end]
        site = [i for i, name in enumerate(names) if name == names[3]]
        assert mine[site].sum() == pytest.approx(own[site].sum(), rel=1e-3)


def test_a_run_is_ended_beside_the_record_as_beside_the_run_itself(tmp_path: Path) -> None:
    base, other = drawn(400, 20, 1), drawn(400, 20, 2)
    base.save(tmp_path / "complete.json")
    kept = load_complete(tmp_path / "complete.json")
    assert kept is not None
    run = RunEvents(tuple(1.7 * t for t in other.times), tuple(other.sites))
    one = replay(Baseline(RunEvents(tuple(base.times), tuple(base.sites))), run, [])
    record = RunEvents(tuple(kept.times), tuple(kept.sites))
    two = replay(Baseline(record, phases=kept.phases), run, [])
    assert one.stopped and two.stopped
    assert two.time.total == pytest.approx(1.7 * other.span_s, rel=0.02)
    assert two.stop_s == pytest.approx(one.stop_s, rel=0.5)


def test_a_short_run_is_kept_as_it_was(tmp_path: Path) -> None:
    run = drawn(40, 3, 1)
    run.save(tmp_path / "complete.json")
    assert "condensed" not in (tmp_path / "complete.json").read_text()
    kept = load_complete(tmp_path / "complete.json")
    assert kept is not None and kept.times == pytest.approx(run.times, abs=1e-6)


def test_iterations_are_summed_together_where_room_is_short() -> None:
    run = drawn(1000, 10, 1)
    tokens = np.unique(run.sites, return_inverse=True)[1]
    phases = find_iterations(run.times, run.sites)
    large, small = (condensed(np.array(run.times), tokens, phases, r) for r in (ROOM, 6000))
    assert large is not None and small is not None
    assert large["together"] == 1 < small["together"]
    assert len(json.dumps(small)) <= 6000 < len(json.dumps(large))


def test_what_is_in_no_order_is_not_kept_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    sites = [f"s{i}" for i in rng.integers(0, 64, 8000)]
    run = CompleteRun(np.arange(8000.0).tolist(), sites)
    monkeypatch.setattr(complete, "ROOM", 6 * 1024)
    run.save(tmp_path / "complete.json")
    kept = load_complete(tmp_path / "complete.json")
    assert kept is not None and not kept.times
    assert kept.why == "its 8000 events follow no order that can be kept in 6 KB"
    monkeypatch.setattr(complete, "_SEARCH_S", 0.0)
    monkeypatch.setattr(complete, "ROOM", 60 * 1024)
    CompleteRun(run.times, run.sites).save(tmp_path / "complete.json")
    kept = load_complete(tmp_path / "complete.json")
    assert kept is not None and kept.why


def test_a_damaged_record_is_none(tmp_path: Path) -> None:
    path = tmp_path / "complete.json"
    drawn(400, 20, 1).save(path)
    whole = json.loads(path.read_text())
    for key, value in (("order", "AAAA"), ("kept", []), ("sums", None), ("phases", [[1]])):
        path.write_text(json.dumps(whole | {"condensed": whole["condensed"] | {key: value}}))
        assert load_complete(path) is None


def test_a_pattern_of_iterations_is_kept_as_a_whole() -> None:
    rng = np.random.default_rng(0)
    alone = 1 + rng.normal(0, 0.02, (200, 2))
    first, behind = representative(alone)
    assert behind == first + 1
    assert abs(alone[first] - 1).max() < 0.02
    alone[::5, 1] += 0.5
    first, behind = representative(alone)
    assert behind == first + 5
