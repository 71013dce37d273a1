"""What the pages show is what the commands print; ``ADVISOR_RENEW=1`` writes what is printed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.contract.docs_text import PAGES
from tests.transcripts import ELSEWHERE, NOT_RUN, Step, differences, renewed, run, steps

pytestmark = pytest.mark.slow
RUN = [page for page in PAGES if page.name not in ELSEWHERE and steps(page.read_text("utf-8"))]


@pytest.mark.parametrize("page", RUN, ids=lambda path: path.name)
def test_the_page_shows_what_its_commands_print(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    real = run(steps(text), tmp_path, {"PATH": programs, "HOME": str(tmp_path), "LANG": "C.UTF-8"})
    if os.environ.get("ADVISOR_RENEW"):
        page.write_text(renewed(text, real), encoding="utf-8")
    for shown, printed in zip(steps(page.read_text(encoding="utf-8")), real, strict=True):
        assert differences(shown, printed) == ""


def test_the_lists_name_what_the_pages_have() -> None:
    assert RUN
    pages = {page.name: steps(page.read_text(encoding="utf-8")) for page in PAGES}
    assert all(pages[name] for name in ELSEWHERE)
    assert NOT_RUN.keys() <= {step.command for name in ELSEWHERE for step in pages[name]}


def test_differences_are_seen() -> None:
    page = Step("x", ("time 3.52 s,  625 J", "...", "done"))
    assert differences(page, Step("x", ("time 3.5 s, 626 J", "a", "b", "done"))) == ""
    assert differences(page, Step("x", ("time 4.5 s, 626 J", "done"))) != ""
    assert differences(page, Step("x", ("time 4.5 s, 626 J", "done")), numbers=False) == ""
    assert differences(page, Step("x", ("time 3.5 s, 626 J", "failed"))) != ""
    assert differences(page, Step("x", ("energy 3.5 s, 626 J", "done"))) != ""
    assert differences(Step("x", ()), Step("x", ("Traceback",))) != ""
