"""A store in which stencil is measured on two node types."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.store.writer import Writer
from tests.unit.decide.site import BDW, FREQS, SKL, model, policy, response


@pytest.fixture
def store(store_path: Path) -> Iterator[Writer]:
    with Writer(store_path) as writer:
        writer.save_node_types([BDW, SKL], source="test")
        policy(writer)
        model(
            writer,
            "bdw",
            [response("bdw", n, 1, t, f) for n in (1, 2) for t in range(4, 29, 4) for f in FREQS],
        )
        yield writer
