"""``advisor store fetch``: bring the published copy onto this host."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from advisor.cli.arguments import span_argument
from advisor.cli.output import print_json
from advisor.core.codec import JsonForm


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor store fetch`` takes."""
    parser.description = (
        "Bring a published copy from a shared file system to this host's disk, where its daemon "
        "reads it (advisor serve --read-only --db FILE). A copy is fetched once for each number it "
        "is announced by, checked, and put in place in one step; else only its age is renewed. "
        "Run it from a timer."
    )
    parser.add_argument("copy", metavar="COPY", type=Path, help="what advisor store publish wrote")
    parser.add_argument("file", metavar="FILE", type=Path, help="where it is kept on this host")
    parser.add_argument(
        "--deadline",
        type=span_argument,
        default="60s",
        metavar="TIME",
        help="give up after so long; a file system may hang (default: 60s)",
    )


@dataclass(frozen=True, slots=True)
class FetchAnswer(JsonForm):
    """The copy that this host has now."""

    copy: str
    path: str
    number: Annotated[int, "counts the copies that differ"]
    bytes: int
    sha256: str
    published_at: str
    fetched: Annotated[bool, "false: this copy was here already"]


def run(args: argparse.Namespace) -> int:
    """Fetch."""
    from advisor.core.units import format_duration
    from advisor.errors import UsageError
    from advisor.loop import clock
    from advisor.store.fetch import fetch_in_child

    if not 0 < args.deadline <= 3600:
        raise UsageError("--deadline takes more than 0 s and at most 1 h")
    copy, file = args.copy.absolute(), args.file.absolute()
    done = fetch_in_child(copy, file, args.deadline)
    a = done.announced
    if args.json:
        facts = a.number, a.bytes, a.sha256, a.published_at
        print_json("fetch", FetchAnswer(str(copy), str(file), *facts, done.fetched))
        return 0
    age_s = max(0.0, clock.now().timestamp() - a.published_s)
    news = "" if done.fetched else ", the same as before"
    print(
        f"{file}: copy {a.number}, {a.bytes / 1e6:.1f} MB, "
        f"published {format_duration(age_s)} ago{news}"
    )
    return 0
