"""A workload's options, read while nobody types: whoever opens them waits for no store."""

from __future__ import annotations

from contextlib import suppress

from advisor.core.configuration import Configuration
from advisor.errors import AdvisorError
from advisor.views import tradeoff as view
from advisor.views.tradeoff import Boards
from advisor_tui.background import in_thread
from advisor_tui.session import Session


class ReadAhead:
    """The options that were read last, and all that they follow from."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._last: tuple[object, Boards | None] = (None, None)
        self._reading = False

    @property
    def is_reading(self) -> bool:
        """Whether options are being read: others have to wait."""
        return self._reading

    def known(
        self, application: str, workload: str, requested_baseline: Configuration | None
    ) -> Boards | None:
        """Return a workload's options if they were read and nothing was written since."""
        key = application, workload, requested_baseline, self._session.stamp()
        read, boards = self._last  # written in a thread, at once
        return boards if read == key else None

    def read(
        self, application: str, workload: str, requested_baseline: Configuration | None
    ) -> Boards:
        """Read a workload's options, in a thread. Raises AdvisorError where that cannot be."""
        key = application, workload, requested_baseline, self._session.stamp()
        with self._session.reader() as reader:
            boards = view.load(
                reader, application, workload, self._session.person(), requested_baseline
            )
        self._last = key, boards
        return boards

    async def begin(self, application: str, workload: str) -> Boards | None:
        """Read them for whoever may open them; None where that cannot be, or others are read.

        So a store that does not answer is asked once.
        """
        cached_boards = self.known(application, workload, None)
        if cached_boards is not None or self._reading:
            return cached_boards
        self._reading = True
        try:
            with suppress(AdvisorError):  # whoever opens them learns of it
                return await in_thread(lambda: self.read(application, workload, None))
        finally:
            self._reading = False
        return None
