"""What EAR's own configuration says: tags, islands, and which nodes are in them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from advisor.core.nodelist import expand
from advisor.errors import InputError


@dataclass(frozen=True, slots=True)
class EarPlace:
    """One line of nodes: their island and tag, and the power (W) that EAR cuts readings off at."""

    island: int
    tag: str
    nodes: frozenset[str]
    max_power_w: float | None = None


@dataclass(frozen=True, slots=True)
class EarConf:
    """ear.conf, as far as classes need it; ``folder`` is the one above ``ear/coeffs``."""

    path: Path
    folder: Path
    tags: tuple[str, ...]
    places: tuple[EarPlace, ...]

    def place_of(self, nodes: Iterable[str]) -> EarPlace | None:
        """Return the line that nodes are in, the first one's; None where they are in none."""
        for node in nodes:
            for place in self.places:
                if node in place.nodes:
                    return place
        return None

    def coefficients(self, place: EarPlace) -> Path:
        """Return the folder of an island's files."""
        return self.folder / "ear" / "coeffs" / f"island{place.island}"


def find_ear_conf() -> Path | None:
    """Return the file in the folder that EAR_ETC names, where there is one."""
    etc = os.environ.get("EAR_ETC")
    path = Path(etc) / "ear" / "ear.conf" if etc else None
    return path if path is not None and path.is_file() else None


def read_ear_conf(path: Path) -> EarConf:
    """Read ear.conf. Raises InputError that names file and line, also for a tag without a line.

    EAR takes keys in any case. Nodes without a tag have the default one.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    tags: dict[str, bool] = {}
    most: dict[str, float] = {}
    islands: list[tuple[int, int, str, str]] = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        pairs = dict(
            (key.lower(), value) for key, value in re.findall(r"(\w+)\s*=\s*(\"[^\"]*\"|\S+)", text)
        )
        first = text.partition("=")[0].strip().lower()
        if first in ("tag", "island") and first not in pairs:
            raise InputError(f"{path}, line {number}: {first} without a value")
        if first == "tag":
            if pairs.get("max_power", "").isdecimal():
                most[pairs["tag"]] = float(pairs["max_power"])
            tags[pairs["tag"]] = pairs.get("default", "").lower() in ("y", "yes")
        elif first == "island":
            place = f"{path}, line {number}"
            if not pairs["island"].isdecimal():
                raise InputError(f"{place}: island {pairs['island']!r} is not a number")
            if "nodes" not in pairs:
                raise InputError(f"{place}: an island without Nodes=")
            islands.append((number, int(pairs["island"]), pairs["nodes"], pairs.get("tag", "")))
    usual = next((name for name, default in tags.items() if default), next(iter(tags), ""))
    places = []
    for number, island, nodes, tag in islands:
        if tag and tag not in tags:
            tag_names = ", ".join(tags) or "none"
            raise InputError(f"{path}, line {number}: tag {tag!r} is unknown (known: {tag_names})")
        try:
            names = frozenset(expand(nodes))
        except ValueError as error:
            raise InputError(f"{path}, line {number}: Nodes: {error}") from None
        tag = tag or usual
        places.append(EarPlace(island, tag, names, most.get(tag)))
    return EarConf(path, path.parent.parent, tuple(tags), tuple(places))
