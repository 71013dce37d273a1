"""The hooks' modules, once for each Lua, and both libraries of system calls."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.schedulers.slurm.hook_files import SlurmHookSettings, module_files
from tests.unit.hook_lua.installed import Installed
from tests.unit.hook_lua.modules import CLUSTER, LUA_OF, LUAS


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return module_files(SlurmHookSettings(Path("/nowhere")), CLUSTER, {})


@pytest.fixture(scope="module", params=LUAS, ids=lambda path: Path(path).name)
def home(
    request: pytest.FixtureRequest,
    files: dict[str, bytes],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The installed modules, tried with every Lua that Slurm may be built with."""
    folder = tmp_path_factory.mktemp("modules")
    LUA_OF[folder] = request.param
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture
def path() -> Iterator[Path]:
    """A path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="lua-") as name:
        yield Path(name) / "s"


@pytest.fixture
def installed(home: Path, path: Path) -> Installed:
    """The installed hooks beside a socket of their own."""
    return Installed(home, path.parent)
