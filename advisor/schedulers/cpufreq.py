"""Frequency caps of this machine through Linux' cpufreq files, put back afterwards."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from advisor.drafts import write_whole
from advisor.errors import SchedulerError

STEP_KHZ = 100_000
"""Step between frequencies where the driver lists none: x86's P-states are 100 MHz apart."""
MAX_STEPS = 16
"""Frequencies that are offered of such a range, at most."""


class Cpufreq:
    """The caps (``scaling_max_freq``) of all CPUs. ``root`` poses another /sys."""

    def __init__(self, root: Path = Path("/sys")) -> None:
        self._cpus = root / "devices" / "system" / "cpu"

    def _folders(self) -> list[Path]:
        return sorted(self._cpus.glob("cpu[0-9]*/cpufreq"))

    def controllable(self) -> str | None:
        """Return why caps cannot be set by this user here, or None."""
        folders = self._folders()
        if not folders:
            return "this machine has no cpufreq in /sys"
        if not all(os.access(f / "scaling_max_freq", os.W_OK) for f in folders):
            return f"{folders[0]}/scaling_max_freq may not be written by this user"
        return None

    def steps(self) -> tuple[int, ...]:
        """Return the caps that can be set, kHz ascending; empty when none can.

        Drivers without a table (intel_pstate, amd-pstate) take any value in a range: steps of
        100 MHz, or fewer so that there are at most 16.
        """
        if self.controllable():
            return ()
        folder = self._folders()[0]
        try:
            text = (folder / "scaling_available_frequencies").read_text()
            table = sorted({int(word) for word in text.split()})
        except (OSError, ValueError):
            table = []
        if table:
            return tuple(table)
        try:
            low = int((folder / "cpuinfo_min_freq").read_text())
            high = int((folder / "cpuinfo_max_freq").read_text())
        except (OSError, ValueError):
            return ()
        step = STEP_KHZ * max(1, -(-(high - low) // (STEP_KHZ * (MAX_STEPS - 1))))
        return tuple(sorted({high, *range(high, low - 1, -step)}))

    @contextmanager
    def capped(self, freq_khz: int, journal: Path) -> Iterator[None]:
        """Cap every CPU for a while; 0 caps nothing.

        The former caps are written to ``journal`` first, so that :meth:`restore` mends what a
        killed process left behind. Raises SchedulerError when a cap is not taken.
        """
        if not freq_khz:
            yield
            return
        former_caps = {}
        for folder in self._folders():
            former_caps[str(folder)] = (folder / "scaling_max_freq").read_text().strip()
        write_whole(journal, json.dumps(former_caps), sync=True)
        try:
            for name in former_caps:
                self._write_cap(Path(name), str(freq_khz))
            yield
        finally:
            self.restore(journal)

    def restore(self, journal: Path) -> None:
        """Put back the caps noted in ``journal``, if there are any."""
        try:
            former_caps = json.loads(journal.read_text())
        except (OSError, ValueError):
            return
        for name, value in former_caps.items():
            self._write_cap(Path(name), str(value))
        journal.unlink(missing_ok=True)

    def _write_cap(self, folder: Path, value: str) -> None:
        try:
            (folder / "scaling_max_freq").write_text(f"{value}\n")
        except OSError as error:
            raise SchedulerError(f"{folder}/scaling_max_freq: {error.strerror}") from error
