"""``python -m release``: build the packages; says what it made, what it left out and why."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from advisor import __version__
from advisor.interpreter import own_python
from release import package, tree

TOOLS = {"deb": "dpkg-deb", "rpm": "rpmbuild"}
_PYTHON = Path(f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}")


def main(arguments: list[str]) -> int:
    """Build; return 0 if the wheel and every format whose tool is here was made."""
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("--out", type=Path, default=tree.ROOT / "dist", help="folder (dist)")
    parser.add_argument(
        "--interpreter",
        type=Path,
        default=_PYTHON,
        help=f"the Python of the site's hosts, {_PYTHON.name} somewhere (default: {_PYTHON})",
    )
    parser.add_argument(
        "--without",
        metavar="NAME,...",
        default="",
        help="leave these libraries out: to try the packaging, not the programs",
    )
    parser.add_argument("--level", type=int, default=9, help="compression by zstd, 1 to 19")
    args = parser.parse_args(arguments)
    out: Path = args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".packages-") as name:
        work = Path(name)
        try:
            wheels = build_wheel(work, out), build_wheel(work, out, lab=True)
            for wheel in wheels:
                print(wheel)
            _build_others(wheels, work, out, args)
        except subprocess.CalledProcessError as error:
            print(f"{error.cmd[0]} failed with exit code {error.returncode}", file=sys.stderr)
            return 1
    return 0


def _build_others(
    wheels: tuple[Path, Path], work: Path, out: Path, args: argparse.Namespace
) -> None:
    formats = [name for name, tool in TOOLS.items() if shutil.which(tool)]
    for name in TOOLS.keys() - set(formats):
        print(f"no {name}: {TOOLS[name]} is not installed (run make packages as root on Debian)")
    if not formats:
        return
    without = set(args.without.split(","))
    wanted = tree.libraries() - without
    more = tree.libraries(tree.LAB) - tree.libraries() - {tree.NAME} - without
    for lab, wheel in enumerate(wheels):
        root = work / ("lab/root" if lab else "advisor/root")
        root.mkdir(mode=0o755, parents=True)
        if lab:
            tree.fill_lab(root, wheel, more)
        else:
            tree.fill(root, wheel, args.interpreter, wanted)
        made = package.Package(root, out, __version__, args.interpreter, args.level, bool(lab))
        for name in formats:
            print({"deb": package.deb, "rpm": package.rpm}[name](made))


def build_wheel(work: Path, out: Path, *, lab: bool = False) -> Path:
    """Build a wheel, with man pages and the advisor's with completion; return its file."""
    name = tree.LAB if lab else tree.NAME
    share, wheels = work / f"{name}-share", work / f"{name}-wheel"
    tree.write_shared(share, lab=lab)
    pip = own_python("pip", "wheel", "--quiet", "--disable-pip-version-check")
    environment = {**os.environ, "ADVISOR_SHARED": str(share)}
    source = tree.ROOT / "lab" if lab else tree.ROOT
    command = [*pip, "--no-deps", "--wheel-dir", str(wheels), str(source)]
    subprocess.run(command, env=environment, check=True)
    (made,) = wheels.glob("*.whl")
    return Path(shutil.copy2(made, out))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
