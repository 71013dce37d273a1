"""What a hostile user puts into a folder in which other people's processes may start.

Each planted module and program writes a line into one file, whoever runs it, and goes on.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MODULES = (
    "advisor/__init__.py",
    "advisor/__main__.py",
    "advisor_tui/__init__.py",
    "random.py",
    "json.py",
    "argparse.py",
    "runpy.py",
    "numpy.py",
    "yaml.py",
    "pip.py",
    "sitecustomize.py",
    "usercustomize.py",
    "evil.py",
)
PROGRAMS = ("sinfo", "scontrol", "sacct", "squeue", "qstat", "rm", "head", "cc", "python3")


class Planted:
    """A folder open to everybody that holds the plants, and what they wrote."""

    def __init__(self, root: Path) -> None:
        self.folder, self._ran = root / "shared", root / "ran"
        self.folder.mkdir()
        self._ran.touch()
        self._ran.chmod(0o666)
        for name in MODULES:
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(
                "import posix\n"
                f"with open({str(self._ran)!r}, 'a') as ran:\n"
                "    print(__file__, posix.geteuid(), file=ran)\n"
            )
        points = self.folder / "evil-1.dist-info"
        points.mkdir()
        (points / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1\n")
        (points / "entry_points.txt").write_text(
            "[advisor.schedulers]\nevil = evil:Evil\n[advisor.translators]\nevil = evil\n"
        )
        for name in PROGRAMS:
            path = self.folder / name
            path.write_text(f'#!/bin/sh\necho "$0 $(/usr/bin/id -u)" >> {self._ran}\n')
            path.chmod(0o755)
        for path in (self.folder, *self.folder.rglob("*")):
            if path.is_dir():
                path.chmod(0o777)

    def ran(self) -> str:
        """Return what the plants have written: path and uid of each that ran."""
        return self._ran.read_text()


@contextmanager
def planted() -> Iterator[Planted]:
    """Make such a folder, which every user can reach."""
    root = Path(tempfile.mkdtemp(prefix="adv-plant-", dir="/tmp"))
    root.chmod(0o755)
    try:
        yield Planted(root)
    finally:
        shutil.rmtree(root)


def as_nobody(command: list[str], *, reads: bool = True) -> list[str]:
    """Return a command that runs another as the user nobody, where there are two users.

    ``reads``: it may read this checkout and its Python wherever they are.
    """
    if os.geteuid():
        return command
    more = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"] if reads else []
    return ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", *more, *command]
