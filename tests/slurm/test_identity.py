"""A model knows its program, on a real Slurm: rebuilt, copied, and another of the same name."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from advised import AdvisedSite
from testbed import NODE_TYPES, predict

from advisor.core import program
from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.core.stamp import read_stamp
from advisor.store.reader import Reader
from advisor.store.writer import Writer

BDW = NODE_TYPES["bdw"]
SCALE = 1.5

CODE = """\
#include <unistd.h>
const char *build = "%s";
int main(void) {
    execlp("simapp", "simapp", "--kernel", "stencil", "--scale", "%s", (char *)0);
    return 127;
}
"""
DIRECTIVES = ("-N 1", "--exclusive", "-p broadwell", "-t 10")

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


def build(folder: Path, name: str, version: str, *flags: str) -> Path:
    """Compile a program that does the same in every version."""
    folder.mkdir(exist_ok=True)
    source = folder / f"{name}.c"
    source.write_text(CODE % (version, SCALE))
    new = folder / f"{name}.new"
    subprocess.run(["cc", "-o", new, source, "-Wl,--build-id", *flags], check=True)
    new.replace(folder / name)
    return folder / name


class Submitted:
    """A job and what was decided for it; unless it is to ``run``, it is cancelled at once."""

    def __init__(self, site: AdvisedSite, script: Path, *, run: bool = False) -> None:
        done = site.testbed.sbatch(str(script), env={"ADVISOR_DEBUG": "1"})
        self.id = done.job_id
        shown = site.testbed.run(["scontrol", "show", "job", str(self.id)]).stdout
        if not run:
            site.testbed.run(["scancel", str(self.id)])
        stamp = read_stamp(shown)
        assert stamp is not None, done.stderr + shown
        self.changed = stamp.changed
        self.reasons = set(stamp.codes)


def confirmed_builds(site: AdvisedSite, application: str) -> list[str]:
    with Reader(site.store) as store:
        (model,) = store.find_models(application)
    return [str(p["build"]) for p in model.stats["program"]]


def collected(site: AdvisedSite, job: int) -> int:
    """Collect until a job's end is known; return how many programs count that did not before."""
    site.testbed.wait(job)
    end, found = time.monotonic() + 60, 0
    while True:
        found += int(site.json("collect")["programs"])
        with Reader(site.store) as store:
            outcome = store.outcome(str(job))
        if outcome is not None:
            return found
        assert time.monotonic() < end
        time.sleep(0.5)


def measured(site: AdvisedSite, path: Path, script: Path) -> None:
    """Store runs of a program and fit them: the law's numbers, moved to what one real run took."""
    job = site.testbed.sbatch(str(script)).job_id
    site.testbed.wait(job)
    end = time.monotonic() + 30
    while True:
        steps = [r for r in site.testbed.sacct(job) if r["JobID"].endswith(".0")]
        if steps and steps[0]["State"] == "COMPLETED" and steps[0]["ConsumedEnergyRaw"]:
            break
        assert time.monotonic() < end
        time.sleep(0.3)
    base_s, watts = predict("stencil", "bdw", 1, BDW.cores, BDW.max_khz, SCALE)
    more_s = max(0.0, float(steps[0]["ElapsedRaw"]) - base_s)
    more_j = max(0.0, float(steps[0]["ConsumedEnergyRaw"]) - base_s * watts)
    facts = program.find(str(path), site.folder)
    runs = []
    for threads in range(4, BDW.cores + 1, 4):
        for freq in BDW.frequencies_khz:
            time_s, watts = predict("stencil", "bdw", 1, threads, freq, SCALE)
            runs.append(
                Observation(
                    Configuration(BDW.feature, 1, 1, threads, freq),
                    time_s + more_s,
                    time_s * watts + more_j,
                    energy_quality="measured",
                    scope="all",
                    extra={"program": facts},
                )
            )
    with Writer(site.store) as store:
        store.add_observations("solver", "default", runs)
    site.advisor("fit", "solver")
    site.settle()


def test_a_sweep_remembers_its_program(site: AdvisedSite) -> None:
    path = build(site.folder / "bin", "trained", "first")
    script = site.script("trained.sh", "srun ./bin/trained", *DIRECTIVES)
    axes = ("--threads", "12,20,28", "--freqs", "1.5GHz,2.2GHz")
    grid = ("--design", "uniform", "--samples", "6", *axes)
    trained = site.json("train", script, "--scheduler", "slurm", "--yes", *grid)
    assert trained["state"] == "confirmed", trained
    with Reader(site.store) as store:
        (model,) = store.find_models("trained")
    assert model.stats["program"] == [program.find(str(path), site.folder)]


def test_a_rebuilt_program_is_left_alone_until_a_run_confirms_it(site: AdvisedSite) -> None:
    path = build(site.folder / "bin", "solver", "first")
    script = site.script("solver.sh", f"srun {path}", *DIRECTIVES)
    measured(site, path, script)
    first = confirmed_builds(site, "solver")
    assert len(first) == 1

    same = Submitted(site, script)
    assert same.changed
    path.touch()  # another time of change, the same build
    assert Submitted(site, script).changed
    # wherever it is
    copied = site.folder / "elsewhere" / "solver"
    copied.parent.mkdir(exist_ok=True)
    shutil.copy(path, copied)
    assert Submitted(site, site.script("copy.sh", f"srun {copied}", *DIRECTIVES)).changed

    # another program of the same name
    other = build(site.folder / "other", "solver", "other")
    elsewhere = site.script("other.sh", f"srun {other}", *DIRECTIVES)
    job = Submitted(site, elsewhere)
    assert not job.changed and "other-program" in job.reasons

    # rebuilt: left alone at first, advised again once that run came out as promised
    build(site.folder / "bin", "solver", "second")
    again = Submitted(site, script, run=True)
    assert not again.changed and "program-rebuilt" in again.reasons
    assert collected(site, again.id)
    assert f"{path} was built again" in site.advisor("why", again.id).stdout
    assert confirmed_builds(site, "solver")[:1] == first
    assert len(confirmed_builds(site, "solver")) == 2
    end = time.monotonic() + 20  # the daemon looks at the store ten times a second
    while not (advised := Submitted(site, script)).changed:
        assert time.monotonic() < end, advised.reasons
    # and the other one is another one still
    assert not Submitted(site, elsewhere).changed
