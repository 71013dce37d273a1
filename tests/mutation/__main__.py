"""``python -m tests.mutation [FILE]...``: put faults into the decision's files, name what survives.

A mutant survives where no test fails for it. What changes nothing that a test could see stands in
``equivalent.yaml`` with the reason: by file and function, ``before -> after``.
"""

from __future__ import annotations

import argparse
import sys

import pytest
import yaml

from tests.mutation.running import ROOT, Plugin

FILES = (
    "advisor/core/select.py", "advisor/core/feasible.py", "advisor/service/choice.py",
    "advisor/schedulers/slurm/translator.py", "advisor/schedulers/slurm/table.py",
    "advisor/schedulers/slurm/sbatch.py", "advisor/schedulers/pbs/translator.py",
    "advisor/schedulers/pbs/table.py",
)  # fmt: skip
TESTS = (
    "tests/unit/decide", "tests/unit/trials", "tests/unit/sizes/test_decisions.py",
    "tests/unit/test_select.py", "tests/unit/test_recommend.py", "tests/unit/test_objectives.py",
    "tests/unit/test_transfer_models.py", "tests/unit/test_schedulers_choose.py",
    "tests/unit/test_slurm_table.py", "tests/unit/test_pbs_render.py",
    "tests/unit/test_pbs_fold.py", "tests/unit/test_pbs_options.py",
    "tests/unit/test_qsub_words.py", "tests/unit/test_training_plan.py",
)  # fmt: skip
"""Tests that meet these files, without starting a cluster."""


def main() -> int:
    """Run the mutants of the named files; 1 where one survives or an entry fits none."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("files", nargs="*", default=FILES, metavar="FILE")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--seconds", type=float, default=4.0, metavar="S",
                        help="processor time for the tests of a mutant, the fastest first (4)")  # fmt: skip
    arguments = parser.parse_args()
    files = [ROOT / name for name in arguments.files]
    plugin = Plugin(files, arguments.jobs, arguments.seconds)
    options = ["--tb=native", "-p", "no:xdist", "--capture=no", "--no-header", "--no-summary"]
    if pytest.main([*options, *(str(ROOT / t) for t in TESTS)], [plugin]) not in (0, 5):
        return 2
    with (ROOT / "tests/mutation/equivalent.yaml").open() as stream:
        equivalent = yaml.safe_load(stream) or {}
    entries = {
        (file, function, change)
        for file, functions in equivalent.items() if file in arguments.files
        for function, changes in functions.items()
        for change in changes
    }  # fmt: skip
    left = 0
    for path, mutant, tests in sorted(plugin.survivors, key=lambda s: (s[0], s[1].line)):
        key = path.relative_to(ROOT).as_posix(), mutant.function, mutant.change
        if key in entries:
            entries.remove(key)
            continue
        left += 1
        print(f"{key[0]}:{mutant.line} {mutant.function} [{tests}]: {mutant.change}")
    for path, number in plugin.counts.items():
        survivors = sum(p == path for p, _, _ in plugin.survivors)
        print(f"{path.relative_to(ROOT)}: {number} mutants, {number - survivors} killed, "
              f"{survivors} survive")  # fmt: skip
    for file, function, change in sorted(entries):
        print(f"equivalent.yaml: no surviving mutant is {file} {function}: {change}")
    return int(bool(left or entries))


if __name__ == "__main__":
    sys.exit(main())
