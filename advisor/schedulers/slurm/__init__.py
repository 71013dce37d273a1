"""Slurm: everything the advisor knows of it.

Whether it is here can be told without loading the rest.
"""

from __future__ import annotations

import shutil

RANK = 1
"""Its place among those that are asked, the least first."""


def installed() -> bool:
    """Tell whether Slurm's commands are here."""
    return shutil.which("scontrol") is not None
