"""Arguments that every verb has, and actions below a verb (``advisor policy check``)."""

from __future__ import annotations

import argparse
from typing import Any


def add_common(parser: argparse.ArgumentParser, **default: Any) -> None:
    """Add what every verb takes: ``--db``, ``--config-dir`` and ``--json``.

    ``default`` is ``default=argparse.SUPPRESS`` where the parser above already has them.
    """
    parser.add_argument("--db", metavar="FILE", help="the store (or ADVISOR_DB)", **default)
    parser.add_argument(
        "--config-dir", metavar="DIR", **default,
        help="the folder of policy.yaml and site.yaml (or ADVISOR_CONFIG_DIR)",
    )  # fmt: skip
    text = "print one JSON object, for programs"
    parser.add_argument("--json", action="store_true", help=text, **default)


def add_actions(parser: argparse.ArgumentParser) -> Any:
    """Return the object that a verb's actions are added to; ``args.action`` names the one given."""
    return parser.add_subparsers(
        title="actions", dest="action", metavar="ACTION", required=True, prog=parser.prog
    )


def add_action(actions: Any, name: str, summary: str) -> argparse.ArgumentParser:
    """Add one action; what every verb takes may stand before or behind it."""
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=summary, description=f"{summary[0].upper()}{summary[1:]}."
    )
    add_common(parser, default=argparse.SUPPRESS)
    return parser
