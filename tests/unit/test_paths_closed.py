"""A site's store that only its owner may open: found by its daemon, never replaced unasked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from advisor import paths
from advisor.errors import StoreError


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plain user of a site whose daemon answers from a store that is closed; their home."""
    for name in [n for n in os.environ if n.startswith(("ADVISOR", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(paths, "SYSTEM", tmp_path / "system")
    monkeypatch.setattr(paths, "_is_root", lambda: False)
    monkeypatch.setattr(paths, "_daemons_store", lambda _: tmp_path / "closed" / "advisor.db")
    return tmp_path


def test_who_needs_the_whole_store_hears_whose_it_is(user: Path) -> None:
    closed = user / "closed" / "advisor.db"
    assert paths.closed_store() == closed
    with pytest.raises(StoreError, match="only its owner") as caught:
        paths.whole_store(hint="wait")
    assert str(closed) in caught.value.message
    assert "wait" in caught.value.hint and "--db" in caught.value.hint


def test_a_store_that_is_named_or_ones_own_is_taken(
    user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert paths.whole_store("mine.db") == Path("mine.db")
    own = user / ".local/share/advisor/advisor.db"
    own.parent.mkdir(parents=True)
    own.touch()
    assert paths.whole_store() == own
    own.unlink()
    monkeypatch.setattr(paths, "_daemons_store", lambda _: None)
    assert paths.whole_store() == own  # there is no site: it is made


def test_root_is_never_refused(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "_is_root", lambda: True)
    assert paths.whole_store() == user / "system/var/lib/advisor/advisor.db"
