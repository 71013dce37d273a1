"""On a real Slurm with GPUs as generic resources: clocks and power limits, end to end.

The devices are posed, the driver's library is built for the tests (tests/unit/nvml.c). Slurm's own
plugin that sets clocks, gpu/nvml, is not in Debian's packages: how far --gpu-freq comes is seen in
what the job is given.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from advised import AdvisedSite, advised_site, site_file
from testbed import NODE_TYPES, Testbed, requirements
from testbed.daemons import wait_until

from advisor.meters.process import start_ticks
from tests.unit.posed_gpus import needs_compiler, nvml_library, pose

pytestmark = needs_compiler
BDW = NODE_TYPES["bdw"]
COUNT, LIMIT, TOP = 4, 150, 300
PROLOG = """\
#!/bin/bash
export LD_LIBRARY_PATH={library} POSED_NVML={root}/$SLURMD_NODENAME
exec {real} "$@"
"""
WHOLE = ("-N 1", "-n 1", "-c 28", "-p broadwell", "-t 10", "--gres=gpu:2")
"""All cores of a node and two of its GPUs; with --exclusive Slurm gives a job all of them."""
SEEN = "echo freq=$SLURM_GPU_FREQ gpus=$SLURM_JOB_GPUS\n"


def named(application: str) -> dict[str, str]:
    return {"ADVISOR_APPLICATION": application, "ADVISOR_WORKLOAD": "default"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Testbed]:
    """A cluster whose nodes have GPUs, and run the program as prolog and epilog."""
    if reason := requirements():
        pytest.skip(reason)
    root = Path(tempfile.mkdtemp(prefix="posed-gpus-", dir="/tmp"))
    prolog = root / "advisor-node-cap"
    lines = f"Prolog={prolog}\nEpilog={prolog}\nPrologFlags=Alloc\n"
    device: dict[str, object] = {"power": 50_000, "least": 100_000, "most": 300_000}
    device["clocks"] = "1400 800 100"
    for node in BDW.nodes:
        pose(root / node, *[device] * COUNT)
    prolog.write_text("#!/bin/bash\n")
    prolog.chmod(0o755)
    try:
        with Testbed(more_configuration=lines, gpus=COUNT) as made:
            made.posed = root  # type: ignore[attr-defined]
            yield made
    finally:
        shutil.rmtree(root)


@pytest.fixture(scope="module")
def gpu_site(cluster: Testbed) -> Iterator[AdvisedSite]:
    """A site that knows of two programs on GPUs: one by its clock, one by its power limit."""
    with advised_site(cluster, watch_s=1, deadline="5s") as site:
        gpus = (
            f"gpus: {{model: posed, count: {COUNT}, idle_w: 20,"
            " freq_khz: {min: 800 MHz, max: 1400 MHz, step: 100 MHz},"
            f" power_w: {{min: 100, max: {TOP}, step: 25}}}}"
        )
        kind = f"  {BDW.feature}:\n"
        text = site_file().replace(kind, f"{kind}    {gpus}\n", 1)
        assert gpus in text, text
        (site.config / "site.yaml").write_text(f"{text}axes: {{gpu_power_w: {{nodes: true}}}}\n")
        site.advisor("site", "apply")
        for name, axis, values in (
            ("clocked", "gpu_freq_khz", (800_000, 1_000_000, 1_200_000, 1_400_000)),
            ("limited", "gpu_power_w", (150, 200, 250, TOP)),
        ):
            rows = [
                f"1,1,28,{BDW.frequencies_khz[-1]},{v},2,{100 + 2 * (1 - v / values[-1]):.3f},"
                f"{20_000 * (1 + v / values[-1]):.1f}"
                for v in values
                for _ in range(2)
            ]
            head = f"nodes,ranks_per_node,threads_per_node,freq_khz,{axis},gpus,time_s,energy_j"
            grid = site.folder / f"{name}.csv"
            grid.write_text("\n".join([head, *rows]) + "\n")
            site.advisor("import", grid, "--application", name, "--node-type", BDW.feature)
            site.advisor("fit", name)
        where = ["--scheduler", "slurm", "--dir", str(cluster.conf_dir), "--deadline", "5s"]
        site.advisor("hook", "install", *where, "--socket", site.socket, "--node-cap")
        real = cluster.conf_dir / "advisor-node-cap"
        assert (cluster.conf_dir / "advisor-node-gpus").stat().st_mode & 0o777 == 0o755
        prolog = posed(cluster) / "advisor-node-cap"
        words = {"library": nvml_library(), "root": posed(cluster), "real": real}
        prolog.write_text(PROLOG.format(**words))
        nvml_library().chmod(0o755)
        site.settle()
        yield site


def posed(cluster: Testbed) -> Path:
    folder: Path = cluster.posed  # type: ignore[attr-defined]
    return folder


def calls(cluster: Testbed) -> dict[str, list[str]]:
    """What was set on each node's devices so far."""
    files = posed(cluster).glob("*.set")
    return {path.stem: path.read_text().splitlines() for path in files}


