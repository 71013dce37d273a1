"""``advisor policy``: check, apply, compare, show and roll back the site's policy."""

from __future__ import annotations

import argparse

from advisor.cli import config_verbs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of ``advisor policy``."""
    config_verbs.add_arguments(parser, "policy")


def run(args: argparse.Namespace) -> int:
    """Run one action."""
    return config_verbs.run(args, "policy")
