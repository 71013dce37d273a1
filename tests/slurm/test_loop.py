"""The loop on a real Slurm: stamped jobs come back as outcomes, and a model that errs rests."""

from __future__ import annotations

import json
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from testbed import NODE_TYPES, Testbed, predict

from advisor.core.configuration import Configuration
from advisor.core.decision import Alternative, Decision, Effect
from advisor.core.option import Option
from advisor.core.policy import Policy
from advisor.core.reasons import reason
from advisor.core.stamp import make_stamp
from advisor.loop.accounted import COARSE
from advisor.paths import share
from advisor.store.records import StoredModel
from advisor.store.writer import Writer
from tests.unset import as_measured
from tests.waiting import wait_for

ROOT = share("config").parent
POSED = NODE_TYPES["bdw"]
SCALE = 2.0
CAP = 1_800_000
BASE = Configuration(POSED.feature, 1, 1, POSED.cores, POSED.max_khz)
TO = replace(BASE, freq_khz=CAP)
JOB = "srun --cpu-freq={low}-{cap} simapp --kernel stencil --scale {scale}\n"


@dataclass
class Site:
    """A store with inventory and model, and the cluster it is for."""

    testbed: Testbed
    store: Path
    model: StoredModel

    def verdicts(self, collected: dict[str, Any], *numbers: int) -> dict[str, str]:
        """Return the verdicts of this test's own jobs; the cluster remembers others'."""
        names = {str(n) for n in numbers}
        return {
            o["job"]: o["verdict"]
            for o in collected["outcomes"]
            if o["job"].partition("_")[0] in names
        }

    def advisor(self, *arguments: str, db: str | None = None, code: int = 0) -> dict[str, Any]:
        done = self.run(*arguments, "--json", db=db)
        assert done[0] == code, done[2]
        data: dict[str, Any] = json.loads(done[1]) if done[1] else {"error": done[2]}
        return data

    def run(self, *arguments: str, db: str | None = None) -> tuple[int, str, str]:
        place = {"ADVISOR_DB": db or str(self.store)}
        done = self.testbed.run(
            [sys.executable, "-m", "advisor", *arguments], cwd=ROOT, env=place, check=False
        )
        return done.returncode, done.stdout, done.stderr

    def decide(self, *, changed: bool = True, user: str = "root", keep: bool = True) -> str:
        """Make a decision as the daemon would, and return its stamp."""
        times = {
            c: predict("stencil", "bdw", 1, c.threads_per_node, c.freq_khz, SCALE)
            for c in (BASE, TO)
        }
        (base_t, base_w), (to_t, to_w) = times[BASE], times[TO]
        t, e = to_t / base_t - 1, to_t * to_w / (base_t * base_w) - 1
        chosen = Alternative(
            TO,
            to_t,
            to_t * to_w,
            Effect(t, t - 0.03, t + 0.03),
            Effect(e, e - 0.05, e + 0.05),
            True,
        )
        decision = Decision(
            id=secrets.token_hex(8),
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            scheduler="slurm",
            hook="cli_filter",
            user=user,
            account="proj",
            policy=Policy(mode="apply"),
            application=self.model.application,
            workload="stencil",
            baseline=BASE,
            chosen=chosen,
            alternatives=(chosen,),
            rewrite={"cpu-freq": f"{POSED.min_khz}-{CAP}"} if changed else {},
            environment={},
            reasons=(reason("chosen", "energy"), reason("confirmed"))
            if changed
            else (reason("holdout"),),
            holdout=not changed,
            model_id=self.model.id,
            energy_quality="measured",
            baseline_time_s=base_t,
            baseline_energy_j=base_t * base_w,
        )
        if keep:
            with Writer(self.store) as writer:
                writer.save_decision(decision)
        return make_stamp(decision)

    def submit(
        self,
        stamp: str,
        *options: str,
        scale: float = SCALE,
        cap: int = CAP,
        user: str | None = None,
    ) -> int:
        """Submit a job, stamp it as job_submit would, and let it go."""
        script = JOB.format(low=POSED.min_khz, cap=cap, scale=scale)
        done = self.testbed.sbatch(
            "--hold",
            "--exclusive",
            "-p",
            POSED.feature,
            "-n1",
            f"-c{POSED.cores}",
            *options,
            script=script,
            user=user,
        )
        number = done.job_id
        self.testbed.run(["scontrol", "update", f"JobId={number}", f"AdminComment={stamp}"])
        self.testbed.run(["scontrol", "release", str(number)])
        return number

    def ended(self, number: int, tasks: int = 1) -> None:
        """Wait until the accounting, which lags, has the end of a job or of all array tasks."""
        self.testbed.wait(number)
        end = time.monotonic() + 30
        while True:
            rows = [r for r in self.testbed.sacct(number) if "." not in r["JobID"]]
            final = [r for r in rows if r["State"] not in ("PENDING", "RUNNING", "COMPLETING")]
            if len(final) == len(rows) == tasks:
                return
            assert time.monotonic() < end, rows
            time.sleep(0.2)

    def state(self) -> str:
        with Writer(self.store) as writer:
            return next(iter(writer.models([self.model.id]))).state


