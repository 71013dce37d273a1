"""How much there is to read: lines and modules of each room, and what makes reading slow.

``python benchmarks/size.py [--tree DIR] [--install] [--json]`` (``make size``) counts a checkout,
the one it stands in or another, so that two can be compared. ``--install`` also installs the
wheels of a plain user's advisor and of the laboratory into fresh environments and weighs them.

What is counted:

- **lines, modules**: Python files of ``advisor``, ``tui``, ``hooks``, ``db`` (the spine) and
  ``lab`` (the laboratory); lines as an editor counts them. Other languages and tests apart.
- **fmt: skip**: lines that a person formatted by hand, mostly to have fewer.
- **small, one importer**: modules of less than 80 lines which one other module alone imports:
  splinters, unless they stand for an idea.
- **wide functions**: more than six parameters (``self``, ``cls`` aside).
- **codec lines**: functions that turn one of our types to or from plain data by hand (names as
  ``to_json``, ``as_dict``, ``parse``, or the parameter or result ``Mapping[str, object]``).
- **vague names**: functions that bind a local or a parameter which is a pronoun, a preposition or
  a participle and says neither what it holds nor its unit.
- **comments**: share of lines that are a comment and nothing else, docstrings aside.
- **explained**: share of lines with a comment, at their end too, or of the text below a constant or
  a field that says what it is for.
"""

from __future__ import annotations

import argparse
import ast
import io
import itertools
import json
import re
import statistics
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

SPINE = ("advisor", "tui", "hooks", "db")
LABORATORY = ("lab",)
PARAMETERS = 6
"""Parameters a reader holds in mind at once; more are counted as a wide function."""
SPLINTER_LINES = 80
"""Lines below which a module with one importer is probably a part of that importer."""
VAGUE = frozenset(
    (
        "at",
        "by",
        "known",
        "own",
        "wanted",
        "found",
        "kept",
        "said",
        "told",
        "seen",
        "given",
        "taken",
        "left",
        "held",
        "asked",
        "done",
        "made",
        "one",
        "other",
        "others",
        "it",
        "this",
        "that",
        "these",
        "those",
        "them",
        "mine",
        "theirs",
        "whole",
        "same",
        "such",
        "each",
        "either",
        "before",
        "after",
        "beside",
        "behind",
        "there",
        "here",
        "then",
        "now",
        "again",
        "still",
        "of",
        "on",
        "to",
        "into",
        "within",
        "without",
        "started",
        "stopped",
        "ended",
        "written",
        "gone",
        "lost",
        "missing",
        "needed",
        "meant",
    )
)
"""Words that say neither what a value is nor its unit."""
CODEC = re.compile(
    r"^_?(to|from|as|of|pack|unpack|parse|encode|decode|load|dump|read)_"
    r"(json|dict|row|rows|line|text|record|mapping|plain|data)$|^_?(pack|unpack|encode|decode)(_\w+)?$"
)


def python_files(tree: Path, folders: tuple[str, ...]) -> list[Path]:
    """All Python files below ``folders`` of ``tree``, links and caches aside, sorted."""
    return sorted(
        path
        for folder in folders
        for path in (tree / folder).rglob("*.py")
        if "tests" not in path.relative_to(tree).parts and not path.is_symlink()
    )


