"""Options of a size that was not swept, as its family's model has them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from advisor.core.mark_front import place
from advisor.core.memory import lacking_memory
from advisor.core.option import Z90
from advisor.core.parameters import format_number
from advisor.core.policy import FARTHEST
from advisor.core.size_table import NODES
from advisor.errors import AdvisorError, InputError, RefusedError, StoreError
from advisor.views.options import View, view_of, with_options

if TYPE_CHECKING:
    from advisor.core.inventory import NodeType
    from advisor.store.reader import Reader
    from advisor.store.records import StoredModel


def sized_views(
    reader: Reader,
    application: str,
    requested_size: Mapping[str, float],
    *,
    user: str,
    node_type: str | None = None,
) -> list[View]:
    """Return a view of every family's model that may advise the user's jobs, at a size.

    Raises AdvisorError that says what is missing where no family is known at that size.
    """
    views: list[View] = []
    problems: list[AdvisorError] = []
    inventory = reader.inventory()
    for model in reader.size_models(application):
        if (model.scope == "own" and model.owner != user) or node_type not in (
            None,
            model.node_type,
        ):
            continue
        try:
            views.append(sized_view(model, requested_size, inventory.resolve(model.node_type)))
        except AdvisorError as problem:
            problems.append(problem)
    if not views and problems:
        raise problems[0]
    return views


def beyond(model: StoredModel) -> dict[str, float]:
    """Return how many times what was measured the size of a model in use is, where beyond it."""
    return model.size_table().beyond(dict(model.size))


def sized_view(
    model: StoredModel, requested_size: Mapping[str, float], node_type: NodeType | None
) -> View:
    """Return a family's model at a size, without what lacks memory on its ``node_type``.

    Raises AdvisorError that says what is missing.
    """
    about = model.about_sizes
    family = str(about.get("family"))
    if about.get("answer") != "ok":
        notes = about.get("notes") or [""]
        raise RefusedError(
            f"{model.application}: family-unfit: {notes[-1]}",
            hint="measure that size, or more sizes near it",
        )
    try:
        table = model.size_table()
        axes = {a.name: a for a in table.axes}
        fixed = about.get("fixed") or {}
        parameter_names = [*axes, *fixed]
        for name, value in requested_size.items():
            if name not in parameter_names:
                raise InputError(
                    f"{name} is not a parameter of {family!r}",
                    hint=f"it has {', '.join(parameter_names)}",
                )
            if name in fixed and fixed[name] != value:
                raise RefusedError(
                    f"few-sizes: {name} was only measured at {format_number(fixed[name])}"
                )
        size = {name: requested_size[name] for name in axes if name in requested_size}
        if NODES in axes:
            size.setdefault(NODES, axes[NODES].high)
        for name, axis in axes.items():
            if name not in size:
                example = f"--at {name}={format_number(2 * axis.high)}"
                raise InputError(f"{name} is not given, and time depends on it", hint=example)
            if axis.beyond(size[name]) > FARTHEST:
                high = format_number(axis.high)
                raise RefusedError(
                    f"too-far: {name} {format_number(size[name])} is more than {FARTHEST:g} times "
                    f"what was measured, {format_number(axis.low)} to {high}"
                )
        words = ", ".join(f"{name} {format_number(value)}" for name, value in size.items())
        sized = replace(model, workload=f"{family} at {words}", size=tuple(size.items()))
        view = view_of(sized)
        shared = table.predict(model.rows(), size).shared_sigma
    except ValueError as error:
        raise StoreError(f"model {model.id} of {model.application}: {error}") from None
    view, left_out = _with_memory(view, node_type)
    marked = place(view.options, float(model.stats.get("error", 0.05)))
    base = next(o for o in marked if o.configuration == view.baseline.configuration)
    return View(sized, marked, base, math.expm1(Z90 * shared), left_out)


def _with_memory(view: View, node_type: NodeType | None) -> tuple[View, tuple[str, ...]]:
    """Return a view without the options that lack memory by the profiles, and which do.

    Raises RefusedError where all do.
    """
    laws = view.model.count_laws()
    if laws is None:
        return view, ()
    places = [o.configuration for o in view.options]
    lack = lacking_memory(laws, dict(view.model.size), places, node_type)
    left_out = tuple(dict.fromkeys(lack.values()))
    options = tuple(o for o in view.options if o.configuration not in lack)
    if not options:
        application, why = view.model.application, left_out[0]
        raise RefusedError(
            f"{application}: no option has the memory: {why}", hint="more nodes share it"
        )
    return with_options(view, options), left_out