def submit(site: AdvisedSite, application: str, body: str, *directives: str) -> int:
    path = site.script("job.sh", body, *(directives or WHOLE), f"-o {site.folder}/%j.out")
    return site.testbed.sbatch(str(path), env=named(application)).job_id


def forget(site: AdvisedSite) -> None:
    site.testbed.rest()
    for path in posed(site.testbed).glob("*.set"):
        path.unlink()


def test_a_job_gets_its_clock_by_slurms_option(gpu_site: AdvisedSite) -> None:
    forget(gpu_site)
    job = submit(gpu_site, "clocked", f"{SEEN}srun simapp --kernel stencil")
    assert gpu_site.testbed.wait(job) == "COMPLETED"
    fields = gpu_site.testbed.scontrol_jobs(job)[0]
    assert fields["TresFreq"] == "gpu:800", fields
    assert "freq=800" in Path(fields["StdOut"]).read_text()
    stamp = fields["AdminComment"]
    assert '"ax":{"gpu_freq_khz":800000}' in stamp and '"gpus"' not in stamp
    assert calls(gpu_site.testbed) == {}
    own = submit(gpu_site, "clocked", "srun simapp --kernel stencil", *WHOLE, "--gpu-freq=1000")
    assert gpu_site.testbed.wait(own) == "COMPLETED"
    assert gpu_site.testbed.scontrol_jobs(own)[0]["TresFreq"] == "gpu:1000"


@pytest.mark.parametrize("start", ["", "srun"])
def test_a_limit_lands_on_the_jobs_own_devices_and_is_lifted(
    gpu_site: AdvisedSite, start: str
) -> None:
    forget(gpu_site)
    body = f"{SEEN}{start} simapp --kernel stencil"
    job = submit(gpu_site, "limited", body, *WHOLE, "-w bdw2")
    assert gpu_site.testbed.wait(job) == "COMPLETED"
    gpu_site.testbed.rest()
    lifted = [f"{i} limit {w}" for w in (1000 * LIMIT, 1000 * TOP) for i in (0, 1)]
    assert calls(gpu_site.testbed) == {"bdw2": lifted}

    def seen() -> dict[str, Any]:
        gpu_site.advisor("collect")
        return gpu_site.json("why", job)

    wait_until(lambda: (now := seen())["collected"] and bool(now["gpus"]), 60, "what it took")
    why = seen()
    assert why["decision"]["node_axes"] == {"gpu_power_w": LIMIT}
    ran = why["outcome"]["record"]["ran"]
    assert [(g["node"], g["device"], g["axes"]) for g in ran["gpus"]] == [
        ("bdw2", i, {"gpu_power_w": LIMIT}) for i in (0, 1)
    ]
    assert all(g["energy_j"] > 0 for g in ran["gpus"])
    took_j = sum(g["energy_j"] for g in why["gpus"])
    assert why["energy_gpu_j"] == pytest.approx(took_j) and why["energy_gpu_note"] == ""
    [of_application] = gpu_site.json("report", "--application", "limited")["gpus"]
    assert of_application["jobs"] >= 1 and of_application["gpu_kwh"] >= took_j / 3.6e6 * 0.999
    [listed] = [j for j in gpu_site.json("jobs", "--everybody")["jobs"] if j["job"] == str(job)]
    assert listed["gpu_kwh"] == pytest.approx(took_j / 3.6e6)
    assert 'device="gpu"' in gpu_site.advisor("metrics").stdout
    assert why["outcome"]["record"]["mismatch"] == ""
    text = gpu_site.advisor("why", job).stdout
    assert "GPU power limit 150 W" in text and "bdw2" in text
    assert "promised" in text


