"""A store of three sizes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.sizes.stencil import make_store


@pytest.fixture(scope="session")
def family(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Three sizes, the largest with a model; tests only read it."""
    path = tmp_path_factory.mktemp("sizes") / "advisor.db"
    make_store(path).close()
    yield path
