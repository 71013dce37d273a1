"""Opening the store again must not let go of the locks another connection holds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from advisor.core.inventory import NodeType
from advisor.store.reader import Reader
from advisor.store.writer import Writer

WRITE = (
    "import sys\nfrom advisor.core.inventory import NodeType\n"
    "from advisor.store.writer import Writer\n"
    "with Writer(sys.argv[1]) as store:\n"
    "    store.save_node_types([NodeType(sys.argv[2])], source='test')\n"
)


def write_elsewhere(path: Path, name: str) -> None:
    """Another process opens the store, writes, and closes it, as any command does."""
    subprocess.run([sys.executable, "-c", WRITE, str(path), name], check=True)


def test_a_second_reader_does_not_blind_the_first(store_path: Path) -> None:
    """POSIX drops all of a process's locks on a file with any descriptor of it that is closed."""
    with Writer(store_path) as store:
        store.save_node_types([NodeType("a")], source="test")
    with Reader(store_path) as first:
        assert set(first.inventory().node_types) == {"a"}
        for number in range(3):
            Reader(store_path).close()
            Writer(store_path).close()
            write_elsewhere(store_path, f"b{number}")
            assert first.changed()
            assert f"b{number}" in first.inventory().node_types
