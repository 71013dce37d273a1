"""``advisor options``: an application's options and their trade-off against the baseline."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor import paths
from advisor.cli.output import print_json, print_table
from advisor.cli.pictures import add_plot_argument, check_plot, print_scene, save_plot
from advisor.core.option import Option
from advisor.core.pareto import Limits, trade_off
from advisor.core.units import format_change, format_duration, format_energy, format_freq
from advisor.errors import RefusedError, UsageError
from advisor.plotting import Scene

if TYPE_CHECKING:
    from advisor.store.records import StoredModel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor options`` takes."""
    parser.description = (
        "List what an application's model offers: the trade-off zone and what each option changes "
        "against the baseline (most nodes, most cores, highest frequency)."
    )
    parser.add_argument("application", metavar="A", help="what was measured")
    parser.add_argument("--workload", metavar="W", help="only this input or problem class")
    parser.add_argument("--node-type", metavar="T", help="only this node type")
    parser.add_argument("--user", metavar="U", help="whose own models to show (yours)")
    parser.add_argument("--all", action="store_true", help="list options outside of the zone, too")
    add_plot_argument(parser)


@dataclass(frozen=True, slots=True)
class _View:
    """A model's options beside their baseline."""

    model: StoredModel
    options: tuple[Option, ...]
    baseline: Option

    @property
    def energy_known(self) -> bool:
        """Whether there is a trade-off at all."""
        return not any(math.isnan(o.energy_j) for o in self.options)

    @property
    def title(self) -> str:
        """Name the model in one line."""
        m = self.model
        whose = "everybody's jobs" if m.scope == "all" else f"jobs of {m.owner}"
        return f"{m.application} (workload {m.workload}) on {m.node_type}, for {whose}"

    def change(self, option: Option) -> tuple[float, float]:
        """Return changes of energy and time against the baseline, as fractions."""
        return (
            option.energy_j / self.baseline.energy_j - 1.0,
            option.time_s / self.baseline.time_s - 1.0,
        )


def run(args: argparse.Namespace) -> int:
    """Print the options of every model that may advise the user's jobs."""
    check_plot(args.plot)
    views = [_view(m) for m in _models(args)]
    if args.plot is not None and len(views) > 1:
        raise UsageError(
            f"--plot shows one model, there are {len(views)}",
            hint="choose with --workload and --node-type",
        )
    if args.plot is not None:
        save_plot(_scene(views[0]), args.plot)
    if args.json:
        print_json(
            "options",
            {
                "application": args.application,
                "models": [_model_json(v) for v in views],
                "options": [j for v in views for j in _options_json(v)],
            },
        )
        return 0
    for i, view in enumerate(views):
        if i:
            print()
        _print(view, args.all)
    return 0


def _models(args: argparse.Namespace) -> list[StoredModel]:
    from advisor.store.opening import caller
    from advisor.store.reader import Reader

    user = args.user or caller()
    with Reader(paths.store_path(args.db)) as store:
        found = store.find_models(args.application, args.workload, args.node_type)
        known = [w.name for w in store.workloads(args.application)]
    seen = [m for m in found if m.scope != "own" or m.owner == user]
    if not seen:
        what = f"there is no model of {args.application} for {user}"
        if not known:
            raise RefusedError(what, hint="advisor train or advisor import")
        raise RefusedError(
            f"{what} there; its workloads are {', '.join(known)}",
            hint=f"advisor fit {args.application}",
        )
    return seen


def _view(model: StoredModel) -> _View:
    options = model.options()
    if not options:
        raise RefusedError(f"model {model.id} of {model.application} has no options")
    return _View(model, options, max(options, key=_size))


def _size(option: Option) -> tuple[int, int, int, int]:
    c = option.configuration
    return c.nodes, c.threads_per_node, c.freq_khz, c.ranks_per_node


