"""Every verb that writes, on a published copy: one line says what to do, and nothing is written."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from advisor.cli import build_parser, main
from advisor.core.protocol import call
from advisor.errors import PublishedCopyError
from advisor.store.backup import backup, restore
from advisor.store.publish import publish
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from tests.contract.ear_rows import EAR4, row4
from tests.examples import example_store
from tests.profiled import grid_profile, write_runs
from tests.unit.test_ranking_files import GIVEN

Run = Callable[..., Any]

WRITING = {
    "train": "train app --yes --threads 1 -- true",
    "run": "run --record --application app --threads 1 --meter none -- touch ran",
    "import": "import grid.csv --application cfd --node-type milan",
    "import sacct": "import sacct.txt --from sacct",
    "import ear": "import ear.csv --from ear --node-type milan",
    "fit": "fit cg-solver",
    "lab bench": "lab bench --here --budget 1s",
    "lab bench io": "lab bench --here --io . --budget 1s",
    "lab profile import": "lab profile import profiles",
    "lab profile classify": "lab profile classify grid",
    "lab profile fit": "lab profile fit grid",
    "lab profile adjust": "lab profile adjust grid --exclude NPC=9,SIZE=24",
    "lab profile redo": "lab profile redo grid 2",
    "store promote": "store promote cg-solver --scope all",
    "store forget": "store forget cg-solver --yes",
    "site apply": "site apply site.yaml",
    "site rollback": "site rollback --to 1",
    "site discover": "site discover --scheduler local",
    "policy apply": "policy apply policy.yaml",
    "policy rollback": "policy rollback --to 1",
    "collect": "collect --scheduler local",
    "store restore": "store restore backup",
    "store prune": "store prune --older-than 0d --yes",
    "store move": "store move --to postgresql:///nowhere",
}
"""What a verb, or an action of one, is called with to write into the store."""
SAYING = {"lab rank", "lab characterise"}
"""Those that show what they came to, and say in a line of it that it is not stored."""
READING = {
    "jobs",
    "note",
    "prospect",
    "explain",
    "why",
    "options",
    "lab predict",
    "choose",
    "tui",
    "lab phases show",
    "lab phases cluster",
    "lab phases period",
    "lab phases fold",
    "lab phases replay",
    "lab phases caps",
    "cc",
    "lab profile show",
    "lab profile extrapolate",
    "lab profile history",
    "lab classify",
    "lab classes peaks",
    "lab classes train",
    "lab classes check",
    "lab classes show",
    "site check",
    "site diff",
    "site show",
    "policy check",
    "policy diff",
    "policy simulate",
    "policy show",
    "hook install",
    "hook remove",
    "hook status",
    "service",
    "serve",
    "report",
    "store publish",
    "store history",
    "store fetch",
    "store backup",
    "metrics",
    "doctor",
    "completion",
    "demo",
    "lab evaluate",
    "lab pareto",
}
"""Those that never write into a store; serve only reads a published copy, as a test below shows."""


def verbs(parser: argparse.ArgumentParser, words: str = "") -> Iterator[str]:
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for action in below:
        for name, inner in action.choices.items():
            yield from verbs(inner, f"{words} {name}".strip())
    if not below:
        yield words


def test_every_verb_is_known_to_write_or_to_read() -> None:
    forms = {"import sacct", "import ear", "lab bench io"}
    assert sorted(verbs(build_parser("*"))) == sorted((WRITING.keys() - forms) | SAYING | READING)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a published copy, and with files that could be written into a store."""
    place = tmp_path_factory.mktemp("made")
    store, own = place / "advisor.db", ["--db", str(place / "advisor.db")]
    example_store(store, "ann")
    (place / "grid.csv").write_text(
        "nodes,ranks_per_node,threads_per_node,freq_khz,time_s,energy_j\n1,1,8,0,30.1,4800\n"
    )
    (place / "ear.csv").write_text(f"{EAR4}\n{row4('mil01')}\n")
    (place / "sacct.txt").write_text(
        "JobID|JobName|User|Account|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|NCPUS\n"
        "7|cfd|ann|proj|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:00:10|2026-01-01T00:10:10|600"
        "|1|x1|8\n"
    )
    (place / "policy.yaml").write_text("version: 1\nmode: advise\n")
    site = "version: 1\nnode_types: {x: {cores: 8, nodes: x1}}\n"
    (place / "first.yaml").write_text(site + "default_partition: x\n")
    (place / "site.yaml").write_text(site)
    write_runs(place / "profiles", [grid_profile((n, n), 24) for n in (3, 4, 5, 6)])
    (place / "setup.yaml").write_text(
        "complexity: {NThreads: [NPC], default: {SIZE: [x], NPC: [x]}}\nmetrics: {NThreads: {}}\n"
    )
    for words in (
        ["profile", "import", "profiles"],
        ["profile", "classify", "grid"],
        ["profile", "fit", "grid", "--setup", "setup.yaml"],
        ["site", "apply", "first.yaml"],
        ["site", "apply", "site.yaml"],
        ["policy", "apply", "policy.yaml"],
    ):
        with chdir(place):
            assert main([*words, *own]) == 0
    for name in ("site", "policy"):
        with (place / f"{name}.yaml").open("a") as text:
            text.write({"site": "default_partition: y\n", "policy": "confidence: 80%\n"}[name])
    backup(store, place / "backup")
    publish(store, place / "copy.db", history=True)
    for file in place.glob("advisor.db*"):
        file.unlink()
    return place


