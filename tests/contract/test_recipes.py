"""What packaging/ has for sites: each recipe is run, as far as a machine without its tools can."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
import yaml

from advisor import __version__
from release.__main__ import build_wheel
from tests.contract import machine

pytestmark = pytest.mark.package
ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
WITHOUT_LIBRARIES = "PIP_NO_DEPS=1"
"""pip installs what it is told to, and nothing that this requires."""
ANSIBLE = Path(sys.executable).with_name("ansible-playbook")


@pytest.fixture
def host(tmp_path: Path) -> Path:
    if reason := machine.why_not():
        pytest.skip(reason)
    return tmp_path


# -- Ansible ---------------------------------------------------------------------------------------

INVENTORY = """\
[advisor_store]
store
[advisor_login]
login
[advisor_portal]
portal
[all:vars]
ansible_connection=local
ansible_python_interpreter=/usr/bin/python3
advisor_package=~/hpc-advisor.deb
advisor_configuration=~/ours
advisor_published=/shared/advisor.db
advisor_options=--trust-user slurm
advisor_hook_folder=/srv/slurm
advisor_portal_folder=/var/www/ood/apps/sys/advisor
"""
"""The role's hosts are one: the copy of this machine on which the play runs."""


@pytest.fixture(scope="module")
def deb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of this checkout, whose libraries are those of the interpreter that runs this."""
    if not shutil.which("dpkg-deb"):
        pytest.skip("dpkg-deb is not installed")
    out = tmp_path_factory.mktemp("dist")
    without = "numpy,pandas,scipy,pip"
    command = [
        sys.executable,
        "-m",
        "release",
        "--out",
        str(out),
        "--level",
        "1",
        "--without",
        without,
    ]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (made,) = out.glob("hpc-advisor_*.deb")
    return made


def test_the_playbook_installs_a_site_once_and_changes_nothing_then(deb: Path, host: Path) -> None:
    """Really run, on a copy of this machine: what a second run would change is nothing."""
    if not ANSIBLE.exists():
        pytest.skip("ansible-core is not installed")
    play = f"{ANSIBLE} -i hosts {PACKAGING}/ansible/site.yml"
    done = machine.run(
        f"""
        cp {deb} hpc-advisor.deb
        cat > hosts <<'END'
{INVENTORY}END
        mkdir -p ours /srv/slurm && touch /srv/slurm/slurm.conf
        cp {ROOT}/config/policy.yaml ours && echo 'version: 1' > ours/site.yaml
        # Nobody is process 1 here that could start a service.
        export SYSTEMD_OFFLINE=1 ANSIBLE_NOCOLOR=1 ANSIBLE_HOME=~/.ansible
        {play} --syntax-check > syntax
        {play} --check --limit store > check 2>&1 || {{ tail -n 30 check; exit 1; }}
        test ! -e /etc/advisor && test ! -e /opt/advisor
        {play} --limit store,portal > first 2>&1 || {{ tail -n 30 first; exit 1; }}
        test "$(advisor --version)" = "advisor {__version__}"
        advisor policy diff | grep -q 'in effect' && advisor site diff | grep -q 'in effect'
        grep -qx 'OPTIONS=--trust-user slurm' /etc/advisor/serve.env
        grep -q 'store publish /shared/advisor.db' \\
            /etc/systemd/system/advisor-collect.service.d/publish.conf
        systemctl is-enabled advisor.socket advisor.service advisor-collect.timer > enabled
        test "$(sort -u enabled)" = enabled
        advisor hook status --scheduler slurm --dir /srv/slurm > hooks
        grep -q 'slurm.conf needs the line CliFilterPlugins=lua' first
        diff -r {PACKAGING}/ondemand /var/www/ood/apps/sys/advisor
        test -x /var/www/ood/apps/sys/advisor/template/script.sh
        {play} --limit store,portal > second 2>&1
        grep -E '^(store|portal) .*changed=0 .*failed=0' second | wc -l
        {play} --limit login -e advisor_hook_folder= > third 2>&1 || {{ tail -n 30 third; exit 1; }}
        grep -qx 'OPTIONS=--read-only --trust-user slurm' /etc/advisor/serve.env
        grep -qx 'ADVISOR_DB=/shared/advisor.db' /etc/advisor/serve.env
        echo 'mode: fast' >> ours/policy.yaml
        {play} --limit store > fourth 2>&1 && exit 1
        grep -q 'policy.yaml' fourth && advisor policy show | grep -q 'version 1'
        {play} --limit login -e advisor_published= > fifth 2>&1 && exit 1
        grep -q 'login nodes need advisor_published' fifth
        """,
        host,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", ""), done.stdout[-3000:]


# -- Container -------------------------------------------------------------------------------------


def replayed(containerfile: str, context: Path) -> str:
    """Return a bash script that does what a Containerfile says, below this machine's root.

    For where no container engine is: this machine is the base image, and what is copied comes from
    ``context``. Raises KeyError for an instruction that it does not know.
    """
    lines = []
    for line in containerfile.splitlines():
        if line.startswith("#"):
            continue
        name, _, rest = line.partition(" ")
        said = shlex.quote(" ".join(json.loads(rest)) if rest.startswith("[") else rest)
        lines.append(
            {
                "ARG": "",
                "FROM": "",
                "COPY": f"cp {context}/{rest}",
                "RUN": rest,
                "ENV": f"export {rest}",
                "USER": f"user={said}",
                "WORKDIR": f"cd {said}",
                "ENTRYPOINT": f"entrypoint={said}",
                "CMD": f"cmd={said}",
            }[name]
        )
    return "\n".join(lines)


def test_the_image_has_the_program_and_its_page_for_an_ordinary_user(host: Path) -> None:
    """The Containerfile's commands on a copy of this machine: here no engine pulls a base image.

    What pip would fetch are the libraries of the interpreter that runs this.
    """
    (host / "dist").mkdir()
    build_wheel(host, host / "dist")
    python = Path(sys.executable).resolve().parent
    libraries = sysconfig.get_path("purelib")
    done = machine.run(
        f"""
        export PATH={python}:/usr/local/bin:$PATH {WITHOUT_LIBRARIES}
        chmod 755 /root
        {replayed((PACKAGING / "Containerfile").read_text(), host)}
        echo {libraries} > $(echo /opt/advisor/lib/python3.*/site-packages)/libraries.pth
        as_user() {{ setpriv --reuid $user --regid $user --clear-groups env HOME=~$user "$@"; }}
        as_user $entrypoint $cmd | grep -q 'usage: advisor'
        as_user $entrypoint --version
        as_user $entrypoint options app > no-store 2>&1 && exit 1
        as_user timeout 60 $entrypoint tui --demo --browser 8765 > url &
        until test -s url; do sleep 0.1; done
        as_user python3 -c "
