"""Fixtures every test folder shares."""

from __future__ import annotations

import encodings.utf_8_sig  # noqa: F401  # once it could not be imported, it is unknown for ever
import gc
import json
import os
import signal
import sqlite3
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import scipy.linalg  # noqa: F401  # loads a BLAS of its own
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

from advisor.cli import main
from advisor.core.protocol import PREFIXES, THREADS, is_thread_count
from advisor.store import opening
from advisor.store.writer import Writer
from tests.schemas import check

# What whoever starts the tests has set for their own jobs, sites, files and terminals is not
# the tests'. The processes of a parallel run begin with what is left here.
FOREIGN = (
    "ADVISOR",
    "SLURM",
    "SBATCH_",
    "SRUN_",
    "SALLOC_",
    "SQUEUE_",
    "SACCT_",
    "PBS",
    "MUNGE_",
    "XDG_",
    "TEXTUAL",
    "NO_COLOR",
    "FORCE_COLOR",
    "COLUMNS",
    "LINES",
    *PREFIXES,
    *THREADS,
)
for name in [n for n in os.environ if n.startswith(FOREIGN) or is_thread_count(n)]:
    if name != "ADVISOR_RENEW":
        del os.environ[name]
os.umask(0o022)

# A busy machine is no reason to fail. The same examples each time, so that what passes today
# passes tomorrow; `pytest --hypothesis-profile explore` draws new ones.
settings.register_profile(
    "explore", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("advisor", settings.get_profile("explore"), derandomize=True)
settings.load_profile("advisor")

# Several tests run at once: threads that wait for one another in every small matrix product only
# take the processors from the others.
threadpool_limits(1)

# A shell's background job ignores Ctrl-C, and so would every program the tests start there.
signal.signal(signal.SIGINT, signal.default_int_handler)


SLOW = (
    "slurm/test_installed.py",
    "slurm/test_differential.py",
    "slurm/test_cold_start.py",
    "slurm/test_end_to_end.py",
    "slurm/test_time_limits.py",
    "slurm/test_training.py",
    "slurm/test_estimated_node_type.py",
    "contract/test_stores.py",
    "contract/test_killed_at_random.py",
    "slurm/",
    "contract/test_packages.py",
    "contract/test_output.py",
    "pbs/test_pbs_site.py",
    "contract/test_ci.py",
    "tui/",
    "pbs/",
    "contract/",
)
"""What takes longest comes first, so that no process is left alone with it at the end."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage meanwhile, nor later among what is there then: of nine thousand tests
    that are collected, all stay.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the slow files first; `--dist loadfile` gives them to the processes in this order."""

    @cache
    def rank(path: Path) -> int:
        place = path.relative_to(Path(__file__).parent).as_posix()
        return next((i for i, start in enumerate(SLOW) if place.startswith(start)), len(SLOW))

    items.sort(key=lambda item: rank(item.path))


@dataclass
class Result:
    """What one command printed and returned."""

    code: int
    out: str
    err: str

    def json(self) -> dict[str, Any]:
        """Return the JSON answer, once it is what config/schemas says."""
        data: dict[str, Any] = json.loads(self.out)
        check(data)
        return data


@pytest.fixture(scope="session")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is compiled once serves all tests of a run."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _cache: Path) -> None:
    """No test reads or writes the machine's own store, configuration or socket."""
    monkeypatch.setenv("ADVISOR_DB", str(tmp_path / "advisor.db"))
    monkeypatch.setenv("ADVISOR_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("ADVISOR_SOCKET", str(tmp_path / "advisor.sock"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(_cache))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))  # the hooks' circuit breaker is there
    own = ("ADVISOR", "ADVISOR_MODE", "ADVISOR_GOAL", "ADVISOR_APPLICATION", "OMP_NUM_THREADS")
    for name in own:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _time_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon collects garbage between its answers. Here a pass over all that other tests left
    may fall into the reading of a script, which was then taken for too slow.
    """
    monkeypatch.setattr("advisor.core.script.DEADLINE_S", 1.0)


Connect = Callable[[Path, float], sqlite3.Connection]


@pytest.fixture(scope="session", autouse=True)
def _empty_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connect]:
    """A store that a test makes in this process begins as a copy of one the migrations made.

    A closed one, so that all of it is in its file; the migrations take ten times as long. All else
    is done as ever: draft, place, WAL. Programs that tests start run the migrations.
    """
    template = tmp_path_factory.mktemp("empty") / "advisor.db"
    Writer(template).close()
    assert [*template.parent.iterdir()] == [template]  # nothing is left in a log
    content, connect = template.read_bytes(), opening._connect

    def copied(path: Path, timeout_s: float) -> sqlite3.Connection:
        if path.exists() and not path.stat().st_size:
            path.write_bytes(content)
        return connect(path, timeout_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "_connect", copied)
        yield connect


@pytest.fixture
def migrated_anew(monkeypatch: pytest.MonkeyPatch, _empty_store: Connect) -> None:
    """Have this test's stores made by the migrations: where how one is made is what is tested."""
    monkeypatch.setattr(opening, "_connect", _empty_store)


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    return tmp_path / "advisor.db"


@pytest.fixture
def advisor(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Run the command line in this process: ``advisor("pareto", "f.csv", ...)``."""

    def run(*argv: object) -> Result:
        capsys.readouterr()
        try:
            code = main([str(a) for a in argv])
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run
