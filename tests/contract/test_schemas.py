"""config/schemas says what programs may rely on: every answer of the daemon and of ``--json``.

The ``advisor`` fixture holds every JSON answer of the whole suite against its schema (see
tests/schemas.py); here each verb gives one at least, and a real daemon answers every operation.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.cli import FAMILIES, VERBS, build_parser
from advisor.core.protocol import call
from advisor.errors import AdvisorError
from advisor.ranking.suite import member
from advisor.store.backup import backup
from advisor.store.profiles import Bench, StoredProfile, save_profiles
from advisor.store.publish import publish
from advisor.store.rankings import save_characterisation
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from docs.generator import schemas
from tests.examples import example_store
from tests.profiled import grid_profile, write_runs
from tests.schemas import FOLDER, check, validator

SCRIPT = "#!/bin/bash\n#SBATCH -N 1 -n 1 -C broadwell --exclusive -t 60\nsrun ./cg-solver n=4e6\n"
HEADER = "nodes,ranks_per_node,threads_per_node,freq_khz,time_s,energy_j\n"
STREAM = {"size_kb": 3000, "stride_b": 8, "dtype_b": 8, "access": "P", "steps": 1.0}
PHASES = {
    "application": "md-lattice",
    "node_type": "broadwell",
    "phases": [
        {"name": "solve", "time_s": 8.0, "iterations": 4e9, "threads": 4, "streams": [STREAM]}
    ],
}
EAR = (
    "NODE_ID;JOB_ID;STEP_ID;APP_ID;DEF.FREQ;TIME;CPI;TPI;GBS;DC-NODE-POWER;CYCLES;INSTRUCTIONS\n"
    "bdw01;7;0;solver;2400000;10.5;0.5;0.02;20.0;300.5;1000;2000\n"
)
SACCT = "JobID|JobName|State|ElapsedRaw|NNodes|NCPUS\n" + "".join(
    f"{i}|relax|COMPLETED|3600|1|28\n" for i in range(1, 500)
)
SLURM = ("--scheduler", "slurm", "--dir", "slurm")
GRID = ("--application", "fresh", "--node-type", "broadwell")
CALLS: dict[str, tuple[tuple[str, ...], ...]] = {
    "explain": (("job.sh",), ("job.sh", "--", "--nodes=2")),
    "why": (("CHANGED",), ("LEFT",), ("CHANGED", "LEFT")),
    "jobs": ((), ("--everybody", "--changed")),
    "note": ((), ("--everybody",)),
    "prospect": (("year.txt",),),
    "options": (("cg-solver",), ("cg-solver", "--all")),
    "predict": (("sized", "--at", "n=800"),),
    "train": (("job.sh", "--dry-run"),),
    "run": (("--", "true"),),
    "choose": ((), ("cg-solver", "--goal", "edp"), ("--off",), ("--on",)),
    "characterise": (("--input", "phases.json"),),
    "bench": (("show",),),
    "phases": (
        ("cluster", "bursts.csv"),
        ("period", "events.csv"),
        ("period", "power.csv"),
        ("fold", "joules.csv", "--marks", "events.csv"),
        ("replay", "events.csv", "events.csv"),
        (
            "replay",
            "events.csv",
            "events.csv",
            "--readings",
            "joules.csv",
            "--base-readings",
            "joules.csv",
        ),
    ),
    "rank": (("md-lattice",), ("md-lattice", "--no-store")),
    "classify": (("--signature", "one.json"), ("--signature", "list.json")),
    "classes": (
        ("show",),
        ("peaks", "--node-type", "broadwell", "--processor", "EPYC 9654"),
        ("check", "files"),
    ),
    "report": ((),),
    "import": (("grid.csv", *GRID), ("ear.csv", "--from", "ear", "--node-type", "broadwell")),
    "fit": (("cg-solver",),),
    "models": (("--list-models",),),
    "refit": (("--all",),),
    "demo": ((),),
    "evaluate": (("grid.csv",),),
    "pareto": (("grid.csv", "--x", "time_s:min", "--y", "energy_j:min"),),
    "site": (("show",), ("check", "site.yaml"), ("diff", "site.yaml"), ("apply", "site.yaml")),
    "policy": (
        ("show",),
        ("check", "policy.yaml"),
        ("diff", "policy.yaml"),
        ("apply", "policy.yaml"),
        ("check", "bad.yaml"),
    ),
    "policy-simulate": (("simulate", "policy.yaml"), ("simulate", "policy.yaml", "--since", "1s")),
    "promote": (("shared", "--scope", "all"),),
    "forget": (("cg-solver", "--yes"),),
    "publish": (("copy.db",),),
    "fetch": (("published.db", "fetched.db"),),
    "backup": (("backup.db",),),
    "restore": (("whole.db",),),
    "history": (("--to", "history"),),
    "prune": (("--older-than", "0d", "--yes"), ("--undo",)),
    "metrics": ((),),
    "service": (("install", "--dir", "units"), ("status", "--dir", "units")),
    "collect": (("--spool",), ("--scheduler", "local")),
    "hook": (
        ("status", *SLURM),
        ("install", *SLURM, "--dry-run"),
        ("remove", *SLURM),
        ("status", "--scheduler", "pbs", "--login", "bin"),
    ),
    "completion": (("bash",),),
    "doctor": ((),),
    "profile": (
        ("import", "profiled"),
        ("classify", "grid", "--method", "communication"),
        ("fit", "grid", "--setup", "setup.yaml"),
        ("show", "grid"),
        ("adjust", "grid", "--retrain", "all"),
        ("extrapolate", "grid", "--at", "NPC=9,SIZE=90", "--output", "far"),
        ("history", "grid"),
    ),
}
OWN_SCHEMA = {"models": "fit", "refit": "fit", "policy-simulate": "policy"}
"""Answers of their own form, with the verb that gives them."""
SILENT = {"serve": "runs until it is stopped", "tui": "an application of the terminal"}
"""Verbs that take --json, as all do, and print no answer."""
ELSEWHERE = {"move": "needs a database: tests/contract/test_stores.py"}
"""Verbs whose answers are held against their schema in another file."""
OPERATIONS = (
    "decide",
    "explain",
    "submitted",
    "script",
    "observe",
    "characterise",
    "profile",
    "applications",
    "options",
    "history",
    "metrics",
    "status",
    "ping",
)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("demo") / "advisor.db"
    example_store(store, "ann")
    with Writer(store) as writer:
        run = writer.observations("cg-solver")[0].observation
        writer.add_observations("shared", "default", [replace(run, scope="own")])
        for n in (100, 200, 400):
            runs = [
                replace(
                    run,
                    time_s=n / t,
                    energy_j=n * (1 + 9 / t),
                    scope="all",
                    configuration=replace(run.configuration, threads_per_node=t),
                )
                for t in (4, 8, 16)
            ]
            writer.add_observations("sized", f"-n {n}", runs)
        save_characterisation(
            writer, "md-lattice", "default", "broadwell", PHASES, contributor="ann", scope="all"
        )
        for name, ns in (("broadwell", 4.0), ("skylake", 3.0)):
            profiles = [
                StoredProfile(
                    name, one.name, tuple(s.to_dict() for s in one.streams), 4, ns / 1000, 0.01, 5
                )
                for one in (member("mbw1lc", 4, (256, 8)), member("mbw1lc", 4, (16384, 8)))
            ]
            save_profiles(writer, Bench(name, {"cores": 28}, name, "6.1", "cc", "root"), profiles)
    return store


@pytest.fixture
def place(example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a store that has something of everything, and files to name."""
    shutil.copy(example, tmp_path / "advisor.db")
    rows = "".join(
        f"1,1,{t},{f},{1e8 / t / f + 5:.4f},{t * 3 + f / 1e5:.3f}\n"
        for t in (1, 2, 4, 8)
        for f in (1_200_000, 1_500_000, 1_800_000, 2_100_000)
    )
    backup(tmp_path / "advisor.db", tmp_path / "whole.db")
    publish(tmp_path / "advisor.db", tmp_path / "published.db")
    (tmp_path / "job.sh").write_text(SCRIPT)
    (tmp_path / "grid.csv").write_text(HEADER + rows)
    seconds = [0.37 * i for i in range(60)]
    (tmp_path / "events.csv").write_text(
        "time_s,site\n" + "".join(f"{t:.2f},{'ab'[i % 2]}\n" for i, t in enumerate(seconds))
    )
    (tmp_path / "power.csv").write_text(
        "time_s,power_w\n" + "".join(f"{i / 10},{100 + 50 * (i % 8 < 3)}\n" for i in range(400))
    )
    (tmp_path / "joules.csv").write_text(
        "time_s,energy_j\n" + "".join(f"{i / 10},{9 * i}\n" for i in range(225))
    )
    (tmp_path / "bursts.csv").write_text(
        "process,duration_s,instructions,cycles\n"
        + "".join(f"{i % 3},0.1,{1e6 + i * (10 + 1e5 * (i % 2))},1e6\n" for i in range(60))
    )
    (tmp_path / "phases.json").write_text(json.dumps(PHASES))
    (tmp_path / "policy.yaml").write_text("version: 1\nmode: observe\n")
    (tmp_path / "bad.yaml").write_text("mode: loud\n")
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "slurm.conf").write_text("ClusterName=x\n")
    (tmp_path / "one.json").write_text('{"cpi": 0.5, "gbs": 20}')
    (tmp_path / "list.json").write_text("[{}, {}]")
    (tmp_path / "ear.csv").write_text(EAR)
    (tmp_path / "year.txt").write_text(SACCT)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "roofline.x.data").write_text("100 1000\n")
    runs = [grid_profile((n,), size) for n in (4, 5, 6) for size in (40, 80)]
    write_runs(tmp_path / "profiled", runs)
    (tmp_path / "setup.yaml").write_text("complexity: {default: {SIZE: [x^2], NPC: [x]}}\n")
    (tmp_path / "site.yaml").write_text("version: 1\ndefault_partition: batch\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def json_verbs() -> list[str]:
    """Return the verbs whose parser takes --json."""
    parser = build_parser("*")
    (verbs,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    parsers = dict(verbs.choices)
    for family in FAMILIES:
        (below,) = (
            a for a in parsers.pop(family)._actions if isinstance(a, argparse._SubParsersAction)
        )
        parsers |= below.choices
    return [n for n, p in parsers.items() if "--json" in p._option_string_actions]


def test_every_verb_with_json_has_a_schema_and_an_answer_here() -> None:
    verbs = [v for v in json_verbs() if v not in SILENT and v not in ELSEWHERE]
    assert {*verbs, *OWN_SCHEMA} == set(CALLS) and set(SILENT) < set(VERBS)
    files = {path.stem for path in FOLDER.glob("*.json")} - {"decision", "error", "protocol"}
    profile = {f"profile-{arguments[0]}" for arguments in CALLS["profile"]}
    assert files == (CALLS.keys() - {"profile"}) | profile | ELSEWHERE.keys()


def test_every_schema_is_one() -> None:
    for path in sorted(FOLDER.glob("*.json")):
        schema = json.loads(path.read_text())
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        assert schema["$id"] == path.name and schema["title"] and schema["description"]
        validator(path.stem).check_schema(schema)


def job_of(store: Path, *, changed: bool) -> str:
    with Reader(store) as reader:
        jobs = (d for d in reader.decisions() if d.job_id and d.changed == changed)
        return next(d.job_id for d in jobs if reader.outcome(d.job_id))


@pytest.mark.parametrize("verb", CALLS)
def test_what_a_verb_prints_is_what_its_schema_says(
    place: Path, advisor: Callable[..., Any], verb: str
) -> None:
    for arguments in CALLS[verb]:
        jobs = {"CHANGED": True, "LEFT": False}
        words = [
            job_of(place / "advisor.db", changed=jobs[word]) if word in jobs else word
            for word in arguments
        ]
        at = words.index("--") if "--" in words else len(words)
        done = advisor(OWN_SCHEMA.get(verb, verb), *words[:at], "--json", *words[at:])
        answer = done.json()  # holds it against the schema
        expected = verb
        expected += f"-{arguments[0]}" if verb == "profile" else ""
        assert answer["schema"] == f"advisor/{expected}/1", done.err
        validator(expected, strict=True).validate(answer)
        if expected in schemas.NAMES:
            few = with_few_parts(answer)
            check(few)
            for wrong in planted(expected, few):
                with pytest.raises(AssertionError, match=f"advisor/{expected}/1"):
                    check(wrong)


MAY_BE_LEFT_OUT = {
    "phases": {"period_events", "sites", "rare", "outer_period_s"},
    "fit": {"model", "version", "energy_quality", "n_train", "stats"},
    "forget": {
        "models",
        "observations",
        "characterisations",
        "rankings",
        "signatures",
        "trials",
    },
}
"""Keys of lists' parts that a schema does not require, by its name."""


def with_few_parts(value: Any) -> Any:
    """Return an answer of which every list of objects has its first two: it is checked often."""
    if isinstance(value, dict):
        return {key: with_few_parts(inner) for key, inner in value.items()}
    if isinstance(value, list):
        count = 2 if value and isinstance(value[0], dict) else len(value)
        return [with_few_parts(inner) for inner in value[:count]]
    return value


def planted(name: str, answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield an answer with a key more, and with each of its values of a wrong kind."""
    yield {**answer, "more": 1}
    for key, value in answer.items():
        if key != "schema":
            yield {**answer, key: ["wrong"] if isinstance(value, dict) else {"wrong": 1}}
        if isinstance(value, list) and value and isinstance(value[0], dict):
            yield {**answer, key: [*value, 7]}
            if key in ("train", "test", "excluded"):  # scales: the application's own parameters
                continue
            for part in value[0].keys() - {"threads_per_rank", *MAY_BE_LEFT_OUT.get(name, ())}:
                yield {**answer, key: [{k: v for k, v in value[0].items() if k != part}]}


def test_an_answer_that_is_not_as_its_schema_says_is_noticed(
    place: Path, advisor: Callable[..., Any]
) -> None:
    answer = advisor("explain", "job.sh", "--json").json()
    for broken in ({**answer, "goal": 7}, {**answer, "more": 1}, {"schema": answer["schema"]}):
        with pytest.raises(AssertionError, match="advisor/explain/1"):
            check(broken)


# -- the socket ------------------------------------------------------------------------------------


@pytest.fixture
def daemon(place: Path) -> Iterator[Path]:
    socket = place / "s"
    command = [
        sys.executable,
        "-m",
        "advisor",
        "serve",
        "--socket",
        str(socket),
        "--db",
        str(place / "advisor.db"),
        "--config-dir",
        str(place),
    ]
    with (place / "log").open("w") as log:
        process = subprocess.Popen(command, stderr=log)
        end = time.monotonic() + 60
        while "event=serving" not in (place / "log").read_text() and time.monotonic() < end:
            time.sleep(0.05)
        yield socket
        process.terminate()
        process.wait(20)


def test_every_operation_of_the_daemon_is_what_its_schema_says(daemon: Path) -> None:
    job = {
        "scheduler": "slurm",
        "hook": "cli_filter",
        "type": "sbatch",
        "script": SCRIPT,
        "options": {
            "nodes": "1",
            "ntasks": "1",
            "constraint": "broadwell",
            "exclusive": "exclusive",
            "time": "60",
        },
        "argv": ["job.sh"],
        "script_path": "/home/ann/job.sh",
        "truncated": False,
        "env": {},
        "choices": "",
        "cwd": "/home/ann",
        "het": False,
    }
    run = {
        "configuration": {
            "node_type": "broadwell",
            "nodes": 1,
            "ranks_per_node": 1,
            "threads_per_node": 4,
            "freq_khz": 1_200_000,
        },
        "time_s": 2.0,
    }
    requests: dict[str, dict[str, object]] = {
        "decide": job,
        "explain": job,
        "script": {"key": "0" * 32, "client": "packed"},
        "observe": {"application": "fresh", "workload": "w", "observations": [run]},
        "characterise": {"characterisation": {**PHASES, "workload": "default"}},
        "profile": {
            "node_type": "broadwell",
            "machine": {"cores": 28},
            "profiles": [
                {
                    "microbenchmark": "own",
                    "threads": 4,
                    "time_per_iter_us": 1.0,
                    "spread": 0.01,
                    "repeats": 5,
                    "streams": [STREAM],
                }
            ],
        },
        "applications": {},
        "options": {"application": "cg-solver"},
        "history": {},
        "metrics": {},
        "status": {},
        "ping": {},
    }
    answers: dict[str, Any] = {}
    for operation in OPERATIONS:
        if operation == "submitted":
            requests[operation] = {"decision": answers["decide"]["decision"], "job": "17"}
        request = {"v": 1, "op": operation, **requests[operation]}
        validator("protocol", f"{operation}_request").validate(request)
        answers[operation] = call(daemon, request, 30.0)
        validator("protocol", f"{operation}_answer").validate(answers[operation])
    assert answers["explain"]["chosen"]
    with pytest.raises(AdvisorError, match="unknown op 'nonsense'"):
        call(daemon, {"op": "nonsense"})


def test_every_operation_of_the_daemon_has_a_schema() -> None:
    defined = json.loads((FOLDER / "protocol.json").read_text())["$defs"]
    both = {f"{o}_{side}" for o in OPERATIONS for side in ("request", "answer")}
    assert set(defined) == both | {"error"}
    handlers = Path("advisor/service/handlers.py").read_text()
    handlers += Path("advisor/store/visible.py").read_text()
    assert all(f'"{o}"' in handlers for o in OPERATIONS)
