"""``advisor policy simulate``: the jobs of the past, decided again under another policy."""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.inventory import NodeType
from advisor.core.option import Option
from advisor.core.policy import PolicySet
from advisor.schedulers.slurm.translator import parse_request, read_arguments
from advisor.service.decide import decide
from advisor.service.snapshot import Snapshot, StoreSource
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from advisor.views.simulation import OLDER, STAMP_ONLY, simulate
from tests.pictures import kept
from tests.unset import as_measured

Advisor = Callable[..., Any]
FREQS = (1_200_000, 1_800_000, 2_400_000)
NODE = NodeType(
    "bdw",
    feature="broadwell",
    partitions=("batch",),
    sockets=2,
    cores=16,
    memory_mb=64_000,
    freq_khz=FREQS,
    default_freq_khz=2_400_000,
    nodes=("n1",),
    default_partition="batch",
)
COSTS = {1_200_000: (1500.0, 200e3), 1_800_000: (1040.0, 250e3), 2_400_000: (1000.0, 360e3)}
"""Seconds and joules of one run, by cap."""
PRESENT = {"base": {"mode": "apply", "goal": "min_energy", "max_slowdown": 0.08, "holdout": 0.0}}
JOBS = 8
ADVISE = "mode: advise\ngoal: min_energy\nmax_slowdown: 8%\n"


def table() -> list[Option]:
    """Options whose times are known within 1 % and energies within 2 %."""
    return [
        Option(
            Configuration("bdw", 1, 1, 16, freq),
            t,
            0.99 * t,
            1.01 * t,
            e,
            0.98 * e,
            1.02 * e,
            measured=True,
            confirmed=True,
            in_zone=True,
        )
        for freq, (t, e) in COSTS.items()
    ]


def job(number: int, snapshot: Snapshot, application: str = "solver") -> Decision:
    options = read_arguments(
        f"-N1 --exclusive -t60 --account=a{number % 2} --job-name=run{number}".split()
    )
    request = parse_request(
        {
            "type": "sbatch",
            "hook": "cli_filter",
            "options": options,
            "argv": ["/home/job.sh"],
            "script": f"srun ./{application}\n",
            "script_path": f"/home/{number}.sh",
        },
        user="ada" if number % 4 else "root",
        uid=1000,
        choices={},
    )
    return decide(request, snapshot, chance=lambda: 1.0)


def snapshot_of(store: Path) -> Snapshot:
    source = StoreSource(store)
    source.refresh()
    source.close()
    return source.snapshot


@pytest.fixture
def past(store_path: Path) -> Path:
    """A store with eight jobs of a known application, two of an unknown one, an hour apart."""
    with Writer(store_path) as writer:
        writer.save_node_types([NODE], source="test")
        writer.apply_config("policy", path="p", text="p", compiled=PRESENT, by="test")
        writer.save_model(
            "solver",
            "default",
            "bdw",
            scope="all",
            owner="",
            name="process",
            energy_quality="measured",
            n_train=12,
            stats=as_measured(table()),
            options=table(),
        )
        site = snapshot_of(store_path)
        start = datetime.now(UTC) - timedelta(hours=JOBS + 1)
        for number in range(JOBS + 2):
            made = job(number, site, "solver" if number < JOBS else "unknown")
            at = (start + timedelta(hours=min(number, JOBS))).isoformat(timespec="seconds")
            writer.save_decision(replace(made, created_at=at), job_id=str(100 + number))
    return store_path


def tried(advisor: Advisor, folder: Path, text: str, *more: str) -> dict[str, Any]:
    file = folder / "new.yaml"
    file.write_text(f"version: 1\n{text}")
    done = advisor("policy", "simulate", file, "--json", *more)
    assert done.code == 0, done.err
    data: dict[str, Any] = done.json()
    return data


