"""The embedded scheduler: this machine, one run at a time, no queue."""

RANK = 9
"""Its place among those that are asked, the least first."""


def installed() -> bool:
    """Tell that it has no commands."""
    return False