@pytest.fixture
def site(clean_testbed: Testbed, tmp_path: Path) -> Site:
    store = tmp_path / "advisor.db"
    done = clean_testbed.run(
        [sys.executable, "-m", "advisor", "site", "discover", "--db", str(store)], cwd=ROOT
    )
    assert done.returncode == 0
    options = []
    for c in (BASE, TO):
        time_s, watts = predict("stencil", "bdw", 1, c.threads_per_node, c.freq_khz, SCALE)
        e = time_s * watts
        options.append(
            Option(c, time_s, time_s / 1.02, time_s * 1.02, e, e / 1.03, e * 1.03, True, True)
        )
    with Writer(store) as writer:
        found = writer.inventory().node_types[POSED.feature]
        steps = replace(found, freq_khz=POSED.frequencies_khz, default_freq_khz=POSED.max_khz)
        writer.save_node_types([steps], source="site")
        name = f"simapp-{secrets.token_hex(4)}"
        model = writer.save_model(
            name,
            "stencil",
            POSED.feature,
            scope="all",
            owner="",
            name="bspline",
            energy_quality="measured",
            n_train=12,
            stats=as_measured(options),
            options=options,
        )
    return Site(clean_testbed, store, model)


def test_promised_and_measured_come_together(site: Site) -> None:
    number = site.submit(site.decide())
    while_it_runs = site.advisor("why", str(number))
    assert while_it_runs["outcome"] is None and while_it_runs["trust"] == "verified"
    site.ended(number)
    early = site.advisor("why", str(number))
    assert (early["collected"], early["verdict"]) == (False, "as-promised")

    collected = site.advisor("collect")
    assert site.verdicts(collected, number) == {str(number): "as-promised"}
    again = site.advisor("collect")
    assert again["known"] == len(collected["outcomes"]) and again["new"] == 0

    why = site.advisor("why", str(number))
    assert why["collected"] and why["verdict"] == "as-promised"
    outcome = why["outcome"]
    truth_s, watts = predict("stencil", "bdw", 1, BASE.threads_per_node, CAP, SCALE)
    assert outcome["time_s"] == pytest.approx(truth_s, abs=1.5)
    assert outcome["energy_j"] == pytest.approx(truth_s * watts, rel=0.2)
    assert outcome["freq_requested_khz"] == CAP
    assert outcome["nodes"] == 1 and outcome["record"]["ran"]["whole_nodes"] is True
    code, text, _ = site.run("why", str(number))
    assert code == 0
    for part in ("as promised", "at most 1.8 GHz requested", "ADVISOR=off", "within its interval"):
        assert part in text
    # a few of the accounting's whole seconds are no measurement to learn from
    assert collected["observations"] == 0
    past = site.store.parent / "jobs.txt"
    page = (ROOT / "docs" / "past.md").read_text(encoding="utf-8")
    command = page[page.index("sacct -P") : page.index("> jobs.txt")].replace("\\\n", " ")
    head, *rows = site.testbed.run(command.split()).stdout.splitlines()
    mine = [row for row in rows if row.split("|")[0].split(".")[0] == str(number)]
    past.write_text("\n".join([head, *mine]))
    imported = site.advisor("import", str(past), "--from", "sacct")
    assert (imported["jobs"], imported["imported"]) == (1, 0)
    assert list(imported["left_out"]) == ["it is too short for the accounting's clock"]
    # but they say what kind of job it was, unless it took hardly longer than a step of that clock
    if outcome["record"]["ran"]["resolution_s"] > COARSE * outcome["time_s"]:
        site.advisor("classify", site.model.application, code=3)
        return
    classified = site.advisor("classify", site.model.application)
    signature = classified["signature"]
    assert (classified["source"], classified["class"]) == ("accounting", "unknown")
    assert signature["power_w"] == pytest.approx(watts, rel=0.4)
    assert signature["cpu_util"] is None or 0 < signature["cpu_util"] <= 110


