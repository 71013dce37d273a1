"""``python -m tests.mutation [FILE]...``: put faults into the decision's files, name what survives.

A mutant survives where no test fails for it. What changes nothing that a test could see stands in
``equivalent.yaml`` with the reason: by file and function, ``before -> after``, or ``before`` alone
for whatever is made of it.
"""

from __future__ import annotations

import argparse
import sys

import pytest
import yaml

from tests.mutation.running import ROOT, Plugin

_SLURM = ("unit/test_slurm_request.py", "unit/test_slurm_table.py")
_PBS = (
    "unit/test_pbs_render.py",
    "unit/test_pbs_options.py",
    "unit/test_qsub_words.py",
    "unit/test_pbs_fold.py",
)
TESTS = {
    "advisor/core/select.py": ("unit/test_select.py",),
    "advisor/core/feasible.py": (
        "unit/test_feasible.py",
        "unit/decide/test_bounds.py",
        "unit/decide/test_node_types.py",
    ),
    "advisor/service/choice.py": (
        "unit/test_choice.py",
        "unit/trials",
        "unit/decide/test_settings.py",
        "unit/decide/test_bounds.py",
        "unit/decide/test_node_types.py",
        "unit/test_transfer_models.py",
    ),
    "advisor/core/step_plan.py": ("unit/test_step_plan.py",),
    "advisor/core/step_commands.py": ("unit/test_step_commands.py",),
    "advisor/service/step_plans.py": ("unit/decide/test_step_plans.py",),
    "advisor/schedulers/slurm/translator.py": _SLURM,
    "advisor/schedulers/slurm/table.py": _SLURM,
    "advisor/schedulers/slurm/sbatch.py": _SLURM,
    "advisor/schedulers/pbs/translator.py": _PBS,
    "advisor/schedulers/pbs/table.py": _PBS,
}
"""File -> the tests that meet it closely, and take seconds together."""


def main() -> int:
    """Run the mutants of the named files; 1 where one survives or an entry fits none."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("files", nargs="*", default=[*TESTS], metavar="FILE")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument(
        "--seconds",
        type=float,
        default=4.0,
        metavar="S",
        help="processor time for a mutant, fastest tests first (4)",
    )
    arguments = parser.parse_args()
    files = [ROOT / name for name in arguments.files]
    plugin = Plugin(files, arguments.jobs, arguments.seconds)
    options = ["--tb=native", "-p", "no:xdist", "--capture=no", "--no-header", "--no-summary"]
    tests = dict.fromkeys(str(ROOT / "tests" / t) for f in arguments.files for t in TESTS[f])
    if pytest.main([*options, *tests], [plugin]) not in (0, 5):
        return 2
    with (ROOT / "tests/mutation/equivalent.yaml").open() as stream:
        equivalent = yaml.safe_load(stream) or {}
    entries = {
        (file, function, change)
        for file, functions in equivalent.items()
        if file in arguments.files
        for function, changes in functions.items()
        for change in changes
    }
    left, fitting = 0, set[tuple[str, str, str]]()
    for path, mutant, reaching in sorted(plugin.survivors, key=lambda s: (s[0], s[1].line)):
        name = path.relative_to(ROOT).as_posix()
        before = mutant.change.partition(" -> ")[0]
        keys = {(name, mutant.function, change) for change in (mutant.change, before)}
        if keys & entries:
            fitting |= keys & entries
            continue
        left += 1
        print(f"{name}:{mutant.line} {mutant.function} [{reaching} tests]: {mutant.change}")
    for path, number in plugin.counts.items():
        survivors = sum(p == path for p, _, _ in plugin.survivors)
        print(
            f"{path.relative_to(ROOT)}: {number} mutants, {number - survivors} killed, "
            f"{survivors} survive"
        )
    for file, function, change in sorted(entries - fitting):
        print(f"equivalent.yaml: no surviving mutant is {file} {function}: {change}")
    return int(bool(left or entries - fitting))


if __name__ == "__main__":
    sys.exit(main())
