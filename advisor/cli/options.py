"""``advisor options``: an application's options and their trade-off."""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from advisor.cli.arguments import add_application, size_argument
from advisor.cli.bars import bar, room_for
from advisor.cli.output import print_json, print_table
from advisor.cli.pictures import Drawing, add_plot_argument, check_plot, print_picture, save_plot
from advisor.core.axes import AXES
from advisor.core.codec import JsonForm, wire
from advisor.core.configuration import Configuration
from advisor.core.objectives import MEASURES, clusters, ed2p, edp, node_hours, resource_front
from advisor.core.observation import Quality, Scope
from advisor.core.option import Option
from advisor.core.units import format_change, format_duration, format_energy, format_freq
from advisor.errors import RefusedError, UsageError
from advisor.plotting.named import RECOMMENDED, NamedOptions
from advisor.store.seen import old_copy
from advisor.views.options import View, best_in_words, confirmed_in_words, known_by, scene
from advisor.views.tables import table
from advisor.views.worth import Worth

_BAR = 10
"""Cells of a bar of energy beside an option."""
_RATES = {"rate": "time", "rate-per-joule": "energy"}
"""Orders of a rate, the highest first, are those of what it is the reciprocal of."""


@dataclass(frozen=True, slots=True)
class _SeenOptions:
    """A model's options, what the best of them is worth, and which of them have a name."""

    view: View
    worth: Worth | None
    named: NamedOptions


@dataclass(frozen=True, slots=True)
class ModelOfOptions(JsonForm):
    """A model that may advise the user's jobs."""

    id: int
    workload: str
    node_type: str
    scope: Scope
    owner: str
    version: int
    state: str
    state_reason: str
    energy_quality: Quality
    n_train: int
    stats: Mapping[str, object]
    created_at: str
    model: str
    rate_unit: str | None
    baseline: Configuration
    recommended: Annotated[Configuration, "what such a job would get: the baseline, if nothing"]
    worth: Worth | None

    @classmethod
    def of(cls, seen: _SeenOptions) -> ModelOfOptions:
        """Return what is printed of a model."""
        view, m = seen.view, seen.view.model
        return cls(
            m.id,
            m.workload,
            m.node_type,
            m.scope,
            m.owner,
            m.version,
            m.state,
            m.state_reason,
            m.energy_quality,
            m.n_train,
            m.stats,
            m.created_at,
            m.name,
            None if view.work is None else view.work.unit,
            view.baseline.configuration,
            seen.named.options[RECOMMENDED].configuration,
            seen.worth,
        )


@dataclass(frozen=True, slots=True)
class ListedConfiguration(JsonForm):
    """An option beside the baseline; what is not known is null."""

    model: int
    workload: str
    configuration: Configuration = field(metadata=wire(inline=True))
    time_s: float | None
    time_lo_s: float | None
    time_hi_s: float | None
    energy_j: float | None
    energy_lo_j: float | None
    energy_hi_j: float | None
    energy_gpu_j: Annotated[float | None, "what the GPUs of its runs took, where all tell"]
    measured: bool
    confirmed: bool
    estimated: bool
    extrapolated: Annotated[bool, "fewer or more cores, or a lower or higher cap, than any run had"]
    in_zone: bool
    on_front: bool
    time_change: float | None
    energy_change: float | None
    edp_js: Annotated[float | None, "energy times time, J s"]
    ed2p_js2: Annotated[float | None, "energy times time squared, J s2"]
    rate: Annotated[float | None, "the program's own, where known"]
    rate_per_joule: Annotated[float | None, "what it does per joule"]
    cores: Annotated[int, "of all its nodes"]
    node_hours: float | None
    cluster: Annotated[str | None, "on the front: the goal whose choice is nearest"]
    on_resource_front: Annotated[bool, "on the front of time, energy and cores"]
    baseline: bool


