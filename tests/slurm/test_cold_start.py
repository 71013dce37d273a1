"""On a real Slurm: a job of an application that was never swept is advised by others like it."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import pytest
from advised import POLICY, AdvisedSite, advised_site
from testbed import KERNELS, NODE_TYPES, Testbed, predict
from testbed.law import Kernel

from advisor.core.configuration import Configuration
from advisor.core.option import Z90, Option
from advisor.core.signature import Signature
from advisor.store.signatures import save_signatures
from advisor.store.writer import Writer

BDW = NODE_TYPES["bdw"]
OWN = Configuration(BDW.feature, 1, 1, BDW.cores, BDW.max_khz)
SCALE = 4.0
WORKLOAD = f"--kernel stencil --scale {SCALE:g}"
COLD = "cold_start:\n  mode: {mode}\n  classes: [cpu-bound, memory-bound, mixed, unknown]\n"


@pytest.fixture
def site(testbed: Testbed, request: pytest.FixtureRequest) -> Iterator[AdvisedSite]:
    with advised_site(testbed, POLICY + request.param) as advised:
        teach(advised)
        yield advised


def signature(kernel: Kernel) -> Signature:
    """What one run on a full node tells: traffic, power and time."""
    time, watts = predict(kernel, BDW, 1, BDW.cores, BDW.max_khz, SCALE)
    values: dict[str, Any] = {"configuration": OWN, "source": "perf", "scope": "all"}
    gbs = SCALE * kernel.traffic / time
    return Signature(gbs=gbs, power_w=watts, time_s=time, contributor="root", **values)


def teach(site: AdvisedSite) -> None:
    """Store ten swept applications by the law, from computing to memory, and a signature each."""
    rng = random.Random(4)
    stencil = KERNELS["stencil"]
    with Writer(site.store) as store, store.batch():
        for i in range(10):
            values = {name: getattr(stencil, name) for name in stencil.__dataclass_fields__}
            values |= {
                "name": f"app{i}",
                "work": stencil.work * rng.uniform(0.3, 2.5),
                "traffic": stencil.traffic * rng.uniform(0.5, 1.5),
            }
            kernel = Kernel(**values)
            options = []
            for threads in range(4, BDW.cores + 1, 4):
                for khz in BDW.frequencies_khz:
                    t, w = predict(kernel, BDW, 1, threads, khz, SCALE)
                    e, d = t * w, math.exp(Z90 * 0.01)
                    where = Configuration(BDW.feature, 1, 1, threads, khz)
                    options.append(Option(where, t, t / d, t * d, e, e / d, e * d, confirmed=True))
            save_signatures(store, f"app{i}", "default", [signature(kernel)])
            store.save_model(
                f"app{i}", "default", BDW.feature, scope="all", owner="", name="physical",
                energy_quality="measured", n_train=12, stats={"error": 0.05}, options=options,
            )  # fmt: skip
        save_signatures(store, "simapp", WORKLOAD, [signature(stencil)])


def submitted(site: AdvisedSite, *directives: str) -> tuple[int, str]:
    script = site.script(
        "cold.sh", f"srun simapp {WORKLOAD}", "-N 1", "--exclusive", "-t 5",
        f"-C {BDW.feature}", *directives,
    )  # fmt: skip
    site.settle()
    job = site.testbed.sbatch(str(script))
    assert job.job_id
    site.testbed.wait(job.job_id)
    return job.job_id, job.stderr


@pytest.mark.parametrize("site", [COLD.format(mode="apply")], indirect=True)
def test_a_job_never_swept_runs_as_others_like_it_should(site: AdvisedSite) -> None:
    number, said = submitted(site)
    assert "simapp" in said
    site.advisor("collect")
    why = site.json("why", number)
    decision = why["decision"]
    assert decision["rewrite"] or decision["environment"]
    assert "class-estimated" in decision["reasons"]
    assert decision["cold_start"]["applications"] == 10
    assert why["verdict"] in ("as-promised", "better")
    assert "never measured: estimated from 10 applications" in site.advisor("why", number).stdout

    left, _ = submitted(site, "--export=ALL,ADVISOR_COLD_START=off")
    asked = site.json("explain", site.folder / "cold.sh")
    assert left
    assert "no-model" in asked["reasons"] or "class-estimated" in asked["reasons"]


@pytest.mark.parametrize("site", [""], indirect=True)
def test_by_default_it_is_only_shown(site: AdvisedSite) -> None:
    number, _ = submitted(site)
    site.advisor("collect")
    decision = site.json("why", number)["decision"]
    assert "cold-start-advise" in decision["reasons"]
    assert not decision["rewrite"]
    assert not decision["environment"]
    assert decision["cold_start"]["intervals"]
