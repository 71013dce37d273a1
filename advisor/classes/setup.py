"""How a node type's jobs are classified: its tag, files, limits and cores, and where from.

In order of authority: the HACK_ variables (folders), the site file, ear.conf, what is built in.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.classes.base import ClassLimits, Like, Setup
from advisor.classes.default import limits_of
from advisor.classes.earconf import EarConf
from advisor.classes.files import KINDS, FileOrder, read_files, tag_of
from advisor.core.inventory import Inventory
from advisor.errors import InputError, UnknownNameError

HACKS = {"roofline": "HACK_ROOFLINE_COEFF_PATH", "medoids": "HACK_MEDOIDS_COEFF_PATH"}
"""EAR's variables that name a folder in place of a kind's own."""


def written_of(site: Mapping[str, object], name: str) -> Mapping[str, Any]:
    """Return what a compiled site file says of a node type's classes."""
    section: Any = site.get("node_types")
    for key in (name, "classes"):
        section = section.get(key) if isinstance(section, Mapping) else None
    return section if isinstance(section, Mapping) else {}


@dataclass(frozen=True, slots=True)
class SetupSources:
    """What says how node types are classified: the compiled site file, inventory and ear.conf.

    ``base`` is what a relative folder is relative to, and holds ``classes``, the folder where none
    is named. Node types are known, too, where something was ``measured``.
    """

    site: Mapping[str, object]
    inventory: Inventory
    base: Path
    ear: EarConf | None = None
    measured: Collection[str] = ()


def setup_of(
    name: str,
    sources: SetupSources,
    *,
    like: Like = "page",
    order: FileOrder | None = None,
    processor: tuple[str, int, int] = ("", 0, 0),
) -> Setup:
    """Return the setup of a node type; of no particular one for "".

    ``processor`` is vendor, family and model of the nodes, as far as they are known. Raises
    InputError for a node type that no source knows.
    """
    site, inventory, base = sources.site, sources.inventory, sources.base
    ear, measured = sources.ear, sources.measured
    types = site.get("node_types")
    in_site = isinstance(types, Mapping) and name in types
    node = inventory.resolve(name) if name else None
    if name and node is None and not in_site and name not in measured:
        type_names = sorted({*inventory.node_types, *(types if isinstance(types, Mapping) else ())})
        raise UnknownNameError(
            f"node type {name!r} is unknown",
            hint=f"known: {', '.join(type_names)}" if type_names else "describe it in site.yaml",
        )
    name = name if in_site or node is None else node.name
    class_settings = written_of(site, name)
    place = ear.place_of(node.nodes) if ear is not None and node is not None else None
    if ear is not None and class_settings.get("tag") and class_settings["tag"] not in ear.tags:
        raise InputError(
            f"{ear.path} has no tag {class_settings['tag']!r} of node type {name}",
            hint=f"known: {', '.join(ear.tags) or 'none'}",
        )
    tag = str(class_settings.get("tag") or (place.tag if place else name))
    if class_settings.get("folder"):
        folder = base / str(class_settings["folder"])
    else:
        folder = ear.coefficients(place) if ear and place else base / "classes"
    limits, limits_from = limits_of(*processor)
    site_limits = class_settings.get("limits")
    if isinstance(site_limits, Mapping):
        sides: list[Any] = [site_limits[side] for side in ("cpu", "memory")]
        limits = ClassLimits(*(float(side[key]) for side in sides for key in ("cpi", "gbs")))
        limits_from = "site.yaml"
    described = types[name] if isinstance(types, Mapping) and in_site else {}
    cores = described.get("cores") if isinstance(described, Mapping) else None
    order = order or ("ear" if like == "ear6" else "page")
    folders = _folders(folder, like)
    return Setup(
        name,
        tag,
        read_files(tag, folders, order, glued=like == "ear6"),
        limits,
        limits_from,
        node.cores if node is not None else int(cores) if cores else None,
        like,
        order,
        _doubts(tag, folders) if class_settings.get("tag") else (),
    )


def _doubts(tag: str, folders: Mapping[str, Path]) -> tuple[str, ...]:
    """Return whether the folders hold files of other tags only: a tag misspelt, perhaps."""
    tags = {tag_of(path.name) for folder in set(folders.values()) for path in folder.glob("*.data")}
    present_tags = sorted(tag_name for tag_name in tags if tag_name)
    if not present_tags or tag in present_tags:
        return ()
    return (f"there are no files of tag {tag}, only of {', '.join(present_tags)}",)


def _folders(folder: Path, like: Like) -> dict[str, Path]:
    """Return the folder of each kind of file; EAR's sources let one variable serve for all."""
    named = {kind: os.environ.get(variable) for kind, variable in HACKS.items()}
    if like == "ear6":
        shared_folder = named["medoids"] or named["roofline"]
        return dict.fromkeys(KINDS, Path(shared_folder) if shared_folder else folder)
    named["extremes"] = named["medoids"]
    return {kind: Path(named[kind] or folder) for kind in KINDS}
