"""Rankings of users who may not write the store: through a real daemon, as another user."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from advisor.cli import main
from advisor.core.configuration import Configuration
from advisor.core.delivery import write_spool_file
from advisor.core.inventory import NodeType
from advisor.core.option import Option
from advisor.loop.rerank import (
    known_profiles,
    rank_all,
    rank_delivered,
    rank_stored,
    site_thresholds,
)
from advisor.ranking.files import read_thresholds
from advisor.ranking.suite import member
from advisor.store.profiles import Bench, StoredProfile, save_profiles, wanted
from advisor.store.publish import publish
from advisor.store.rankings import StoredRanking, characterisations, rankings, save_characterisation
from advisor.store.reader import Reader
from advisor.store.records import StoredModel
from advisor.store.writer import Writer
from tests.waiting import wait_for


class Done(NamedTuple):
    """What a command printed and returned."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]
STREAM = {"size_kb": 3000, "stride_b": 8, "dtype_b": 8, "access": "P", "steps": 1.0}
APP = {
    "application": "app",
    "workload": "w",
    "node_type": "old",
    "threads": 4,
    "time_s": 10.0,
    "phases": [
        {
            "name": "solve",
            "weight": 0.8,
            "time_s": 8.0,
            "iterations": 4e9,
            "threads": 4,
            "streams": [STREAM],
        }
    ],
}
NEEDED = (
    "cli.characterise",
    "cli.rank",
    "instruments.characterise_runs",
    "schedulers.this_machine",
    "core.protocol",
    "training.result_store",
    "training.site_context",
    "training.training_job",
)
"""What the commands below load when they run, which that user may not be able to read."""
pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs two users")


def bench(store: Writer, name: str, load: float) -> None:
    """Profile a node type: nanoseconds of a load, the same for any size, and of arithmetic."""
    found = []
    for threads in (4, 1):
        zones = [(f, kb) for f in ("mbw1lc", "mbw1lp", "mbw1p") for kb in (256, 16384)]
        for family, kb in [*zones, ("chain", 0), ("fma", 0)]:
            one = member(family, threads, *([(kb, 8)] if kb else []))
            us = {"chain": 1.0, "fma": 0.1}.get(family, load) / 1000
            streams = tuple(s.to_dict() for s in one.streams)
            found.append(StoredProfile(name, family, streams, threads, us, 0.01, 5))
    save_profiles(store, Bench(name, {"cores": 4}, name, "6.1", "cc", "root"), found)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A site: a store that only root may write, a model of app on ``old`` for everybody."""
    with tempfile.TemporaryDirectory(prefix="adv-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for sub, mode in (("site", 0o755), ("user", 0o777)):
            (folder / sub).mkdir()
            (folder / sub).chmod(mode)
        options = []
        for threads in (1, 2, 4):
            t, c = 100.0 / threads, Configuration("old", 1, 1, threads, 0)
            options.append(Option(c, t, t, t, t, t, t, True, True, True, True))
        with Writer(folder / "site" / "advisor.db") as store:
            store.save_node_types(
                [
                    NodeType(
                        n, feature=n, cores=4, nodes=(f"{n}1",), base_power_w=100, core_power_w=5
                    )
                    for n in ("old", "new")
                ],
                source="slurm",
            )
            store.save_model(
                "app",
                "w",
                "old",
                scope="all",
                owner="",
                name="bspline",
                energy_quality="measured",
                n_train=4,
                stats={},
                options=options,
            )
        (folder / "site" / "advisor.db").chmod(0o644)
        monkeypatch.setenv("ADVISOR_DB", str(folder / "site" / "advisor.db"))
        monkeypatch.setenv("ADVISOR_SOCKET", str(folder / "site" / "s"))
        monkeypatch.setenv("ADVISOR_CONFIG_DIR", str(folder / "site"))
        yield folder


@pytest.fixture
def daemon(place: Path) -> Iterator[subprocess.Popen[str]]:
    command = [
        sys.executable,
        "-m",
        "advisor",
        "serve",
        "--socket",
        str(place / "site" / "s"),
        "--db",
        str(place / "site" / "advisor.db"),
        "--refresh",
        "0.05",
        "--config-dir",
        str(place / "site"),
    ]
    with (place / "log").open("w") as log:
        process = subprocess.Popen(command, stderr=log, text=True)
    wait_for((place / "site" / "s").exists)
    (place / "site" / "s").chmod(0o666)
    yield process
    process.terminate()
    process.wait(10)


@pytest.fixture
def nobody(place: Path) -> Run:
    """Run the command line as a user who may read the store, and no more: in a child, since that
    user may not be able to read the interpreter's own files."""
    for name in NEEDED:
        import_module(f"advisor.{name}")

    def run(*argv: object) -> Done:
        end, start = os.pipe()
        child = os.fork()
        if not child:
            try:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                out, err = io.StringIO(), io.StringIO()
                with redirect_stdout(out), redirect_stderr(err):
                    code = main([str(a) for a in argv])
                done = [code, out.getvalue(), err.getvalue()]
            except BaseException as error:
                done = [-1, "", repr(error)]
            os.write(start, json.dumps(done).encode())
            os._exit(0)
        os.close(start)
        with os.fdopen(end, encoding="utf-8") as file:
            done = json.loads(file.read())
        os.waitpid(child, 0)
        return Done(*done)

    return run