import urllib.request
print(urllib.request.urlopen(input()).status)" < url
        """,
        host,
    )
    assert (done.returncode, done.stdout) == (0, f"advisor {__version__}\n200\n"), done.stderr


# -- EasyBuild -------------------------------------------------------------------------------------


def test_the_easyconfig_is_this_versions_and_installs_the_command(tmp_path: Path) -> None:
    """What EasyBuild's block Binary runs and checks, without EasyBuild and with no library."""
    (recipe,) = (PACKAGING / "easybuild").iterdir()
    assert recipe.name == f"hpc-advisor-{__version__}.eb"
    said: dict[str, Any] = {"SYSTEM": "system"}
    exec(compile(recipe.read_text(), recipe.name, "exec"), said)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (said["name"], said["version"]) == (project["name"], __version__)
    assert said["description"] == project["description"]
    wheel = build_wheel(tmp_path, tmp_path)
    values = {"version": __version__, "installdir": str(tmp_path / "installed")}
    assert [source % values for source in said["sources"]] == [wheel.name]
    python = Path(sys.executable).resolve().parent
    shell = [
        "bash",
        "-ec",
        f"export {WITHOUT_LIBRARIES} PATH={python}:$PATH; {said['install_cmd'] % values}",
    ]
    subprocess.run(shell, cwd=tmp_path, check=True)
    installed = tmp_path / "installed"
    assert all((installed / file).is_file() for file in said["sanity_check_paths"]["files"])
    assert sorted(path.name for path in (installed / "bin").iterdir()) == ["advisor"]
    path = f"{installed}/bin:{os.environ['PATH']}"
    for check in said["sanity_check_commands"]:
        done = subprocess.run(["bash", "-ec", check], env={**os.environ, "PATH": path})
        assert done.returncode == 0, check


