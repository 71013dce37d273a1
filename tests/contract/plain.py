"""The advisor as it is installed without extras: itself and the libraries that it requires."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from advisor.paths import share
from release import tree

ROOT = share("config").parent
FORKING = Path(__file__).with_name("forking.py")
_SOURCES = {"advisor": ROOT / "advisor", "advisor_tui": ROOT / "tui/advisor_tui", "db": ROOT / "db"}


def plain_advisor(folder: Path) -> Path:
    """Return the program ``advisor``, for which there is nothing but what is linked in ``folder``.

    What a package has as copies are links here.
    """
    for name in tree.libraries() | {tree.NAME}:
        library = metadata.distribution(name)
        tops = {file.parts[0] for file in library.files or ()}
        for top in tops - {"..", "__pycache__", *_SOURCES}:
            (folder / top).symlink_to(Path(str(library.locate_file(top))))
    for package, source in _SOURCES.items():
        (folder / package).symlink_to(source)
    program = folder / "bin/advisor"
    program.parent.mkdir()
    start = shlex.join(_plain_python(folder, "from advisor.cli import main; sys.exit(main())"))
    program.write_text(f'#!/bin/sh\nexec {start} "$@"\n')
    program.chmod(0o755)
    return program


def _plain_python(folder: Path, code: str) -> list[str]:
    """Return the words that start an interpreter which runs code and sees that folder alone."""
    return [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, '{folder}'); {code}"]


class PlainCalls:
    """One interpreter that has loaded the advisor of a folder, and forks for each call."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder, self._environment = folder, dict(environment)
        code = f"import runpy; runpy.run_path('{FORKING}', run_name='__main__')"
        self._interpreter = subprocess.Popen(
            _plain_python(folder, f"sys.argv = sys.argv[:1]; {code}"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self._environment,
            text=True,
        )

    def close(self) -> None:
        """End the interpreter."""
        self._interpreter.communicate(timeout=60)

    def run(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run ``advisor`` with these words, in the folder."""
        job = {"argv": words, "to": "", "place": str(self._folder), "variables": self._environment}
        plan = self._folder / "plan.json"
        plan.write_text(json.dumps({"jobs": [job], "closed": ""}))
        stdin, stdout = self._interpreter.stdin, self._interpreter.stdout
        assert stdin is not None and stdout is not None
        print(plan, file=stdin, flush=True)
        assert stdout.readline() == f"{plan}\n"
        [code] = json.loads(plan.read_text())
        out, err = ((self._folder / name).read_text() for name in ("out", "err"))
        return subprocess.CompletedProcess(words, code, out, err)
