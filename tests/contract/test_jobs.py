"""``advisor jobs``, ``why`` without an id or with several, and ``note``."""

from __future__ import annotations

import email
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from advisor.core.decision import Decision
from advisor.loop.match import MatchedJob
from advisor.loop.outcomes import JobSite, make_outcome
from advisor.store.opening import caller
from advisor.store.writer import Writer
from tests.contract.test_why import BDW, DECISION, LEFT, job, no_scheduler

Run = Callable[..., Any]
__all__ = ("no_scheduler",)
NOW = datetime.now(UTC).replace(microsecond=0)
ME = caller()


def keep(
    writer: Writer,
    number: int,
    decision: Decision,
    *,
    user: str,
    days: float = 1,
    energy_j: float | None = 9_000.0,
    collected: bool = True,
    **came_out: Any,
) -> None:
    """Store a decision for a job of a user, some days ago, and its outcome."""
    moment = (NOW - timedelta(days=days)).isoformat().replace("+00:00", "Z")
    decision = replace(decision, id=f"{number:016x}", created_at=moment, user=user)
    writer.save_decision(decision, job_id=str(number))
    if not collected:
        return
    record = replace(
        job(str(number), energy_j=energy_j),
        user=user,
        submitted_at=moment,
        ended_at=moment,
        **came_out,
    )
    writer.save_outcome(
        make_outcome(
            record,
            MatchedJob(decision, "verified"),
            JobSite("slurm", writer.inventory(), writer.policy(), writer),
        )
    )


@pytest.fixture
def store(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("ADVISOR_DB", str(store_path))
    with Writer(store_path) as writer:
        writer.save_node_types([BDW], source="test")
        keep(writer, 11, DECISION, user=ME, days=3)
        keep(writer, 12, LEFT, user=ME, days=2)
        keep(writer, 13, DECISION, user=ME, days=1, energy_j=12_000.0)
        keep(writer, 14, replace(DECISION, application="other"), user=ME, days=0.5, collected=False)
        keep(writer, 15, DECISION, user=ME, days=30)
        keep(writer, 16, DECISION, user="ben", days=1)
    yield store_path


def listed(advisor: Run, *arguments: str) -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = json.loads(advisor("jobs", "--json", *arguments).out)["jobs"]
    return jobs


@pytest.mark.usefixtures("store")
def test_my_jobs_of_the_last_days_the_latest_first(advisor: Run) -> None:
    jobs = listed(advisor)
    assert [j["job"] for j in jobs] == ["14", "13", "12", "11"]
    waiting, worse, left, good = jobs
    assert waiting["ended_at"] is None and waiting["verdict"] is None and waiting["kwh"] is None
    assert (worse["verdict"], worse["changed"]) == ("worse", True)
    assert worse["promised_pct"] == pytest.approx(-10) and worse["measured_pct"] == pytest.approx(
        20
    )
    assert good["measured_pct"] == pytest.approx(-10) and good["kwh"] == pytest.approx(9 / 3600)
    assert good["measured_time_pct"] == pytest.approx(5)
    assert (left["changed"], left["promised_pct"], left["verdict"]) == (False, None, "left-alone")
    assert "1.8 GHz" in good["change"] and good["application"] == "stencil"


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("arguments", "jobs"),
    [
        (("--since", "60d"), "14 13 12 11 15"),
        (("--since", "36h"), "14 13"),
        (("--application", "other"), "14"),
        (("--verdict", "worse"), "13"),
        (("--verdict", "waiting"), "14"),
        (("--changed",), "14 13 11"),
        (("--unchanged",), "12"),
        (("--user", "ben"), "16"),
        (("--everybody", "--verdict", "as-promised"), "16 11"),
    ],
)
def test_filters(advisor: Run, arguments: tuple[str, ...], jobs: str) -> None:
    assert " ".join(j["job"] for j in listed(advisor, *arguments)) == jobs


