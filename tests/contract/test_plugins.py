"""A package of a site's own offers a scheduler, a translator, a model and a meter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from advisor import plugins
from advisor.cli import main
from tests.forked import forked

CODE = """
import time

from advisor.meters.base import EnergyReading
from advisor.models.polynomial import Polynomial
from advisor.schedulers.local.scheduler import Local


class Bench(Local):
    NAME = "bench"
    LABEL = "the bench"
    RANK = 20


class Cubic(Polynomial):
    NAME = "cubic"
    DESCRIPTION = "a polynomial of a site's own"


class Watts:
    NAME = "watts"
    DESCRIPTION = "always 100 W"

    def __init__(self, node):
        self.node = node

    def available(self):
        return None

    def start(self, load):
        self.began = time.monotonic()

    def stop(self):
        return EnergyReading(100.0 * (time.monotonic() - self.began), "measured", self.NAME)
"""
ENTRY_POINTS = """\
[advisor.schedulers]
bench = siteplugins:Bench

[advisor.translators]
bench = advisor.schedulers.slurm.translator

[advisor.models]
cubic = siteplugins:Cubic

[advisor.meters]
watts = siteplugins:Watts

[advisor.verbs]
hello = siteverb

[advisor.importers]
lines = siteimporter
"""
VERB = """
def add_arguments(parser):
    parser.add_argument("name")


def run(args):
    print("hello", args.name)
    return 3
"""
IMPORTER = """
import hashlib

from advisor.store.csvfile import RunsFile


def read_runs(file, terms, args):
    times = map(float, file.read_text().split())
    runs = [terms.run((1, 1, 1, 0), time_s, None, None, {}) for time_s in times]
    return RunsFile(tuple(runs), (), hashlib.sha256(file.read_bytes()).hexdigest())
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return a folder with the package as pip would leave it."""
    folder = tmp_path / "site-packages"
    (folder / "siteplugins-1.dist-info").mkdir(parents=True)
    (folder / "siteplugins.py").write_text(CODE)
    (folder / "siteverb.py").write_text(VERB)
    (folder / "siteimporter.py").write_text(IMPORTER)
    (folder / "siteplugins-1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: siteplugins\nVersion: 1\n"
    )
    (folder / "siteplugins-1.dist-info" / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder


def advisor(installed: Path, tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line where the package is installed, as a fork of this process."""

    def run() -> int:
        sys.path.insert(0, str(installed))
        plugins.found.cache_clear()
        return main(list(words))

    return forked(run, environment(installed, tmp_path), tmp_path)


def environment(installed: Path, tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(installed), "ADVISOR_DB": str(tmp_path / "a.db")}