@dataclass(frozen=True, slots=True)
class OptionsAnswer(JsonForm):
    """An application's options by model; changes are fractions against the baseline."""

    application: str
    models: Sequence[ModelOfOptions]
    options: Sequence[ListedConfiguration]
    at: Annotated[Mapping[str, float] | None, "with --at: the size"] = field(
        default=None, metadata=wire(omit=True)
    )
    beyond: Annotated[
        Mapping[str, float] | None, "how many times what was measured it is, where beyond it"
    ] = field(default=None, metadata=wire(omit=True))
    shared_error_pct: float | None = field(default=None, metadata=wire(omit=True))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor options`` takes."""
    parser.description = (
        "List the configurations in an application's trade-off zone, with time and energy against "
        "the job as written. That is the job as a sweep measured it, else the configuration with "
        "most nodes, most threads and the highest frequency. Threads are those of each node."
    )
    add_application(parser, "the measured application")
    parser.add_argument("--node-type", metavar="NODE_TYPE", help="only this node type")
    parser.add_argument(
        "--at",
        type=size_argument,
        metavar="NAME=NUMBER,...",
        help="show a size, or a number of nodes, that was not measured, as predicted from "
        "the measured ones",
    )
    parser.add_argument(
        "--user", metavar="USER", help="also show this user's own models (default: yours)"
    )
    parser.add_argument("--all", action="store_true", help="also list options outside the zone")
    parser.add_argument(
        "--sort",
        choices=(*MEASURES, *_RATES),
        default="time",
        help="order, best first (default: time); cores are those of all nodes",
    )
    parser.add_argument(
        "--rate",
        action="store_true",
        help="draw the program's own rate and its rate per joule, where its runs have one",
    )
    add_plot_argument(parser, ("pareto", "lines", "surface"))


def run(args: argparse.Namespace) -> int:
    """Print the options of every model that may advise the user's jobs."""
    check_plot(args.plot)
    views = _views(args)
    if args.plot is not None and len(views) > 1:
        raise UsageError(
            f"--plot shows one model, there are {len(views)}",
            hint="choose with --workload and --node-type",
        )
    if args.plot is not None:
        save_plot(_picture(views[0], args), args.plot)
    if old := old_copy(args.db):
        print(f"advisor: {old}", file=sys.stderr)
    if args.json:
        print_json("options", _answer(args, views))
        return 0
    for i, seen in enumerate(views):
        if i:
            print()
        _print(seen.view, seen.worth, args.all, args.sort)
        if seen.view.energy_known or args.view in ("lines", "surface"):
            print()
            print_picture(_picture(seen, args))
    return 0


def _views(args: argparse.Namespace) -> list[_SeenOptions]:
    from advisor.store.opening import caller
    from advisor.store.reader import Reader
    from advisor.store.seen import store_seen
    from advisor.views.misspelt import check_measured
    from advisor.views.options import views
    from advisor.views.recommended import named_options
    from advisor.views.sized_options import sized_views
    from advisor.views.worth import of_view

    user = args.user or caller()
    with Reader(store_seen(args.db, "options", application=args.application)) as store:
        if args.at:
            shown = sized_views(
                store, args.application, args.at, user=user, node_type=args.node_type
            )
        else:
            shown = views(
                store, args.application, user=user, workload=args.workload, node_type=args.node_type
            )
        if not shown:
            check_measured(
                store, args.application, None if args.at else args.workload, args.node_type
            )
            where = f" on {args.node_type}" if args.node_type else ""
            again = f"advisor fit {shlex.quote(args.application)}"
            if args.at:
                raise RefusedError(
                    f"no family of {args.application} has a model: three sizes are needed",
                    hint=f"{again} when they are measured",
                )
            raise RefusedError(
                f"there is no model of {args.application} for {user}{where}", hint=again
            )
        return [
            _SeenOptions(
                view,
                None if args.at or view.model.further_axes else of_view(store, view, user),
                named,
            )
            for view, named in zip(shown, named_options(store, shown, user), strict=True)
        ]


def _print(view: View, worth: Worth | None, everything: bool, order: str) -> None:
    model = view.model
    print(view.title)
    if view.source:
        print(view.source)
    if model.state == "suspended":
        print(f"suspended, nothing is applied: {model.state_reason or 'no reason given'}")
    shown = [o for o in view.options if everything or o.in_zone or o is view.baseline]
    order = _RATES.get(order, order)
    measure = MEASURES[order]
    shown.sort(key=lambda o: (o is not view.baseline, measure(o)))
    more = [] if order in ("time", "energy", "cores") else [order]
    work = view.work
    named = {id(view.options[i]): goal for i, goal in clusters(view.options).items()}
    headers = [
        "nodes",
        "ranks",
        "threads",
        "frequency",
        *(AXES[name].words for name in model.further_axes),
        "time",
        "change",
        "energy",
        "change",
        *(work.labels if work else ()),
        *more,
        "known by",
        "place",
    ]
    rows = [_row(view, o, more, named.get(id(o), "")) for o in shown]
    gpu_j = model.gpu_j()
    if any(o.configuration in gpu_j for o in shown):
        place = headers.index("known by")
        headers.insert(place, "GPUs")
        for row, o in zip(rows, shown, strict=True):
            joules = gpu_j.get(o.configuration)
            row.insert(place, "-" if joules is None else format_energy(joules))
    if view.energy_known and room_for(table(headers, rows), _BAR):
        most = max(o.energy_j for o in shown)
        place = 8 + len(model.further_axes)
        headers.insert(place, "")
        for row, o in zip(rows, shown, strict=True):
            row.insert(place, bar(o.energy_j / most, _BAR))
    print_table(headers, rows)
    print(f"energy is {model.energy_quality}; {best_in_words(view)}")
    if view.energy_known and (line := confirmed_in_words(view)):
        print(line)
    if model.further_axes:
        axes = " and ".join(AXES[name].words for name in model.further_axes)
        print(f"options with a lower {axes} are for jobs that ask for GPUs (docs/gpu.md)")
    for line in worth.lines() if worth else ():
        print(line)