def explaining_lines(text: str, module: ast.Module) -> int:
    """Return how many lines have a comment, or say below a constant or a field what it is for."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {token.start[0] for token in tokens if token.type == tokenize.COMMENT}
    for node in ast.walk(module):
        if isinstance(node, ast.Module | ast.ClassDef):
            for before, after in itertools.pairwise(node.body):
                if isinstance(before, ast.Assign | ast.AnnAssign) and is_text(after):
                    lines |= {*range(after.lineno, (after.end_lineno or after.lineno) + 1)}
    return len(lines)


def is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def functions(module: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    declared = function.args
    names = [a.arg for a in (*declared.posonlyargs, *declared.args, *declared.kwonlyargs)]
    return [name for name in names if name not in {"self", "cls"}]


def bound_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Parameters and locals of a function, those of functions within it included."""
    stores = {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return stores | set(parameters(function))


def is_codec(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    plain = "Mapping[str, object]", "dict[str, object]", "Mapping[str, Any]", "dict[str, Any]"
    annotations = [function.returns, *(a.annotation for a in function.args.args)]
    return bool(CODEC.match(function.name)) or any(
        a is not None and ast.unparse(a).strip("'\"") in plain for a in annotations
    )


def dotted(path: Path, tree: Path) -> str:
    parts = path.relative_to(tree).with_suffix("").parts
    if parts[0] in LABORATORY:
        parts = parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def importers(modules: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Of each module, the modules that import it or a name of it."""
    users: dict[str, set[str]] = {name: set() for name in modules}
    for user, module in modules.items():
        for node in ast.walk(module):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                targets = [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
            elif isinstance(node, ast.Import):
                targets = [a.name for a in node.names]
            else:
                continue
            for target in targets:
                if target in users and target != user:
                    users[target].add(user)
    return users


def count(tree: Path, folders: tuple[str, ...]) -> dict[str, object]:
    """Return the figures of one part of ``tree``; zeros where it does not exist."""
    figures: Counter[str] = Counter()
    lengths: dict[str, int] = {}
    parsed: dict[str, ast.Module] = {}
    for path in python_files(tree, folders):
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        module = ast.parse(text)
        parsed[dotted(path, tree)] = module
        lengths[str(path.relative_to(tree))] = len(lines)
        figures["comment_lines"] += sum(line.lstrip().startswith("#") for line in lines)
        figures["explaining_lines"] += explaining_lines(text, module)
        figures["fmt_skip"] += text.count("# fmt: skip")
        figures["mapping_str_object"] += text.count("Mapping[str, object]")
        for function in functions(module):
            figures["functions"] += 1
            figures["wide_functions"] += len(parameters(function)) > PARAMETERS
            figures["vague_functions"] += not bound_names(function).isdisjoint(VAGUE)
            if is_codec(function):
                figures["codecs"] += 1
                figures["codec_lines"] += (function.end_lineno or 0) - function.lineno + 1
    users = importers(parsed)
    by_name = {dotted(tree / name, tree): length for name, length in lengths.items()}
    largest = max(lengths, key=lengths.__getitem__, default="")
    total = sum(lengths.values())
    return {
        "lines": total,
        "modules": len(lengths),
        "median_lines": round(statistics.median(lengths.values())) if lengths else 0,
        "largest": f"{largest} {lengths[largest]}" if largest else "",
        "small_one_importer": sum(
            by_name[name] < SPLINTER_LINES and len(of) == 1 for name, of in users.items()
        ),
        "functions": figures["functions"],
        "wide_functions": figures["wide_functions"],
        "mapping_str_object": figures["mapping_str_object"],
        "codecs": figures["codecs"],
        "codec_lines": figures["codec_lines"],
        "fmt_skip": figures["fmt_skip"],
        "vague_pct": round(100 * figures["vague_functions"] / max(figures["functions"], 1), 1),
        "comment_pct": round(100 * figures["comment_lines"] / max(total, 1), 1),
        "explained_pct": round(100 * figures["explaining_lines"] / max(total, 1), 1),
    }


def rooms(tree: Path) -> dict[str, int]:
    """Lines of Python of each folder of ``advisor`` and ``lab``, and of the other top folders."""
    lines: Counter[str] = Counter()
    for path in python_files(tree, SPINE + LABORATORY):
        parts = path.relative_to(tree).parts
        deep = parts[0] in {"advisor", *LABORATORY} and len(parts) > 2
        lines["/".join(parts[:2]) if deep else parts[0]] += len(path.read_text().splitlines())
    return dict(sorted(lines.items()))


def written_by_hand(tree: Path) -> set[str]:
    """Names of the schemas that people write; the generator has them, or once had the others."""
    generator_file = tree / "docs" / "generator" / "schemas.py"
    if not generator_file.exists():  # an old checkout: people wrote all of them
        return {p.stem for p in (tree / "config").rglob("*.json")}
    generator = ast.parse(generator_file.read_text())
    for node in generator.body:
        if isinstance(node, ast.Assign) and isinstance(name := node.targets[0], ast.Name):
            if name.id == "BY_HAND":
                return set(ast.literal_eval(node.value))
            if name.id == "VERBS":
                schemas = {p.stem for p in (tree / "config" / "schemas").glob("*.json")}
                return schemas.difference(ast.literal_eval(node.value))
    return set()


def whole_tree(tree: Path) -> dict[str, int]:
    """Figures of the checkout as a whole: verbs, schemas, other languages, tests."""
    suffixes = {".lua", ".c", ".h", ".sql"}
    other = (
        path
        for folder in SPINE + LABORATORY
        for path in (tree / folder).rglob("*")
        if path.suffix in suffixes and path.is_file() and not path.is_symlink()
    )
    schemas = sorted((tree / "config").rglob("*.schema.json")) + sorted(
        (tree / "config" / "schemas").glob("*.json")
    )
    tests = [p for p in tree.rglob("*.py") if "tests" in p.relative_to(tree).parts[:3]]
    tests = [
        p for p in tests if not any(part.startswith(".") for part in p.relative_to(tree).parts)
    ]
    help_page = subprocess.run(
        [sys.executable, "-m", "advisor", "--help"], cwd=tree, capture_output=True, text=True
    )
    verbs = re.findall(r"^  ([a-z][a-z-]*)  +", help_page.stdout, re.MULTILINE)
    return {
        "verbs": len(set(verbs)),
        "schema_lines": sum(len(p.read_text().splitlines()) for p in schemas),
        "schema_lines_by_hand": sum(
            len(p.read_text().splitlines()) for p in schemas if p.stem in written_by_hand(tree)
        ),
        "other_languages_lines": sum(len(p.read_text().splitlines()) for p in other),
        "test_lines": sum(len(p.read_text().splitlines()) for p in tests),
    }


def installed_mb(tree: Path, *packages: Path) -> int:
    """MiB of a fresh environment's site-packages with ``packages`` (folders) installed, by du."""
    with tempfile.TemporaryDirectory(prefix="advisor-size-") as folder:
        environment = Path(folder, "venv")
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        python = environment / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "-qq", *packages], check=True, cwd=tree)
        (site,) = environment.glob("lib/python*/site-packages")
        done = subprocess.run(["du", "-sm", site], check=True, capture_output=True, text=True)
        return int(done.stdout.split()[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tree", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--install", action="store_true", help="weigh fresh installations, too")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    tree = asked.tree.resolve()
    if not (tree / "advisor").is_dir():
        parser.error(f"{tree}: no checkout of the advisor (it has no folder advisor)")
    spine, laboratory = count(tree, SPINE), count(tree, LABORATORY)
    result: dict[str, object] = {
        "schema": "advisor/size/1",
        "spine": spine,
        "lab": laboratory,
        "tree": whole_tree(tree),
        "rooms": rooms(tree),
    }
    if asked.install:
        result["install_mb"] = {"hpc-advisor": installed_mb(tree, tree)}
        if (tree / "lab" / "pyproject.toml").exists():
            both = installed_mb(tree, tree, tree / "lab")
            result["install_mb"] = {**result["install_mb"], "with lab": both}  # type: ignore[dict-item]
    if asked.json:
        print(json.dumps(result))
        return 0
    print(f"{'':24} {'spine':>12} {'lab':>12}")
    for key, figure in spine.items():
        if key != "largest":
            print(f"{key.replace('_', ' '):24} {figure!s:>12} {laboratory[key]!s:>12}")
    print(
        f"largest: {spine['largest']}" + f"; {laboratory['largest']}" * bool(laboratory["largest"])
    )
    for part in ("tree", "rooms", "install_mb"):
        for name, figure in dict(result.get(part, {})).items():  # type: ignore[call-overload]
            print(f"{name.replace('_', ' '):24} {figure:>12}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
