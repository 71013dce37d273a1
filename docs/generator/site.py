"""What mkdocs.yml leaves open: where the pages lie together, and their order.

The pages link to each other, and to files beside ``docs/``, as the checkout has them. So mkdocs
reads a folder that has the same names in the same places.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from pymdownx.slugs import slugify

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "build/pages"
NAMED = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs", "config", "examples")
"""What pages are in and what they link to."""
WORKER = '<script src="https://unpkg.com/iframe-worker/shim"></script>'
"""What the theme would fetch from elsewhere to search in a site that is opened from a folder."""
_MADE = re.compile(r"\A<!--.*?-->\n", re.DOTALL)
_BLOCK = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_INNER = re.compile(r"^  (?=- )", re.MULTILINE)
_GROUP = re.compile(r"^((?:To|For) [^:]*):$", re.MULTILINE)


def on_config(config: Any) -> Any:
    """Give mkdocs its folder and the order of the pages."""
    shutil.rmtree(PAGES, ignore_errors=True)
    PAGES.mkdir(parents=True)
    for name in NAMED:
        (PAGES / name).symlink_to(ROOT / name)
    config["docs_dir"] = str(PAGES)
    # GitHub's anchors, which the pages link to.
    config["mdx_configs"]["toc"]["slugify"] = slugify(case="lower")
    config["nav"] = order((ROOT / "README.md").read_text(encoding="utf-8"))
    return config


def order(readme: str) -> list[Any]:
    """Return mkdocs' nav: the README, then the pages that its list names, group by group."""
    listed = readme.partition("\n## Documents\n")[2]
    _, *parts = _GROUP.split(listed)
    groups = zip(parts[::2], parts[1::2], strict=True)
    return [
        "README.md",
        *({name: re.findall(r"\]\(([\w/]+\.md)\)", text)} for name, text in groups),
    ]


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page that begins with its title, inner lists as far in as the reader asks for."""
    parts = _BLOCK.split(_MADE.sub("", markdown))
    parts[::2] = [_INNER.sub("    ", text) for text in parts[::2]]
    return "".join(parts)


def on_post_page(output: str, **_: Any) -> str:
    """Return a page that asks nobody else: our own worker in place of the theme's."""
    ours = Path(__file__).with_name("worker.js").read_text(encoding="utf-8")
    return output.replace(WORKER, f"<script>\n{ours}</script>")


on_post_template = on_post_page