def phases(place: Path, **changes: object) -> Path:
    file = place / "user" / "phases.yaml"
    file.write_text(yaml.safe_dump({**APP, **changes}))
    return file


def ranked(place: Path) -> list[StoredRanking]:
    with Reader(place / "site" / "advisor.db") as store:
        return rankings(store, "app")


def by_transfer(place: Path) -> list[StoredModel]:
    with Reader(place / "site" / "advisor.db") as store:
        return [m for m in store.find_models("app", "w") if m.transferred]


def ask(place: Path, request: object) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(str(place / "site" / "s"))
        client.sendall(json.dumps(request).encode() + b"\n")
        with client.makefile("rb") as lines:
            answer: dict[str, Any] = json.loads(lines.readline())
            return answer


def test_a_users_phases_become_a_ranking_and_a_model(
    place: Path, daemon: subprocess.Popen[str], nobody: Run
) -> None:
    with Writer(place / "site" / "advisor.db") as store:
        for name, load in (("old", 2.0), ("new", 0.5)):
            bench(store, name, load)
    done = nobody("characterise", "--input", phases(place))
    assert done.code == 0, done.err
    assert f"handed to the daemon at {place}/site/s, which stores and ranks it" in done.out
    found = wait_for(lambda: ranked(place))
    assert {(r.contributor, r.scope, r.method, r.by_hand) for r in found} == {
        ("nobody", "own", "blend", False)
    }
    assert [r.estimate.node_type for r in found] == ["new", "old"]
    (model,) = wait_for(lambda: by_transfer(place))  # derived after the ranking is committed
    with Reader(place / "site" / "advisor.db") as store:
        assert (model.node_type, model.scope, model.owner) == ("new", "own", "nobody")
        (stored,) = characterisations(store, "app", "w", user="nobody")
        assert stored.node_type == "old"
    # who may not write sees the same, and why it is not stored again
    told = nobody("rank", "app")
    assert told.code == 0, told.err
    assert "not stored: " in told.out and "may not be written by you" in told.out
    assert "the site's own ranking, of " in told.out
    assert "holds for jobs of nobody" in told.out
    assert "advisor lab bench --wanted measures them" in told.out
    assert ranked(place) == found


def test_a_daemon_that_is_away(place: Path, nobody: Run) -> None:
    done = nobody("characterise", "--input", phases(place))
    assert done.code == 1
    assert "not stored: there is no place for the results" in done.out
    assert "may not be written by nobody" in done.out and "Traceback" not in done.err


