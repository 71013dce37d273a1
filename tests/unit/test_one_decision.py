"""Hook, explain, the choose page, its copied lines and the script it writes are one decision.

Compared over every point of every grid there is here: the example site's models, the measured
programs of ``examples/grids``, and a synthetic grid of two node types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from advisor_tui.demo_site import MACHINES, PROGRAMS, options

from advisor.choices import text_of
from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.inventory import NodeType
from advisor.core.option import Option
from advisor.core.request import JobRequest
from advisor.core.settings import parse_choices
from advisor.schedulers.submission import payload_of
from advisor.schedulers.translators import translator
from advisor.service.decide import decide
from advisor.service.snapshot import Snapshot
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from advisor.views import preview as view
from advisor.views.applications import home
from advisor.views.choosing import Wish, for_sample, for_script, wished, write_script
from advisor.views.measured_example import CORES, FREQ_KHZ, measured_programs
from advisor.views.preview import Person
from advisor.views.script import lines_of, rewritten
from advisor.views.tradeoff import seen_models
from tests.unit.decide.site import BDW, SKL, response
from tests.unset import as_measured

SCHEDULERS = ("slurm", "pbs")
POLICY = {
    "mode": "apply",
    "goal": "min_energy",
    "holdout": 0.0,
    "node_type_change": "allow",
    "axes": {"threads": "cap", "frequency": "cap", "node_type": "fill"},
}


def known(c: Configuration, time_s: float, energy_j: float) -> Option:
    return Option(
        c,
        time_s,
        time_s / 1.01,
        time_s * 1.01,
        energy_j,
        energy_j / 1.01,
        energy_j * 1.01,
        measured=True,
        confirmed=True,
        in_zone=True,
    )


def grids() -> dict[str, tuple[list[NodeType], dict[tuple[str, str, str], list[Option]]]]:
    """Return each site's node types, and the options of application, workload and node type."""
    example = {
        (p.name, p.workload, name): [
            replace(o, measured=True, confirmed=True) for o in options(p, MACHINES[name])[0]
        ]
        for p in PROGRAMS
        for name in p.machines
        if p.state != "training" and p.quality == "measured"
    }
    server = NodeType(
        "opteron",
        feature="opteron",
        partitions=("batch",),
        sockets=4,
        cores=CORES,
        memory_mb=64_000,
        freq_khz=(FREQ_KHZ,),
        default_freq_khz=FREQ_KHZ,
        nodes=("o1",),
        default_partition="batch",
    )
    measured = {
        (name, "default", "opteron"): [
            known(replace(r.configuration, node_type="opteron"), r.time_s, r.energy_j or 1.0)
            for r in runs
        ]
        for name, runs in measured_programs().items()
    }
    skl = replace(SKL, freq_khz=(1_000_000, 2_000_000), default_freq_khz=2_000_000)
    synthetic: dict[tuple[str, str, str], list[Option]] = {}
    for workload, ranks in (("threads", 1), ("hybrid", 4)):
        for kind, threads in ((BDW, (4, 8, 16, 28)), (skl, (8, 24, 40))):
            synthetic["stencil", workload, kind.name] = [
                response(kind.name, n, ranks, t, f)
                for n in (1, 2)
                for t in threads
                for f in kind.freq_khz[::5] + kind.freq_khz[-1:]
            ]
    return {
        "example": ([m.node_type for m in MACHINES.values()], example),
        "opteron48": ([server], measured),
        "two partitions": ([BDW, skl], synthetic),
    }


GRIDS = grids()
FEW_POINTS = "two partitions"
"""The grid that is tried in a moment; the others' points are some hundreds."""
GRID_PARAMETERS = [
    name if name == FEW_POINTS else pytest.param(name, marks=pytest.mark.slow) for name in GRIDS
]


@pytest.fixture(params=SCHEDULERS)
def scheduler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name = str(request.param)
    monkeypatch.setattr(view, "installed_name", lambda: name)
    for variable in ("OMP_NUM_THREADS", "SBATCH_ACCOUNT"):
        monkeypatch.delenv(variable, raising=False)
    return name


@pytest.fixture(params=GRID_PARAMETERS)
def store(request: pytest.FixtureRequest, scheduler: str, store_path: Path) -> Path:
    kinds, models = GRIDS[request.param]
    if scheduler == "pbs":
        kinds = [replace(k, feature=f"node_type={k.name}") for k in kinds]
    with Writer(store_path) as writer:
        writer.save_node_types(kinds, source="test")
        writer.apply_config(
            "policy", path="-", text="-", compiled={"base": POLICY, "rules": []}, by="test"
        )
        with writer.batch():
            for (application, workload, name), grid in models.items():
                writer.save_model(
                    application,
                    workload,
                    name,
                    scope="all",
                    owner="",
                    name="bspline",
                    energy_quality="measured",
                    n_train=len(grid),
                    options=grid,
                    stats=as_measured(grid),
                )
    return store_path


def request_of(payload: Mapping[str, object], scheduler: str, choices: str) -> JobRequest:
    language, read = translator(scheduler), parse_choices(choices)[0]
    request = language.parse_request(payload, user="ann", uid=1000, choices=read)
    return replace(request, scheduler=scheduler)


