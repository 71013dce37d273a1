"""``make packages``: wheel, deb and rpm are built, installed from their files, used and removed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from advisor import __version__
from release import tree
from release.package import Package, deb, rpm
from tests.contract import machine
from tests.contract.plain import plain_advisor

pytestmark = pytest.mark.package
ROOT = Path(__file__).resolve().parents[2]
SYSTEM_PYTHON = Path(f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}")
UNITS = {"advisor.service", "advisor.socket", "advisor-collect.service", "advisor-collect.timer"}
SHIPPED = {
    "etc/advisor/serve.env",
    "opt/advisor/bin/advisor",
    "usr/bin/advisor",
    "usr/share/man/man1/advisor.1.gz",
    "usr/share/man/man1/advisor-train.1.gz",
    "usr/share/bash-completion/completions/advisor",
    "usr/share/fish/vendor_completions.d/advisor.fish",
    "usr/share/doc/hpc-advisor/examples/policy.yaml",
    "usr/share/doc/hpc-advisor/docs/admin.md",
    *(f"usr/lib/systemd/system/{unit}" for unit in UNITS),
}

EARLIER = "0.2.9"
USE = f"""
test "$(advisor --version)" = "advisor {__version__}"
mkdir slurm && touch slurm/slurm.conf begin
advisor hook install --scheduler slurm --dir ~/slurm > hooks
test -s slurm/cli_filter.lua && test -s slurm/job_submit.lua
advisor service status --scheduler slurm > units
test "$(grep -c 'usr/lib.*, as this version writes it$' units)" = 4
advisor serve --socket ~/socket 2> log &
until test -S socket; do sleep 0.1; done
setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=/nonexistent advisor --help > help
kill $! && wait
test -f /var/lib/advisor/advisor.db
bash -c 'source /usr/share/bash-completion/completions/advisor; complete -p advisor' > words
find /opt/advisor -newer begin -type f
"""
"""What a site's host does first; prints nothing but files that use has left in /opt/advisor."""

DOCUMENTED = """
test "$(man -w advisor)" = /usr/share/man/man1/advisor.1.gz
advisor doctor > doctor || test $? = 1
grep -q 'advisor.socket' doctor
"""
"""What an admin asks first: the manual, and what is wrong; here no daemon answers."""

BEFORE_UPGRADE = f"""
test "$(advisor --version)" = "advisor {EARLIER}" && test -e /opt/advisor/only-before
advisor serve --socket ~/socket 2> log &
until test -S socket; do sleep 0.1; done
kill $! && wait
echo ADVISOR_DB=/elsewhere/advisor.db > /etc/advisor/serve.env
echo 'version: 1' > /etc/advisor/policy.yaml
cp -a /etc/advisor etc && cp /var/lib/advisor/advisor.db db
"""
KEPT = """
diff -r etc /etc/advisor && cmp db /var/lib/advisor/advisor.db
"""
UPGRADED = f"""
test "$(advisor --version)" = "advisor {__version__}" && test ! -e /opt/advisor/only-before
advisor service status --scheduler slurm > units
test "$(grep -c 'usr/lib.*, as this version writes it$' units)" = 4
{KEPT}
"""
"""An earlier version is used, and another takes its place: what is the site's stays."""

MODEL = """
set -e
{ echo nodes,ranks_per_node,threads_per_node,freq_khz,time_s,energy_j
for t in 1 2 4 8; do for f in 1200000 2400000; do
    echo 1,1,$t,$f,$((2400000000 / (t * f) + 100)).$t,$((90000 / t + f / 100 + 9 * t)).$t
done; done; } > runs.csv
advisor import runs.csv --application app --node-type n > imported
advisor fit app > fitted
advisor options app | grep -q 'app'
"""
"""Needs all of the libraries: times and energies as Amdahl's law and a power by frequency give."""
EXPLAINED = """
printf '#!/bin/sh\\n#SBATCH -N1 -n1 -c8 --exclusive\\nsrun ./app\\n' > job.sh
advisor explain --scheduler slurm job.sh > explained || test $? = 1
grep -q app explained
"""
MOST_MB = 200
"""Of an environment without extras, as ``du -sm`` of its site-packages counts it, pip included."""
LARGE = {"numpy", "pandas", "pip", "scipy"}
"""Nine tenths of the packages. A test of their own shows that they are listed and enough."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``make packages`` leaves in dist/, little compressed, without large libraries."""
    out = tmp_path_factory.mktemp("dist")
    python = SYSTEM_PYTHON if SYSTEM_PYTHON.exists() else Path(sys.executable).resolve()
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "release",
            "--out",
            out,
            "--level",
            "1",
            "--interpreter",
            python,
            "--without",
            ",".join(LARGE),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    made = [line for line in done.stdout.splitlines() if not line.startswith("no ")]
    assert sorted(made) == sorted(str(path) for path in out.iterdir())
    return out