def test_people_read_a_table_with_money_where_there_is_a_price(
    advisor: Run, store: Path, tmp_path: Path
) -> None:
    out = advisor("jobs").out
    assert len(out.splitlines()) == 5 and "worth" not in out and "not collected yet" in out
    site = tmp_path / "site.yaml"
    site.write_text("version: 1\nelectricity: {price_per_kwh: 40, currency: EUR}\n")
    assert advisor("site", "apply", site).code == 0
    assert "0.1 EUR" in advisor("jobs").out
    assert listed(advisor)[-1]["money"] == pytest.approx(0.1)
    none = advisor("jobs", "--application", "never")
    assert none.code == 0 and "4 jobs without these filters" in none.out


@pytest.mark.usefixtures("store")
def test_wrong_arguments(advisor: Run) -> None:
    for words in (("--since", "soon"), ("--verdict", "fine"), ("--changed", "--unchanged")):
        done = advisor("jobs", *words)
        assert done.code == 2 and done.err.count("\n") == 1


@pytest.mark.usefixtures("store", "no_scheduler")
def test_why_takes_the_last_job_or_several(advisor: Run) -> None:
    assert json.loads(advisor("why", "--json").out)["job"] == "14"
    several = json.loads(advisor("why", "11", "12", "--json").out)
    assert [answer["job"] for answer in several["jobs"]] == ["11", "12"]
    out = advisor("why", "11", "12").out
    assert out.index("stencil") < out.index("\n\n") and out.count("came out") == 2
    unknown = advisor("why", "11", "4711")
    assert unknown.code == 1 and unknown.out == "" and "4711 is not known" in unknown.err


@pytest.mark.usefixtures("no_scheduler")
def test_why_of_nothing(advisor: Run, store_path: Path) -> None:
    Writer(store_path).close()
    done = advisor("why", "--db", store_path)
    assert done.code == 1 and done.err.count("\n") == 1 and "no job of yours" in done.err


@pytest.mark.usefixtures("store")
def test_a_note_has_jobs_energy_one_suggestion_and_one_command(advisor: Run) -> None:
    note = json.loads(advisor("note", "--json").out)
    assert (note["jobs"], note["changed"], note["metered"], note["worse"]) == (4, 3, 3, 1)
    assert note["kwh"] == pytest.approx((9 + 9 + 12) / 3600)
    assert note["saved_kwh"] == pytest.approx((1 - 2) / 3600)
    assert note["command"] == "advisor why 13" and note["whose"] == ME
    site = json.loads(advisor("note", "--everybody", "--json").out)
    assert (site["jobs"], site["whose"]) == (5, "")
    quiet = json.loads(advisor("note", "--since", "1s", "--json").out)
    assert quiet["command"] == "advisor jobs" and quiet["saved_kwh"] is None


def test_what_a_failed_job_left_unused_is_not_saved(advisor: Run, store: Path) -> None:
    before = json.loads(advisor("note", "--json").out)["saved_kwh"]
    with Writer(store) as writer:
        keep(writer, 17, DECISION, user=ME, days=0.1, energy_j=5_000.0, state="FAILED")
        keep(writer, 18, DECISION, user=ME, days=0.2, energy_j=5_000.0, state="TIMEOUT")
    assert json.loads(advisor("note", "--json").out)["saved_kwh"] == before
    failed = [j for j in listed(advisor) if j["job"] in ("17", "18")]
    assert len(failed) == 2
    for one in failed:
        assert (one["measured_pct"], one["measured_time_pct"]) == (None, None)
        assert one["kwh"] == pytest.approx(5 / 3600)
    told = advisor("why", "17").out
    assert "not compared: it ended as FAILED" in told and "5000 J" in told
    assert "less than promised" not in told and "saved" not in told


@pytest.mark.usefixtures("store")
def test_a_note_as_a_message_and_as_a_page(advisor: Run) -> None:
    message = email.message_from_string(
        advisor("note", "--mail", "--to", "a@b.c\nBcc: evil@b.c").out
    )
    assert message["To"] == "a@b.c Bcc: evil@b.c" and message["Bcc"] is None
    assert "advisor why 13" in str(message.get_payload(decode=True))
    page = advisor("note", "--html").out
    assert page.startswith("<!doctype html>") and "advisor why 13" in page
