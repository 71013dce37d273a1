"""Whose runs a model may rest on: one fit per group of jobs that may see the same runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.core.observation import Observation, Scope


@dataclass(frozen=True, slots=True)
class ScopedRuns:
    """The runs of one model, and whose jobs it advises.

    ``owner`` is empty for scope ``all``, the account for ``account``, the user for ``own``.
    """

    scope: Scope
    owner: str
    observations: tuple[Observation, ...]


def groups(observations: Sequence[Observation]) -> list[ScopedRuns]:
    """Return the groups of one workload's runs on one node type, widest scope first.

    Each group's runs stay in the order given.

    Everybody's model rests on runs of scope ``all`` only; an account's also on its own of scope
    ``account``; a user's also on what only they may use, and on the account's when all of these
    were made for one account. So nobody's private run reaches another's jobs.
    """
    place = {id(o): i for i, o in enumerate(observations)}

    def in_order(*runs: Observation) -> tuple[Observation, ...]:
        return tuple(sorted(runs, key=lambda o: place[id(o)]))

    everybody = [o for o in observations if o.scope == "all"]
    found = [ScopedRuns("all", "", tuple(everybody))] if everybody else []
    accounts: dict[str, list[Observation]] = {}
    own: dict[str, list[Observation]] = {}
    for o in observations:
        if o.scope == "account" and o.account:
            accounts.setdefault(o.account, []).append(o)
        elif o.scope != "all":
            own.setdefault(o.contributor, []).append(o)
    for account, runs in sorted(accounts.items()):
        found.append(ScopedRuns("account", account, in_order(*everybody, *runs)))
    for user, runs in sorted(own.items()):
        of_account = {o.account for o in runs}
        shared = accounts.get(of_account.pop(), []) if len(of_account) == 1 else []
        found.append(ScopedRuns("own", user, in_order(*everybody, *shared, *runs)))
    return found
