"""``advisor cc``: a compiler that also makes a traced twin of the program."""

from __future__ import annotations

import argparse
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments; all but --help goes to the compiler."""
    parser.usage = "advisor cc [COMPILER] [COMPILER'S ARGUMENTS]"
    parser.epilog = (
        "Compiles as COMPILER (default: cc) would, and makes PROGRAM.traced beside every program "
        "it links, which advisor lab characterise runs to see the memory accesses. Use it in place "
        'of the compiler: make CC="advisor cc" CXX="advisor cc g++" FC="advisor cc gfortran".'
    )
    parser.set_defaults(takes_tail=True)


def run(args: argparse.Namespace) -> int:
    """Run the compiler; its exit code is ours. A twin that cannot be made is one line."""
    from advisor.instruments.twin import compile_twice

    code, warning = compile_twice(args.tail)
    if warning:
        print(f"advisor cc: {warning}", file=sys.stderr)
    return code
