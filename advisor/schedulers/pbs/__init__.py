"""PBS: everything the advisor knows of it.

Whether it is here can be told without loading the rest.
"""

from __future__ import annotations

RANK = 2
"""Its place among those that are asked, the least first."""


def installed() -> bool:
    """Tell whether PBS's commands are here."""
    from advisor.errors import SchedulerError
    from advisor.schedulers.pbs.control import program

    try:
        program("pbsnodes")
    except SchedulerError:
        return False
    return True
