"""Models in the store: replaced, suspended, and their options."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.core.configuration import Configuration
from advisor.errors import InputError, StoreError
from advisor.store.writer import Writer
from tests.unit.stored import options, save


def test_a_new_model_replaces_the_one_of_the_same_key(store_path: Path) -> None:
    with Writer(store_path) as store:
        first = save(store)
        own = save(store, scope="own", owner="ann")
        second = save(store, options=options(3.0))
        assert (first.version, own.version, second.version) == (1, 1, 2)
        assert [m.id for m in store.models()] == [own.id, second.id]
        assert set(store.model_stamps()) == {own.id, second.id}
        [old] = store.models([first.id])
        assert old.state == "replaced"
        assert old.updated_at > first.updated_at
        assert second.options()[0].time_s == 3.0
        assert second.stats == {"time": {"r2": 0.99}}


def test_a_model_is_suspended_and_taken_back(store_path: Path) -> None:
    with Writer(store_path) as store:
        made = save(store)
        store.set_model_state(made.id, "suspended", "2 of 3 jobs were slower")
        [found] = store.find_models("stencil")
        assert (found.state, found.state_reason) == ("suspended", "2 of 3 jobs were slower")
        assert store.model_stamps()[made.id] == found.updated_at != made.updated_at
        store.set_model_state(made.id, "fitted")
        assert store.find_models("stencil", "default", "hsw")[0].state_reason == ""
        assert store.find_models("stencil", "other") == []
        with pytest.raises(StoreError, match="no model 99"):
            store.set_model_state(99, "suspended")


def test_more_models_than_one_batch(store_path: Path) -> None:
    with Writer(store_path) as store:
        made = [save(store, f"app{n:04}", options=options(float(n + 1))).id for n in range(505)]
        assert [m.id for m in store.models()] == made
        assert [m.id for m in store.models(reversed(made))] == made
        assert [m.options()[0].time_s for m in store.models(made[499:502])] == [500, 501, 502]


def test_a_model_needs_options_of_its_own_node_type(store_path: Path) -> None:
    with Writer(store_path) as store:
        with pytest.raises(InputError, match="another node type"):
            save(store, options=options(1.0, node_type="skl"))
        huge = replace(options(1.0)[0], configuration=Configuration("hsw", 2**40, 1, 1, 0))
        with pytest.raises(InputError):
            save(store, options=[huge])
        assert store.workloads() == []


@pytest.mark.parametrize("blob", [b"\x01123", b"\x07" + b"\0" * 100])
def test_options_that_cannot_be_read_are_one_clear_error(store_path: Path, blob: bytes) -> None:
    with Writer(store_path) as store:
        torn = replace(save(store), options_blob=blob)
    with pytest.raises(StoreError, match=r"model 1 of stencil.*advisor fit stencil"):
        torn.options()


def test_options_that_were_packed_without_a_version_stay_readable(store_path: Path) -> None:
    with Writer(store_path) as store:
        before = save(store)
    db = sqlite3.connect(store_path)
    db.execute("UPDATE models SET options = substr(options, 2)")
    db.execute("DELETE FROM _sqlite_migrations WHERE name = 'm0008_options_version'")
    db.commit()
    db.close()
    with Writer(store_path) as store:
        assert list(store.models()) == [before] and before.options()
