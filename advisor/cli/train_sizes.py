"""``advisor train SCRIPT --sizes n=1e6,2e6,4e6``: a sweep for each size, the smallest first."""

from __future__ import annotations

import argparse
import contextlib
import copy
import hashlib
import secrets
from pathlib import Path

from advisor.cli.train_experiment import AdoptedSweep, keep_script
from advisor.core.parameters import parameters_of
from advisor.core.units import parse_duration_s
from advisor.errors import UsageError
from advisor.schedulers.choose import default
from advisor.training.experiment import is_experiment
from advisor.training.site_context import SiteContext
from advisor.training.sizes import AskedSizes, SizedText, sized_texts
from advisor.training.state import SeriesSize
from advisor.training.training_job import named, recognised_by_site, script_named, script_text

_SCRIPTS = "sizes"
"""Where the job scripts made of one script are, under the folder of sweeps."""


def sized_sweeps(
    args: argparse.Namespace, root: Path, site_context: SiteContext
) -> list[AdoptedSweep]:
    """Return a sweep for each size of ``--sizes``, ascending: the cheap ones say what others cost.

    Raises UsageError for what does not go with sizes, InputError where the parameter is not found.
    """
    requested_sizes = AskedSizes.read(args.sizes)
    path = Path(args.subject or "")
    if is_experiment(path) and path.is_file():
        raise UsageError("--sizes: an experiment file has its own parameters (execParam)")
    if args.workload:
        raise UsageError("--sizes: --workload names one input, and each size is one of its own")
    if args.design not in (None, "uniform"):
        raise UsageError(f"--design {args.design}: --sizes has a design of its own")
    script = script_named(args.subject or "", args.tail)
    job = SizedText(script_text(script) if script else None, tuple(args.tail))
    scheduler = args.scheduler or default().NAME

    def workload_of(sized_text: SizedText) -> str:
        return recognised_by_site(
            scheduler,
            site_context.site,
            script,
            sized_text.text,
            sized_text.words,
            application=named(args.application) if args.application else "",
        ).workload

    current_size = parameters_of(workload_of(job)).size.get(requested_sizes.parameter, 1.0)
    series = secrets.token_hex(4)
    values = tuple(value for value, _ in requested_sizes.values)
    sweeps = []
    for value, sized_text in zip(
        values, sized_texts(job, requested_sizes, workload_of), strict=True
    ):
        size_args = copy.copy(args)
        size_args.tail = list(sized_text.words)
        if script is not None and sized_text.text is not None:
            digest = hashlib.sha256(sized_text.text.encode()).hexdigest()[:8]
            size_args.subject = str(
                keep_script(sized_text.text, root / _SCRIPTS / digest / script.name)
            )
        with contextlib.suppress(ValueError):  # which the plan reports
            size_args.estimate = (
                args.estimate and f"{parse_duration_s(args.estimate) * value / current_size:.1f}s"
            )
        size = SeriesSize(series, requested_sizes.parameter, value, values)
        sweeps.append(AdoptedSweep(size_args, size=size))
    return sweeps
