"""Caps of jobs that share their nodes, where the site says that cores have clocks of their own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.store.writer import Writer
from tests.unit.decide.site import BDW, SCRIPT, SKL, ask, codes, policy

SHARED = "-N1 -c 24 --mem=16G"


@pytest.fixture
def accepting(store: Writer) -> Writer:
    store.save_node_types([replace(BDW, shared_caps="accept"), SKL], source="test")
    policy(store, axes={"threads": "keep"})
    return store


def test_a_program_of_srun_is_capped_on_its_own_cores(accepting: Writer) -> None:
    decision = ask(accepting, SHARED)
    assert list(decision.rewrite) == ["cpu-freq"] and not decision.environment
    assert decision.chosen is not None and decision.baseline is not None
    assert decision.chosen.configuration.freq_khz < decision.baseline.freq_khz
    assert decision.node_cap_khz == 0


@pytest.mark.parametrize("line", ["./stencil", "mpirun -np 1 ./stencil"])
def test_nothing_else_is(accepting: Writer, line: str) -> None:
    assert not ask(accepting, SHARED, f"#!/bin/bash\n{line}\n").rewrite


def test_none_without_the_sites_word(store: Writer) -> None:
    policy(store, axes={"threads": "keep"})
    decision = ask(store, SHARED, SCRIPT)
    assert not decision.rewrite and "shared-nodes" in codes(decision)
