"""Signatures of runs: they go into the store and come out the same, and its rules hold."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.core.configuration import Configuration
from advisor.core.signature import MEASURES, Signature
from advisor.errors import InputError
from advisor.store.reader import Reader
from advisor.store.signatures import promote_signatures, save_signatures, signatures
from advisor.store.writer import Writer

C = Configuration("spr", 2, 8, 64, 2_000_000)
WHOLE = Signature(
    cpi=0.7,
    tpi=0.02,
    gflops=310.5,
    gbs=120.25,
    io_mbs=0.0,
    mpi_percent=12.0,
    mpi_calls_s=900.0,
    gpu_util=0.0,
    cpu_util=99.0,
    power_w=480.0,
    memory_mb=1024.0,
    time_s=61.5,
    cpus=64,
    configuration=C,
    source="ear",
    release="6",
    contributor="ann",
    account="physics",
    scope="account",
    job_id="12.0",
)
PART = Signature(cpu_util=50.0, configuration=C, source="accounting", contributor="bob")


def test_what_goes_in_comes_out(store_path: Path) -> None:
    with Writer(store_path) as store:
        assert save_signatures(store, "app", "w", [WHOLE, PART]) == 2
    with Reader(store_path) as reader:
        assert [s.signature for s in signatures(reader)] == [PART, WHOLE]
        assert signatures(reader, "app", "w", "spr")[1].workload == "w"
        assert signatures(reader, "other") == signatures(reader, node_type="hsw") == []


def test_missing_is_missing_and_never_0() -> None:
    assert PART.missing == tuple(name for name in MEASURES if name != "cpu_util")
    assert WHOLE.missing == () and WHOLE.measures()["io_mbs"] == 0.0
    assert Signature.from_dict(WHOLE.to_dict()) == WHOLE
    assert Signature.from_dict(PART.to_dict() | {"from a later version": 1}) == PART


def test_the_same_run_is_there_once(store_path: Path) -> None:
    with Writer(store_path) as store:
        save_signatures(store, "app", "w", [WHOLE, PART])
        assert save_signatures(store, "app", "w", [replace(WHOLE, cpi=0.8), PART]) == 0
        found = [s.signature for s in signatures(store)]
        assert found == [PART, replace(WHOLE, cpi=0.8)]
        other = replace(WHOLE, contributor="bob"), replace(PART, cpu_util=51.0)
        assert save_signatures(store, "app", "w", other) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"cpi": math.nan},
        {"gbs": -1.0},
        {"power_w": math.inf},
        {"time_s": 0.0},
        {"cpus": 0},
        {"configuration": None},
        {"configuration": replace(C, nodes=0)},
        {"configuration": replace(C, node_type="")},
    ],
)
def test_nothing_of_what_makes_no_sense_is_stored(
    store_path: Path, wrong: dict[str, object]
) -> None:
    with Writer(store_path) as store:
        with pytest.raises(InputError):
            save_signatures(store, "app", "w", [WHOLE, replace(PART, **wrong)])  # type: ignore[arg-type]
        assert signatures(store) == [] and store.workloads() == []


def test_whose_jobs_they_advise(store_path: Path) -> None:
    with Writer(store_path) as store:
        save_signatures(store, "app", "w", [WHOLE, PART])

        def seen(user: str, account: str = "") -> list[Signature]:
            return [s.signature for s in signatures(store, user=user, account=account)]

        assert (seen("ann"), seen("bob")) == ([WHOLE], [PART])
        assert seen("eve") == [] and seen("eve", "physics") == [WHOLE]
        assert promote_signatures(store, "app", scope="account") == 0  # no account is known
        assert promote_signatures(store, "app", "w", scope="all", contributor="bob") == 1
        assert [s.source for s in seen("eve")] == ["accounting"]
        assert promote_signatures(store, "app", scope="all") == 1
        assert promote_signatures(store, "app", scope="account") == 0
