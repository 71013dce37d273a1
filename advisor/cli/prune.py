"""``advisor store prune``: forget what the policy no longer keeps; undo it for a day."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from advisor import paths
from advisor.cli.asking import add_yes, ask
from advisor.cli.output import print_json
from advisor.core.codec import JsonForm, wire
from advisor.core.units import format_count

if TYPE_CHECKING:
    from advisor.store.pruning import Pruned
    from advisor.store.reader import Reader


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor store prune`` takes."""
    parser.description = (
        "Delete decisions and outcomes, and measured runs that no model uses, that are "
        "older than the policy's retention. Sums by month stay, and all models. It shows how many "
        "and asks; for a day they can be had back. advisor collect does the same, unasked."
    )
    parser.add_argument(
        "--older-than",
        metavar="TIME",
        help="forget decisions and outcomes older than this, like 400d (default: the policy's "
        "retention; 0d forgets all)",
    )
    parser.add_argument(
        "--undo", action="store_true", help="restore what was removed in the last 24 hours"
    )
    parser.add_argument(
        "--history",
        metavar="FOLDER",
        type=Path,
        help="first write everything into this folder, as advisor store history does; if that "
        "fails, nothing is forgotten (default: the policy's retention.history, if it has one)",
    )
    add_yes(parser)


@dataclass(frozen=True, slots=True)
class PruneAnswer(JsonForm):
    """How much was forgotten."""

    pruned: Pruned = field(metadata=wire(inline=True))
    undo: Annotated[bool, "they are back, not gone"]


def run(args: argparse.Namespace) -> int:
    """Prune or undo; exit code 3 where nothing says what to forget, or there is nothing to undo."""
    from advisor.errors import RefusedError, UsageError
    from advisor.loop.retention import history_folder, retained
    from advisor.store.connection import is_wal
    from advisor.store.opening import is_owner
    from advisor.store.pruning import prune, pruned_lately, restore_pruned, to_prune
    from advisor.store.writer import Writer

    if args.undo and args.history:
        raise UsageError("--undo takes no --history")
    if args.undo and args.older_than:
        raise UsageError("--undo takes back all of the last day, so it takes no --older-than")
    path = paths.whole_store(args.db)
    if not is_owner(path):
        raise RefusedError(f"{path} is not yours", hint="ask the store's owner")
    is_wal(path)  # where there is no store none is made
    with Writer(path) as writer:
        if args.undo:
            if not pruned_lately(writer).anything:
                raise RefusedError("nothing was pruned in the last day")
            pruned = restore_pruned(writer)
        else:
            cutoffs = retained(writer, args.older_than)
            if cutoffs is None:
                raise RefusedError(
                    "everything is kept",
                    hint="give --older-than 400d, or retention: {decisions: 400d} in the policy",
                )
            times = {"decisions_before": cutoffs[0], "observations_before": cutoffs[1]}
            prunable = to_prune(writer, **times)
            if prunable.anything:
                ask(args, [_words(prunable)])
            pruned = prune(
                writer, **times, up_to=_kept(writer, args.history or history_folder(writer))
            )
    if args.json:
        print_json("prune", PruneAnswer(pruned, args.undo))
    elif args.undo:
        print(f"back again: {_words(pruned)}")
        print("where the policy's retention is shorter, the next advisor collect forgets it again")
    else:
        print(f"forgotten: {_words(pruned)}; sums by month are kept")
        if pruned.anything:
            print("undo within a day: advisor store prune --undo")
    return 0


def _kept(reader: Reader, folder: Path | None) -> dict[str, int] | None:
    """Write the history, if there is to be one, and return the last rows that it holds."""
    if folder is None:
        return None
    from advisor.loop.history import write_history
    from advisor.mounts import check_answers

    check_answers(folder)
    return write_history(reader, folder).last


def _words(pruned: Pruned) -> str:
    counts = {
        "decision": pruned.decisions,
        "outcome": pruned.outcomes,
        "measured run": pruned.observations,
    }
    return ", ".join(format_count(count, name) for name, count in counts.items())
