"""An application's profiles as they stand: what the stored steps made of the stored runs.

Every step keeps its arguments and its result, so that any can be done again alone. Models are kept
as options, terms and weighting, and fitted again from these: the same runs give the same models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from advisor.errors import RefusedError
from advisor.store.reader import Reader
from advisor_lab.profile.appendix import profile_of
from advisor_lab.profile.clusters import apply_classes, cluster_runs, components_of
from advisor_lab.profile.groups import align, communication_groups, topology_of, votes_json
from advisor_lab.profile.models import (
    ClassModels,
    ClassRuns,
    MetricModel,
    ThreadCounts,
    fit_classes,
    fit_metric,
    thread_counts,
)
from advisor_lab.profile.runs import ProfiledRun, ProfileSet, ThreadId, profile_set
from advisor_lab.profile.scalar import SearchMethod
from advisor_lab.profile.setup import (
    MetricOptions,
    ProfileSetup,
    built_in_setup,
    options_from,
    setup_of,
)
from advisor_lab.profile.store import profile_files, profile_steps

ModelSpec = dict[str, Any]
"""A model as it is kept: its options with terms and weighting, and whether terms were searched."""


@dataclass(slots=True)
class ProfileStudy:
    """The runs of an application, their classes, and how their metrics are modelled."""

    runs: ProfileSet
    members: dict[str, tuple[tuple[ThreadId, ...], ...]] = field(default_factory=dict)
    """Of every run, by digest, the threads of each class; empty: one class of all."""
    classes: tuple[str, ...] = ("A",)
    setup_text: str | None = None
    setup_file: str = ""
    method: SearchMethod = "strict"
    specs: dict[str, dict[str, ModelSpec]] = field(default_factory=dict)
    excluded: list[dict[str, float]] = field(default_factory=list)
    by_communication: bool = False

    @property
    def setup(self) -> ProfileSetup:
        """Return the setup the models were fitted with."""
        if self.setup_text is None:
            return built_in_setup(self.runs.parameters)
        return setup_of(self.setup_text, self.setup_file, self.runs.parameters)

    @property
    def trained(self) -> tuple[ProfiledRun, ...]:
        """Return the training runs that are not excluded."""
        return tuple(r for r in self.runs.train if dict(r.scale) not in self.excluded)

    def class_runs(self) -> list[ClassRuns]:
        """Return the classes with their threads. Raises RefusedError where a run has none."""
        return [
            ClassRuns(
                name,
                tuple((run, self._members_of(run)[i]) for run in self.trained),
                tuple((run, self._members_of(run)[i]) for run in self.runs.test),
            )
            for i, name in enumerate(self.classes)
        ]

    def _members_of(self, run: ProfiledRun) -> tuple[tuple[ThreadId, ...], ...]:
        if not self.members:
            return (tuple(run.threads),)
        if run.digest not in self.members:
            raise RefusedError(
                f"{run.file} came in after the threads were classified",
                hint=f"advisor lab profile classify {self.runs.application}",
            )
        return self.members[run.digest]

    def models(self) -> tuple[ClassModels, ThreadCounts]:
        """Return all models, fitted as they are kept. Raises RefusedError where there are none."""
        if not self.specs:
            raise RefusedError(
                f"{self.runs.application} has no models",
                hint=f"advisor lab profile fit {self.runs.application}",
            )
        classes, setup = self.class_runs(), self.setup
        threads = thread_counts(classes, setup, self.method)
        by_class: ClassModels = {}
        for class_runs in classes:
            class_models: dict[str, MetricModel] = {}
            for name, spec in self.specs.get(class_runs.name, {}).items():
                options = kept_options(name, spec)
                class_models[name] = fit_metric(
                    class_runs, name, options, setup, threads, class_models.get("LSys"), self.method
                )
            by_class[class_runs.name] = class_models
        return by_class, threads


def load_study(reader: Reader, application: str) -> ProfileStudy:
    """Return an application's study as its steps left it. Raises RefusedError."""
    sets: dict[str, list[ProfiledRun]] = {"train": [], "test": []}
    for profile_file in profile_files(reader, application):
        run, _ = profile_of(profile_file.text, Path(profile_file.file), profile_file.scale)
        sets[profile_file.role].append(run)
    if not sets["train"]:
        raise RefusedError(
            f"of {application} there are only profiles to test with",
            hint="advisor lab profile import DIR --role train",
        )
    study = ProfileStudy(profile_set(application, sets["train"], sets["test"]))
    for step in profile_steps(reader, application):
        result = step.result
        if step.action == "classify":
            study.classes = tuple(result["classes"])
            study.members = {
                digest: tuple(tuple((int(p), int(t)) for p, t in threads) for threads in members)
                for digest, members in result["members"].items()
            }
            study.specs = {}
            study.by_communication = result["method"] == "communication"
        elif step.action == "fit":
            study.setup_text, study.setup_file = result["setup"], result["setup_file"]
            study.method = result["method"]
            study.specs = result["specs"]
        elif step.action == "adjust":
            study.excluded = result["excluded"]
            for name, class_specs in result["specs"].items():
                study.specs.setdefault(name, {}).update(class_specs)
    return study


def kept_options(metric: str, spec: Mapping[str, Any]) -> MetricOptions:
    """Return the options a model is kept with."""
    return options_from(metric, spec, (), MetricOptions())