@pytest.fixture(scope="module")
def earlier(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same files as packages of an earlier version, which had one file more."""
    place = tmp_path_factory.mktemp("earlier")
    root, out = place / "root", place / "dist"
    out.mkdir()
    subprocess.run(["dpkg-deb", "-x", the(built, "deb", "dpkg-deb"), root], check=True)
    zsh = root / "usr/share/zsh"
    (zsh / "vendor-completions").rename(zsh / "site-functions")
    (root / "opt/advisor/only-before").touch()
    (module,) = root.glob("opt/advisor/lib/python*/site-packages/advisor/__init__.py")
    text = module.read_text()
    assert __version__ in text
    module.write_text(text.replace(__version__, EARLIER))
    for cached in module.parent.glob("__pycache__/__init__.*"):
        cached.unlink()
    made = Package(root, out, EARLIER, Path("/usr/bin/python3"), 1)
    deb(made)
    if shutil.which("rpmbuild"):
        rpm(made)
    return out


def the(built: Path, ending: str, tool: str) -> Path:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    (package,) = (p for p in built.glob(f"*.{ending}") if tree.LAB not in p.name)
    return package


def laboratory_of(built: Path, ending: str) -> Path:
    """Return the laboratory's package beside the advisor's."""
    (package,) = built.glob(f"{tree.LAB}*.{ending}")
    return package


@pytest.fixture
def host(tmp_path: Path) -> Path:
    if reason := machine.why_not():
        pytest.skip(reason)
    return tmp_path


def test_the_libraries_of_a_package_are_enough(tmp_path: Path) -> None:
    """A model is fitted with nothing but them: here as links, in a package as copies."""
    assert tree.libraries() | tree.libraries(tree.LAB) > LARGE
    program = plain_advisor(tmp_path)
    places = {"ADVISOR_DB": str(tmp_path / "advisor.db"), "PATH": f"{program.parent}:/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-c", MODEL], cwd=tmp_path, env=places, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_without_extras_the_wheel_is_small_and_enough(built: Path, tmp_path: Path) -> None:
    """What ``pip install`` puts into a fresh environment, taken from this one: no network here."""
    (wheel,) = built.glob("hpc_advisor-*.whl")
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(venv / "bin/python"), "install", "--quiet"]
    options = ("--disable-pip-version-check", "--no-deps", "--no-index")
    subprocess.run([*pip, *options, str(wheel)], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    for name in tree.libraries():
        library = metadata.distribution(name)
        for file in library.files or ():
            if ".." not in file.parts and (source := Path(str(library.locate_file(file)))).exists():
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, packages / file)
    assert not any((packages / name).exists() for name in ("pandas", "patsy", "scipy"))
    done = subprocess.run(["du", "-sm", packages], capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[0]) < MOST_MB
    places = {"ADVISOR_DB": str(tmp_path / "advisor.db"), "PATH": f"{venv}/bin:/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-c", MODEL + EXPLAINED], cwd=tmp_path, env=places, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_description_on_pypi_links_to_no_file(built: Path) -> None:
    """PyPI has only the README: each link to a file beside it was broken there."""
    (wheel,) = built.glob("hpc_advisor-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        text = archive.read(name).decode()
    assert "Description-Content-Type: text/markdown" in text
    assert "# " in text and "`docs/user.md`: for users" in text
    targets = re.findall(r"\]\(([^)]*)\)", text)
    assert [t for t in targets if not t.startswith(("https:", "http:"))] == []


def test_who_publishes_names_the_address_of_links_and_pictures(built: Path, tmp_path: Path) -> None:
    """The index checks the description as twine does; what it links lies at the version's tag."""
    pytest.importorskip("twine")
    url = "https://example.org/o/hpc-advisor"
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    subprocess.run(
        [*pip, "--wheel-dir", str(tmp_path), str(ROOT)],
        env={**os.environ, "ADVISOR_URL": url},
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    for one in (wheel, *built.glob("*.whl")):
        done = subprocess.run(
            [sys.executable, "-m", "twine", "check", "--strict", one],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        text = archive.read(name).decode()
    assert "License-Expression: Apache-2.0" in text and "\nAuthor: " in text
    addresses = dict(re.findall(r"^Project-URL: (\w+), (.*)$", text, re.MULTILINE))
    assert addresses.keys() >= {"Homepage", "Documentation", "Source", "Issues", "Changelog"}
    for picture, target in re.findall(r"(!?)\[[^\]]*\]\(([^)]*)\)", text):
        if target.startswith(url):
            kind, tag, file = target.removeprefix(f"{url}/").split("/", 2)
            assert (kind, tag) == ("raw" if picture else "blob", f"v{__version__}")
            assert (ROOT / file.partition("#")[0]).is_file()
        else:
            assert target.startswith("https:")
    assert f"{url}/raw/v{__version__}/docs/pictures/demo.svg" in text


def test_the_wheel_has_every_file_that_the_code_opens(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("hpc_advisor-*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    sources = {"advisor": "advisor", "tui/advisor_tui": "advisor_tui"}
    shared = {f: f"advisor/share/{f}" for f in ("hooks", "db", "config", "examples")}
    for folder, place in {**sources, **shared}.items():
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                assert f"{place}/{path.relative_to(ROOT / folder).as_posix()}" in held
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = str(tmp_path / "venv/bin/python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile"]
    subprocess.run(
        [*pip, "--disable-pip-version-check", "--no-deps", "--no-index", str(wheel)], check=True
    )
    code = "\n".join(path.read_text("utf-8") for path in (ROOT / "advisor").rglob("*.py"))
    opened = set(re.findall(r'\bshare\(f?"(\w+/[^"{]+)', code))
    assert {"config/systemd", "hooks/slurm/advisor", "db/migrations.py"} <= opened
    ask = "import sys; from advisor.paths import share; [print(share(n)) for n in sys.argv[1:]]"
    done = subprocess.run(
        [python, "-c", ask, *sorted(opened)], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert all(line.startswith(f"{tmp_path}/venv/") for line in done.stdout.splitlines())
    assert (tmp_path / "venv/share/man/man1/advisor.1").is_file()
    program = [str(tmp_path / "venv/bin/advisor"), "service", "install", "--scheduler", "slurm"]
    subprocess.run([*program, "--dir", str(tmp_path / "units")], check=True, capture_output=True)
    text = (tmp_path / "units/advisor.service").read_text()
    assert f"\nExecStart={tmp_path}/venv/bin/advisor serve " in text


def test_a_deb_is_installed_used_and_removed(built: Path, host: Path) -> None:
    package = the(built, "deb", "dpkg-deb")
    listed = subprocess.run(
        ["dpkg-deb", "-c", package], capture_output=True, text=True, check=True
    ).stdout
    names = {line.split()[5].removeprefix("./") for line in listed.splitlines()}
    assert names >= SHIPPED | {"usr/share/zsh/vendor-completions/_advisor"}
    assert all(line.split()[1] == "root/root" for line in listed.splitlines())
    done = machine.run(
        f"""
        force=$(dpkg -s {SYSTEM_PYTHON.name} > /dev/null 2>&1 || echo --force-depends)
        dpkg $force --force-unsafe-io -i {package} > installed
        {USE}
        systemd-analyze verify {" ".join(f"/usr/lib/systemd/system/{unit}" for unit in UNITS)}
        {DOCUMENTED}
        dpkg -V hpc-advisor
        echo ADVISOR_DB=/elsewhere/advisor.db > /etc/advisor/serve.env
        dpkg $force --force-unsafe-io -i {package} > again
        grep -q elsewhere /etc/advisor/serve.env
        dpkg -r hpc-advisor > removed 2>&1
        dpkg -P hpc-advisor > purged 2>&1
        test ! -e /opt/advisor && test ! -e /etc/advisor && test ! -e /usr/bin/advisor
        test -f /var/lib/advisor/advisor.db
        """,
        host,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


LACKS = """
advisor lab profile 2> line && exit 1 || test $? = 2
test "$(cat line)" = "advisor lab profile: part of the laboratory; pip install hpc-advisor[lab]"
! man -w advisor-lab-profile > page 2>&1
! find /opt/advisor -name 'advisor_lab*' | grep .
"""
HAS = """
advisor lab profile --help > help && advisor lab --help > verbs && ! grep -q '\\[lab\\]' verbs
test "$(man -w advisor-lab-profile)" = /usr/share/man/man1/advisor-lab-profile.1.gz
"""


def test_the_deb_has_no_laboratory_and_that_of_the_laboratory_brings_it(
    built: Path, host: Path
) -> None:
    done = machine.run(
        f"""
        install="dpkg --force-depends --force-unsafe-io -i"
        $install {the(built, "deb", "dpkg-deb")} > installed 2>&1
        {LACKS}
        $install {laboratory_of(built, "deb")} > laboratory 2>&1
        {HAS}
        dpkg -V hpc-advisor-lab
        dpkg --force-depends -r hpc-advisor-lab > removed 2>&1
        {LACKS}
        """,
        host,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_rpm_has_no_laboratory_and_that_of_the_laboratory_brings_it(
    built: Path, host: Path
) -> None:
    package = the(built, "rpm", "rpmbuild")
    lab = laboratory_of(built, "rpm")
    ask = ["rpm", "-qp", "--nosignature", "--requires", str(lab)]
    needs = subprocess.run(ask, capture_output=True, text=True, check=True).stdout
    assert f"hpc-advisor = {__version__}" in needs.split("\n")
    done = machine.run(
        f"""
        rpm -i --nodeps --nosignature {package} 2> installed
        {LACKS}
        rpm -i --nodeps --nosignature {lab} 2> laboratory
        {HAS}
        rpm -V --nodeps hpc-advisor-lab 2> verified
        rpm -e hpc-advisor-lab 2> erased
        {LACKS}
        """,
        host,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_rpm_is_installed_used_and_removed(built: Path, host: Path) -> None:
    package = the(built, "rpm", "rpmbuild")
    ask = ["rpm", "-qp", "--nosignature", str(package)]
    listed = subprocess.run([*ask, "-l"], capture_output=True, text=True, check=True).stdout
    names = {name.lstrip("/") for name in listed.split("\n")}
    assert names >= SHIPPED | {"usr/share/zsh/site-functions/_advisor"}
    assert not names & {"usr", "usr/bin", "etc", "opt", "usr/share/man/man1"}
    needs = subprocess.run([*ask, "--requires"], capture_output=True, text=True, check=True).stdout
    if SYSTEM_PYTHON.exists():
        assert str(SYSTEM_PYTHON) in needs.split("\n")
    # RPM's list of what is installed is empty on Debian, so it finds nothing that is needed.
    done = machine.run(
        f"""
        rpm -i --nodeps --nosignature {package} 2> installed
        {USE}
        {DOCUMENTED}
        rpm -V --nodeps hpc-advisor 2> verified
        echo ADVISOR_DB=/elsewhere/advisor.db > /etc/advisor/serve.env
        rpm -e hpc-advisor 2> erased
        test ! -e /opt/advisor && test ! -e /usr/bin/advisor
        test -f /var/lib/advisor/advisor.db && test -f /etc/advisor/serve.env.rpmsave
        """,
        host,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_deb_takes_an_earlier_ones_place_and_leaves_what_is_the_sites(
    built: Path, earlier: Path, host: Path
) -> None:
    done = machine.run(
        f"""
        install="dpkg --force-depends --force-unsafe-io -i"
        $install {the(earlier, "deb", "dpkg-deb")} > installed 2>&1
        {BEFORE_UPGRADE}
        $install {the(built, "deb", "dpkg-deb")} > upgraded 2>&1
        {UPGRADED}
        dpkg -V hpc-advisor > other
        test "$(cut -c13- other)" = /etc/advisor/serve.env
        dpkg -r hpc-advisor > removed 2>&1
        test ! -e /opt/advisor
        {KEPT}
        dpkg -P hpc-advisor > purged 2>&1
        test -f /etc/advisor/policy.yaml && cmp db /var/lib/advisor/advisor.db
        """,
        host,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_rpm_takes_an_earlier_ones_place_and_leaves_what_is_the_sites(
    built: Path, earlier: Path, host: Path
) -> None:
    done = machine.run(
        f"""
        rpm -i --nodeps --nosignature {the(earlier, "rpm", "rpmbuild")} 2> installed
        {BEFORE_UPGRADE}
        rpm -U --nodeps --nosignature {the(built, "rpm", "rpmbuild")} 2> upgraded
        {UPGRADED}
        rpm -V --nodeps hpc-advisor > other || test "$(cut -c14- other)" = /etc/advisor/serve.env
        rpm -e hpc-advisor 2> erased
        test ! -e /opt/advisor && mv /etc/advisor/serve.env.rpmsave /etc/advisor/serve.env
        {KEPT}
        """,
        host,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
