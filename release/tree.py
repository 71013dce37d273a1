"""The files of an installation by package, as they lie on a site's host.

``/opt/advisor`` is a virtual environment that was filled where the package was built, with the very
versions of the libraries that are installed there, so that nothing is downloaded, built or compiled
on the site's hosts. It runs on the hosts' own Python of the same minor version.
"""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from advisor import laboratory
from advisor.interpreter import own_python
from advisor.service.units import units
from docs.generator import man

NAME, LAB = "hpc-advisor", "hpc-advisor-lab"
PREFIX = Path("opt/advisor")
PACKAGES = PREFIX / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
ROOT = Path(__file__).resolve().parents[1]
COMPLETION = {
    "bash": "bash-completion/completions/advisor",
    "zsh": "zsh/site-functions/_advisor",
    "fish": "fish/vendor_completions.d/advisor.fish",
}
_SCRIPT = """\
#!/{prefix}/bin/python -I
import sys
from advisor.cli import main
sys.exit(main())
"""


def write_shared(folder: Path, *, lab: bool = False) -> None:
    """Write what is generated from the code and belongs into share/: man pages, completion.

    The completion knows all verbs; the pages of the laboratory's are its own.
    """
    theirs = {f"advisor-lab-{verb}.1" for verb in laboratory.VERBS}
    for name, text in man.pages().items():
        if (name in theirs) is lab:
            _write(folder / "man/man1" / name, text)
    for shell, name in () if lab else COMPLETION.items():
        ask = own_python("advisor", "completion", shell)
        done = subprocess.run(ask, cwd=ROOT, capture_output=True, text=True, check=True)
        _write(folder / name, done.stdout)


def fill(root: Path, wheel: Path, interpreter: Path, wanted: Collection[str]) -> None:
    """Write all files of the package below ``root``, with the wanted libraries.

    ``interpreter`` is the Python of the hosts.
    """
    home, packages = root / PREFIX, root / PACKAGES
    _install(wheel, home)
    for library in sorted(wanted):
        _copy_library(library, packages)
    _write_environment(home, interpreter)
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/advisor").symlink_to(f"/{PREFIX}/bin/advisor")
    (home / "share").rename(root / "usr/share")
    _compress(root / "usr/share/man/man1")
    for name, text in units(Path("/") / PREFIX / "bin/advisor", sets_uid=False).items():
        _write(root / "usr/lib/systemd/system" / name, text)
    _write(root / "etc/advisor/serve.env", (ROOT / "config/serve.env").read_text("utf-8"))
    _write_documents(root / "usr/share/doc" / NAME)
    _set_modes(root)


def fill_lab(root: Path, wheel: Path, wanted: Collection[str]) -> None:
    """Write all files of the laboratory's package, which come beside those of the advisor's.

    ``wanted`` are the libraries that the advisor's package has not.
    """
    home = root / PREFIX
    _install(wheel, home)
    for library in sorted(wanted):
        _copy_library(library, root / PACKAGES)
    (root / "usr").mkdir()
    (home / "share").rename(root / "usr/share")
    _compress(root / "usr/share/man/man1")
    _write(root / "usr/share/doc" / LAB / "LICENSE", (ROOT / "LICENSE").read_text("utf-8"))
    _set_modes(root)


def _install(wheel: Path, home: Path) -> None:
    _pip("install", "--no-deps", "--ignore-installed", "--prefix", str(home), str(wheel))


def _set_modes(root: Path) -> None:
    for path in root.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def libraries(of: str = NAME) -> set[str]:
    """Return the names of all distributions that ``of`` requires, itself not among them."""
    found: set[str] = set()
    left = [of]
    while left:
        for requirement in _required(left.pop()):
            if requirement not in found:
                found.add(requirement)
                left.append(requirement)
    return found


def _required(name: str) -> Iterator[str]:
    for line in metadata.requires(name) or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield metadata.distribution(requirement.name).metadata["Name"]


def _copy_library(name: str, packages: Path) -> None:
    """Copy an installed library with its bytecode; its own tests, a third of all, stay here."""
    distribution = metadata.distribution(name)
    for file in distribution.files or ():
        source = Path(str(distribution.locate_file(file)))
        if ".." in file.parts or "tests" in file.parts or not source.exists():
            continue
        target = packages / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def _write_environment(home: Path, interpreter: Path) -> None:
    """Make a virtual environment of the folder, as ``python -m venv`` does."""
    _write(
        home / "pyvenv.cfg", f"home = {interpreter.parent}\ninclude-system-site-packages = false\n"
    )
    (home / "lib64").symlink_to("lib")
    shutil.rmtree(home / "bin")
    _write(home / "bin/advisor", _SCRIPT.format(prefix=PREFIX))
    (home / "bin/advisor").chmod(0o755)
    for name in ("python", "python3"):
        (home / "bin" / name).symlink_to(interpreter)


def _write_documents(folder: Path) -> None:
    for name in ("README.md", "CHANGELOG.md", "LICENSE"):
        _write(folder / name, (ROOT / name).read_text("utf-8"))
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("generator"))
    for name in ("policy.yaml", "site.yaml", "grafana/advisor.json"):
        _write(folder / "examples" / Path(name).name, (ROOT / "config" / name).read_text("utf-8"))


def _compress(folder: Path) -> None:
    for page in sorted(folder.iterdir()):
        page.with_name(f"{page.name}.gz").write_bytes(gzip.compress(page.read_bytes(), mtime=0))
        page.unlink()


def _pip(*words: str) -> None:
    """Run pip, which says itself what is wrong."""
    quiet = ["--quiet", "--disable-pip-version-check", "--no-warn-script-location"]
    subprocess.run(own_python("pip", words[0], *quiet, *words[1:]), check=True)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