def test_why_needs_no_store(site: Site) -> None:
    stamp = site.decide(keep=False)
    number = site.submit(stamp)
    nowhere = str(site.store.parent / "nowhere" / "advisor.db")
    running = site.advisor("why", str(number), db=nowhere)
    assert (
        running["decision"]["application"] == site.model.application
        and running["trust"] == "stamped"
    )
    site.ended(number)
    why = site.advisor("why", str(number), db=nowhere)
    assert (why["trust"], why["verdict"]) == ("stamped", "as-promised")
    assert why["compared"]["energy"]["measured"] == why["outcome"]["energy_j"]
    code, _, error = site.run("why", "999999", db=nowhere)
    assert code == 1 and error.count("\n") == 1 and "999999 is not known" in error


def test_a_model_whose_job_was_slower_by_far_is_suspended(site: Site) -> None:
    failed = site.submit(site.decide(), "--time=1", scale=3 * SCALE)
    site.testbed.run(["scancel", str(failed)])
    slow = site.submit(site.decide(), scale=3 * SCALE)
    site.ended(failed)
    site.ended(slow)
    data = site.advisor("collect")
    assert site.verdicts(data, slow, failed) == {str(slow): "worse", str(failed): "unknown"}
    (suspended,) = data["suspended"]
    assert suspended["model"] == site.model.id and f"job {slow} (" in suspended["reason"]
    assert f"job {failed} (" not in suspended["reason"]
    assert site.state() == "suspended"
    report = site.advisor("report", "--application", site.model.application)
    assert report["advised"] == 2 and report["suspended"][0]["model"] == site.model.id
    assert any("is suspended" in note for note in report["notes"])


