"""Try shapes and print the counts: fixed ones, drawn ones, or drawn ones for a time.

python -m differential              # fixed and drawn, as the tests do
python -m differential --soak 60    # draws for 60 minutes, a hundred shapes at a time, and
                                    # prints the shapes that differ
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from .cluster import cluster
from .compare import Verdict, compare
from .draw import draw
from .pairs import Trial
from .shapes import Shape, fixed

SEED = 12
DRAWN = 500
REPEATS = 6
"""How often a shape that differed is tried again: what the advisor changes differs again, what
only happens at the moment (a record that accounting has not written yet) does not."""


def show(verdict: Verdict) -> str:
    """Return what a person needs to reproduce a difference."""
    shape = verdict.pair.shape
    lines = [f"{shape.name}"]
    lines.append(f"    {shape.via} {' '.join(shape.options)} [{shape.script.name}] {shape.state}")
    if shape.script.name == "composed":
        lines.append("    " + shape.script.text.replace("\n", "\n    "))
    if shape.environment:
        lines.append(f"    {dict(shape.environment)}")
    return "\n".join([*lines, *(f"    ! {text}" for text in verdict.differences)])


def main(argv: Sequence[str]) -> int:
    """Run; 0 when nothing differs."""
    parser = argparse.ArgumentParser(prog="differential", description=__doc__)
    parser.add_argument(
        "--drawn", type=int, default=DRAWN, help=f"how many shapes to draw ({DRAWN})"
    )
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--only", default="", help="only fixed shapes whose name has this text")
    parser.add_argument(
        "--soak", type=float, default=0.0, metavar="MINUTES", help="draw for so long"
    )
    parser.add_argument(
        "--blank", action="store_true", help="submit both without the advisor: nothing may differ"
    )
    parser.add_argument("--node-cap", action="store_true", help="nodes cap whole jobs")
    parser.add_argument("--verbose", action="store_true", help="say what was changed in each shape")
    args = parser.parse_args(argv)
    with cluster(node_cap=args.node_cap) as made:
        trial = Trial(made, blank=args.blank)
        if args.soak:
            return soak(trial, args.soak * 60, args.seed)
        chosen = [s for s in fixed() if args.only in s.name]
        code = tried("fixed", trial, chosen, verbose=args.verbose)
        if args.drawn and not args.only:
            code |= tried("drawn", trial, draw(args.seed, args.drawn), verbose=args.verbose)
    return code


def tried(kind: str, trial: Trial, shapes: Sequence[Shape], *, verbose: bool = False) -> int:
    """Try shapes and print what differs and the counts."""
    start = time.monotonic()
    verdicts = [compare(pair) for pair in trial.run(shapes)]
    again = 0
    for verdict in verdicts:
        if verdict.differences:
            repeats = [compare(pair) for pair in trial.run([verdict.pair.shape] * REPEATS)]
            differing = sum(bool(v.differences) for v in repeats)
            again += differing > 0
            print(f"{show(verdict)}\n    differs again in {differing} of {REPEATS} repeats")
        elif verbose:
            print(f"{verdict.pair.shape.name}: {', '.join(sorted(verdict.changes)) or '-'}")
    differing = sum(bool(v.differences) for v in verdicts)
    advised = sum(v.advised for v in verdicts)
    ran = sum(v.pair.ran for v in verdicts)
    print(
        f"{kind}: {len(verdicts)} shapes, {differing} differing ({again} again), {advised} advised,"
        f" {ran} run to their end, {time.monotonic() - start:.0f} s",
        flush=True,
    )
    return int(differing > 0)


def soak(trial: Trial, seconds: float, seed: int) -> int:
    """Draw and try shapes for a time."""
    end = time.monotonic() + seconds
    code = 0
    while time.monotonic() < end:
        code |= tried(f"drawn with seed {seed}", trial, draw(seed, 100))
        seed += 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
