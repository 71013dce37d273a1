"""Our valgrind tool: found, built from valgrind's own headers and archives, and called."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from advisor.errors import AdvisorError
from advisor.instruments.native import SOURCES, built

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le"}
_TRACE = SOURCES / "trace"


def installed() -> bool:
    """Tell whether there is a valgrind at all."""
    return shutil.which("valgrind") is not None


def command(folder: Path, *, outside: bool, limit_bytes: int) -> tuple[Sequence[str], Path]:
    """Return the words that run a program under our tool, and valgrind's folder for them.

    ``outside`` also looks outside of parallel regions; sites are left in ``folder``. Raises
    AdvisorError when valgrind or what is needed to build on it is missing.
    """
    program = shutil.which("valgrind")
    if program is None:
        raise AdvisorError("valgrind is not installed", hint="or build with advisor cc")
    words = [
        program,
        "--tool=advisor",
        "-q",
        f"--log-file={folder}/log.%p",
        "--trace-children=yes",
        "--fair-sched=try",
        f"--folder={folder}",
        f"--outside={'yes' if outside else 'no'}",
        f"--bytes={limit_bytes}",
    ]
    return words, _tool()


def teams_library() -> Path:
    """Return the library that reports parallel regions to the tool."""
    return built(
        "teams.so",
        [_TRACE / "teams.c"],
        ["-O2", "-shared", "-fPIC", "-fvisibility=hidden", *_includes()],
        headers=[_TRACE / "regions.h", _TRACE / "requests.h"],
        libraries=["-ldl"],
    )


def _tool() -> Path:
    """Build the tool and return a folder with it and all that valgrind wants beside it."""
    arch = _ARCHITECTURES.get(platform.machine())
    if arch is None:
        raise AdvisorError(f"the advisor's valgrind tool does not support {platform.machine()}")
    prefixes = list(_prefixes())
    valgrind_folder = _first_holding(
        [
            Path(os.environ.get("VALGRIND_LIB") or "/nonexistent"),
            *(p / part / "valgrind" for p in prefixes for part in ("libexec", "lib", "lib64")),
            *(f for p in prefixes for f in sorted(p.glob("lib/*/valgrind"))),
        ],
        f"none-{arch}-linux",
    )
    archives = _first_holding(
        [
            *(p / part / "valgrind" for p in prefixes for part in ("lib", "lib64")),
            *(f for p in prefixes for f in sorted(p.glob("lib/*/valgrind"))),
        ],
        f"libcoregrind-{arch}-linux.a",
    )
    if valgrind_folder is None or archives is None or not _includes():
        raise AdvisorError(
            "valgrind is installed, but the files to build tools with are not",
            hint="install valgrind-devel, or build with advisor cc",
        )
    libraries = [str(archives / f"lib{n}-{arch}-linux.a") for n in ("coregrind", "vex", "gcc-sup")]
    tool = built(
        f"advisor-{arch}-linux",
        [_TRACE / "valgrind_tool.c"],
        [
            "-O2",
            "-std=gnu11",
            "-fno-stack-protector",
            "-fno-strict-aliasing",
            "-fno-builtin",
            "-fno-pie",
            "-fomit-frame-pointer",
            f"-DVGA_{arch}=1",
            "-DVGO_linux=1",
            f"-DVGP_{arch}_linux=1",
            f"-DVGPV_{arch}_linux_vanilla=1",
            *_includes(),
            "-static",
            "-no-pie",
            "-nodefaultlibs",
            "-nostartfiles",
            "-u",
            "_start",
            "-Wl,-Ttext-segment=0x58000000",
            "-Wl,--build-id=none",
        ],
        headers=[_TRACE / "sites.h", _TRACE / "requests.h"],
        libraries=[*libraries[:2], "-lgcc", *(f for f in libraries[2:] if Path(f).exists())],
    )
    for part in (
        *valgrind_folder.glob("*.so"),
        *valgrind_folder.glob("*.supp"),
        *valgrind_folder.glob("*.xml"),
    ):
        link = tool.parent / part.name
        if not link.exists():
            link.unlink(missing_ok=True)
            link.symlink_to(part)
    return tool.parent


def _includes() -> list[str]:
    return [
        flag
        for prefix in _prefixes()
        if (prefix / "include/valgrind/pub_tool_basics.h").exists()
        for flag in (f"-I{prefix}/include", f"-I{prefix}/include/valgrind")
    ][:2]


def _prefixes() -> Iterator[Path]:
    program = shutil.which("valgrind")
    if program:
        yield Path(program).resolve().parent.parent
    yield from (Path("/usr"), Path("/usr/local"))


def _first_holding(folders: Sequence[Path], holds: str) -> Path | None:
    return next((f for f in folders if (f / holds).exists()), None)
