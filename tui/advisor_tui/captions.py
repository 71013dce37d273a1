"""What stands around the picture of a trade-off: title, legend, and the column at its side."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.core.units import duration_like, format_energy
from advisor.views import tradeoff as view
from advisor.views.tradeoff import Board, Boards
from advisor_tui import chart as signs


def names(boards: Boards) -> list[str]:
    """Return the node types that can be shown, all of them together last."""
    every = [view.EVERY] if view.EVERY in boards.by_type else []
    return [*(n for n in boards.by_type if n), *every]


def title(boards: Boards, board: Board) -> str:
    """Return what is looked at, on which node type, and how it is known."""
    types = [
        f"[{n or 'all'}]" if n == board.node_type else f" {n or 'all'} " for n in names(boards)
    ]
    model = board.view.model
    whose = {"own": ", for you", "account": f", for account {model.owner}", "all": ""}
    runs = model.n_train
    if board.node_type == view.EVERY:
        runs = sum(b.view.model.n_train for n, b in boards.by_type.items() if n)
    state = "  SUSPENDED" if model.state == "suspended" else ""
    state += "  energy ESTIMATED" if board.estimated else ""
    return (
        f"{boards.application} / {boards.workload}   {''.join(types)}  "
        f"from {runs} runs{whose[model.scope]}{state}"
    )


def promise(board: Board) -> str:
    """Return what a job would get, with the sign of whose choice it is."""
    if board.yours is None or board.yours.chosen is None:
        return board.sentence
    sign = signs.YOURS if board.yours_at is not None else signs.POLICY
    return f"{sign} {board.sentence}"


def legend(board: Board, shown: str) -> str:
    """Return what the signs mean, after how many options are ``shown``."""
    estimated = board.estimated
    parts = [
        f"{signs.MEASURED_ESTIMATE if estimated else signs.MEASURED} measured",
        f"{signs.PREDICTED_ESTIMATE if estimated else signs.PREDICTED} predicted",
        f"{signs.BASELINE} as it is", f"{signs.POLICY} policy",
    ]  # fmt: skip
    if board.yours_at is not None:
        parts.append(f"{signs.YOURS} yours")
    return f"{shown}: {'  '.join([*parts, f'{signs.ZONE} zone'])}"


def side(boards: Boards, lines: Sequence[str]) -> str:
    """Return the column beside the picture: the option under the cursor, and the node types."""
    text = ["Under the cursor", "", *lines, "", "Node types, fastest first", ""]
    as_time = duration_like(boards.ranking[-1].time_s)
    for place, rank in enumerate(boards.ranking, 1):
        energy = "" if rank.energy_j is None else f", {format_energy(rank.energy_j)}"
        text.append(f"{place}. {rank.node_type}: {as_time(rank.time_s)}{energy}")
        text.append(f"   {rank.where}; {rank.how}")
    return "\n".join(text)
