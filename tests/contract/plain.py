"""The advisor as it is installed without extras: itself and the libraries that it requires."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

from advisor.paths import share
from release import tree

ROOT = share("config").parent
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
    code = f"import sys; sys.path.insert(0, '{folder}'); from advisor.cli import main; "
    start = f'{sys.executable} -I -S -c "{code}sys.exit(main())"'
    program.write_text(f'#!/bin/sh\nexec {start} "$@"\n')
    program.chmod(0o755)
    return program
