"""What a package says of itself, and the file formats: Debian's and RPM's."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from release.tree import LAB, NAME, PACKAGES

HERE = Path(__file__).resolve().parent
SUMMARY = "energy and performance advisor for batch jobs"
DESCRIPTION = """\
At submission each job gets the threads, frequency cap and node type that its own
earlier runs showed to be better, within the slowdown that the site allows.
Python libraries are inside, below /opt/advisor; nothing is downloaded."""
LAB_SUMMARY = "application profiles, evaluation, statistics and phases for hpc-advisor"
LAB_DESCRIPTION = """\
Verbs for who studies models and programs: advisor lab profile, evaluate, pareto, phases,
and readers of other programs' files, with the Python libraries that only they need.
Advising jobs needs none of it."""
_DEBIAN = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64el"}


@dataclass(frozen=True, slots=True)
class Package:
    """An installation's files below ``root``, to be written as packages into ``out``."""

    root: Path
    out: Path
    version: str
    interpreter: Path
    level: int
    """Of the compression by zstd, 1 to 19."""
    lab: bool = False
    """Whether it is the laboratory's, which comes beside the advisor's of the same version."""

    @property
    def name(self) -> str:
        """What it is called."""
        return LAB if self.lab else NAME

    @property
    def words(self) -> tuple[str, str]:
        """Summary and description."""
        return (LAB_SUMMARY, LAB_DESCRIPTION) if self.lab else (SUMMARY, DESCRIPTION)

    @property
    def own(self) -> tuple[str, ...]:
        """Folders that belong to the package alone; all others are others', too."""
        documents = f"usr/share/doc/{self.name}"
        if not self.lab:
            return ("opt/advisor", documents)
        inside = (self.root / PACKAGES).iterdir()
        return (*sorted(str(PACKAGES / folder.name) for folder in inside), documents)

    @property
    def from_system(self) -> bool:
        """Whether the hosts' Python is a package of their system."""
        return self.interpreter.parent == Path("/usr/bin")


def deb(package: Package) -> Path:
    """Write Debian's package; return its file. Raises CalledProcessError."""
    machine = _DEBIAN.get(platform.machine(), platform.machine())
    control = package.root / "DEBIAN"
    scripts = () if package.lab else ("postinst", "prerm", "postrm")
    control.mkdir()
    for name in (*scripts, *(() if package.lab else ("conffiles",))):
        shutil.copy(HERE / "debian" / name, control)
    (control / "control").write_text(_control(package, machine), encoding="utf-8")
    (control / "md5sums").write_text("".join(_md5sums(package.root)), encoding="utf-8")
    control.chmod(0o755)
    for script in scripts:
        (control / script).chmod(0o755)
    target = package.out / f"{package.name}_{package.version}_{machine}.deb"
    completion = package.root / "usr/share/zsh"
    if not package.lab:
        (completion / "site-functions").rename(completion / "vendor-completions")
    try:
        _run(
            "dpkg-deb",
            "--root-owner-group",
            "-Zzstd",
            f"-z{package.level}",
            "--build",
            str(package.root),
            str(target),
        )
    finally:
        if not package.lab:
            (completion / "vendor-completions").rename(completion / "site-functions")
        shutil.rmtree(control)
    return target


def rpm(package: Package) -> Path:
    """Write the RPM; return its file. Raises CalledProcessError."""
    work = package.root.with_name("rpm")
    work.mkdir()
    (work / "files").write_text("".join(_listed(package)), encoding="utf-8")
    # What kind of file each is matters to nobody here, and takes 17 s to find out.
    (work / "magic").write_text("0 byte x data\n", encoding="utf-8")
    values = {
        "_topdir": work,
        "_binary_payload": f"w{package.level}.zstdio",
        "advisor_name": package.name,
        "advisor_version": package.version,
        "advisor_root": package.root,
        "advisor_files": work / "files",
        "advisor_summary": package.words[0],
        "advisor_description": package.words[1],
        "advisor_daemon": int(not package.lab),
    }
    if package.lab:
        values["advisor_beside"] = f"{NAME} = {package.version}"
    if package.from_system:
        values["advisor_python"] = package.interpreter
    defined = [word for k, v in values.items() for word in ("--define", f"{k} {v}")]
    command = ["rpmbuild", "-bb", "--quiet", "--target", platform.machine(), *defined]
    _run(*command, str(HERE / "advisor.spec"), MAGIC=str(work / "magic"))
    (made,) = work.rglob("*.rpm")
    target = package.out / made.name
    made.replace(target)
    return target


def _control(package: Package, machine: str) -> str:
    size = sum(p.lstat().st_size for p in package.root.rglob("*")) // 1024
    # Debian's packages of Python are called like their programs: python3.11.
    python = f"{package.interpreter.name}, " if package.from_system else ""
    summary, description = package.words
    lines = "\n".join(f" {line}" for line in description.splitlines())
    beside = f"{NAME} (= {package.version}), " if package.lab else ""
    recommended = "" if package.lab else "Recommends: gcc | lua-posix\n"
    return (
        f"Package: {package.name}\nVersion: {package.version}\nArchitecture: {machine}\n"
        f"Maintainer: the site's administrators <root@localhost>\nInstalled-Size: {size}\n"
        f"Depends: {beside}{python}libc6 (>= 2.28)\n{recommended}"
        "Section: admin\nPriority: optional\n"
        f"Description: {summary}\n{lines}\n"
    )


def _md5sums(root: Path) -> Iterator[str]:
    for path in _files(root):
        if not path.is_symlink() and path.parts[len(root.parts)] not in ("DEBIAN", "etc"):
            digest = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
            yield f"{digest}  {path.relative_to(root)}\n"


def _listed(package: Package) -> Iterator[str]:
    """Yield the lines of an RPM's list of files: whole folders of the package, else files."""
    for folder in package.own:
        yield f'"/{folder}"\n'
    for path in sorted(_files(package.root)):
        name = path.relative_to(package.root).as_posix()
        if not name.startswith((*package.own, "etc/")):
            yield f'"/{name}"\n'
    if package.lab:
        return
    yield '%dir "/etc/advisor"\n%config(noreplace) "/etc/advisor/serve.env"\n'


def _files(root: Path) -> Iterator[Path]:
    """Yield all that is no folder; a link is a file."""
    return (path for path in root.rglob("*") if path.is_symlink() or not path.is_dir())


def _run(*command: str, **environment: str) -> None:
    """Run a tool; show what it says only if it fails."""
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env={**os.environ, **environment}
    )
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        raise subprocess.CalledProcessError(done.returncode, command)