def test_a_package_offers_one_of_each(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#SBATCH -N 1 --exclusive\n./app x\n")
    program = tmp_path / "app"
    program.write_text("#!/bin/sh\nsleep 0.05\n")
    program.chmod(0o755)

    ran = advisor(installed, tmp_path, "run", "--meter", "watts", "--", "./app", "x")
    assert ran.returncode == 0, ran.stderr
    assert "watts" in ran.stdout + ran.stderr

    trained = advisor(
        installed,
        tmp_path,
        "train",
        "job.sh",
        "--scheduler",
        "bench",
        "--meter",
        "watts",
        "--yes",
        "--dry-run",
    )
    assert trained.returncode == 0, trained.stderr

    listed = advisor(installed, tmp_path, "fit", "--list-models")
    assert "a polynomial of a site's own" in listed.stdout, listed.stderr

    found = advisor(installed, tmp_path, "site", "discover", "--scheduler", "bench")
    assert found.returncode == 0, found.stderr
    told = advisor(installed, tmp_path, "explain", "job.sh", "--scheduler", "bench")
    assert told.returncode == 0, told.stderr
    assert "app" in told.stdout


def test_a_package_offers_a_verb(installed: Path, tmp_path: Path) -> None:
    done = advisor(installed, tmp_path, "hello", "world")
    assert (done.returncode, done.stdout, done.stderr) == (3, "hello world\n", "")
    assert "hello         of siteplugins" in advisor(installed, tmp_path, "--help").stdout
    assert "name" in advisor(installed, tmp_path, "hello", "--help").stdout
    close = advisor(installed, tmp_path, "helo", "world")
    assert close.returncode == 2 and "did you mean hello?" in close.stderr
    (installed / "siteverb.py").write_text("import no_such_module\n")
    broken = advisor(installed, tmp_path, "hello", "world")
    assert broken.returncode == 1 and "mend or remove the package" in broken.stderr
    assert advisor(installed, tmp_path, "options", "--help").returncode == 0
    completed = advisor(installed, tmp_path, "completion", "bash")
    assert (completed.returncode, completed.stderr) == (0, "") and "hello" in completed.stdout
    assert "Traceback" not in broken.stderr


def test_a_package_reads_a_format_of_its_own(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "times").write_text("1.5 2.5")
    words = ("times", "--from", "lines", "--application", "app", "--node-type", "n", "--json")
    done = subprocess.run(  # the program itself
        [sys.executable, "-m", "advisor", "import", *words],
        cwd=tmp_path,
        env=environment(installed, tmp_path),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["imported"] == 2


def test_a_name_nobody_registered_is_one_line(installed: Path, tmp_path: Path) -> None:
    done = advisor(installed, tmp_path, "train", "job.sh", "--scheduler", "nomad")
    assert done.returncode != 0
    assert "no scheduler is called 'nomad'" in done.stderr
    assert "bench" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_broken_package_does_not_take_the_others_along(installed: Path, tmp_path: Path) -> None:
    (installed / "siteplugins.py").write_text("import no_such_module\n")
    (tmp_path / "job.sh").write_text("#!/bin/sh\n./app x\n")
    found = advisor(installed, tmp_path, "site", "discover", "--scheduler", "local")
    assert found.returncode == 0, found.stderr
    shown = advisor(installed, tmp_path, "explain", "job.sh")
    assert shown.returncode == 0, shown.stderr
    assert "siteplugins" in shown.stderr and "Traceback" not in shown.stderr
    named = advisor(installed, tmp_path, "train", "job.sh", "--scheduler", "bench")
    assert named.returncode != 0
    assert "mend or remove the package" in named.stderr


SMALL = """
from advisor.schedulers.base import Scheduler, SweepStatus


class Bench(Scheduler):
    NAME = "bench"
    LABEL = "the bench"
    DESCRIPTION = "a scheduler with what every one must have"

    def available(self):
        return None

    def energy_source(self, job):
        return "no energy is measured"

    def submit_sweep(self, job):
        return "7"

    def poll(self, job, handle):
        return SweepStatus("ended")

    def cancel(self, job, handle):
        pass
"""


def test_a_scheduler_defines_only_what_it_has(installed: Path, tmp_path: Path) -> None:
    (installed / "siteplugins.py").write_text(SMALL)
    (tmp_path / "job.sh").write_text("#!/bin/sh\n./app x\n")
    assert advisor(installed, tmp_path, "site", "discover", "--scheduler", "local").returncode == 0
    explained = advisor(installed, tmp_path, "explain", "job.sh", "--scheduler", "bench")
    assert explained.returncode == 0 and "app" in explained.stdout, explained.stderr
    hooked = advisor(installed, tmp_path, "hook", "status", "--scheduler", "bench")
    assert "the advisor has no hook for the bench" in hooked.stderr
    collected = advisor(installed, tmp_path, "collect", "--scheduler", "bench")
    assert collected.returncode == 0, collected.stderr


@pytest.mark.parametrize("lacks", ["def poll", "LABEL = ", "DESCRIPTION = "])
def test_a_scheduler_that_lacks_something_is_one_line(
    installed: Path, tmp_path: Path, lacks: str
) -> None:
    (installed / "siteplugins.py").write_text(
        SMALL.replace(lacks, lacks.replace("def ", "def x_").replace(" = ", "_X = "))
    )
    (tmp_path / "job.sh").write_text("#!/bin/sh\n./app x\n")
    assert advisor(installed, tmp_path, "site", "discover", "--scheduler", "local").returncode == 0
    others = advisor(installed, tmp_path, "explain", "job.sh")
    assert others.returncode == 0, others.stderr
    named = advisor(installed, tmp_path, "train", "job.sh", "--scheduler", "bench")
    assert named.returncode != 0
    assert "scheduler 'bench' (siteplugins) cannot be used" in named.stderr
    assert lacks.split()[-1 if "def" in lacks else 0] in named.stderr
    assert "Traceback" not in named.stderr + others.stderr
