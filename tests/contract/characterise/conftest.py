"""The kernels, compiled once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.instruments.twin import compile_twice
from tests.contract.characterise.programs import KERNELS


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, _cache: Path) -> Iterator[Path]:
    """All kernels with their twins."""
    folder = tmp_path_factory.mktemp("kernels")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(_cache))
        for source in sorted(KERNELS.glob("*.c")):
            target = folder / source.stem
            words = ["-O2", "-fopenmp", str(source), "-o", str(target), "-lm"]
            assert compile_twice(words) == (0, "")
        yield folder
