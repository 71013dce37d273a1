"""Runs left with the daemon: taken once, believed as far as can be, set aside when nonsense."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.core.configuration import Configuration
from advisor.core.delivery import write_spool_file
from advisor.core.observation import Scope
from advisor.errors import AdvisorError, InputError, StoreError
from advisor.loop import spool as spool_module
from advisor.loop.refit import refit
from advisor.loop.spool import (
    BAD_LASTS_S,
    MAX_BAD,
    Spooled,
    held,
    in_turns,
    spool_folder,
    take_spool,
    waiting_files,
)
from advisor.ranking.streams import Characterisation
from advisor.store.rankings import StoredCharacterisation, characterisations
from advisor.store.records import Outcome
from advisor.store.writer import Writer

GRID = [Configuration("bdw", n, 1, t, f) for n in (1, 2) for t in (7, 14, 28) for f in (12, 20)]


@pytest.fixture
def store(store_path: Path) -> Iterator[Writer]:
    with Writer(store_path) as writer:
        yield writer


def no_fit(writer: Writer, a: str, w: str, t: str, scope: Scope, owner: str) -> str:
    return f"{a} {w} {t} {scope} {owner}"


def no_rank(writer: Writer, stored: StoredCharacterisation) -> str:
    return f"{stored.application} {stored.workload} {stored.node_type} {stored.scope}"


def take(store: Writer, fit: Any = no_fit) -> Spooled:
    return take_spool(store, spool_folder(store.path), fit, no_rank, lambda *_: "")


def observation(c: Configuration = GRID[0], **changes: object) -> dict[str, object]:
    time_s = 100.0 / (c.nodes * c.threads_per_node * c.freq_khz) ** 0.5
    return {
        "configuration": c.to_dict(),
        "time_s": time_s,
        "energy_j": 50 * time_s,
        "energy_quality": "measured",
        "meter": "rapl",
        "source": "sweep",
        **changes,
    }


def leave(store: Writer, *runs: object, note: str = "", **changes: object) -> Path:
    data = {
        "application": "stencil",
        "workload": "n64",
        "account": "",
        "contributor": "ann",
        "fit": False,
        "observations": list(runs),
        **changes,
    }
    return write_spool_file(spool_folder(store.path), json.dumps(data), note=note)


def test_runs_are_taken_once_and_the_file_goes(store: Writer) -> None:
    path = leave(store, *(observation(c) for c in GRID))
    text = path.read_text()
    result = take(store)
    assert (result.files, result.observations, result.bad) == (1, 12, [])
    assert not path.exists()
    path.write_text(text)  # as if the process had been killed before it removed the file
    assert take(store).observations == 0
    found = [o.observation for o in store.observations("stencil", "n64")]
    assert len(found) == 12
    assert {(o.contributor, o.scope, o.source, o.meter) for o in found} == {
        ("ann", "own", "sweep", "rapl")
    }


@pytest.mark.parametrize(
    ("said", "method"),
    [
        ({"method": "variables"}, "variables"),
        ({"method": "request", "source": "confirm"}, "request"),
        ({"job_id": "7"}, "request"),  # an earlier version's sweep
        ({}, "variables"),  # the same, on a machine without a scheduler
        ({"method": "by magic", "job_id": "7"}, "request"),
        ({"method": "variables", "source": "run"}, ""),
    ],
)
def test_how_a_sweep_measured_is_kept(store: Writer, said: dict[str, Any], method: str) -> None:
    leave(store, observation(**said))
    take(store)
    (kept,) = store.observations("stencil", "n64")
    assert kept.observation.method == method


def test_a_sweep_sent_twice_is_stored_once(store: Writer) -> None:
    for _ in range(2):
        leave(store, observation(extra={"sweep": "s1", "seq": 3}))
    leave(store, observation(extra={"sweep": "s1", "seq": 3}), contributor="bob")
    assert take(store).observations == 2


def test_configurations_may_stand_beside_the_rest(store: Writer) -> None:
    run = observation()
    place = run.pop("configuration")
    assert isinstance(place, dict)
    leave(store, {**place, **run})
    assert take(store).observations == 1
    assert store.observations("stencil")[0].observation.configuration == GRID[0]


@pytest.mark.parametrize(
    ("changes", "stored"),
    [
        ({"energy_j": 0}, (None, "missing", "sweep")),
        ({"energy_j": ""}, (None, "missing", "sweep")),
        ({"energy_j": 5000.0, "energy_quality": "exact"}, (5000.0, "estimated", "sweep")),
        ({"energy_j": 5000.0, "energy_quality": "missing"}, (None, "missing", "sweep")),
        ({"energy_j": 5000.0, "source": "import"}, (5000.0, "measured", "run")),
        ({"energy_j": 5000.0, "source": "job"}, (5000.0, "measured", "run")),
        ({"energy_j": 5000.0, "source": "confirm"}, (5000.0, "measured", "confirm")),
    ],
)
def test_what_a_user_may_say_of_a_run(
    store: Writer, changes: dict[str, object], stored: tuple[object, ...]
) -> None:
    leave(store, observation(GRID[0], **changes))
    take(store)
    o = store.observations("stencil")[0].observation
    assert (o.energy_j, o.energy_quality, o.source) == stored


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "7",
        "null",
        "{}",
        '{"observations": []}',
        json.dumps({"application": "a", "workload": "w", "contributor": "u", "observations": [7]}),
        json.dumps({"application": "a", "workload": "w", "observations": [observation()]}),
        json.dumps(
            {
                "application": "a\n",
                "workload": "w",
                "contributor": "u",
                "observations": [observation()],
            }
        ),
        json.dumps(
            {
                "application": "a",
                "workload": "w",
                "contributor": "u",
                "observations": [observation(time_s=-1)],
            }
        ),
        json.dumps(
            {
                "application": "a",
                "workload": "w",
                "contributor": "u",
                "observations": [observation(time_s=float("nan"))],
            }
        ),
        json.dumps(
            {
                "application": "a",
                "workload": "w",
                "contributor": "u",
                "observations": [observation(energy_j="much")],
            }
        ),
        json.dumps(
            {
                "application": "a",
                "workload": "w",
                "contributor": "u",
                "observations": [observation(), {"time_s": 1}],
            }
        ),
        json.dumps(
            {
                "application": "a",
                "workload": "w",
                "contributor": "u",
                "observations": [
                    observation(
                        configuration={
                            "node_type": "bdw",
                            "nodes": 0,
                            "ranks_per_node": 9,
                            "threads_per_node": 1,
                            "freq_khz": -5,
                        }
                    )
                ],
            }
        ),
        "\0\0\0",
        "[" * 100_000,
    ],
)
def test_nonsense_is_set_aside_whole_and_the_rest_goes_on(store: Writer, content: str) -> None:
    folder = spool_folder(store.path)
    folder.mkdir()
    bad = folder / "runs-0-bad.json"
    bad.write_text(content)
    leave(store, observation())
    result = take(store)
    assert (result.files, result.observations) == (1, 1)
    assert len(result.bad) == 1 and result.bad[0].startswith("runs-0-bad.json: ")
    assert "\n" not in result.bad[0]
    assert (folder / "bad" / bad.name).read_text() == content
    assert waiting_files(folder) == (0, 1)


def test_a_link_is_not_the_daemons(store: Writer, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere.json"
    leave(store, observation()).replace(target)
    (spool_folder(store.path) / "runs-1-link.json").symlink_to(target)
    result = take(store)
    assert result.observations == 0
    assert len(result.bad) == 1 and "not an ordinary file" in result.bad[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's file")
def test_a_strangers_file_is_not_the_daemons(store: Writer) -> None:
    os.chown(leave(store, observation()), 65534, 65534)
    result = take(store)
    assert result.observations == 0
    assert len(result.bad) == 1 and "not the daemon's" in result.bad[0]


def test_an_account_is_believed_when_accounting_has_shown_it(store: Writer) -> None:
    compiled = {"base": {"training": {"trust": "account"}}, "rules": []}
    store.apply_config("policy", path="p", text="x", compiled=compiled, by="me")
    store.save_outcome(
        Outcome(
            "1",
            "slurm",
            "",
            "2026-01-01T00:00:00Z",
            "",
            "ann",
            "proj",
            "COMPLETED",
            1,
            "n1",
            1.0,
            None,
            "missing",
            None,
            None,
            "",
            {},
            "",
        )
    )
    for account in ("proj", "climate"):
        leave(store, observation(), account=account)
    take(store)
    found = [o.observation for o in store.observations("stencil")]
    assert [(o.scope, o.account) for o in found] == [("account", "proj"), ("own", "")]


def test_the_policy_of_the_application_decides_whom_runs_advise(store: Writer) -> None:
    rule = {"match": {"application": ["sten*"]}, "set": {"training": {"trust": "all"}}}
    compiled = {"base": {}, "rules": [rule]}
    store.apply_config("policy", path="p", text="x", compiled=compiled, by="me")
    leave(store, observation(), fit=True)
    leave(store, observation(), application="other", fit=True)
    assert take(store).fits == ["stencil n64 bdw all ", "other n64 bdw own ann"]


def test_a_delivery_is_fitted_for_its_contributor_alone(store: Writer) -> None:
    for user in ("ann", "bob"):
        leave(store, *(observation(c) for c in GRID), contributor=user, fit=user == "ann")
    result = take(store, refit)
    assert len(result.fits) == 1 and "for ann" in result.fits[0]
    (model,) = store.find_models("stencil")
    assert (model.scope, model.owner, model.n_train) == ("own", "ann", 12)


def test_a_delivery_does_not_lift_the_suspension_of_anothers_model(store: Writer) -> None:
    for user in ("ann", "bob"):
        leave(store, *(observation(c) for c in GRID), contributor=user, fit=True)
    take(store, refit)
    anns = next(m for m in store.find_models("stencil") if m.owner == "ann")
    store.set_model_state(anns.id, "suspended", "job 1")
    leave(store, observation(), contributor="bob", fit=True)
    take(store, refit)
    assert next(iter(store.models([anns.id]))).state == "suspended"


def test_too_few_runs_for_a_model_is_a_line(store: Writer) -> None:
    path = leave(store, observation(), fit=True)
    result = take(store, refit)
    assert result.observations == 1 and "not fitted" in result.fits[0]
    assert not path.exists()


def test_a_fit_that_was_interrupted_is_made_next_time(store: Writer) -> None:
    class KilledError(Exception):
        pass

    def killed(*_: object) -> str:
        raise KilledError

    path = leave(store, *(observation(c) for c in GRID), fit=True)
    with pytest.raises(KilledError):
        take(store, killed)
    assert path.exists()
    result = take(store, refit)
    assert result.observations == 0 and len(result.fits) == 1
    assert not path.exists()


def test_no_folder_is_nothing_to_do(store: Writer) -> None:
    assert take(store).files == 0


def test_only_one_collection_works_at_a_time(tmp_path: Path) -> None:
    again = held(tmp_path, ".lock", 0.0)
    with (
        held(tmp_path, ".lock"),
        pytest.raises(AdvisorError, match="another advisor collect"),
        again,
    ):
        raise AssertionError("held twice")
    with held(tmp_path, ".lock", 0.0):
        pass


def test_refit_says_what_it_lacks(store: Writer) -> None:
    assert "no runs" in refit(store, "stencil", "n64", "bdw", "own", "ann")
    leave(store, observation())
    take(store)
    with pytest.raises(InputError):
        refit(store, "stencil", "n64", "bdw", "own", "ann")


# -- characterisations ---------------------------------------------------------------------------

STREAMS = [{"size_kb": 3000, "stride_b": 8, "dtype_b": 8, "access": "P"}]
PHASES = {
    "application": "tri",
    "workload": "small",
    "node_type": "bdw",
    "threads": 4,
    "phases": [
        {"name": "solve", "weight": 1.0, "time_s": 2.0, "iterations": 1e6, "streams": STREAMS}
    ],
}


def leave_phases(store: Writer, found: object = PHASES, **more: object) -> Path:
    data = {"contributor": "ann", "characterisation": found, **more}
    return write_spool_file(spool_folder(store.path), json.dumps(data), kind="phases")


def test_a_characterisation_is_taken_and_ranked(store: Writer) -> None:
    path = leave_phases(store, scope="all", account="bio")  # what nobody may say of themselves
    text = path.read_text()
    leave(store, observation())
    assert waiting_files(spool_folder(store.path)) == (2, 0)
    result = take(store)
    assert (result.files, result.observations, result.characterisations) == (2, 1, 1)
    assert (result.rankings, result.bad) == (["tri small bdw own"], [])
    assert not path.exists()
    path.write_text(text)  # as if the process had been killed before it removed the file
    take(store)
    (stored,) = characterisations(store)
    assert (stored.contributor, stored.scope, stored.node_type) == ("ann", "own", "bdw")
    assert Characterisation.from_dict(stored.record).phases[0].iterations == 1e6


@pytest.mark.parametrize(("trust", "scope"), [("own", "own"), ("account", "own"), ("all", "all")])
def test_the_policy_says_whom_it_advises(store: Writer, trust: str, scope: str) -> None:
    compiled = {"base": {"training": {"trust": trust}}, "rules": []}
    store.apply_config("policy", path="p", text=trust, compiled=compiled, by="test")
    leave_phases(store)
    take(store)
    assert [c.scope for c in characterisations(store)] == [scope]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"phases": []}, "phases: there are none"),
        ({"phases": [7]}, "phases[0]: must have keys and values"),
        ({"phases": PHASES["phases"] * 201}, "at most 200"),  # type: ignore[operator]
        ({"phases": [{"name": "a", "time_s": 1, "streams": [{}] * 2001}]}, "at most 2000"),
        ({"phases": [{"name": "a", "time_s": float("nan")}]}, "phases[0].time_s"),
        ({"phases": [{"name": "a", "time_s": 1e300}]}, "at most 1e+15"),
        ({"phases": [{"name": "a", "time_s": 1, "time_per_iter_us": 5e-324}]}, "disagree"),
        ({"phases": [{"name": "a\x1b[2J", "time_s": 1}]}, "phases[0].name: must be printable"),
        ({"application": "a\nb"}, "application: must be printable"),
        ({"application": ""}, "application: must be a name"),
        ({"node_type": None}, "node_type: is missing"),
        ({"workload": "w" * 300}, "is not a name for a workload"),
    ],
)
def test_phases_that_make_no_sense_are_set_aside(
    store: Writer, changes: dict[str, object], said: str
) -> None:
    bad = leave_phases(store, {**PHASES, **changes})
    leave_phases(store)
    result = take(store)
    assert len(result.bad) == 1 and said in result.bad[0] and bad.name in result.bad[0]
    assert (bad.parent / "bad" / bad.name).exists() and not bad.exists()
    assert [c.application for c in characterisations(store)] == ["tri"]


@pytest.mark.parametrize("found", [None, 7, [], "x"])
def test_a_file_without_phases_is_set_aside(store: Writer, found: object) -> None:
    leave_phases(store, found)
    leave_phases(store, contributor="")
    assert len(take(store).bad) == 2
    assert characterisations(store) == []


def test_a_store_that_cannot_be_written_keeps_the_file(store: Writer) -> None:
    path = leave_phases(store)

    def locked(writer: Writer, stored: StoredCharacterisation) -> str:
        raise StoreError("the store is locked")

    with pytest.raises(StoreError, match="locked"):
        take_spool(store, spool_folder(store.path), no_fit, locked, lambda *_: "")
    assert path.exists()
    assert take(store).characterisations == 1


# -- what one user may take ----------------------------------------------------------------------


def test_users_have_turns() -> None:
    """Whoever left ten files first keeps nobody waiting for all of them."""
    names = [f"runs-{n}-ab-u7-n1.json" for n in range(10)]
    names += ["runs-90-ab-u8-n1.json", "phases-1-ab-u8-n1.json", "runs-0-ab.json"]
    order = [path.name for path in in_turns(map(Path, names))]
    assert set(order[:3]) == {names[0], "runs-90-ab-u8-n1.json", "runs-0-ab.json"}
    assert set(order[3:5]) == {names[1], "phases-1-ab-u8-n1.json"}
    assert order[5:] == names[2:10]


def test_who_took_much_of_the_processor_waits_for_the_next_pass(
    store: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for contributor, uid in (("ann", 7), ("ann", 7), ("ann", 7), ("bob", 8)):
        leave(store, observation(), contributor=contributor, note=f"-u{uid}-n1")
    monkeypatch.setattr(spool_module, "TURN_S", 1e-9)
    result = take(store)
    assert result.files == 2 and result.waiting == 2
    assert {o.observation.contributor for o in store.observations("stencil")} == {"ann", "bob"}
    monkeypatch.setattr(spool_module, "TURN_S", 60.0)
    assert take(store).files == 2 and waiting_files(spool_folder(store.path)) == (0, 0)


def test_what_was_set_aside_goes_once_it_is_old_or_too_much(
    store: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = spool_folder(store.path)
    for _ in range(MAX_BAD + 5):
        write_spool_file(folder, "{", note="-u7-n1")
    other = write_spool_file(folder, "{", note="-u8-n1")
    assert len(take(store).bad) == MAX_BAD + 6
    bad = folder / "bad"
    assert len(list(bad.glob("*-u7-*"))) == MAX_BAD and (bad / other.name).exists()
    write_spool_file(folder, "{" + " " * 2_000_000, note="-u7-n1")
    take(store)
    assert sum(p.stat().st_size for p in bad.glob("*-u7-*")) <= 1_000_000
    assert (bad / other.name).exists()
    draft, lock = folder / ".runs-1-ab-u7-n1", folder / ".lock"
    draft.touch()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + BAD_LASTS_S + 60)
    take(store)
    assert list(bad.iterdir()) == [] and not draft.exists() and lock.exists()


def test_bytes_of_a_users_runs_are_bounded(store: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "MAX_STORED_BYTES", 5000)
    leave(store, observation(extra={"x": "y" * 3000}))
    leave(store, observation(GRID[1], extra={"x": "y" * 3000}))
    leave(store, observation(GRID[1], extra={"x": "y" * 3000}), contributor="bob")
    result = take(store)
    assert result.files == 2 and len(result.bad) == 1 and "1 runs stored" in result.bad[0]


def test_user_ids_without_a_name_share_what_one_user_may_store(
    store: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "MAX_STORED", 2)
    for uid in ("3000001", "3000002", "3000003"):
        leave(store, observation(), contributor=uid)
    leave(store, observation(), contributor="ann")
    result = take(store)
    assert result.files == 3 and len(result.bad) == 1 and "3000003 has 2 runs" in result.bad[0]


def test_characterisations_of_a_user_are_bounded(
    store: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "MAX_CHARACTERISATIONS", 2)

    def send(workload: str, contributor: str = "ann") -> None:
        data = {"contributor": contributor, "characterisation": {**PHASES, "workload": workload}}
        write_spool_file(spool_folder(store.path), json.dumps(data), "phases")

    for workload in ("a", "b", "a", "c"):  # "a" again takes the place of its former one
        send(workload)
    send("c", "bob")
    result = take(store)
    assert result.characterisations == 4
    assert len(result.bad) == 1 and "2 characterisations stored" in result.bad[0]
    monkeypatch.setattr(spool_module, "MAX_STORED_BYTES", 10)
    send("b")
    assert len(take(store).bad) == 1


def test_kernels_of_a_user_are_bounded(store: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "MAX_KERNELS", 0)
    sent = {
        "node_type": "bdw",
        "machine": {},
        "contributor": "ann",
        "profiles": [
            {
                "microbenchmark": "mine",
                "streams": STREAMS,
                "threads": 1,
                "time_per_iter_us": 1.0,
                "spread": 0.0,
                "repeats": 3,
            }
        ],
    }
    write_spool_file(spool_folder(store.path), json.dumps(sent), "profiles")
    (line,) = take(store).bad
    assert "0 profiles of kernels stored; the limit is 0" in line
