"""What the filter costs a step, on a real Slurm (root, Debian's Slurm packages).

Starts the testbed, takes one node, and starts steps there one after the other: with a filter that
does nothing, and with ours, in a job without a plan, in one whose plan lacks the program, and in
one whose plan has it, among as many others as there is room for. They take turns, so that their
ratios hold on a busy machine too; the filter that does nothing is there twice, against itself,
and with the cap asked for by hand, since Slurm itself takes longer for a step that has one. Times
of the filter alone are taken inside Lua, around the call.

    python benchmarks/step.py [--rounds 200] [--lua-posix] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hook import NOOP, POSED, ROOT, fill, posed_node, quantile, timed
from testbed import Testbed

from advisor.core.step_plan import MAX_PLAN, PlanEntry, key_of

DECISION = "0123456789abcdef"
CAP_KHZ = 1_800_000
NOTHING, AGAIN = "a filter that does nothing", "the same again"
WITHOUT, LACKING = "no plan", "a plan without it"
BY_HAND, PLANNED = "nothing, asked by hand", "a plan that has it"
ARMS = (NOTHING, AGAIN, WITHOUT, LACKING, BY_HAND, PLANNED)
BASES = {AGAIN: NOTHING, WITHOUT: NOTHING, LACKING: NOTHING, PLANNED: BY_HAND}
PAUSE_S = 0.2
"""Between steps: the node may still be busy with the one before."""


def plan(last: str) -> str:
    """Return as long a plan as may be, whose last entry is that of a program."""
    words: list[str] = []
    head = f"1 {DECISION} {os.geteuid()} 1 {POSED.cores} "
    entry = PlanEntry(key_of(last), 1, POSED.cores, False, 0, CAP_KHZ).text + " "
    while len(head) + (len(words) + 1) * len(entry) + 8 <= MAX_PLAN:
        words.append(entry.replace(key_of(last), key_of(f"other-{len(words)}")))
    text = head + "".join([*words[1:], entry])
    return text + key_of(text)


class Bench:
    """A job of one node on the testbed, and one folder with slurm.conf and filter for each arm."""

    def __init__(self, testbed: Testbed, folder: Path, lua_posix: bool) -> None:
        self.testbed, self.folder = testbed, folder
        self.filter_us = folder / "filter.us"
        conf, store = testbed.conf_dir, folder / "advisor.db"
        for name in ("cli_filter.lua", "job_submit.lua"):
            (conf / name).unlink(missing_ok=True)
        fill(store, posed_node())
        command = ["advisor", "hook", "install", "--dir", str(conf), "--socket", f"{folder}/s"]
        environment = {**testbed.env(), "ADVISOR_DB": str(store)}
        subprocess.run(
            [sys.executable, "-m", *command],
            env=environment,
            cwd=ROOT,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        if lua_posix:
            for path in (conf / "advisor").glob("*/native.so"):
                path.unlink()
        ours = (conf / "cli_filter.lua").read_text()
        self.confs = {}
        for name, text in {
            "noop": NOOP,
            "ours": ours,
            "timed-noop": timed(NOOP, "slurm_cli_pre_submit", self.filter_us),
            "timed-ours": timed(ours, "slurm_cli_pre_submit", self.filter_us),
        }.items():
            place = folder / name
            place.mkdir()
            (place / "advisor").symlink_to(conf / "advisor")
            (place / "slurm.conf").write_text((conf / "slurm.conf").read_text())
            (place / "cli_filter.lua").write_text(text)
            self.confs[name] = str(place / "slurm.conf")
        testbed.run(
            ["salloc", "-Q", "--no-shell", "-N1", "--exclusive", "-p", "broadwell", "-J", "bench"]
        )
        job_id = testbed.run(["squeue", "-h", "-n", "bench", "-o", "%A"]).stdout.strip()
        self.job = {
            "SLURM_JOB_ID": job_id,
            "SLURM_JOB_NUM_NODES": "1",
            "SLURM_NNODES": "1",
            "SLURM_JOB_CPUS_PER_NODE": str(POSED.cores),
            "SLURM_JOB_PARTITION": "broadwell",
            "OMP_NUM_THREADS": str(POSED.cores),
        }
        stamp = {"ADVISOR_STAMP": f'advisor:{{"v":1,"id":"{DECISION}"}}'}
        self.plans = {
            LACKING: {**stamp, "ADVISOR_PLAN": plan("another")},
            PLANNED: {**stamp, "ADVISOR_PLAN": plan("true -x")},
        }

    def step(self, arm: str, kind: str) -> float:
        """Start one step; return how long srun took, s."""
        conf = f"{kind}{'noop' if arm in (NOTHING, AGAIN, BY_HAND) else 'ours'}"
        by_hand = [f"--cpu-freq={POSED.frequencies_khz[0]}-{CAP_KHZ}"] if arm == BY_HAND else []
        environment = {
            **self.testbed.env(),
            **self.job,
            **self.plans.get(arm, {}),
            "SLURM_CONF": self.confs[conf],
        }
        time.sleep(PAUSE_S)
        start = time.perf_counter()
        subprocess.run(["srun", "-Q", "-n1", *by_hand, "true", "-x"], env=environment, check=True)
        return time.perf_counter() - start

    def walls(self, rounds: int) -> dict[str, list[float]]:
        """Start steps by turns; return the times of each arm, s."""
        times: dict[str, list[float]] = {arm: [] for arm in ARMS}
        for turn in range(rounds):
            first = turn % len(ARMS)
            for arm in ARMS[first:] + ARMS[:first]:
                times[arm].append(self.step(arm, ""))
        return times

    def inside(self, rounds: int) -> dict[str, list[float]]:
        """Return the times of the filter alone, s."""
        times: dict[str, list[float]] = {arm: [] for arm in ARMS if arm not in (AGAIN, BY_HAND)}
        for _ in range(rounds):
            for arm, values in times.items():
                self.filter_us.unlink(missing_ok=True)
                self.step(arm, "timed-")
                values.append(float(self.filter_us.read_text()) / 1e6)
        return times

    def capped(self) -> int:
        """Return how many of the job's steps the accounting has with the plan's cap."""
        rows = self.testbed.run(
            ["sacct", "-n", "-P", "-j", self.job["SLURM_JOB_ID"], "-o", "ReqCPUFreqMax"]
        )
        return rows.stdout.split().count(f"{CAP_KHZ / 1e6:.2f}G")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--lua-posix", action="store_true", help="without the compiled library")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="step-bench-"))
    folder.chmod(0o755)
    try:
        with Testbed() as testbed:
            bench = Bench(testbed, folder, args.lua_posix)
            bench.walls(3)
            walls, inside = bench.walls(args.rounds), bench.inside(args.rounds)
            time.sleep(3)  # the accounting hears of steps later
            capped = bench.capped()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if args.json:
        print(json.dumps({"srun_s": walls, "inside_s": inside, "capped": capped}))
        return
    print("srun of one task            p50 ms   p99 ms   p50 against its base")
    for arm, values in walls.items():
        p50, p99 = quantile(values, 0.5), quantile(values, 0.99)
        ratio = p50 / quantile(walls[BASES.get(arm, arm)], 0.5)
        print(f"{arm:26s} {p50 * 1e3:7.2f}  {p99 * 1e3:7.2f}   {ratio:6.3f}")
    print("\ninside Lua                  p50 ms   p99 ms")
    for arm, values in inside.items():
        print(f"{arm:26s} {quantile(values, 0.5) * 1e3:7.3f}  {quantile(values, 0.99) * 1e3:7.3f}")
    print(f"\n{capped} steps were capped")


if __name__ == "__main__":
    main()