def test_todays_policy_changes_nothing(past: Path, advisor: Advisor, tmp_path: Path) -> None:
    """A bound on the job's name makes each request one of its own, and the answers stay."""
    text = "mode: apply\ngoal: min_energy\nmax_slowdown: 8%\nholdout: 0%\n"
    for rules in ("", "rules: [{match: {job_name: nobody}, mode: off}]\n"):
        data = tried(advisor, tmp_path, text + rules)
        assert (data["decisions"], data["decided"], data["different"]) == (10, 10, 0)
        assert data["energy_kwh"] == {"value": 0.0, "lo": 0.0, "hi": 0.0}
        # eight jobs, each advised to 1.8 GHz: 250 kJ, 2 MJ together
        assert data["energy_now_kwh"] == pytest.approx(2e6 / 3.6e6, rel=1e-3)


def test_what_differs_is_summed_up(past: Path, advisor: Advisor, tmp_path: Path) -> None:
    """Advice only: eight jobs go back from 250 to 360 kJ and from 1040 to 1000 s."""
    data = tried(advisor, tmp_path, ADVISE, "--plot", str(tmp_path / "p.svg"))
    assert (data["different"], data["lost"], data["gained"], data["unknown"]) == (8, 8, 0, 0)
    assert (data["slower"]["jobs"], data["faster"]["jobs"]) == (0, 8)
    assert data["faster"]["mean_pct"] == pytest.approx(100 * (1 - 1000 / 1040), rel=1e-3)
    energy, hours = data["energy_kwh"], data["node_hours"]
    assert energy["value"] == pytest.approx(8 * 110e3 / 3.6e6, rel=1e-3)
    assert hours["value"] == pytest.approx(-8 * 40 / 3600, rel=1e-3)
    # one model, so the errors of its eight jobs are one error: the half width of the promise,
    # which joins both options' (log) errors, 8 times
    with Reader(past) as reader:
        promised = next(d for d in reader.decisions() if d.changed).chosen
    assert promised is not None
    width = (promised.energy.hi - promised.energy.change) * 360e3 * 8 / 3.6e6
    assert energy["value"] - energy["lo"] == pytest.approx(width, rel=6e-3)  # kept to 0.01 %
    assert [(g["account"], g["application"], g["different"]) for g in data["groups"]] == [
        ("a0", "solver", 4),
        ("a1", "solver", 4),
        ("a0", "unknown", 0),
        ("a1", "unknown", 0),
    ]
    assert data["reasons"] == [{"now": "chosen", "then": "mode-advise", "jobs": 8}]
    kept(tmp_path / "p.svg", "past")


def test_a_slower_bound_a_rule_and_a_holdout(past: Path, advisor: Advisor, tmp_path: Path) -> None:
    data = tried(
        advisor,
        tmp_path,
        "mode: apply\ngoal: min_energy\nmax_slowdown: 60%\n"
        "holdout: 0%\nrules: [{match: {account: a1}, mode: off}]\n",
    )
    by_account = {g["account"]: g for g in data["groups"] if g["application"] == "solver"}
    assert (by_account["a0"]["slower"]["jobs"], by_account["a0"]["lost"]) == (4, 0)
    assert by_account["a0"]["slower"]["most_pct"] == pytest.approx(100 * (1500 / 1040 - 1))
    assert (by_account["a1"]["lost"], by_account["a1"]["faster"]["jobs"]) == (4, 4)
    all_held = tried(
        advisor, tmp_path, "mode: apply\ngoal: min_energy\nmax_slowdown: 8%\nholdout: 50%\n"
    )
    with Reader(past) as reader:  # what is drawn follows from the decision's id
        ids = [d.id for d in reader.decisions() if d.application == "solver"]
    held = sum(int(i, 16) < 16**16 / 2 for i in ids)
    assert all_held["lost"] == held
    assert {r["then"] for r in all_held["reasons"]} <= {"holdout"}


