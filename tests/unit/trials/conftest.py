"""A site that has swept eight applications and knows the signature of one it never swept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.derive.worker import derive
from advisor.store.signatures import save_signatures
from advisor.store.writer import Writer
from tests.unit.never_swept import NODE_TYPE, policy, signature, sweep
from tests.unit.trials.site import Site


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("swept") / "advisor.db"
    with Writer(path) as writer:
        writer.save_node_types([NODE_TYPE], source="test")
        with writer.batch():
            for i in range(8):
                sweep(writer, f"app{i}", 0.1 + 0.1 * i)
        policy(writer, mode="apply", classes=["unknown"])
        save_signatures(writer, "new", "default", [signature(0.75)])
        assert derive(writer)
    return path


@pytest.fixture
def site(swept: Path, tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "advisor.db").write_bytes(swept.read_bytes())
    with Writer(tmp_path / "advisor.db") as writer:
        made = Site(writer)
        yield made
        for daemon in made.daemons:
            daemon.close()
