"""``advisor metrics``: how the daemon and its promises are doing, as OpenMetrics text."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from advisor import paths
from advisor.cli.arguments import add_cluster
from advisor.cli.output import print_json
from advisor.core.codec import JsonForm
from advisor.database import is_readable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor metrics`` takes."""
    parser.description = (
        "Print the daemon's counters and the outcomes of jobs as OpenMetrics text: "
        "for node_exporter's textfile folder (--output FILE.prom), or any Prometheus."
    )
    parser.add_argument(
        "--socket", metavar="FILE", help="ask the daemon at this socket (or ADVISOR_SOCKET)"
    )
    parser.add_argument(
        "--output", metavar="FILE", type=Path, help="write into this file in one step"
    )
    add_cluster(parser, "only the outcomes of this cluster's jobs (default: of each)")


@dataclass(frozen=True, slots=True)
class MetricsAnswer(JsonForm):
    """OpenMetrics text."""

    metrics: str


def run(args: argparse.Namespace) -> int:
    """Ask, add what the store knows, and print."""
    from advisor.core.openmetrics import END, Text
    from advisor.core.protocol import call
    from advisor.drafts import write_whole
    from advisor.errors import AdvisorError, StoreError
    from advisor.loop.outcome_metrics import outcome_metrics

    try:
        parts = [str(call(paths.socket_path(args.socket), {"op": "metrics"}).get("metrics"))]
        up = 1
    except AdvisorError:
        parts, up = [], 0
    state = Text()
    state.family("up", "gauge", "1 while the daemon answers", [({}, up)])
    parts.append(state.text())
    try:
        store: Path | None = paths.store_path(args.db, socket=args.socket)
    except StoreError:  # its file system hangs, as the daemon's own lines say
        store = None
    if store is not None and is_readable(store):
        parts.append(outcome_metrics(store, args.cluster or ""))
    text = "".join(part.removesuffix(END) for part in parts) + END
    if args.output is not None:
        try:
            write_whole(args.output, text, 0o644, exactly=True)
        except OSError as error:
            raise AdvisorError(f"{args.output} cannot be written: {error.strerror}") from None
    if args.json:
        print_json("metrics", MetricsAnswer(text))
    elif args.output is None:
        print(text, end="")
    return 0