def spec_of(model: MetricModel, *, searched: bool) -> ModelSpec:
    """Return what is kept of a model."""
    first = model.first
    options = replace(model.options, terms=first.terms)
    if model.scalar is not None and first.weighting:
        options = replace(options, weighting=first.weighting)
    return {**options.to_dict(), "searched": searched}


# -- steps -----------------------------------------------------------------------------------------


def classify(study: ProfileStudy, method: str, count: int) -> dict[str, Any]:
    """Find the classes on the training runs and apply them to the test runs; return the result."""
    train, test = study.trained, study.runs.test
    if method == "communication":
        return _by_communication(train, test, count)
    components = components_of(train)
    clusters = cluster_runs(train, components, count)
    tested = apply_classes(test, train, clusters, components) if test else ()
    names = class_names(len(clusters.members[0]))
    return {
        "method": method,
        "classes": names,
        "members": _members(train, clusters.members) | _members(test, tested),
        "silhouettes": {str(k): v for k, v in clusters.silhouettes.items()},
        "eigenvalues": list(components.eigenvalues[:20]),
        "components": components.axes.shape[1],
        "topology": "",
        "votes": [],
        "groups": {},
        "notes": list(clusters.notes),
    }


def _by_communication(
    train: Sequence[ProfiledRun], test: Sequence[ProfiledRun], count: int
) -> dict[str, Any]:
    aligned = align(train)
    group_count = len(aligned.members[0])
    if count and count != group_count:
        raise RefusedError(
            f"there are {group_count} communication groups, not {count}", hint="--classes auto"
        )
    every = align([*train, *test], len(train), aligned.members)
    runs = [*train, *test]
    return {
        "method": "communication",
        "classes": class_names(group_count),
        "members": _members(runs, every.members),
        "silhouettes": {},
        "eigenvalues": [],
        "components": 0,
        "topology": topology_of(train[0]),
        "votes": votes_json(train, aligned.votes),
        "groups": {
            run.digest: [g.to_dict() for g in communication_groups(run, run_members)]
            for run, run_members in zip(runs, every.members, strict=True)
        },
        "notes": [],
    }


def _members(
    runs: Sequence[ProfiledRun], members: Sequence[Sequence[Sequence[ThreadId]]]
) -> dict[str, Any]:
    return {
        run.digest: [[list(t) for t in threads] for threads in of_run]
        for run, of_run in zip(runs, members, strict=True)
    }


def class_names(count: int) -> list[str]:
    """Return A, B, ... Z, AA, AB, ..."""
    names = []
    for i in range(count):
        text, rest = "", i
        while rest >= 0:
            text = chr(65 + rest % 26) + text
            rest = rest // 26 - 1
        names.append(text)
    return names


def fit_all(
    study: ProfileStudy, setup_text: str | None, setup_file: str, method: SearchMethod
) -> tuple[dict[str, Any], ClassModels, list[str]]:
    """Fit every metric of every class; return what is kept, the models, and what to say."""
    study.setup_text, study.setup_file, study.method = setup_text, setup_file, method
    setup = study.setup
    models, _, notes = fit_classes(study.class_runs(), setup, method)
    specs = {
        name: {m: spec_of(model, searched=_searched(setup, m)) for m, model in class_models.items()}
        for name, class_models in models.items()
    }
    result = {
        "setup": setup_text,
        "setup_file": setup_file,
        "method": method,
        "specs": specs,
    }
    return result, models, notes


def _searched(setup: ProfileSetup, metric: str) -> bool:
    options = setup.metrics.get(metric)
    return options is None or options.terms is None


def refit(
    study: ProfileStudy, changed: Mapping[str, Mapping[str, ModelSpec]]
) -> dict[str, dict[str, ModelSpec]]:
    """Fit models again by the specs given; those with ``searched`` search their terms again.

    Metrics that are shares of LSys follow its terms where LSys is among them or refitted.
    """
    classes = {class_runs.name: class_runs for class_runs in study.class_runs()}
    setup = study.setup
    threads = thread_counts(list(classes.values()), setup, study.method)
    specs: dict[str, dict[str, ModelSpec]] = {}
    for name, class_specs in changed.items():
        counts: MetricModel | None = None
        # LSys before its shares, which need its model.
        for metric in sorted(class_specs, key=lambda m: {"NThreads": 0, "LSys": 1}.get(m, 2)):
            spec = class_specs[metric]
            options = kept_options(metric, spec)
            if spec["searched"]:
                options = replace(options, terms=None, weighting="")
            if counts is None and options.type.endswith("nstrPercentage"):
                counts = _kept_counts(study, classes[name], setup, threads)
            model = fit_metric(classes[name], metric, options, setup, threads, counts, study.method)
            if metric == "LSys":
                counts = model
            specs.setdefault(name, {})[metric] = spec_of(model, searched=bool(spec["searched"]))
    return specs


def _kept_counts(
    study: ProfileStudy, class_runs: ClassRuns, setup: ProfileSetup, threads: ThreadCounts
) -> MetricModel | None:
    spec = study.specs.get(class_runs.name, {}).get("LSys")
    if spec is None:
        return None
    return fit_metric(
        class_runs, "LSys", kept_options("LSys", spec), setup, threads, None, study.method
    )