def as_explained(path: Path, scheduler: str, choices: str, snapshot: Snapshot) -> Decision:
    payload = payload_of(path, scheduler=scheduler)
    return decide(request_of(payload, scheduler, choices), snapshot, chance=lambda: 1.0)


def as_hooked(path: Path, scheduler: str, choices: str, snapshot: Snapshot) -> Decision:
    """Decide what the scheduler's hook sends: nothing of this process, the queue's words."""
    script = path.read_text()
    payload: dict[str, Any] = {
        "hook": "cli_filter",
        "type": "sbatch",
        "script": script,
        "script_path": str(path),
        "options": translator(scheduler).read_directives(script),
        "argv": [str(path)],
        "env": dict(item for item in payload_of(path, scheduler=scheduler)["env"].items()),  # type: ignore[attr-defined]
    }
    if scheduler == "pbs":
        payload |= {"hook": "queuejob", "type": "", "host_resources": ["node_type"]}
    return decide(request_of(payload, scheduler, choices), snapshot, chance=lambda: 1.0)


def script_of(job: str, scheduler: str, ranks: int) -> str:
    """Return a script that asks for what the page says that its job asks for."""
    language = translator(scheduler)
    given = language.read_arguments(job.split()[1:])
    lines = [" ".join((language.DIRECTIVE, *words)) for words in language.written(given)]
    return "\n".join(["#!/bin/bash", *lines, "", language.launched("./program", ranks), ""])


def points(store: Path) -> Iterator[tuple[str, str, Option]]:
    with Reader(store) as reader:
        found = [(m.application, m.workload, o) for m in reader.models() for o in m.options()]
    yield from found


def test_all_that_say_what_a_pin_does_say_the_same(
    store: Path, scheduler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, moved, elsewhere = 0, 0, 0
    for number, (application, workload, option) in enumerate(points(store)):
        point = option.configuration
        folder = tmp_path / str(number)  # of its own: in one of all, backups of scripts are many
        folder.mkdir()
        script = folder / "job.sh"
        pinned = wished({}, Wish("pin", point=point), application, workload)
        choices = text_of(pinned)
        monkeypatch.setenv("ADVISOR_APPLICATION", application)
        monkeypatch.setenv("ADVISOR_WORKLOAD", workload)
        person = Person("ann", 1000, choices=pinned)
        with Reader(store) as reader:
            shown = for_sample(reader, application, workload, person, point)
            seen = seen_models(reader, application, workload, person)
        snapshot = seen.snapshot
        ranks = point.ranks_per_node
        script.write_text(script_of(shown.job, scheduler, ranks))
        explained = as_explained(script, scheduler, choices, snapshot)
        where = (application, workload, point, shown.sentence, shown.lines, explained.codes)

        assert as_hooked(script, scheduler, choices, snapshot).rewrite == explained.rewrite, where
        said = translator(scheduler).read_directives("\n".join(shown.lines))
        assert said.items() >= explained.rewrite.items(), where
        assert shown.variables == explained.environment, where
        if "pinned" not in explained.codes:
            assert not shown.lines and not explained.changed, where
            continue
        reached += 1
        chosen = explained.chosen.configuration if explained.chosen else explained.baseline
        assert chosen == point, where
        if (
            shown.lines
            and home(seen.shown, person, snapshot.inventory).node_type != point.node_type
        ):
            elsewhere += 1  # these lacked the constraint
            feature = snapshot.inventory.node_types[point.node_type].feature
            assert any(feature in line for line in shown.lines), where
        lines = lines_of(explained.rewrite, explained.environment, scheduler)
        asked_for = translator(scheduler).read_arguments(shown.job.split()[1:])
        assert shown.lines in (
            lines,
            lines_of({**asked_for, **explained.rewrite}, explained.environment, scheduler),
        ), where
        moved += explained.baseline is not None and explained.baseline.node_type != point.node_type

        # the copied lines, in a script that asks for no node type, and the written script
        copied = folder / "copied.sh"
        body = script.read_text().split("\n")
        new = rewritten(body, explained.rewrite, scheduler, explained.environment)
        added = [line for line in new if line and line not in body]
        assert tuple(added) == lines, where
        copied.write_text("\n".join(new))
        again = as_explained(copied, scheduler, "", snapshot)
        assert again.baseline == point, (where, again.codes)
        if scheduler == "slurm":
            # without a daemon nobody knows which limit will hold, so this job states a long one
            limit = "#SBATCH --time=7-0"
            script.write_text("\n".join([body[0], limit, *body[1:]]))
            outlook = for_script(
                script, pinned, store=store, socket=tmp_path / "none", person=person
            )
            assert outlook.lines == lines, where
            if lines:
                write_script(script, outlook)
            assert script.read_text().replace(f"{limit}\n", "") == copied.read_text(), where
    assert reached > 10
    with Reader(store) as reader:
        shared = reader.inventory().in_partition("batch")
    assert bool(moved) == (len(shared) > 1)
    assert bool(elsewhere) == (len({o.configuration.node_type for _, _, o in points(store)}) > 1)
