"""On a real Slurm: a size that never ran is advised until a cliff suspends that."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from advised import POLICY, AdvisedSite, advised_site
from testbed import KERNELS, NODE_TYPES, Testbed, predict

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.core.option import Z90, Option
from advisor.derive.worker import deriving
from advisor.store.reader import Reader

BDW = NODE_TYPES["bdw"]
CELLS = [
    Configuration(BDW.feature, 1, 1, threads, khz)
    for threads in (8, 12, 16, 20, 24, 28)
    for khz in BDW.frequencies_khz[::5]
]
SCALE, CLIFF = 0.5, 7
"""What one unit of n is to the law, and from where on a program takes three times as long."""
ACCEPT = POLICY.replace("max_slowdown: 10%", "max_slowdown: 15%") + "extrapolated: accept\n"
GROW = """\
#!/bin/bash
s=$(awk -v n=$2 'BEGIN {{print n * {scale} * (n >= {cliff} ? 3 : 1)}}')
exec simapp --kernel stencil --scale $s
"""


@pytest.fixture(scope="module")
def site(testbed: Testbed) -> Iterator[AdvisedSite]:
    with advised_site(testbed, ACCEPT) as advised:
        program = advised.folder / "grow"
        program.write_text(GROW.format(scale=SCALE, cliff=CLIFF))
        program.chmod(0o755)
        yield advised


def job(site: AdvisedSite, n: float) -> Path:
    body = f"srun {site.folder}/grow -n {n:g}"
    return site.script(f"n{n:g}.sh", body, "-N 1", "--exclusive", "-t 5", f"-C {BDW.feature}")


def teach(site: AdvisedSite) -> None:
    """Store what sweeps of three sizes by the law leave behind, the largest with its model."""
    rng = random.Random(7)

    def took(n: float, c: Configuration) -> tuple[float, float]:
        time, watts = predict(KERNELS["stencil"], BDW, 1, c.threads_per_node, c.freq_khz, n * SCALE)
        return time, time * watts

    with deriving(site.store) as store, store.batch():
        for n, cells in ((1, CELLS[::6]), (2, CELLS[::6]), (4, CELLS[::2])):
            runs = []
            for c in {*cells, CELLS[-1]}:
                off, (time, energy) = math.exp(rng.gauss(0, 0.003)), took(n, c)
                runs.append(
                    Observation(
                        c,
                        time * off,
                        energy * off,
                        energy_quality="measured",
                        source="sweep",
                        scope="all",
                        contributor="root",
                    )
                )
            store.add_observations("grow", f"-n {n}", runs)
        options, d = [], math.exp(Z90 * 0.01)
        for c in CELLS:
            t, e = took(4, c)
            options.append(Option(c, t, t / d, t * d, e, e / d, e * d, confirmed=True))
        store.save_model(
            "grow",
            "-n 4",
            BDW.feature,
            scope="all",
            owner="",
            name="physical",
            options=options,
            energy_quality="measured",
            n_train=12,
            stats={"error": 0.05},
        )
    site.settle()


def ran(site: AdvisedSite, *scripts: Path) -> list[dict[str, Any]]:
    """Submit jobs together, wait for them, collect, and return what is known of each."""
    numbers = [site.testbed.sbatch(str(path)).job_id for path in scripts]
    for number in numbers:
        assert number
        site.testbed.wait(number)
    site.advisor("collect")
    return [site.json("why", n) for n in numbers]


def test_a_larger_size_is_advised_until_a_job_takes_far_longer(site: AdvisedSite) -> None:
    teach(site)
    as_law, beyond_cliff = ran(site, job(site, 5), job(site, 8))
    for why in (as_law, beyond_cliff):
        decision = why["decision"]
        assert {"extrapolated", "chosen"} <= set(decision["reasons"])
        assert decision["rewrite"] or decision["environment"]
    assert as_law["verdict"] == "as-promised", as_law["outcome"]["record"]["mismatch"]
    assert beyond_cliff["verdict"] == "worse"
    with Reader(site.store) as reader:
        (over_sizes,) = reader.size_models("grow")
        (swept,) = reader.find_models("grow", "-n 4")
    assert (over_sizes.state, swept.state) == ("suspended", "fitted")
    assert "worse than promised" in over_sizes.state_reason
    site.settle()
    later, at_swept = (site.json("explain", job(site, n)) for n in (5, 4))
    assert "suspended" in later["reasons"] and not later["rewrite"]
    assert "extrapolated" not in at_swept["reasons"] and "chosen" in at_swept["reasons"]


def test_a_script_is_swept_at_three_sizes(site: AdvisedSite) -> None:
    """The shortest run takes 1.3 s, longer than a busy machine takes to launch it."""
    path = site.script(
        "sweep.sh",
        f"N=3.2\nsrun {site.folder}/grow -n $N",
        "-N 1",
        "--exclusive",
        "-t 5",
        f"-C {BDW.feature}",
    )
    made = site.json(
        "train",
        path,
        "--application",
        "grown",
        "--sizes",
        "n=1.6,3.2,6.4",
        "--samples",
        5,
        "--threads",
        "8,12,20,28",
        "--freqs",
        "1.2GHz,2.2GHz",
        "--complete",
        "--yes",
    )["sweeps"]
    assert [(m["workload"], m["state"] != "failed") for m in made] == [
        (f"-n {n}", True) for n in ("1.6", "3.2", "6.4")
    ]
    assert [len(m["runs"]) for m in made][:2] == [3, 3]
    assert [m["model_id"] is None for m in made] == [True, True, False]
    said = site.json("predict", "grown", "--at", "n=12.8")
    assert said["beyond"] == {"n": 2.0}
