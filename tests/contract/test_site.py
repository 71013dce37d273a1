"""``make site``: the documents as a site, built strictly, whole, in order, and alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt

pytestmark = pytest.mark.package
ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
COUNTED = {"h1", "h2", "h3", "li", "ol", "ul", "tr", "td", "pre", "img", "strong", "em"}
"""What a page has the same number of, whoever reads its Markdown."""


class Page(HTMLParser):
    """What a page holds and where it leads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: Counter[str] = Counter()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        if tag in COUNTED:
            self.elements[tag] += 1
        self.anchors |= {value for name in ("id", "name") if (value := said.get(name))}
        self.links += [value] if tag == "a" and (value := said.get("href")) else []
        source = said.get("href") if tag == "link" else said.get("src")
        self.loaded += [source] if source else []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    places = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=places, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def html_of(page: Path, site: Path) -> Path:
    if page.name == "README.md":
        return site / "index.html"
    return site / page.relative_to(ROOT).with_suffix(".html")


def test_every_link_of_the_site_leads_somewhere_and_nothing_is_loaded_from_elsewhere(
    site: Path,
) -> None:
    pages = {path: Page(path.read_text("utf-8")) for path in site.rglob("*.html")}
    assert len(pages) >= len(PAGES)
    for path, page in pages.items():
        for address in page.links + page.loaded:
            if re.match(r"https?:|mailto:", address):
                assert address not in page.loaded, (path, address)
                continue
            # The page for what is missing is shown at any address, so its own start at the root.
            start = site if path.name == "404.html" else path.parent
            file, _, anchor = unquote(address).partition("#")
            target = (start / file.lstrip("/")).resolve() if file else path
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), (path, address)
            if anchor and target in pages and not anchor.startswith("__"):
                assert anchor in pages[target].anchors, (path, address)


def test_the_site_reads_a_page_as_everybody_does(site: Path) -> None:
    """Lists in lists, tables, blocks and titles are those of CommonMark, as forges show them."""
    reader = MarkdownIt("commonmark").enable("table")
    for page in PAGES:
        text = html_of(page, site).read_text("utf-8")
        (article,) = re.findall(r"<article.*?</article>", text, re.DOTALL)
        shown = Page(article).elements
        assert shown == Page(reader.render(page.read_text("utf-8"))).elements, page.name


def test_the_site_has_every_page_in_the_readmes_order_and_finds_it(site: Path) -> None:
    index = (site / "index.html").read_text("utf-8")
    (menu,) = re.findall(r'<nav class="md-nav md-nav--primary.*?</nav>\s*</div>', index, re.DOTALL)
    ours = [link for link in Page(menu).links if link.endswith(".html")]
    listed = (ROOT / "README.md").read_text("utf-8").partition("\n## Documents\n")[2]
    targets = re.findall(r"\]\(([\w/]+)\.md\)", listed)
    assert [link.removesuffix(".html") for link in ours if link != "index.html"] == targets
    assert set(targets) >= {
        str(page.relative_to(ROOT).with_suffix("")) for page in PAGES if page.name != "README.md"
    }
    found = json.loads((site / "search/search_index.json").read_text("utf-8"))["docs"]
    places = {entry["location"].partition("#")[0] for entry in found}
    assert places >= {str(html_of(page, site).relative_to(site)) for page in PAGES[1:]}
