"""A store with an inventory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.store.writer import Writer
from tests.unit.collect.jobs import BDW


@pytest.fixture
def store(store_path: Path) -> Iterator[Writer]:
    with Writer(store_path) as writer:
        writer.save_node_types([BDW], source="test")
        yield writer
