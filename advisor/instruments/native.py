"""C sources that are compiled on the machine they are to run on, once, into a cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from advisor import paths
from advisor.errors import AdvisorError

SOURCES = Path(__file__).resolve().parent


def compiler(preferred: str = "") -> str:
    """Return the C compiler: the ``preferred`` one, ``$CC``, cc, gcc or clang.

    Raises AdvisorError when there is none.
    """
    for name in (preferred, *os.environ.get("CC", "").split()[:1], "cc", "gcc", "clang"):
        program = shutil.which(name) if name else None
        if program and Path(program).name != "advisor":
            return program
    raise AdvisorError(
        "no C compiler found (cc, gcc or clang)", hint="install gcc, or set CC to one"
    )


def built(
    name: str,
    sources: Sequence[Path],
    flags: Sequence[str],
    *,
    headers: Sequence[Path] = (),
    libraries: Sequence[str] = (),
    cc: str = "",
) -> Path:
    """Return the compiled ``sources``, from the cache or made now.

    The cache's key is the content of all files, the flags and the compiler (its own file's time
    included); ``headers`` are only read for that. Raises AdvisorError with the compiler's first
    error when it does not compile.
    """
    chosen = compiler(cc)
    key = hashlib.sha256()
    real = Path(chosen).resolve()
    for part in (name, str(real), str(real.stat().st_mtime_ns), *flags, *libraries):
        key.update(part.encode() + b"\0")
    for path in (*sources, *headers):
        key.update(path.read_bytes() + b"\0")
    folder = paths.cache_dir() / "native" / key.hexdigest()[:16]
    target = folder / name
    if target.exists():
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as work:
            binary = Path(work) / name
            command = [chosen, *flags, *map(str, sources), "-o", str(binary), *libraries]
            process = subprocess.run(command, capture_output=True, text=True, errors="replace")
            if process.returncode != 0:
                raise AdvisorError(f"{chosen} cannot compile {name}: {first_error(process.stderr)}")
            binary.replace(target)
    except OSError as error:
        raise AdvisorError(
            f"{folder} cannot be written: {error.strerror}",
            hint="set XDG_CACHE_HOME to a writable folder",
        ) from error
    return target


def first_error(text: str) -> str:
    """Return the line of a compiler's output that says what is wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    wrong = (line for line in lines if "error" in line or "undefined reference" in line)
    return next(wrong, lines[0] if lines else "it does not say why")
