"""Fits by engines: here, on Dask's real local cluster, and what each says when it goes wrong."""

from __future__ import annotations

import json
import os
import ssl
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from advisor.core.workers_setup import WorkersSetup
from advisor.errors import InputError
from advisor.loop.refit import refit_all
from advisor.models import fit_task
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from advisor.workers.base import Done, Task, engine
from advisor.workers.local import Here
from tests.examples import example_store

Run = Callable[..., Any]
PERFORM = fit_task.perform
DASK = WorkersSetup(engine="dask", jobs=2, waits_s=60, task_s=60)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("example") / "advisor.db"
    example_store(file, "ann")
    return file


@pytest.fixture
def store(example: Path, tmp_path: Path) -> Path:
    with Reader(example) as reader:
        import sqlite3

        with sqlite3.connect(tmp_path / "a.db") as copy:
            reader.copy_to(copy)
    return tmp_path / "a.db"


@pytest.fixture
def fits_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was fitted before is not fitted again: for tests of what becomes of a fit."""
    monkeypatch.setattr(fit_task, "perform", _performed)


@cache
def _performed(text: str) -> str:
    return PERFORM(text)


def models(store: Path) -> dict[tuple[str, str, str, str], Any]:
    with Reader(store) as reader:
        ids = list(reader.model_stamps())
        return {
            (m.application, m.workload, m.node_type, m.owner): (m.options_blob, m.stats)
            for m in reader.models(ids)
            if m.fitted and m.state == "fitted"
        }


def nothing(*_: object) -> None:
    pass


# -- functions that tasks name -----------------------------------------------------------------


def echo(text: str) -> str:
    return text


def dies(text: str) -> str:
    os._exit(1)


def hangs(text: str) -> str:
    time.sleep(600)
    return text


def breaks(text: str) -> str:
    raise InputError(f"{text} is wrong", hint="mend it")


def task(name: str, text: str = "x") -> Task:
    return Task(f"{__name__}:{name}", text)


# ----------------------------------------------------------------------------------------------


def test_a_fit_as_a_task_is_the_fit(store: Path) -> None:
    from advisor.loop.refit import _in_use
    from advisor.models.fit import fit_options

    with Reader(store) as reader:
        inventory = reader.inventory().node_types
        used = _in_use(reader)  # type: ignore[arg-type]  # it only reads
    assert used
    for model, group in used:
        node_type = inventory.get(model.node_type)
        wanted = fit_options(group.observations, node_type=node_type, elsewhere={})
        made = fit_task.fit_of(
            _performed(fit_task.fit_task(group.observations, node_type, {}).text)
        )
        assert made.options == wanted.options or repr(made.options) == repr(wanted.options)
        plain = json.loads(json.dumps(wanted.stats))
        assert (made.stats, made.model, made.n_train) == (plain, wanted.model, wanted.n_train)


@pytest.mark.usefixtures("fits_once")
def test_all_models_are_fitted_again_here(store: Path, advisor: Run) -> None:
    before = models(store)
    said = advisor("--db", store, "fit", "--all", "--json").json()
    assert said["fitted"] == len(before) and not said["left"] and said["engine"] == "local"
    assert models(store).keys() == before.keys()
    again = advisor("--db", store, "fit", "--all")
    assert again.code == 0 and again.out == f"fitted {len(before)} models (local)\n"


@pytest.mark.usefixtures("fits_once")
def test_one_that_goes_wrong_stays_and_keeps_no_other(store: Path) -> None:
    class Half(Here):
        def run(self, tasks: Any) -> Any:
            for done in super().run(tasks):
                yield replace_done(done) if done.number % 2 else done

    def replace_done(done: Done) -> Done:
        return Done(done.number, problem="its worker was lost")

    count = len(models(store))
    with Writer(store) as writer:
        refitted = refit_all(writer, Half(WorkersSetup()), step=nothing)
    assert refitted.fitted == (count + 1) // 2 and len(refitted.left) == count // 2
    assert all(line.endswith("its worker was lost") for line in refitted.left)


@pytest.mark.usefixtures("fits_once")
def test_what_was_changed_meanwhile_is_left(store: Path) -> None:
    class Slow(Here):
        def run(self, tasks: Any) -> Any:
            for done in super().run(tasks):
                with Writer(store) as other:
                    for model in other.models(list(other.model_stamps())):
                        if model.fitted and model.state == "fitted":
                            other.set_model_state(model.id, "suspended", "meanwhile")
                yield done

    with Writer(store) as writer:
        refitted = refit_all(writer, Slow(WorkersSetup()), step=nothing)
    assert not refitted.fitted
    assert all(line.endswith("it was changed meanwhile") for line in refitted.left)


def test_bad_words_get_one_line(store: Path, advisor: Run) -> None:
    for words, said in {
        "fit --all app": "--all fits every model by default settings",
        "fit app --workers dask": "--workers goes with --all",
        "fit --all --workers nosuch": "no engine of workers is called 'nosuch'",
    }.items():
        result = advisor("--db", store, *words.split())
        assert result.code and said in result.err and result.err.count("\n") == 1, result.err


def test_the_site_says_where(store: Path, advisor: Run, tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("version: 1\nworkers: {engine: dask, scheduler: slurm, memory_mb: 4 GB}\n")
    result = advisor("site", "check", site)
    assert result.code and "workers.folder" in result.out, result.out
    site.write_text("version: 1\nworkers: {engine: dask, jobs: 0}\n")
    result = advisor("site", "check", site)
    assert result.code and "workers.jobs" in result.out, result.out
    site.write_text("version: 1\nworkers: {engine: nosuch, jobs: 3, memory_mb: 4 GB}\n")
    assert advisor("--db", store, "site", "apply", site).code == 0
    with Reader(store) as reader:
        assert WorkersSetup.of(reader.site()) == WorkersSetup("nosuch", jobs=3, memory_mb=4096)
    assert "no engine of workers is called 'nosuch'" in advisor("--db", store, "fit", "--all").err


# -- the real Dask -----------------------------------------------------------------------------

slow = pytest.mark.slow


def on_dask(tasks: list[Task], **setup: Any) -> list[Done]:
    pytest.importorskip("distributed")
    return sorted(engine(replace(DASK, **setup)).run(tasks))


@slow
def test_all_models_are_fitted_again_on_dask(store: Path, advisor: Run) -> None:
    pytest.importorskip("distributed")
    advisor("--db", store, "fit", "--all")
    here = models(store)
    said = advisor("--db", store, "fit", "--all", "--workers", "dask", "--json").json()
    assert said["engine"] == "dask" and said["fitted"] == len(here) and not said["left"]
    there = models(store)
    assert {k: v[0] for k, v in there.items()} == {k: v[0] for k, v in here.items()}


@slow
def test_what_goes_wrong_on_dask_is_one_line_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    # What is answered is the worker's until it is fetched: apart from a task that kills its worker.
    found = on_dask([task(kind) for kind in ("echo", "breaks", "echo")], task_s=20)
    assert [d.number for d in found] == [0, 1, 2]
    assert found[0].text == found[2].text == "x"
    assert found[1].problem == "x is wrong (mend it)"
    lost = on_dask([task(kind) for kind in ("dies", "hangs")], task_s=20)
    assert [d.number for d in lost] == [0, 1]
    assert "lost" in lost[0].problem or "no result for 20 s" in lost[0].problem
    assert "no result for 20 s" in lost[1].problem
    found += lost
    assert all("\n" not in d.problem for d in found)


@slow
def test_a_scheduler_that_never_starts_a_job_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dask_jobqueue")
    (tmp_path / "bin").mkdir()
    (tmp_path / "shared").mkdir(mode=0o700)
    for program in ("sbatch", "scancel"):
        path = tmp_path / "bin" / program
        path.write_text("#!/bin/sh\necho Submitted batch job 4711\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    folder = str(tmp_path / "shared")
    found = on_dask([task("echo")], scheduler="slurm", folder=folder, waits_s=3)
    assert [d.problem for d in found] == [
        "no worker came in 3 s (workers.waits_s): slurm started none of the jobs, or all were lost"
    ]
    assert not list((tmp_path / "shared").iterdir()), "certificates and logs are gone"


@slow
def test_a_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    for folder, said in {
        str(tmp_path / "open"): "may be written by others",
        str(tmp_path / "none"): "No such file",
        "": "need a folder",
    }.items():
        with pytest.raises(InputError, match=said):
            on_dask([task("echo")], scheduler="slurm", folder=folder)
    (tmp_path / "open").chmod(0o700)
    with pytest.raises(InputError, match=r"knows no 'nosuch'.*slurm"):
        on_dask([task("echo")], scheduler="nosuch", folder=str(tmp_path / "open"))


@slow
def test_nobody_without_the_certificate_is_heard() -> None:
    distributed = pytest.importorskip("distributed")
    from advisor.workers.dask import _client

    with _client(DASK, 1) as client:
        address = client.scheduler.address
        assert address.startswith("tls://127.0.0.1:")
        stranger = distributed.Security.temporary()
        for security, url in (
            (stranger, address),
            (None, address.replace("tls://", "tcp://")),
        ):
            with pytest.raises((OSError, RuntimeError, ValueError, ssl.SSLError)):
                distributed.Client(url, security=security, timeout=2)
