"""A model knows its program, on a real Slurm: rebuilt, copied, and another of the same name."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from advised import AdvisedSite

from advisor.core.stamp import read_stamp
from advisor.store.reader import Reader

CODE = """\
#include <unistd.h>
const char *build = "%s";
int main(void) {
    execlp("simapp", "simapp", "--kernel", "stencil", "--scale", "1.5", (char *)0);
    return 127;
}
"""
CHANGES = {"constraint", "cpus-per-task", "cpu-freq"}
DIRECTIVES = ("-N 1", "--exclusive", "-p broadwell", "-t 10")

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


def build(folder: Path, name: str, version: str, *flags: str) -> Path:
    """Compile a program that does the same in every version."""
    folder.mkdir(exist_ok=True)
    source = folder / f"{name}.c"
    source.write_text(CODE % version)
    new = folder / f"{name}.new"
    subprocess.run(["cc", "-o", new, source, "-Wl,--build-id", *flags], check=True)
    new.replace(folder / name)
    return folder / name


class Submitted:
    """A job and what was decided for it; unless it is to ``run``, it is cancelled at once."""

    def __init__(self, site: AdvisedSite, script: Path, *, run: bool = False) -> None:
        self.id = site.testbed.sbatch(str(script)).job_id
        shown = site.testbed.run(["scontrol", "show", "job", str(self.id)]).stdout
        if not run:
            site.testbed.run(["scancel", str(self.id)])
        stamp = read_stamp(shown)
        assert stamp is not None, shown
        self.changed = bool(stamp["changed"])
        reasons = stamp["reasons"]
        assert isinstance(reasons, list)
        self.reasons = set(reasons)


def confirmed_builds(site: AdvisedSite, application: str) -> list[str]:
    with Reader(site.store) as store:
        (model,) = store.find_models(application)
    return [str(p["build"]) for p in model.stats["program"]]


def collected(site: AdvisedSite, job: int, programs: int) -> None:
    """Collect until a job's end is known, and as many programs count."""
    site.testbed.wait(job)
    end, found = time.monotonic() + 30, 0
    while True:
        found += site.json("collect")["programs"]
        with Reader(site.store) as store:
            if store.outcome(str(job)) is not None:
                break
        assert time.monotonic() < end
        time.sleep(0.5)
    assert found == programs
    time.sleep(1.0)  # the daemon looks at the store ten times a second


def test_a_rebuilt_program_is_left_alone_until_a_run_confirms_it(site: AdvisedSite) -> None:
    program = build(site.folder / "bin", "solver", "first")
    script = site.script("solver.sh", f"srun {program}", *DIRECTIVES)
    trained = site.json("train", script, "--scheduler", "slurm", "--yes")
    assert trained["state"] == "confirmed", trained
    first = confirmed_builds(site, "solver")
    assert len(first) == 1
    site.settle()

    same = Submitted(site, script)
    assert same.changed
    program.touch()  # another time of change, the same build
    assert Submitted(site, script).changed
    # wherever it is
    copied = site.folder / "elsewhere" / "solver"
    copied.parent.mkdir(exist_ok=True)
    shutil.copy(program, copied)
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
    collected(site, again.id, 1)
    assert f"{program} was built again" in site.advisor("why", again.id).stdout
    assert confirmed_builds(site, "solver")[:1] == first
    assert len(confirmed_builds(site, "solver")) == 2
    advised = Submitted(site, script)
    assert advised.changed, advised.reasons
    # and the other one is another one still
    assert not Submitted(site, elsewhere).changed