@pytest.fixture
def copy(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A published copy in a folder of its own, which is the working directory."""
    shutil.copytree(made, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work" / "copy.db"


@pytest.mark.parametrize("named", ["by --db", "by ADVISOR_DB"])
@pytest.mark.parametrize("verb", WRITING)
def test_a_verb_that_writes_is_refused(
    advisor: Run, copy: Path, monkeypatch: pytest.MonkeyPatch, verb: str, named: str
) -> None:
    before, files = copy.read_bytes(), set(copy.parent.iterdir())
    words = WRITING[verb].split()
    if named == "by --db":
        at = words.index("--") if "--" in words else len(words)
        words[at:at] = ["--db", str(copy)]
    else:
        monkeypatch.setenv("ADVISOR_DB", str(copy))
    done = advisor(*words)
    assert (done.code, done.err.count("\n")) == (3, 1), (done.out, done.err)
    assert f"{copy} is a published copy" in done.err
    assert done.err.rstrip().endswith(")"), "what to do"
    assert copy.read_bytes() == before and set(copy.parent.iterdir()) == files


def test_what_is_characterised_is_not_stored_and_said_so(advisor: Run, copy: Path) -> None:
    """Of a ranking tests/contract/test_rank_users.py shows it."""
    before = copy.read_bytes()
    Path("phases.yaml").write_text(GIVEN)
    done = advisor("characterise", "--input", "phases.yaml", "--node-type", "milan", "--db", copy)
    assert done.code == 1
    assert f"not stored: there is no place for the results: {copy} is a published copy" in done.out
    assert copy.read_bytes() == before


def test_a_backup_in_a_stores_place_is_a_store_and_a_copy_needs_restore(
    copy: Path, tmp_path: Path
) -> None:
    store = tmp_path / "advisor.db"
    shutil.copy(copy.parent / "backup", store)
    Writer(store).close()
    store.unlink()
    shutil.copy(copy, store)
    with pytest.raises(PublishedCopyError) as caught:
        Writer(store)
    assert "advisor store restore" in caught.value.hint
    store.rename(tmp_path / "lost.db")
    restore(tmp_path / "lost.db", store)
    Writer(store).close()
    with Reader(store) as reader:
        assert not reader.published and reader.model_stamps()
    publish(store, copy)  # and what is published from it is a copy again
    with pytest.raises(PublishedCopyError):
        restore(copy.parent / "backup", copy)


def test_a_daemon_on_a_copy_only_reads_it(copy: Path, tmp_path: Path) -> None:
    """Root may have forgotten --read-only: jobs are advised, and nothing is written."""
    before, socket = copy.read_bytes(), tmp_path / "s"
    daemon = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "advisor",
            "serve",
            "--watch",
            "0",
            "--db",
            copy,
            "--socket",
            socket,
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while not socket.exists():
            assert daemon.poll() is None
            time.sleep(0.05)
        status = call(socket, {"op": "status"})
        assert (status["takes_results"], status["store"]) == (False, str(copy))
        assert status["models"]
    finally:
        daemon.terminate()
        log = daemon.communicate(timeout=60)[1]
    assert "event=only-reads" in log and "--read-only" in log
    assert copy.read_bytes() == before
    assert not list(copy.parent.glob("copy.db-*")) and not (copy.parent / "spool").exists()
