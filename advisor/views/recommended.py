"""What pictures of options name: what the policy recommends there, and its bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from advisor.core.configuration import Configuration
from advisor.core.option import row_of
from advisor.core.policy import Policy
from advisor.core.select import select
from advisor.plotting.named import NamedOptions
from advisor.service.snapshot import Snapshot
from advisor.store.reader import Reader
from advisor.views.options import View
from advisor.views.preview import NOBODY, AskingJob, preview, site_for_preview


def named_options(reader: Reader, views: Sequence[View], user: str) -> list[NamedOptions]:
    """Return the names of each view's options, as they hold for this user's jobs."""
    snapshot = site_for_preview(reader)
    swept = [v.model for v in views if not v.model.of_sizes]
    snapshot.take(swept)
    return [_named(snapshot, view, user) for view in views]


def _named(snapshot: Snapshot, view: View, user: str) -> NamedOptions:
    choice, policy = _choice(snapshot, view, user)
    recommended = next((o for o in view.options if o.configuration == choice), None)
    return NamedOptions.among(view.options, view.baseline, recommended, policy.max_slowdown)


def _choice(snapshot: Snapshot, view: View, user: str) -> tuple[Configuration | None, Policy]:
    """Return what jobs like the baseline get, by the daemon's own decision where there is one.

    Where nobody knows what job to decide (of a node type that is not in the inventory, of a size
    that was not swept, with GPUs) it is what the policy would choose of these options.
    """
    m, base = view.model, view.baseline
    if not (m.of_sizes or m.further_axes):
        person = replace(NOBODY, name=user)
        decision = preview(
            snapshot, AskingJob(m.application, m.workload, base.configuration, person)
        )
        if decision is not None:
            chosen = decision.chosen
            return None if chosen is None else chosen.configuration, decision.policy
    policy = snapshot.policy.base
    candidates = [(m.node_type, row_of(o)) for o in view.options if o is not base]
    selected = select(candidates, row_of(base), policy).chosen
    return None if selected is None else selected.configuration, policy