def curve(clock: int) -> tuple[float, float]:
    """A program of which half follows the GPU's clock: seconds and joules at a clock in kHz."""
    f = clock / 1_400_000
    time_s = 2 * (0.2 / f + 0.8)
    return time_s, time_s * (90 + 260 * f**2.5)


def test_a_sweep_over_clocks_advises_the_next_job_as_it_is_written(gpu_site: AdvisedSite) -> None:
    forget(gpu_site)
    steps = range(800_000, 1_400_001, 100_000)
    rows = [f"{v},{curve(v)[0]:.4f},{curve(v)[1]:.2f}" for v in steps]
    grid = gpu_site.folder / "clocks.csv"
    grid.write_text("\n".join(["gpu_freq_khz,time_s,energy_j", *rows]) + "\n")
    script = gpu_site.script("swept.sh", f"srun simapp --replay {grid}", *WHOLE)
    # Runs enough to confirm one beside others, where they scatter.
    where = ("--scheduler", "slurm", "--yes", "--budget", "9", "--estimate", "3s")
    names = ("--application", "swept", "--workload", "default")
    swept = gpu_site.json("train", script, *where, *names)
    assert [r["gpu_freq_khz"] for r in swept["runs"][:3]] == [1_400_000, 800_000, 1_100_000]
    assert swept["stats"]["gpus"] == 2 and swept["stats"]["gpus_metered"]
    for run in swept["runs"]:  # what ran at a clock took what the curve says of it
        time_s, energy_j = curve(run["gpu_freq_khz"])
        assert run["energy_j"] == pytest.approx(energy_j, rel=0.1)
        assert run["time_s"] > 0.95 * time_s and run["energy_quality"] == "measured"
    chosen = swept["recommended"]["gpu_freq_khz"]
    assert curve(chosen)[1] < 0.9 * curve(steps[-1])[1]
    gpu_site.settle()
    job = gpu_site.testbed.sbatch(str(script), env=named("swept")).job_id
    assert gpu_site.testbed.wait(job) == "COMPLETED"
    assert gpu_site.testbed.scontrol_jobs(job)[0]["TresFreq"] == f"gpu:{chosen // 1000}"


def limited(watts: int) -> tuple[float, float]:
    """A program that takes 230 W of itself: seconds and joules under a limit in W."""
    f = min(1.0, ((watts - 60) / 170) ** 0.5)
    time_s = 3 * (0.15 / f + 0.85)
    return time_s, time_s * (100 + min(watts, 230))


LIMITS = range(100, TOP + 1, 25)


def swept_over_limits(
    site: AdvisedSite, name: str, how: str, *directives: str
) -> tuple[Path, dict[str, Any]]:
    """Train a job on GPUs over its power limits; return its script and what came out."""
    rows = [f"{v},{limited(v)[0]:.4f},{limited(v)[1]:.2f}" for v in LIMITS]
    grid = site.folder / "limits.csv"
    grid.write_text("\n".join(["gpu_power_w,time_s,energy_j", *rows]) + "\n")
    script = site.script(f"{name}.sh", f"{how} --replay {grid}", *WHOLE, *directives)
    # Runs enough to confirm one beside others, where they scatter.
    where = ("--scheduler", "slurm", "--yes", "--budget", "9", "--estimate", "3s")
    swept = site.json("train", script, *where, "--application", name, "--workload", "default")
    for run in swept["runs"]:
        assert run["energy_j"] == pytest.approx(limited(run["gpu_power_w"])[1], rel=0.1)
    assert swept["recommended"], swept
    chosen = swept["recommended"]["gpu_power_w"]
    assert limited(chosen)[1] < 0.95 * limited(TOP)[1]
    site.settle()
    return script, swept


