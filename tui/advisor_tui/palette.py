"""The command palette: places and workloads by name."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from textual.command import DiscoveryHit, Hit, Hits, Provider

from advisor.errors import AdvisorError
from advisor.store.listing import page_of_workloads
from advisor.store.records import Workload
from advisor_tui.background import in_thread

if TYPE_CHECKING:
    from advisor_tui.app import AdvisorApp

_PLACES = (
    ("Applications", "what is known of each application", "applications"),
    ("Jobs", "the latest decisions and how they came out", "jobs"),
    ("Training", "sweeps: start, watch, stop, resume", "training"),
    ("Policy", "what the site's policy says, and what another would do", "policy"),
)
_MOST = 12


class PlacesProvider(Provider):
    """Finds the four places, and any workload by the words of its name."""

    @property
    def _advisor(self) -> AdvisorApp:
        from advisor_tui.app import AdvisorApp

        assert isinstance(self.app, AdvisorApp)
        return self.app

    async def discover(self) -> Hits:
        """Offer the places before anything is typed."""
        for title, told, place in _PLACES:
            yield DiscoveryHit(title, partial(self._advisor.action_go, place), help=told)

    async def search(self, query: str) -> Hits:
        """Offer places and workloads that match."""
        matcher = self.matcher(query)
        for title, told, place in _PLACES:
            score = matcher.match(title)
            if score > 0:
                go = partial(self._advisor.action_go, place)
                yield Hit(score, matcher.highlight(title), go, help=told)
        desk = self._advisor.desk

        def work() -> list[Workload]:
            with desk.reader() as reader:
                return page_of_workloads(reader, search=query, limit=_MOST)

        try:
            found = await in_thread(work)
        except AdvisorError:
            return
        for number, w in enumerate(found):
            show = partial(self._advisor.show_tradeoff, w.application, w.name)
            told = f"its options; {w.observations} runs measured"
            yield Hit(0.5 - number / 100, f"{w.application} / {w.name}", show, help=told)
