"""Mutation tests of the schedulers' hooks.

python -m tests.mutation_hooks [--jobs N] [--lines A-B,...] [SOURCE...]

Makes small changes to each hook, one at a time, and runs the tests that are quick enough to be run
a thousand times; prints each change that no test noticed, and exits with 1 if there was one. What
``equivalent.txt`` lists is not tried; of a change to several equal lines as many may survive as it
is listed times. The tests run in copies of the checkout, and only with the first Lua that is here.
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
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutation_hooks import bash, lua, pbs_hooks
from tests.mutation_hooks.mutants import Mutant

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("advisor", "config", "db", "hooks", "tests", "tui", "pyproject.toml")
LUA, QUEUEJOB = "tests/unit/hook_lua", "tests/pbs/queuejob"
FILTER = (
    "cli_filter",
    "advisor/filter",
    "advisor/log",
    "advisor/rewrite",
    "advisor/start",
    "advisor/system",
)
LIMITS = (
    "test_what_the_cluster_has",
    "test_what_the_cluster_does_not_have",
    "test_what_is_no_more_than_the_job_has",
    "test_what_is_more_than_the_job_has",
    "test_frequency_steps_by_what_the_store_knew_at_install",
    "test_nothing_is_known_of_the_cluster",
    "test_a_cap_of_a_step_is_a_frequency_step_of_its_nodes",
)
UNDERSTOOD = (
    "test_the_hooks_judge_everything_as_the_daemon_does",
    "test_the_first_that_binds_a_plan_is_told",
    "test_the_hooks_know_what_the_site_says_of_its_own_options",
    "test_a_site_may_say_it_of_a_variable_whatever_its_value",
)
BASH = ("hooks/slurm/advisor-node-cap",)
TESTS = {
    "hooks/slurm/advisor/answer.lua": [
        f"{LUA}/test_answers.py",
        f"{LUA}/test_filter.py",
        f"{LUA}/test_gpus.py",
    ],
    "hooks/slurm/advisor/json.lua": [f"{LUA}/test_json.py", f"{LUA}/test_answers.py"],
    "hooks/slurm/advisor/step.lua": [f"{LUA}/test_steps.py"],
    "hooks/slurm/advisor/limits.lua": [f"{LUA}/test_limits.py::{n}" for n in LIMITS],
    "hooks/slurm/advisor/understood.lua": [f"{LUA}/test_limits.py::{n}" for n in UNDERSTOOD],
    "hooks/slurm/advisor/portable.lua": [f"{LUA}/test_system_calls.py"],
    "hooks/slurm/advisor/program.lua": ["tests/unit/test_program.py"],
    "hooks/slurm/advisor/submit.lua": [f"{LUA}/test_submit.py"],
    "hooks/slurm/job_submit.lua": [f"{LUA}/test_submit.py"],
    **{
        f"hooks/slurm/{name}.lua": [
            f"{LUA}/test_filter.py",
            f"{LUA}/test_submit.py",
            f"{LUA}/test_steps.py",
            f"{LUA}/test_gpus.py",
        ]
        for name in FILTER
    },
    "hooks/pbs/advisor_queuejob.py": [QUEUEJOB],
    "hooks/slurm/advisor-node-cap": [
        "tests/unit/test_node_cap_program.py",
        "tests/unit/test_node_cores_program.py",
    ],
    "hooks/slurm/advisor-node-cores": ["tests/unit/test_node_cores_program.py"],
    "hooks/slurm/advisor-node-gpus": [
        "tests/unit/test_node_gpus.py",
        "tests/unit/test_node_gpus_setter.py",
        "tests/pbs/test_execjob_gpus.py",
    ],
    "hooks/pbs/advisor_execjob.py": [
        "tests/pbs/test_execjob_hook.py",
        "tests/pbs/test_execjob_gpus.py",
    ],
    "hooks/pbs/qsub.py": [
        "tests/pbs/test_qsub_client.py",
        "tests/unit/test_qsub_words.py::test_the_client_before_qsub_splits_lines_in_the_same_way",
    ],
}


def main() -> int:
    """Try all mutants of the named sources."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation_hooks", description=__doc__)
    parser.add_argument("sources", nargs="*", metavar="SOURCE", help="hooks/... (default: all)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--lines", default="1-1000000", metavar="A-B,...", help="only these lines")
    arguments = parser.parse_args()
    ranges = [part.partition("-") for part in arguments.lines.split(",")]
    lines = Path(__file__).with_name("equivalent.txt").read_text().splitlines()
    equivalent = Counter(" ".join(line.split()) for line in lines)
    bad = 0
    for source in arguments.sources or TESTS:
        text = (ROOT / source).read_text()
        is_lua = source.endswith(".lua")
        make = (lua if is_lua else bash if source in BASH else pbs_hooks).mutants
        made = sorted(make(text), key=lambda mutant: mutant.line)
        equal = Counter(written(source, mutant) for mutant in made)
        chosen = [
            mutant
            for mutant in made
            if any(int(low) <= mutant.line <= int(high or low) for low, _, high in ranges)
        ]
        new = [m for m in chosen if equivalent[written(source, m)] < equal[written(source, m)]]
        counts = Counter(equivalent=len(chosen) - len(new))
        begin = time.monotonic()
        for mutant, outcome in tried(source, new, arguments.jobs):
            if outcome == "survived" and equivalent[written(source, mutant)]:
                equivalent[written(source, mutant)] -= 1
                outcome = "equivalent"
            counts[outcome] += 1
            if outcome not in ("killed", "equivalent"):
                print(f"{outcome} {source}:{mutant}", flush=True)
        bad += counts["survived"]
        shown = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        took_s = time.monotonic() - begin
        print(f"{source}: {len(chosen)} mutants in {took_s:.0f} s: {shown}", flush=True)
    return 1 if bad else 0


def written(source: str, mutant: Mutant) -> str:
    """Return a mutant as equivalent.txt has it, blanks aside."""
    return " ".join(f"{source}:{mutant.before} => {mutant.after or '(nothing)'}".split())


def tried(source: str, mutants: list[Mutant], jobs: int) -> Iterator[tuple[Mutant, str]]:
    """Yield what became of each mutant: killed, survived, or slow where its tests never ended."""
    compiled = shutil.ignore_patterns("__pycache__")
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        workers: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
        started = []
        for number in range(jobs):
            folder = Path(name) / str(number)
            for part in COPIED:
                target = folder / part
                if (ROOT / part).is_dir():
                    shutil.copytree(ROOT / part, target, ignore=compiled)
                else:
                    shutil.copy(ROOT / part, target)
            worker = subprocess.Popen(
                [sys.executable, "-m", "tests.mutation_hooks.worker", source, *TESTS[source]],
                cwd=folder,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "TMPDIR": str(folder)},
            )
            started.append(worker)
            workers.put(worker)

        def ask(mutant: Mutant) -> str:
            worker = workers.get()
            assert worker.stdin and worker.stdout
            worker.stdin.write(json.dumps([mutant.text, mutant.line, mutant.last]) + "\n")
            worker.stdin.flush()
            outcome = worker.stdout.readline().strip()
            workers.put(worker)
            return outcome

        with ThreadPoolExecutor(jobs) as pool:
            nothing = Mutant((ROOT / source).read_text(), 1, 1, "", "")
            for outcome in pool.map(ask, [nothing] * jobs):  # one each: they take the same time
                assert outcome == "survived", f"{source}: without a change its tests fail"
            yield from zip(mutants, pool.map(ask, mutants), strict=True)
        for worker in started:
            worker.communicate("")


if __name__ == "__main__":
    sys.exit(main())