def test_altered_cancelled_and_requeued_jobs_are_not_held_against_a_model(site: Site) -> None:
    """Each of them would be worse by far, if it counted."""
    testbed = site.testbed

    def control(*words: str) -> None:
        testbed.run(["scontrol", *words])

    def until(number: int, state: str) -> None:
        wait_for(lambda: testbed.scontrol_jobs(number)[0]["JobState"] == state)

    slow = 3 * SCALE
    never = site.submit(site.decide(), "--begin=now+1hour")
    testbed.run(["scancel", str(never)])
    requeued = site.submit(site.decide(), "--requeue", scale=slow)
    until(requeued, "RUNNING")
    control("requeue", str(requeued))
    until(requeued, "PENDING")
    control("update", f"JobId={requeued}", "StartTime=now")  # else in two minutes
    elsewhere = site.submit(site.decide(), "--begin=now+1hour", scale=slow)
    control("update", f"JobId={elsewhere}", f"Partition={NODE_TYPES['skl'].feature}")
    wider = site.submit(site.decide(), "--begin=now+1hour", "-N1-2", "-n2", "-c14", scale=slow)
    control("update", f"JobId={wider}", "NumNodes=2")
    for number in (elsewhere, wider):
        control("update", f"JobId={number}", "StartTime=now")
    jobs = (never, requeued, elsewhere, wider)
    for number in jobs:
        site.ended(number)
    data = site.advisor("collect")
    assert site.verdicts(data, *jobs) == {str(n): "unknown" for n in jobs}
    assert data["suspended"] == [] and data["observations"] == 0 and site.state() == "fitted"
    told = [site.advisor("why", str(n))["outcome"]["record"]["notes"][0] for n in jobs]
    assert told == [
        "it was cancelled before it started",
        "it was started more than once (requeued)",
        f"it ran on {NODE_TYPES['skl'].feature}, not {POSED.feature}",
        "it ran on 2 nodes, not 1",
    ]
    outcomes = [o for o in data["outcomes"] if o["job"] == str(requeued)]
    assert len(outcomes) == 1  # its first start is no job of its own


def test_stamps_that_are_not_theirs_change_nothing(site: Site) -> None:
    """A user's own stamp, another's stamp, other work under the name: the model stays."""
    theirs = site.decide(user="daemon")
    forged = site.decide(user="nobody", keep=False)
    other = site.decide(user="nobody")
    numbers = [
        site.submit(theirs, user="nobody", scale=3 * SCALE),
        site.submit(forged, user="nobody", scale=3 * SCALE),
        site.submit(other, user="nobody", scale=3 * SCALE, cap=POSED.min_khz),
    ]
    for number in numbers:
        site.ended(number)
    data = site.advisor("collect")
    assert site.verdicts(data, *numbers) == {
        str(numbers[0]): "unknown",
        str(numbers[1]): "worse",
        str(numbers[2]): "unknown",
    }
    assert data["suspended"] == [] and site.state() == "fitted"
    stolen = site.advisor("why", str(numbers[0]))
    assert stolen["trust"] == "unverified" and "another user" in stolen["trust_why"]
    report = site.advisor("report", "--application", site.model.application)
    assert report["unverified"] == 1 and report["stamped"] == 1


def test_arrays_and_jobs_left_alone(site: Site) -> None:
    advised = site.submit(site.decide(), "--array=1-2")
    left = site.submit(site.decide(changed=False), cap=POSED.max_khz)
    site.ended(advised, tasks=2)
    site.ended(left)
    data = site.advisor("collect")
    assert site.verdicts(data, advised, left) == {
        f"{advised}_1": "as-promised",
        f"{advised}_2": "as-promised",
        str(left): "left-alone",
    }
    assert site.advisor("why", f"{advised}_2")["verdict"] == "as-promised"
    assert len(site.advisor("why", str(advised))["tasks"]) == 2
    mine = ("report", "--application", site.model.application)
    report = site.advisor(*mine)
    assert (report["jobs"], report["advised"], report["holdout"]) == (3, 2, 1)
    energy = report["measured"]["energy"]
    assert (energy["basis"], energy["advised"], energy["left_alone"]) == ("holdout", 2, 1)
    assert energy["lo"] is None
    assert "too few jobs for an interval (n=1)" in site.run(*mine)[1]


def test_doctor_reads_this_slurm(site: Site) -> None:
    data = site.advisor("doctor")
    assert data["ok"] is True
    checks: Callable[[str], list[str]] = lambda name: [  # noqa: E731
        c["state"] for c in data["checks"] if c["name"] == name
    ]
    assert checks("accounting") == ["ok"] and checks("cluster") == ["ok"]
    assert "ok" in checks("energy") and checks("frequency") == ["ok"]
    assert checks("hook") == ["warn", "warn"] and checks("daemon") == ["warn"]