# -- Spack -----------------------------------------------------------------------------------------


class Prefix(str):
    """A folder as Spack's recipes name it: attributes are what lies in it."""

    def __getattr__(self, name: str) -> Prefix:
        return Prefix(f"{self}/{name}")


class Package:
    """Spack's base class of recipes, as far as ours uses it; directives note what they are told."""

    said: ClassVar[dict[str, tuple[tuple[Any, ...], dict[str, Any]]]] = {}

    def __init__(self, archive: Path, prefix: Prefix) -> None:
        self.stage = SimpleNamespace(archive_file=str(archive))
        self.prefix = prefix

    def __getitem__(self, dependency: str) -> SimpleNamespace:
        return SimpleNamespace(command=executable(sys.executable))


def executable(path: str) -> Callable[..., None]:
    """Return what runs a program, as Spack's Executable does: a failure is raised."""

    def run(*args: str) -> None:
        subprocess.run([path, *args], check=True)

    return run


def spack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pose the modules that a recipe imports of Spack."""

    def directive(name: str) -> Callable[..., None]:
        return lambda *args, **keys: Package.said.update({name: (args, keys)})

    package = ModuleType("spack.package")
    vars(package).update(
        {name: directive(name) for name in ("license", "version", "depends_on")},
        Executable=executable,
        mkdirp=os.makedirs,
        symlink=os.symlink,
        run_after=lambda _: lambda method: method,
    )
    generic = ModuleType("generic")
    vars(generic).update(Package=Package)
    for name in ("spack", "spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "spack.package", package)
    monkeypatch.setitem(sys.modules, "spack_repo.builtin.build_systems.generic", generic)


def test_the_spack_recipe_is_this_versions_and_installs_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Spack takes from the recipe and runs, without Spack and with no library.

    Libraries and their bounds are the wheel's own; what the recipe repeats is compared.
    """
    repository = PACKAGING / "spack" / "spack_repo" / "hpc_advisor"
    named = yaml.safe_load((repository / "repo.yaml").read_text())["repo"]
    assert named == {"namespace": repository.name, "api": "v2.0"}
    (recipe,) = (repository / "packages").iterdir()
    wheel = build_wheel(tmp_path, tmp_path)
    spack(monkeypatch)
    monkeypatch.chdir(tmp_path)
    said: dict[str, Any] = {}
    exec(compile((recipe / "package.py").read_text(), str(recipe), "exec"), said)
    kind = said["HpcAdvisor"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert recipe.name == project["name"].replace("-", "_")
    assert kind.__doc__ == project["description"]
    assert Package.said == {
        "license": ((project["license"],), {}),
        "version": ((__version__,), {"expand": False}),
        "depends_on": (
            (f"python@{project['requires-python'].removeprefix('>=')}:",),
            {"type": ("build", "run")},
        ),
    }
    assert kind.url == f"file://{wheel}"
    key, value = WITHOUT_LIBRARIES.split("=")
    monkeypatch.setenv(key, value)
    monkeypatch.setenv("PYTHONPATH", sysconfig.get_path("purelib"))  # the libraries, for the checks
    installed = Prefix(tmp_path / "installed")
    advisor = kind(wheel, installed)
    Path(installed).mkdir()
    advisor.install(None, installed)
    assert all(Path(installed, file).is_file() for file in kind.sanity_check_is_file)
    assert all(Path(installed, folder).is_dir() for folder in kind.sanity_check_is_dir)
    assert [path.name for path in Path(installed.bin).iterdir()] == ["advisor"]
    advisor.check_command()
