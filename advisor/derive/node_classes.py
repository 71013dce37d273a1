"""What tells the classes of a node type: its files, by the site file and ear.conf."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor import paths
from advisor.core.inventory import Inventory
from advisor.errors import AdvisorError
from advisor.store.reader import Reader

if TYPE_CHECKING:
    from advisor.classes.classify import Classifier


def classifier(reader: Reader, node_type: str, inventory: Inventory) -> Classifier | None:
    """Return what tells the classes of a node type, None where its files cannot be read."""
    from advisor.classes.classify import Classifier
    from advisor.classes.earconf import find_ear_conf, read_ear_conf
    from advisor.classes.setup import SetupSources, setup_of

    try:
        path = find_ear_conf()
        ear = read_ear_conf(path) if path else None
        sources = SetupSources(reader.site(), inventory, paths.config_dir(), ear)
        return Classifier(setup_of(node_type, sources))
    except (AdvisorError, OSError):
        return None