def test_before_there_are_profiles_it_is_kept(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = {"contributor": "ann", "characterisation": APP}
    left = write_spool_file(place / "site" / "spool", json.dumps(told), kind="phases")
    assert main(["collect", "--spool"]) == 0
    said = capsys.readouterr().out
    assert "spool: 0 runs and 1 characterisation from 1 file" in said
    assert "app (w) from old for ann is kept, not ranked: there are no profiles of base" in said
    assert ranked(place) == [] and not left.exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"node_type": "mars"}, "the site has no node type mars (there are: new, old)"),
        ({"workload": "w\n"}, "must be printable"),
        ({"phases": []}, "characterisation.phases: there are none"),
        ({"phases": [{"name": "a", "time_s": 1, "streams": 7}]}, "phases[0].streams"),
    ],
)
def test_nonsense_is_told_at_once(
    place: Path, daemon: subprocess.Popen[str], changes: dict[str, object], said: str
) -> None:
    request = {"v": 1, "op": "characterise", "characterisation": {**APP, **changes}}
    assert said in ask(place, request)["error"]
    assert "characterisation: must have" in ask(place, {"v": 1, "op": "characterise"})["error"]
    assert not list((place / "site" / "spool").glob("*.json"))
    assert ask(place, {"v": 1, "op": "ping"})["pong"]


def test_nobody_speaks_for_another(place: Path, daemon: subprocess.Popen[str], nobody: Run) -> None:
    """What root sends as somebody else is root's: the peer of the socket is believed alone."""
    request = {
        "v": 1,
        "op": "characterise",
        "contributor": "ann",
        "user": "ann",
        "uid": 1000,
        "characterisation": {**APP, "contributor": "ann"},
    }
    assert ask(place, request)["ok"] is True

    def stored() -> list[Any]:
        with Reader(place / "site" / "advisor.db") as store:
            return characterisations(store, "app")

    (found,) = wait_for(stored)
    assert found.contributor == "root"


def test_what_is_too_long_is_said(place: Path, daemon: subprocess.Popen[str], nobody: Run) -> None:
    named = [{"name": "p" * 30_000, "time_s": 1.0} for _ in range(60)]
    done = nobody("characterise", "--input", phases(place, phases=named))
    assert done.code == 1
    assert "a request may have" in done.out and "not stored: the results" in done.out


def test_a_named_store_is_not_replaced_by_the_daemon(
    place: Path, daemon: subprocess.Popen[str], nobody: Run
) -> None:
    done = nobody("characterise", "--input", phases(place), "--db", place / "site" / "advisor.db")
    assert done.code == 1 and "may not be written by nobody" in done.out


