"""``advisor profile fit``: models of the metrics of an application's classes, or of a table."""

from __future__ import annotations

import argparse
from typing import Any

from advisor.cli.output import print_json, print_table
from advisor.cli.profile import combinations, values_of
from advisor.cli.streams import complain
from advisor.core.nearest import suggestion
from advisor.errors import UsageError


def run(args: argparse.Namespace) -> int:
    """Fit, and print the models."""
    if (args.table is None) == (args.application is None):
        raise UsageError("name an application, or give --table CSV")
    return _application(args) if args.table is None else _table(args)


def _table(args: argparse.Namespace) -> int:
    from advisor.lab.profile.setup import built_in_setup, read_setup
    from advisor.lab.profile.table import fit_table, predictions, read_metric_table

    setup = built_in_setup()
    if args.setup is not None:
        setup = read_setup(args.setup)
    table = read_metric_table(args.table, setup.parameters)
    if args.setup is not None:
        setup = read_setup(args.setup, tuple(table.values))
    places = combinations(values_of(args.at, "--at"))
    for name in places[0] if places else ():
        if name not in table.values:
            raise UsageError(f"--at: no column {name!r}", hint=suggestion(name, table.values))
    for name in table.values if places else ():
        if name not in places[0]:
            raise UsageError(f"--at needs a value of {name}, too")
    models = fit_table(table, setup, args.method)
    found = predictions(models, places)
    if args.json:
        data: dict[str, Any] = {
            "table": str(args.table), "method": args.method,
            "models": [m.to_dict() for m in models], "predictions": found,
        }  # fmt: skip
        print_json("profile-fit", data)
        return 0
    print_table(
        ("metric", "terms", "weights", "R2", "MRE"),
        [
            (m.name, ", ".join(t.text for t in m.model.terms) or "constant",
             m.model.weighting or "-", f"{m.accuracy['R2']:.4f}", f"{m.accuracy['MRE']:.2%}")
            for m in models
        ],
    )  # fmt: skip
    for one in found:
        at = ", ".join(f"{n}={v:g}" for n, v in one["at"].items())
        reach = one["interval"]
        within = f" (90 %: {reach[0]:.6g} to {reach[1]:.6g})" if reach else ""
        print(f"{one['metricName']} at {at}: {one['value']:.6g}{within}")
    for m in models:
        for note in m.model.notes:
            complain(note)
    return 0


def _application(args: argparse.Namespace) -> int:
    raise UsageError("not yet")
