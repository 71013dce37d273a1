"""What stands around the picture of a trade-off: title, legend, the column at its side, keys."""

from __future__ import annotations

from collections.abc import Sequence

from textual.binding import Binding, BindingType
from textual.content import Content

from advisor.views import tradeoff as view
from advisor.views.narrow import EXAMPLE
from advisor.views.tradeoff import Boards, TradeOffView
from advisor_tui import signs
from advisor_tui.points import sign
from advisor_tui.ranking import SIGNS, figures

BINDINGS: list[BindingType] = [
    Binding("escape", "back", "back"),
    Binding("a", "apply", "apply", tooltip="apply to my jobs what the site only advises"),
    Binding("c,enter", "choose", "choose", priority=False),
    Binding("left,h", "step(-1)", "previous", show=False),
    Binding("right,l", "step(1)", "next", show=False),
    Binding("v", "which", "front/all", tooltip="step through front, zone, or every option"),
    Binding("slash", "filter", "filter", tooltip="list what fits, like cores<=16 time<5%"),
    Binding("n", "node_type", "node", tooltip="the next node type, then all together"),
    Binding("left_square_bracket", "size(-1)", "smaller", False, tooltip="a smaller size"),
    Binding("right_square_bracket", "size(1)", "larger", False, tooltip="a larger size"),
    Binding("p", "parameter", "size of", tooltip="the number of the size that [ and ] change"),
    Binding("r", "ranking", "rank", tooltip="node types ranked, and how that is known"),
    Binding("plus,equals_sign", "zoom(0.7)", "zoom", False, tooltip="zoom in, around the cursor"),
    Binding("minus", "zoom(1.43)", "zoom out", show=False),
    Binding("0", "fit", "fit", show=False, tooltip="show what matters, or everything"),
    Binding("s", "sort", "sort", tooltip="along the picture, by energy, time, cores, or EDP"),
    Binding("e", "export", "export", tooltip="write the list (CSV, JSON) or the picture (SVG)"),
    Binding("y", "copy", "copy", tooltip="copy the command that chooses this option"),
    Binding("Y", "copy(True)", "copy row", show=False, tooltip="copy this row"),
    Binding("x", "axes", "axes", tooltip="time or performance, energy or efficiency"),
    Binding("b", "baseline", "compare", show=False, tooltip="compare with this option"),
    Binding("t", "train", "measure", show=False, tooltip="measure it (again)"),
]
HELP = f"""\
Each sign is an option: threads and a frequency cap to run the job
with. Left is faster, lower takes less energy; the best lie along
the line, the front.

●  measured: a run was made there   ○  predicted from other runs
◍  measured, energy is estimated    ◌  predicted, energy is estimated
△  estimated: it never ran on this node type, or was never swept
▽  extrapolated: this size is larger than all that were measured
◆  the job as written               ★  what the site's policy chooses
⚑  your own choice                  ░  trade-off zone: as good within
[ ] the cursor                         error; faint signs lie outside

Where three sizes or more of a program were measured, [ and ] go to
smaller and larger ones; • was measured. In a size of several numbers
▸ marks the one that they change; p goes to the next.

The table lists what the arrows step through (v: front, zone, or every
option, / only what fits, like {EXAMPLE}):
nodes (N), ranks a node (R), threads a node (T), frequency cap, time
and energy, and the change against ◆ (dE, dT in %; green: less energy
and no slower). b makes the option under the cursor the new ◆. ± is
half of the interval that holds the value with 90 % confidence; in the
picture it is the cross at the cursor. ┊ is the slowest that the policy
allows; an arrow at the edge stands for points that lie farther (0
shows them). Below stands what the option is worth for a run and for
the runs of 30 days, with money and CO2 where the site states them.
"""
"""The help of the page of options."""
NO_BREAK = "\u00a0"
"""The blank at which no line ends: between a sign and its word."""


def names(boards: Boards) -> list[str]:
    """Return the node types that can be shown, all of them together last."""
    every = [view.EVERY] if view.EVERY in boards.by_type else []
    return [*(n for n in boards.by_type if n), *every]


def title(boards: Boards, board: TradeOffView) -> str:
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
    source_words = f"from {runs} runs"
    if board.node_type in board.foreign:
        source_words = f"ESTIMATED from {model.transfer.get('base')}"
    elif model.by_class:
        source_words = f"ESTIMATED from {model.cold_start.get('applications')} applications"
    elif model.of_sizes:
        how = "EXTRAPOLATED" if board.extrapolated else "predicted between sizes"
        source_words = f"{how} from {runs} runs of other sizes"
    return (
        f"{boards.application} / {boards.workload}   {''.join(types)}  "
        f"{source_words}{whose[model.scope]}{state}"
    )


def sizes(boards: Boards, marked: int = 0) -> str:
    """Return a line of sizes for each parameter, the keys at that which they change."""
    keys = "   [ ] smaller, larger"
    if len(boards.sizes) < 2:
        return "".join(line.text + keys for line in boards.sizes)
    keys += ", p next"
    return "\n".join(
        f"{'▸' if i == marked else ' '} {line.text}{keys if i == marked else ''}"
        for i, line in enumerate(boards.sizes)
    )


def verdict(board: TradeOffView, daemon: str) -> Content:
    """Return what a job would get and whether it is applied, in two lines."""
    verdict_text = board.verdict
    style = {"good": "bold $text-success", "open": "bold $text-warning", "none": "bold"}[
        verdict_text.tone
    ]
    applied = verdict_text.applied
    if verdict_text.tone == "good" and daemon.startswith("no daemon"):
        applied, style = "NOT APPLIED: no daemon answers now", "bold $text-warning"
    head, colon, reason = applied.partition(":")
    return Content.assemble(
        Content.styled(verdict_text.what, style),
        "\n",
        Content.styled(head, style),
        Content(colon + reason),
    )


def legend(board: TradeOffView, shown: str, *, farther: bool = False) -> str:
    """Return what the signs of the picture mean, after how many options are ``shown``."""
    words = {
        signs.MEASURED: "measured",
        signs.MEASURED_ESTIMATE: "measured",
        signs.PREDICTED: "predicted",
        signs.PREDICTED_ESTIMATE: "predicted",
        signs.ESTIMATED: "estimated",
        signs.EXTRAPOLATED: "extrapolated",
    }
    drawn = {sign(board, option) for option in board.options}
    parts = [f"{char} {word}" for char, word in words.items() if char in drawn]
    parts.append(f"{signs.BASELINE} as written")
    if board.policy_at is not None:
        parts.append(f"{signs.POLICY} policy")
    if board.yours_at is not None:
        parts.append(f"{signs.YOURS} yours")
    parts.append(f"{signs.ZONE} zone")
    if board.bound("time") is not None:
        parts.append(f"{signs.BOUND} limit")
    if farther:
        parts.append(f"{signs.FARTHER[1, 0]} farther")
    return f"{shown}: {'  '.join(part.replace(' ', NO_BREAK) for part in parts)}"


def side(boards: Boards, lines: Sequence[str]) -> str:
    """Return the column beside the picture: the option under the cursor, and the node types."""
    return "\n".join(["Under the cursor", "", *lines, "", *node_types(boards)])


def node_types(boards: Boards) -> list[str]:
    """Return the node types in their order, under a title."""
    text = ["Node types, fastest first", ""]
    for place, rank in enumerate(boards.ranking, 1):
        time, energy = figures(boards, rank)
        text.append(f"{place}. {rank.node_type}: {time}, energy {energy}")
        text.append(f"   {SIGNS[rank.kind]} {rank.brief}{f'; {rank.where}' if rank.where else ''}")
    return text