def test_which_ranking_holds_is_said(
    place: Path, nobody: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    with Writer(place / "site" / "advisor.db") as store:
        bench(store, "old", 2.0)
        bench(store, "new", 1.0)
        save_characterisation(store, "app", "w", "old", APP, contributor="ann", scope="all")
    told = nobody("rank", "app")
    assert told.code == 0 and "node type" in told.out
    assert "may not be written by you; the site has none yet" in told.out
    assert "its next advisor lab bench" in told.out
    assert "measures them with advisor lab bench" in told.out
    publish(place / "site" / "advisor.db", place / "copy.db")
    assert main(["rank", "app", "--db", str(place / "copy.db")]) == 0
    assert "not stored: " in (out := capsys.readouterr().out) and "is a published copy; " in out
    assert ranked(place) == []
    assert main(["rank", "app"]) == 0
    assert "holds for everybody's jobs" in nobody("rank", "app").out


# -- new profiles --------------------------------------------------------------------------------


def test_new_profiles_rank_everything_anew(place: Path) -> None:
    limits = read_thresholds(site_thresholds(place))
    path = place / "site" / "advisor.db"
    with Writer(path) as store:
        for who, scope in (("ann", "own"), ("bob", "all")):
            save_characterisation(
                store,
                "app",
                "w",
                "old",
                APP,
                contributor=who,
                scope=scope,  # type: ignore[arg-type]
            )
        (bob, ann) = characterisations(store)
        assert rank_delivered(store, ann, site_thresholds(place)).startswith(
            "app (w) from old for ann is kept, not ranked: there are no profiles of base node old"
        )
        assert (
            "anew" not in rank_all(store, limits).line and len(rank_all(store, limits).failed) == 2
        )
        bench(store, "old", 2.0)
        done = rank_all(store, limits)
        assert done.line == "1 application ranked again, 0 changed their fastest node type"
        bench(store, "new", 0.5)
        done = rank_all(store, limits)
        assert done.line == "1 application ranked again, 1 changed their fastest node type"
        found = rankings(store, "app")
        assert {(r.contributor, r.scope) for r in found} == {("ann", "own"), ("bob", "all")}
        first = min(r.estimate.time_ratio for r in found)
        bench(store, "new", 1.0)
        assert rank_all(store, limits).faster == 0
        assert min(r.estimate.time_ratio for r in rankings(store, "app")) > first
        assert rank_delivered(store, bob, site_thresholds(place)).startswith(
            "ranked app (w) from old: 2 node types, fastest new (0."
        )


def test_a_ranking_by_hand_stays_and_the_method_stays(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = place / "site" / "advisor.db"
    given = place / "user" / "profiles.yaml"
    given.write_text(
        yaml.safe_dump(
            [
                {"microbenchmark": "m", "node_type": n, "time_per_iter_us": us, "streams": [STREAM]}
                for n, us in (("old", 2e-3), ("new", 5e-4))
            ]
        )
    )
    with Writer(path) as store:
        bench(store, "old", 2.0)
        bench(store, "new", 1.0)
        for app in ("app", "two"):
            save_characterisation(
                store, app, "w", "old", {**APP, "application": app}, contributor="ann", scope="all"
            )
    assert main(["rank", "app", "--profiles", str(given), "--db", str(path)]) == 0
    assert "made by hand: new profiles do not change it" in capsys.readouterr().out
    assert main(["rank", "two", "--method", "thesis", "--db", str(path)]) in (0, 3)
    before = ranked(place)
    assert {r.by_hand for r in before} == {True}
    with Writer(path) as store:
        done = rank_all(store, read_thresholds(site_thresholds(place)))
        assert done.by_hand == 1 and "1 ranking made by hand left as they are" in done.line
        assert {r.method for r in rankings(store, "two")} <= {"thesis", "blend"}
    assert ranked(place) == before
    assert main(["rank", "app", "--db", str(path)]) == 0  # the owner takes it back
    assert {r.by_hand for r in ranked(place)} == {False}


def test_bench_ranks_anew_what_is_stored(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Writer(place / "site" / "advisor.db") as store:
        bench(store, "old", 2.0)
        bench(store, "new", 1.0)
        save_characterisation(store, "app", "w", "old", APP, contributor="ann", scope="own")
    measure = ["bench", "--here", "--node-type", "mine", "--budget", "0.05s"]
    assert main(measure) == 0
    assert "\n1 application ranked again, 0 changed their fastest" in capsys.readouterr().out
    assert {r.contributor for r in ranked(place)} == {"ann"}
    (place / "site" / "ranking.yaml").write_text("sizes: 3\n")
    assert main([*measure, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert "rankings could not be updated, the earlier ones stay: " in told["rankings"]
    assert "ranking.yaml: sizes: is not known" in told["rankings"]


def test_what_was_measured_does_not_wait_again(place: Path) -> None:
    """Else ``advisor lab bench --wanted``, which ranks, would never come to an end."""
    with Writer(place / "site" / "advisor.db") as store:
        bench(store, "old", 2.0)
        bench(store, "new", 1.0)
        stored = save_characterisation(store, "app", "w", "old", APP, contributor="a", scope="all")
        limits = read_thresholds(site_thresholds(place))
        assert rank_stored(store, stored, known_profiles(store), limits).waiting == 2
        waiting = wanted(store)
        assert len(waiting) == 2
        for name in ("old", "new"):
            assert len(wanted(store)) == 2
            found = [
                StoredProfile(name, w.microbenchmark, w.streams, 4, 9e9, 0.0, 1) for w in waiting
            ]
            save_profiles(store, Bench(name, {"cores": 4}, name, "6.1", "cc", "root"), found)
        assert rank_stored(store, stored, known_profiles(store), limits).waiting == 0
        assert wanted(store) == []


@pytest.mark.parametrize(
    "changes",
    [{"iterations": 0}, {"time_s": 0}, {"time_s": 5e-324}],
)
def test_a_phase_without_time_is_named(
    place: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, float]
) -> None:
    with Writer(place / "site" / "advisor.db") as store:
        bench(store, "old", 2.0)
    phase = {**APP["phases"][0], **changes}  # type: ignore[index]
    assert main(["rank", "--phase", str(phases(place, phases=[phase]))]) == 1
    assert "phase solve has streams, but no time of an iteration" in capsys.readouterr().err
