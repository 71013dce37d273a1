"""``advisor prospect``: from files of accounting to lines, JSON, a page and a picture."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

Run = Callable[..., Any]
HEAD = (
    "JobID|JobName|User|Account|Partition|State|End|ElapsedRaw|NNodes|NCPUS|NTasks|NodeList|"
    "ConsumedEnergyRaw|ReqCPUFreqMax|SubmitLine"
)
KEYS = (
    "jobs",
    "node_hours",
    "kwh",
    "kwh_assumed_share",
    "actionable_jobs",
    "actionable_kwh",
    "saving_kwh",
    "saving_interval",
    "by_application",
    "train_first",
)


def year(jobs: int = 1200, name: str = "relax") -> str:
    rows = [HEAD]
    for i in range(1, jobs + 1):
        user, energy = f"u{i % 3}", 1_200_000 if i % 2 else 0
        rows += [
            f"{i}|{name}|{user}|chem|batch|COMPLETED|{1735689600 + i * 25000}|3600|1|28||n1|0|"
            "Unknown|sbatch -N1 'run me.sh' jobs/relax.sh",
            f"{i}.0|vasp_std|||batch|COMPLETED|1|3599|1|28|28|n1|{energy}|Unknown|srun vasp_std",
        ]
    return "\n".join([*rows, ""])


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ADVISOR_DB", "/nonexistent/advisor.db")
    path = tmp_path / "year.txt"
    path.write_text(year())
    return path


def test_the_answer_needs_no_store(advisor: Run, file: Path) -> None:
    done = advisor("prospect", file, "--json")
    answer = json.loads(done.out)
    assert done.code == 0 and done.err == "" and set(KEYS) <= set(answer)
    assert answer["jobs"] == answer["actionable_jobs"] == 1200
    assert answer["node_hours"] == pytest.approx(1200)
    assert answer["kwh"] == pytest.approx(400, rel=0.01)  # metered: a third of a kW
    assert answer["kwh_assumed_share"] == pytest.approx(0.5, abs=0.01)
    assert set(answer["assumed_by"]) == {"partition"}
    lo, hi = answer["saving_interval"]
    assert 0 <= lo < answer["saving_kwh"] < hi < answer["kwh"]
    assert [a["application"] for a in answer["by_application"]] == ["vasp_std"]
    assert [g["user_group"] for g in answer["by_user_group"]] == ["chem"]
    assert len(answer["train_first"]) == 3  # one for each user
    for script in answer["train_first"]:
        assert script["command"] == "advisor train jobs/relax.sh"
        assert script["saving_kwh"] > script["training_kwh"]


def test_people_get_one_screen_that_says_what_is_assumed(advisor: Run, file: Path) -> None:
    out = advisor("prospect", file).out
    assert len(out.splitlines()) <= 24
    assert "50 % of the energy is assumed, not metered: 50 % by the mean of the metered" in out
    assert "advisor train jobs/relax.sh" in out and "2025-01-01 to 2025-12-14" in out


def test_the_site_file_gives_names_power_money_and_caps(
    advisor: Run, file: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(
        "version: 1\nelectricity: {price_per_kwh: 0.2, currency: EUR}\nnode_types:\n"
        "  bdw: {cores: 28, nodes: n1, partitions: [batch], base_power_w: 100, core_power_w: 5}\n"
        "applications: [{name: vasp, match: {executable: 'vasp*'}}]\n"
    )
    answer = json.loads(advisor("prospect", file, "--site", site, "--json").out)
    assert answer["by_application"][0]["application"] == "vasp"
    assert answer["saving_kwh"] == 0 and "no cap is counted on bdw" in " ".join(answer["notes"])
    text = site.read_text().replace("cores: 28,", "cores: 28, freq_khz: [1.2 GHz, 2.4 GHz],")
    site.write_text(text)
    answer = json.loads(advisor("prospect", file, "--site", site, "--json").out)
    assert answer["saving_kwh"] > 0
    assert answer["worth"]["money"] == pytest.approx(0.2 * answer["saving_kwh"])
    site.write_text("version: 1\nnode_type: {}\n")
    wrong = advisor("prospect", file, "--site", site)
    assert wrong.code == 1 and wrong.err.count("\n") == 1 and "site.yaml:2" in wrong.err


def test_the_page_and_the_picture_need_nothing_else(
    advisor: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = tmp_path / "year.txt"
    hostile.write_text(year(name="<script>x</script>").replace("vasp_std", "a<b>&\"'\x1b[31m"))
    page, picture = tmp_path / "page.html", tmp_path / "picture.svg"
    done = advisor("prospect", hostile, "--html", page, "--svg", picture)
    assert done.code == 0 and "\x1b" not in done.out
    ElementTree.fromstring(picture.read_text())
    text = page.read_text()
    assert "<script" not in text and "\x1b" not in text
    assert not re.search(r"(?:src|href)=|url\(|@import", text)
    assert picture.read_text().strip() in text
    assert 'name="viewport"' in text and "prefers-color-scheme:dark" in text


def test_the_page_shows_what_matters_and_has_the_rest_behind_a_click(
    advisor: Run, tmp_path: Path
) -> None:
    path, page = tmp_path / "year.txt", tmp_path / "page.html"
    rows = "".join(
        f"{number}|once{number}|ann|chem|batch|COMPLETED|2025-01-01|3600|1|28||n1|0|Unknown|\n"
        for number in range(1, 232)
    )
    path.write_text(f"{HEAD}\n{rows}")
    assert advisor("prospect", path, "--html", page).code == 0
    text = page.read_text()
    programs = text[text.index("<h2>Programs") : text.index("<h2>User groups")]
    assert programs.count("<tr><td>") == 200 and "<summary>180 more</summary>" in programs
    assert programs.index("<details>") > programs.index("</table>")
    assert "31 smaller ones are in the answer of --json" in programs
    assert "No program would pay back what it takes to measure it." in text
    assert "<details>" not in text[text.index("<h2>User groups") :]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "year.txt:1: is empty"),
        ("hello\n", "year.txt:1: neither an accounting nor a report of EAR"),
        ("JobID|State\n1|COMPLETED\n", "year.txt:1: there is no column ElapsedRaw, NNodes, NCPUS"),
        (f"{HEAD}\n", "year.txt has no jobs"),
        ("; Version: 2.2\n1 2 3\n", "year.txt:2: not 18 numbers"),
        (f"; MaxProcs: 64\n1{' 2' * 17}\n1{' 1' * 17}\n", "how many processors a node has"),
        ("Software,Jobs,Nodeh,Users\n", "no job of it ever ran"),
        (f"{HEAD}\nrubbish\n", "year.txt:2: 1 columns, not 15"),
        (f"{HEAD}\n1|a|u|c|b|CANCELLED|0|0|0|28||None|||\n", "no job of it ever ran"),
    ],
)
def test_mistakes_are_one_line(advisor: Run, file: Path, text: str, why: str) -> None:
    file.write_text(text)
    done = advisor("prospect", file)
    assert done.code == 1 and done.err.count("\n") == 1 and why in done.err


def test_what_writes_the_file_is_told_by_its_first_line_or_from(
    advisor: Run, file: Path, tmp_path: Path
) -> None:
    log, ear = tmp_path / "20250101", tmp_path / "ear.csv"
    log.write_text(
        "01/01/2025 10:10:00;E;7.srv;user=ann jobname=relax queue=workq "
        "exec_host=n1/0*28 Exit_status=0 Resource_List.ncpus=28 resources_used.walltime=01:00:00\n"
    )
    ear.write_text(
        "NODENAME;JOBID;STEPID;JOBNAME;USERID;TIME_SEC;DC_NODE_POWER_W\nn1;7;0;gmx;ann;3600;300\n"
    )
    assert json.loads(advisor("prospect", log, "--json").out)["node_hours"] == 1
    answer = json.loads(advisor("prospect", ear, "--from", "ear", "--json").out)
    assert answer["kwh"] == pytest.approx(0.3) and answer["kwh_assumed_share"] == 0
    everything = json.loads(advisor("prospect", file, log, ear, "--json").out)
    assert everything["jobs"] == 1202
    wrong = advisor("prospect", log, "--from", "sacct")
    assert wrong.code == 1 and "there is no column" in wrong.err


def test_published_sums_and_logs_say_what_is_assumed(advisor: Run, tmp_path: Path) -> None:
    log, month = tmp_path / "log.swf", tmp_path / "month.csv"
    line = "{} 0 0 3600 56 -1 -1 56 -1 -1 1 3 2 7 1 2 -1 -1\n"
    log.write_text("; MaxNodes: 4\n; MaxProcs: 112\n" + "".join(map(line.format, range(40))))
    month.write_text("Software,Jobs,Nodeh,kWh,Users\nOverall,60,3,1,4\nVASP,60,3.0,1.0,3\n")
    answer = json.loads(advisor("prospect", log, "--json").out)
    assert answer["kwh_assumed_share"] == 1 and answer["actionable_jobs"] == 40
    assert answer["kwh"] == pytest.approx(80 * 0.4) and answer["saving_kwh"] > 0
    answer = json.loads(advisor("prospect", month, "--json").out)
    assert answer["kwh"] == pytest.approx(1) and answer["kwh_assumed_share"] == 0
    assert "60 jobs came as sums by program: whole nodes are assumed" in " ".join(answer["notes"])
    assert json.loads(advisor("prospect", log, month, "--json").out)["jobs"] == 100
    assert "no column of program" in advisor("prospect", log, "--from", "sums").err


def test_a_saving_and_its_interval_have_one_unit(advisor: Run, tmp_path: Path) -> None:
    month = tmp_path / "month.csv"
    month.write_text("Software,Jobs,Nodeh,kWh,Users\nVASP,86417,752444.3,324471.9,124\n")
    out = advisor("prospect", month).out
    assert re.search(r"would be saved: +[\d.]+ MWh \([\d.]+ to [\d.]+\) at 90 %", out), out
    month.write_text("Software,Jobs,Nodeh,kWh,Users\nGROMACS,86417,752444.3,324471.9,124\n")
    assert re.search(r"would be saved: +[\d.]+ kWh \(0 to 0\)", advisor("prospect", month).out)


def test_the_help_has_the_commands(advisor: Run) -> None:
    text = advisor("prospect", "--help").out
    assert "sacct -a -P" in text and "server_priv/accounting" in text and "eacct" in text


def test_it_loads_no_statistics(file: Path) -> None:
    code = (
        "import sys; from advisor.cli import main; main(['prospect', sys.argv[1]]);"
        "heavy = {'scipy', 'pandas', 'statsmodels', 'rich', 'textual'} & set(sys.modules);"
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(file)], capture_output=True, text=True, cwd="/"
    )
    assert done.returncode == 0, done.stderr
