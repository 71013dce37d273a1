"""Write what is generated: ``python -m docs.generator`` the pages, with ``man FOLDER`` the rest."""

from __future__ import annotations

import sys
from pathlib import Path

from docs.generator import man, markdown, reference, schemas

DOCS = Path(__file__).resolve().parents[1]


def pages() -> dict[Path, str]:
    """Return the generated pages of docs/ and the generated schemas, by their file."""
    kinds = {DOCS / "reference" / f"{kind}.md": reference.page(kind) for kind in reference.WHAT}
    return {DOCS / "cli.md": markdown.page(), **kinds, **schemas.files()}


def main(arguments: list[str]) -> int:
    """Write the pages; return the exit code."""
    if len(arguments) == 2 and arguments[0] == "man":
        text_by_path = {Path(arguments[1]) / name: text for name, text in man.pages().items()}
    elif not arguments:
        text_by_path = pages()
    else:
        sys.stderr.write("usage: python -m docs.generator [man FOLDER]\n")
        return 2
    for path, text in text_by_path.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
