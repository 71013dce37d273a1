"""How much memory a size takes, by the footprints of an application's profiles."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from advisor.errors import AdvisorError, RefusedError
from advisor.lab.profile.metrics import total
from advisor.lab.profile.models import fit_metric, thread_counts
from advisor.lab.profile.runs import stored_shape
from advisor.lab.profile.setup import default_options
from advisor.lab.profile.study import ProfileStudy, load_study
from advisor.store.reader import Reader

METRIC = "footprint_bytes"


def footprint_study(reader: Reader, application: str) -> ProfileStudy | None:
    """Return an application's profiles where they hold footprints, None where there are none."""
    try:
        study = load_study(reader, application)
    except RefusedError:
        return None
    return study if stored_shape(study.runs.train, METRIC) == "scalar" else None


def footprint(study: ProfileStudy, size: Mapping[str, float], processes: int) -> float:
    """Return the bytes that all threads touch at a size: those of each class times their number.

    What threads share counts for each, so it is the most they take. A parameter of the profiles is
    the one of that name of the size, or the number of processes. Raises AdvisorError where it is
    neither.
    """
    scale = {name: _value(study, name, size, processes) for name in study.runs.parameters}
    classes, setup, method = study.class_runs(), study.setup, study.method
    threads = thread_counts(classes, setup, method)
    values = threads.values({n: np.array([v]) for n, v in scale.items()})
    whole = 0.0
    for one in classes:
        predicted = []
        for name in ("NThreads", METRIC):
            options = setup.metrics.get(name) or default_options(name, "scalar")
            model = fit_metric(one, name, options, setup, threads, None, method)
            predicted.append(max(0.0, total(model.predict(values)[0])))
        whole += predicted[0] * predicted[1]
    return whole


def _value(study: ProfileStudy, name: str, size: Mapping[str, float], processes: int) -> float:
    given = {n.lower(): v for n, v in size.items()}
    if name.lower() in given:
        return given[name.lower()]
    if all(run.processes == dict(run.scale)[name] for run in study.runs.train):
        return float(processes)
    raise AdvisorError(f"the profiles' parameter {name} is not given, so memory is not checked")