def _picture(seen: _SeenOptions, args: argparse.Namespace) -> Drawing:
    from advisor.plotting import panels

    view = seen.view
    work = view.work if args.rate else None
    if args.rate and work is None:
        raise RefusedError(
            f"the program's own rate is not known: {view.title}",
            hint="advisor train --rate REGEX reads it from what the program prints",
        )
    if args.view in (None, "pareto"):
        return scene(view, work, seen.named)
    what = view.title, view.options, view.baseline, work, seen.named
    return panels.surface(*what) if args.view == "surface" else panels.lines(*what, args.over)


def _row(view: View, o: Option, more: Sequence[str], cluster: str) -> list[object]:
    c = o.configuration
    energy, time = view.change(o)
    front = f"front: {cluster}" if cluster else "front"
    place = front if o.on_front else "zone" if o.in_zone else ""
    if o is view.baseline:
        place = f"as written, {place}" if place else "as written"
    unknown = math.isnan(o.energy_j)
    wide = view.intervals(o)
    return [
        c.nodes,
        c.ranks_per_node,
        c.threads_per_node,
        format_freq(c.freq_khz),
        *(AXES[name].shown(value) for name, value in c.extra),
        format_duration(o.time_s),
        "" if o is view.baseline else format_change(time) + wide[0],
        "-" if unknown else format_energy(o.energy_j),
        "" if unknown or o is view.baseline else format_change(energy) + wide[1],
        *_rates(view, o),
        *(
            ""
            if o is view.baseline
            else format_change(MEASURES[m](o) / MEASURES[m](view.baseline) - 1)
            for m in more
        ),
        known_by(o),
        place,
    ]


def _rates(view: View, o: Option) -> list[str]:
    """Return rate and rate per joule as cells; none where the model knows no rate."""
    work = view.work
    if work is None:
        return []
    return [
        "-" if math.isnan(value) else f"{work.amount / value:.4g}"
        for value in (o.time_s, o.energy_j)
    ]


def _answer(args: argparse.Namespace, views: Sequence[_SeenOptions]) -> OptionsAnswer:
    from advisor.views.sized_options import beyond

    answer = OptionsAnswer(
        args.application,
        [ModelOfOptions.of(seen) for seen in views],
        [option for seen in views for option in _listed(seen.view)],
    )
    if not args.at:
        return answer
    first = views[0].view
    return replace(
        answer,
        at=args.at,
        beyond=beyond(first.model),
        shared_error_pct=100 * first.shared_error,
    )


def _listed(view: View) -> Iterator[ListedConfiguration]:
    """Yield the options as they are printed."""
    work, gpu_j = view.work, view.model.gpu_j()
    goals, thrifty = clusters(view.options), set(resource_front(view.options))
    for i, o in enumerate(view.options):
        energy, time = view.change(o)
        yield ListedConfiguration(
            view.model.id,
            view.model.workload,
            o.configuration,
            o.time_s,
            o.time_lo_s,
            o.time_hi_s,
            o.energy_j,
            o.energy_lo_j,
            o.energy_hi_j,
            gpu_j.get(o.configuration),
            o.measured,
            o.confirmed,
            o.estimated,
            o.extrapolated,
            o.in_zone,
            o.on_front,
            time,
            energy,
            edp(o),
            ed2p(o),
            work.amount / o.time_s if work else None,
            work.amount / o.energy_j if work else None,
            o.configuration.cores,
            node_hours(o),
            goals.get(i),
            i in thrifty,
            o is view.baseline,
        )