def _print(view: _View, everything: bool) -> None:
    model = view.model
    print(view.title)
    if model.state == "suspended":
        print(f"suspended, nothing is applied: {model.state_reason or 'no reason given'}")
    shown = [
        o for o in view.options if everything or o.in_zone or o is view.baseline
    ]  # fmt: skip
    shown.sort(key=lambda o: (o is not view.baseline, o.time_s))
    print_table(
        [
            "nodes",
            "ranks",
            "cores",
            "frequency",
            "time",
            "change",
            "energy",
            "change",
            "known by",
            "place",
        ],
        [_row(view, o) for o in shown],
    )
    print(f"energy is {model.energy_quality}; {_words(view)}")
    if view.energy_known:
        print()
        print_scene(_scene(view))


def _row(view: _View, o: Option) -> list[object]:
    c = o.configuration
    energy, time = view.change(o)
    known = "run, confirmed" if o.confirmed else "run" if o.measured else "prediction"
    place = "front" if o.on_front else "zone" if o.in_zone else ""
    if o is view.baseline:
        place = f"baseline, {place}" if place else "baseline"
    unknown = math.isnan(o.energy_j)
    return [
        c.nodes,
        c.ranks_per_node,
        c.threads_per_node,
        format_freq(c.freq_khz),
        format_duration(o.time_s),
        "" if o is view.baseline else format_change(time),
        "-" if unknown else format_energy(o.energy_j),
        "" if unknown or o is view.baseline else format_change(energy),
        known,
        place,
    ]


def _words(view: _View) -> str:
    """Say in one sentence what is to be had."""
    if not view.energy_known:
        return "without it there is no trade-off to choose from"
    zone = [o for o in view.options if o.in_zone]
    best = min(zone, key=lambda o: o.energy_j)
    energy, time = view.change(best)
    if best is view.baseline or energy > -0.005:
        return "no option saves energy against the baseline"
    slower = "slower" if time >= 0 else "faster"
    return (
        f"the thriftiest option takes {-energy:.1%} less energy and is {abs(time):.1%} {slower} "
        "than the baseline"
    )


def _scene(view: _View) -> Scene:
    if not view.energy_known:
        raise RefusedError(f"{view.title}: energy is not known, so there is nothing to draw")
    points = [tuple(100.0 * v for v in view.change(o)) for o in view.options]
    limits = Limits(float(view.model.stats.get("error", 0.05)))
    found = trade_off(
        [o.energy_j for o in view.options],
        [o.time_s for o in view.options],
        max_x=False,
        max_y=False,
        x_limits=limits,
        y_limits=limits,
    )
    base = view.baseline
    return Scene(
        view.title,
        "energy against the baseline (%)",
        "time against the baseline (%)",
        [(p[0], p[1]) for p in points],
        found.front,
        found.zone,
        next(i for i, o in enumerate(view.options) if o is base),
        [(100 * (x / base.energy_j - 1), 100 * (y / base.time_s - 1)) for x, y in found.polygon],
    )


def _model_json(view: _View) -> dict[str, object]:
    m = view.model
    return {
        "id": m.id,
        "workload": m.workload,
        "node_type": m.node_type,
        "scope": m.scope,
        "owner": m.owner,
        "version": m.version,
        "model": m.name,
        "state": m.state,
        "state_reason": m.state_reason,
        "energy_quality": m.energy_quality,
        "n_train": m.n_train,
        "stats": m.stats,
        "created_at": m.created_at,
        "baseline": view.baseline.configuration.to_dict(),
    }


def _options_json(view: _View) -> Sequence[dict[str, object]]:
    found: list[dict[str, object]] = []
    for o in view.options:
        energy, time = view.change(o)
        found.append(
            {
                "model": view.model.id,
                "workload": view.model.workload,
                **o.configuration.to_dict(),
                "time_s": o.time_s,
                "time_lo_s": o.time_lo_s,
                "time_hi_s": o.time_hi_s,
                "energy_j": o.energy_j,
                "energy_lo_j": o.energy_lo_j,
                "energy_hi_j": o.energy_hi_j,
                "time_change": time,
                "energy_change": energy,
                "measured": o.measured,
                "confirmed": o.confirmed,
                "in_zone": o.in_zone,
                "on_front": o.on_front,
                "baseline": o is view.baseline,
            }
        )
    return found