def test_a_sweep_has_its_nodes_set_limits_as_jobs_get_them(gpu_site: AdvisedSite) -> None:
    """The script has no srun, so that only the nodes' prolog reaches its program."""
    forget(gpu_site)
    testbed, devices = gpu_site.testbed, posed(gpu_site.testbed)
    script, swept = swept_over_limits(gpu_site, "bynodes", f"simapp --devices {devices}")
    lowered = [r["gpu_power_w"] for r in swept["runs"] if r["gpu_power_w"] != TOP]
    testbed.rest()
    said = [line.split() for lines in calls(testbed).values() for line in lines]
    assert sorted(int(w) // 1000 for device, _, w in said if device == "0" and int(w) < 1000 * TOP)
    assert {int(w) // 1000 for _, _, w in said} == {*lowered, TOP}
    assert len({r["job_id"] for r in swept["runs"]}) == len(swept["runs"])
    forget(gpu_site)
    job = testbed.sbatch(str(script), env=named("bynodes")).job_id
    assert testbed.wait(job) == "COMPLETED"
    testbed.rest()
    chosen = swept["recommended"]["gpu_power_w"]
    assert [line for lines in calls(testbed).values() for line in lines] == [
        f"{i} limit {1000 * w}" for w in (chosen, TOP) for i in (0, 1)
    ]


def test_a_run_whose_limit_was_not_set_is_none(gpu_site: AdvisedSite) -> None:
    forget(gpu_site)
    for node in BDW.nodes:
        file = posed(gpu_site.testbed) / node
        file.write_text(file.read_text() + "1 mig 1\n")
    try:
        with pytest.raises(AssertionError, match="power limit 150 W was not set on its GPUs"):
            swept_over_limits(gpu_site, "unset", f"simapp --devices {posed(gpu_site.testbed)}")
    finally:
        for node in BDW.nodes:
            file = posed(gpu_site.testbed) / node
            file.write_text(file.read_text().replace("1 mig 1\n", ""))
    assert calls(gpu_site.testbed) == {}


def test_a_sweep_writes_the_sites_own_option_into_a_job_of_each_value(
    gpu_site: AdvisedSite,
) -> None:
    forget(gpu_site)
    site = (gpu_site.config / "site.yaml").read_text()
    own = site.replace("{nodes: true}", '{option: comment, value: "power={}"}')
    assert own != site
    (gpu_site.config / "site.yaml").write_text(own)
    gpu_site.advisor("site", "apply")
    try:
        _, swept = swept_over_limits(gpu_site, "byoption", "simapp")
    finally:
        (gpu_site.config / "site.yaml").write_text(site)
        gpu_site.advisor("site", "apply")
    testbed = gpu_site.testbed
    assert calls(testbed) == {}
    for run in swept["runs"]:
        comment = testbed.scontrol_jobs(int(run["job_id"]))[0].get("Comment", "")
        top = run["gpu_power_w"] == TOP
        assert comment == ("" if top else f"power={run['gpu_power_w']}")


def test_two_nodes_tell_of_all_their_devices(gpu_site: AdvisedSite) -> None:
    """A stamp by hand, since no model here is of two nodes; root alone can write one."""
    forget(gpu_site)
    testbed = gpu_site.testbed
    options = ("-N2", "-n2", "--exclusive", "-p", "broadwell", "--gres=gpu:1", "-t", "10")
    job = testbed.sbatch("--hold", *options, script="sleep 1", env={"ADVISOR": "off"}).job_id
    stamp = 'advisor:{"v":1,"gpus":{"gpu_power_w":200}}'
    testbed.run(["scontrol", "update", f"JobId={job}", f"AdminComment={stamp}"])
    testbed.run(["scontrol", "release", str(job)])
    assert testbed.wait(job) == "COMPLETED"
    testbed.rest()

    def told(field: str = "SystemComment") -> str:
        return testbed.run(["sacct", "-n", "-P", "-X", "-o", field, "-j", str(job)]).stdout

    wait_until(lambda: told().count("advisor-gpus:bdw") == 2, 60, "both nodes' words")
    assert told().count("0/200/0/") == 2 and told("AdminComment").strip() == stamp
    lifted = [f"{number} limit 300000" for number in range(COUNT)]
    assert [lines[-COUNT:] for lines in calls(testbed).values()] == [lifted, lifted]


def test_what_others_said_of_a_job_is_kept_as_it_is(gpu_site: AdvisedSite) -> None:
    forget(gpu_site)
    testbed = gpu_site.testbed
    options = ("-n1", "-p", "broadwell", "--gres=gpu:1", "-t", "10")
    job = testbed.sbatch("--hold", *options, script="sleep 8", env={"ADVISOR": "off"}).job_id
    comment = 'AdminComment=advisor:{"v":1,"gpus":{"gpu_power_w":200}}'
    testbed.run(["scontrol", "update", f"JobId={job}", comment])
    testbed.run(["scontrol", "release", str(job)])
    command = ["sacct", "-n", "-P", "-X", "-o", "State,SystemComment", "-j", str(job)]
    wait_until(lambda: testbed.run(command).stdout.startswith("RUNNING"), 60, "its start")
    words = "SystemComment=staged by the site's own program"
    testbed.run(["sacctmgr", "-i", "modify", "job", "where", f"JobID={job}", "set", words])
    assert testbed.wait(job) == "COMPLETED"
    testbed.rest()
    assert any(lines for lines in calls(testbed).values())  # it had its limit
    said = "COMPLETED|staged by the site`s own program"  # sacctmgr's ` for a quote
    assert testbed.run(command).stdout.strip() == said


@pytest.mark.parametrize("how", ["cancelled", "requeued", "killed"])
def test_however_a_job_ends_its_devices_are_as_before(gpu_site: AdvisedSite, how: str) -> None:
    forget(gpu_site)
    testbed = gpu_site.testbed
    job = submit(gpu_site, "limited", "simapp --kernel stencil\nsleep 100", *WHOLE, "-w bdw3")
    wait_until(lambda: len(calls(testbed).get("bdw3", [])) == 2, 60, "its limits")
    states = testbed.directory / "nodes" / "bdw3" / "gpus" / "bdw3"
    kept = (states / str(job)).read_text()
    assert json.loads(kept)["0"]["before_mw"] == 1000 * TOP
    if how == "requeued":
        testbed.run(["scontrol", "requeuehold", str(job)])
    testbed.run(["scancel", str(job)])
    testbed.rest()
    assert calls(testbed)["bdw3"][-2:] == ["0 limit 300000", "1 limit 300000"]
    if how == "killed":  # as if no epilog had run: the next job on these devices puts it back
        forget(gpu_site)
        (states / str(job)).write_text(kept)
        options = ("-N1", "-n1", "-p", "broadwell", "-w", "bdw3", "--gres=gpu:4", "-t", "10")
        after = testbed.sbatch(*options, script="true", env={"ADVISOR": "off"}).job_id
        assert testbed.wait(after) == "COMPLETED"
        testbed.rest()
        assert calls(testbed)["bdw3"] == ["0 limit 300000", "1 limit 300000"]
    assert not [path for path in states.iterdir()]


def test_a_device_cut_into_instances_keeps_the_job_as_written(gpu_site: AdvisedSite) -> None:
    forget(gpu_site)
    file = posed(gpu_site.testbed) / "bdw4"
    before = file.read_text()
    file.write_text(before + "1 mig 1\n")
    job = submit(gpu_site, "limited", "simapp --kernel stencil", *WHOLE, "-w bdw4")
    assert gpu_site.testbed.wait(job) == "COMPLETED"
    gpu_site.testbed.rest()
    file.write_text(before)
    assert calls(gpu_site.testbed) == {}
    gpu_site.advisor("collect")
    mismatch = gpu_site.json("why", job)["outcome"]["record"]["mismatch"]
    assert mismatch == "the GPU power limit of GPU 0 on bdw4 was not set to 150 W"


ITERATING = r"""
#include <fcntl.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static struct timespec now;  /* of the steps: who watches them looks at this clock, too, ... */
static int begun;            /* ... so that delays of the machine are none of a step */
int clock_gettime(clockid_t clock, struct timespec *time) {
    if (!begun || clock != CLOCK_MONOTONIC) return syscall(SYS_clock_gettime, clock, time);
    *time = now;
    return 0;
}
static void go_on(double seconds) {
    const long long ns = now.tv_nsec + (long long)(seconds * 1e9);
    struct timespec next = {now.tv_sec + ns / 1000000000, ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL)) {}
    now = next;
}
static double mhz(const char *set) { /* what was set last on the node's devices; 0 is any */
    double found = 0, value;
    char kind[32];
    int device;
    FILE *file = fopen(set, "r");
    while (file && fscanf(file, "%d %31s %lf", &device, kind, &value) == 3)
        if (!strcmp(kind, "clocks")) found = value;
    if (file) fclose(file);
    return found ? found : 1400;
}
int main(int argc, char **argv) { /* steps, s of one at the highest clock, loads, what was set */
    const int steps = atoi(argv[1]);
    double begin, last = 0;
    char path[400], draft[400];
    snprintf(path, sizeof path, "%s/%d.load", argv[3], (int)getpid());
    snprintf(draft, sizeof draft, "%s/.%d", argv[3], (int)getpid());
    clock_gettime(CLOCK_MONOTONIC, &now);
    begun = 1;
    begin = now.tv_sec + now.tv_nsec / 1e9;
    for (int i = -4; i < steps; i++) { /* the meter has begun before the first step */
        const double f = mhz(argv[4]) / 1400;
        const double step = atof(argv[2]) * (0.2 / f + 0.8);
        if (f != last) {
            FILE *load = fopen(draft, "w");
            fprintf(load, "%.3f %.3f %.3f %d\n", 90 + 260 * pow(f, 2.5), begin, begin + 1e4,
                    (int)getpid());
            fclose(load);
            rename(draft, path);
            last = f;
        }
        if (i < 0) { go_on(step); continue; }
        #pragma omp parallel num_threads(2)
        {
            #pragma omp master
            go_on(step);
            #pragma omp barrier
        }
    }
    puts("whole");
    return 0;
}
"""


@pytest.fixture
def by_nodes(gpu_site: AdvisedSite) -> Iterator[AdvisedSite]:
    """The site with its nodes setting clocks."""
    forget(gpu_site)
    site = (gpu_site.config / "site.yaml").read_text()
    own = site.replace("axes: {", "axes: {gpu_freq_khz: {nodes: true}, ")
    assert own != site
    (gpu_site.config / "site.yaml").write_text(own)
    gpu_site.advisor("site", "apply")
    try:
        yield gpu_site
    finally:
        (gpu_site.config / "site.yaml").write_text(site)
        gpu_site.advisor("site", "apply")


def iterating(site: AdvisedSite, name: str, steps: int, how: str = "") -> Path:
    """Return the script of a program whose iterations follow the node's clock."""
    program = site.folder / "iterating"
    source = program.with_suffix(".c")
    source.write_text(ITERATING)
    subprocess.run(
        ["gcc", "-O1", "-fopenmp", "-rdynamic", source, "-o", program, "-lm"], check=True
    )
    program.chmod(0o755)
    loads = f"{site.testbed.directory}/nodes/$SLURMD_NODENAME/loads"
    where = f"{loads} {posed(site.testbed)}/$SLURMD_NODENAME.set"
    body = f"export OMP_WAIT_POLICY=passive\n{how}srun {program} {steps} 0.05 {where}"
    return site.script(f"{name}.sh", body, *WHOLE)


def trained(site: AdvisedSite, script: Path, name: str, *, expect_note: str = "") -> dict[str, Any]:
    where = ("--scheduler", "slurm", "--yes", "--budget", "9", "--estimate", "40s")
    names = ("--application", name, "--workload", "default")
    done = site.advisor("train", script, *where, *names, "--json")
    assert expect_note in done.stderr, done.stderr
    swept: dict[str, Any] = json.loads(done.stdout)
    return swept


def values_set(cluster: Testbed) -> list[int]:
    """What the first device was set to, one after the other, in MHz, by nodes."""
    lines = [line for lines in calls(cluster).values() for line in lines]
    return [int(line.split()[2]) for line in lines if line.startswith("0 clocks")]


def setters(cluster: Testbed) -> list[Path]:
    """What is left of setters and of the states of jobs."""
    folders = (cluster.directory / "nodes").glob("*/gpus")
    return [path for folder in folders for path in folder.rglob("*") if not path.is_dir()]


def test_a_sweep_takes_its_curve_from_one_run(by_nodes: AdvisedSite) -> None:
    """The complete run, a part of a second one with all values in it, and what confirms."""
    testbed = by_nodes.testbed
    script = iterating(by_nodes, "curved", 700)
    where = ("--scheduler", "slurm", "--dry-run", "--estimate", "40s")
    plan = by_nodes.advisor("train", script, *where, "--application", "curved").stdout
    assert "the second run goes through its values between its iterations" in plan
    swept = trained(by_nodes, script, "curved")
    first, *points = swept["runs"][:7]
    assert first["extrapolated"] is None and first["role"] == "baseline"
    assert [p["gpu_freq_khz"] for p in points] == [*range(1_300_000, 799_999, -100_000)]
    assert len({p["job_id"] for p in points}) == 1 and points[0]["job_id"] != first["job_id"]
    own_s, own_j = curve(1_400_000)
    errors = []
    for point in points:
        assert point["role"] == "design" and point["energy_quality"] == "measured"
        time_s, energy_j = curve(point["gpu_freq_khz"])
        assert point["time_s"] / first["time_s"] == pytest.approx(time_s / own_s, rel=0.03)
        assert point["energy_j"] / first["energy_j"] == pytest.approx(energy_j / own_j, rel=0.05)
        errors.append(abs(point["time_s"] / first["time_s"] / (time_s / own_s) - 1))
        errors.append(abs(point["energy_j"] / first["energy_j"] / (energy_j / own_j) - 1))
    cost = 1 + sum(p["extrapolated"]["share"] * p["time_s"] for p in points) / first["time_s"]
    print(f"curve: {cost:.2f} runs; worst error of time {100 * max(errors[::2]):.1f} %, ", end="")
    print(f"of energy {100 * max(errors[1::2]):.1f} %; in all {len(swept['runs']) - 7} more runs")
    assert cost < 1.8, cost
    # what comes behind the curve confirms, by runs of their own
    behind = swept["runs"][7:]
    assert behind and all(r["extrapolated"] is None for r in behind)
    assert behind[0]["role"] == "confirm" and behind[0]["job_id"] != points[0]["job_id"]
    assert swept["confirmed"] and swept["confirmation"]["holds"]
    chosen = swept["recommended"]["gpu_freq_khz"]
    assert curve(chosen)[1] < 0.9 * own_j
    testbed.rest()
    there = [1400 - 100 * i for i in range(7)]
    assert values_set(testbed)[:13] == [*there, *there[-2::-1]]
    assert values_set(testbed)[-1] == 0 and not setters(testbed)
    by_nodes.settle()
    forget(by_nodes)
    job = testbed.sbatch(str(script), env=named("curved")).job_id
    wait_until(lambda: bool(calls(testbed)), 60, "its clock")
    assert values_set(testbed) == [chosen // 1000]
    testbed.run(["scancel", str(job)])
    testbed.rest()


def test_a_sweep_goes_on_where_what_sets_its_values_is_killed(by_nodes: AdvisedSite) -> None:
    testbed = by_nodes.testbed
    script = iterating(by_nodes, "bereft", 330)
    killed: list[int] = []

    def kill() -> None:
        while not killed:
            time.sleep(0.2)
            for path in setters(testbed):
                if path.name.startswith(".setter.") and len(values_set(testbed)) > 1:
                    killed.append(json.loads(path.read_text())["pid"])
                    os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    output = trained(by_nodes, script, "bereft", expect_note="nothing sets it as a job runs")
    killer.join(1)
    assert killed and output["runs"]
    own = {r["job_id"] for r in output["runs"]}
    assert len(own) == len(output["runs"])  # each value had a run of its own
    testbed.rest()
    assert not setters(testbed)


CLIENT = """
import os, socket, sys, time
path = "/run/advisor-gpus/%s.%s" % (os.environ["SLURMD_NODENAME"], os.environ["SLURM_JOB_ID"])
client = socket.socket(socket.AF_UNIX)
client.connect(path)
client.sendall(sys.argv[1].encode() + b"\\n")
print(client.recv(99).decode(), end="", flush=True)
"""


def chooser(site: AdvisedSite, body: str, *options: str, **more: str) -> int:
    """Submit a job that may choose among three clocks; ``ask N`` does so."""
    client = site.folder / "client.py"
    client.write_text(CLIENT)
    text = f"ask() {{ /usr/bin/python3 {client} $1; }}\n{body}"
    path = site.script("chooser.sh", text, *WHOLE, "-w bdw3", f"-o {site.folder}/%j.out", *options)
    gpus = json.dumps({"gpu_freq_khz": "1400000/1100000/800000"}, separators=(",", ":"))
    environment = {"ADVISOR": "off", "SLURM_ADVISOR_GPUS": gpus, **more}
    return site.testbed.sbatch(str(path), env=environment).job_id


def output(site: AdvisedSite, job: int) -> list[str]:
    path = site.folder / f"{job}.out"
    return path.read_text().splitlines() if path.exists() else []


def test_a_job_chooses_among_the_values_in_its_stamp(by_nodes: AdvisedSite) -> None:
    testbed = by_nodes.testbed
    job = chooser(by_nodes, "ask 1; ask 3; ask 800000; ask 2; ask 0")
    assert testbed.wait(job) == "COMPLETED"
    testbed.rest()
    no = "no such value"
    assert output(by_nodes, job) == ["ok", no, no, "ok", "ok"]
    both = [f"{i} clocks {mhz}" for mhz in (1100, 800, 1400, 0) for i in (0, 1)]
    assert calls(testbed) == {"bdw3": both} and not setters(testbed)


def state_of(pid: int) -> str:
    """The state of a process, Z where it is gone but for its parent."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("how", ["cancelled", "requeued", "setter killed", "driver hangs"])
def test_however_such_a_job_ends_its_devices_are_as_before(by_nodes: AdvisedSite, how: str) -> None:
    testbed, file = by_nodes.testbed, posed(by_nodes.testbed) / "bdw3"
    hang = f"; until [ -e {by_nodes.folder}/hangs ]; do sleep 0.1; done; ask 2"
    job = chooser(by_nodes, f"ask 1{hang if how == 'driver hangs' else ''}; sleep 200", "--requeue")
    wait_until(lambda: output(by_nodes, job) == ["ok"], 60, "its clock")
    [note] = [path for path in setters(testbed) if path.name == f".setter.{job}"]
    setter = json.loads(note.read_text())
    pid, started = setter["pid"], str(setter["started"])
    assert start_ticks(pid) == started
    before = file.read_text()
    if how == "setter killed":
        os.kill(pid, signal.SIGKILL)
    if how == "driver hangs":
        file.write_text(before + "0 hang.set 1000\n")
        (by_nodes.folder / "hangs").touch()
        time.sleep(1)  # until it is in the driver, which nobody outside sees
    if how == "requeued":
        testbed.run(["scontrol", "requeue", str(job)])
        wait_until(lambda: len(calls(testbed)["bdw3"]) >= 4, 60, "what its first run left")
        wait_until(lambda: start_ticks(pid) != started, 60, "its first setter's end")
        # Slurm waits for some time before it starts a job again
        wait_until(lambda: len(calls(testbed)["bdw3"]) >= 6, 200, "its clock again")
    file.write_text(before)
    testbed.run(["scancel", str(job)])
    testbed.rest()
    assert calls(testbed)["bdw3"][-2:] == ["0 clocks 0", "1 clocks 0"]
    assert not setters(testbed)
    assert start_ticks(pid) != started or state_of(pid) == "Z"  # nobody waited for it


def test_no_node_was_drained(gpu_site: AdvisedSite) -> None:
    gpu_site.testbed.rest()
    states = gpu_site.testbed.run(["sinfo", "-h", "-N", "-o", "%T"]).stdout
    assert set(states.split()) == {"idle"}
