"""Fits use one thread for linear algebra, and give the caller's threads back."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from advisor.models import registry as models
from advisor.one_thread import on_one_thread
from advisor.prior import fit as prior
from advisor.scaling import registry as scaling


def threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_the_callers_threads_come_back() -> None:
    with threadpool_limits(limits=2, user_api="blas"):
        assert on_one_thread(threads)() == {1}
        assert threads() == {2}

        @on_one_thread
        def fails() -> None:
            raise np.linalg.LinAlgError

        with pytest.raises(np.linalg.LinAlgError):
            fails()
        assert threads() == {2}


RUNS: Any = SimpleNamespace(time=SimpleNamespace(log_mean={}))
NOTHING: Any = None


class SeenError(Exception):
    """Ends a fit where its threads were looked at."""


@pytest.mark.parametrize(
    ("fits", "where", "inside"),
    [
        (lambda: models.forecast("physical", RUNS, ()), models, "_bounds"),
        (lambda: scaling.tried_forecast(NOTHING, NOTHING), scaling, "check_sizes"),
        (lambda: prior.learn((), (), NOTHING, NOTHING), prior, "_table"),
    ],
    ids=["models", "sizes", "prior"],
)
def test_what_fits_is_limited(
    fits: Callable[[], object], where: ModuleType, inside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def look(*_: object) -> None:
        seen.append(threads())
        raise SeenError

    monkeypatch.setattr(where, inside, look)
    with threadpool_limits(limits=2, user_api="blas"), pytest.raises(SeenError):
        fits()
    assert seen == [{1}]
