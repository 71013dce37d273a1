"""The command palette: places and workloads by name."""

from __future__ import annotations

from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider

from advisor.errors import AdvisorError
from advisor.store.listing import ListPage, page_of_workloads
from advisor.store.records import Workload
from advisor_tui.background import in_thread
from advisor_tui.places import PLACES
from advisor_tui.shell import AppShell

_MOST = 12
"""Workloads offered at once."""


class PlacesProvider(Provider):
    """Finds the places, and any workload by the words of its name."""

    @property
    def _advisor(self) -> AppShell:
        assert isinstance(self.app, AppShell)
        return self.app

    async def discover(self) -> Hits:
        """Offer the places before anything is typed."""
        for place in PLACES:
            go = partial(self._advisor.action_go, place.name)
            yield DiscoveryHit(place.title, go, help=place.about)

    async def search(self, query: str) -> Hits:
        """Offer places and workloads that match."""
        matcher, advisor = self.matcher(query), self._advisor
        for place in PLACES:
            score = matcher.match(place.title)
            if score > 0:
                go = partial(advisor.action_go, place.name)
                yield Hit(score, matcher.highlight(place.title), go, help=place.about)

        def work() -> list[Workload]:
            with advisor.session.reader() as reader:
                return page_of_workloads(reader, ListPage(query, limit=_MOST))

        try:
            workloads = await in_thread(work)
        except AdvisorError:
            return
        from advisor_tui.tradeoff import show_tradeoff

        for number, w in enumerate(workloads):
            show = partial(show_tradeoff, advisor, w.application, w.name)
            about = f"its options; {w.observations} runs measured"
            yield Hit(0.5 - number / 100, f"{w.application} / {w.name}", show, help=about)