def test_money_and_co2_by_the_hour(past: Path, advisor: Advisor, tmp_path: Path) -> None:
    """Each job costs what its own hour does: the price of hour h is h, so the sum tells."""
    tariff = {
        "price_per_kwh": [float(h) for h in range(24)],
        "currency": "EUR",
        "co2_g_per_kwh": 100.0,
    }
    with Writer(past) as writer:
        compiled = {"electricity": tariff}
        writer.apply_config("site", path="s", text="s", compiled=compiled, by="test")
    data = tried(advisor, tmp_path, "mode: observe\n")
    expected = 0.0
    with Reader(past) as reader:
        for d in reader.decisions():
            if d.application == "solver":
                start = datetime.fromisoformat(d.created_at).astimezone()
                in_hour = min(1.0, (3600 - start.minute * 60 - start.second) / 1000)
                later = (start.hour + 1) % 24
                expected += 110e3 / 3.6e6 * (in_hour * start.hour + (1 - in_hour) * later)
    assert data["money"]["value"] == pytest.approx(expected, rel=1e-3)
    assert data["co2_kg"]["value"] == pytest.approx(data["energy_kwh"]["value"] / 10)
    assert data["currency"] == "EUR"


def test_what_cannot_be_decided_again_is_counted(
    past: Path, advisor: Advisor, tmp_path: Path
) -> None:
    with sqlite3.connect(past) as db:
        db.execute(
            "UPDATE decisions SET record = json_remove(record, '$.reading') WHERE job_id = '100'"
        )
        db.execute(
            "UPDATE decisions SET record = json_set(record, '$.origin', 'stamp')"
            " WHERE job_id IN ('101', '102')"
        )
        db.execute(
            "UPDATE decisions SET record = json_set(record, '$.reading', json('[1]'))"
            " WHERE job_id = '103'"
        )
    data = tried(advisor, tmp_path, "mode: advise\n")
    assert (data["decisions"], data["decided"], data["different"]) == (10, 6, 4)
    assert data["undecided"][STAMP_ONLY] == 2 and data["undecided"][OLDER] == 1
    shown = advisor("policy", "simulate", tmp_path / "new.yaml")
    assert STAMP_ONLY in shown.out and "4 jobs of 6" in shown.out


def test_nothing_is_kept_of_script_and_environment(past: Path) -> None:
    """The record grew by what deciding takes, not by what the user wrote."""
    with sqlite3.connect(past) as db:
        records = [row[0] for row in db.execute("SELECT record FROM decisions")]
    assert not any("srun ./" in record for record in records)
    assert max(len(json.dumps(json.loads(r)["reading"])) for r in records) < 400


def test_bad_input_is_one_line(past: Path, advisor: Advisor, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("version: 1\nmod: apply\n")
    done = advisor("policy", "simulate", bad)
    assert done.code == 1 and "bad.yaml:2: mod: unknown key" in done.err
    good = tmp_path / "good.yaml"
    good.write_text("version: 1\nmode: off\n")
    for since in ("soon", "2999-01-01"):
        done = advisor("policy", "simulate", good, "--since", since)
        assert done.code == 2 and done.err.count("\n") == 1 and since in done.err
    done = advisor("policy", "simulate", good, "--since", "1s")
    assert done.code == 0 and "no decision was stored since" in done.out
    assert advisor("policy", "simulate", good, "--plot", "p.txt").code == 2
    with Reader(past) as reader:
        assert reader.policy() == PolicySet.from_compiled(PRESENT, 1)  # nothing was applied


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="takes another user")
def test_users_see_their_own_jobs(past: Path, advisor: Advisor, elsewhere: Path) -> None:
    """Also where a site lets everybody read the store."""
    import pwd
    import shutil

    shutil.copy(past, elsewhere / "advisor.db")
    (elsewhere / "advisor.db").chmod(0o644)
    nobody = pwd.getpwnam("nobody").pw_uid
    with sqlite3.connect(elsewhere / "advisor.db") as db:
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("UPDATE decisions SET user = 'nobody' WHERE job_id = '107'")
    (elsewhere / "new.yaml").write_text("version: 1\nmode: advise\n")
    os.seteuid(nobody)
    try:
        done = advisor(
            "policy", "simulate", elsewhere / "new.yaml", "--json", "--db", elsewhere / "advisor.db"
        )
    finally:
        os.seteuid(0)
    assert (done.json()["decisions"], done.json()["different"]) == (1, 1)


def test_one_users_jobs_alone(past: Path) -> None:
    with Reader(past) as reader:
        since = datetime.now(UTC) - timedelta(days=1)
        found = simulate(reader, {"base": {"mode": "off"}}, since, user="ada")
    assert found.decisions == 7 and found.different == 6
