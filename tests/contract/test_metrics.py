"""What the daemon counts, read by Prometheus's own parser."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.core.openmetrics import BUCKETS_S, AnswerCounts, Text
from advisor.core.protocol import call
from advisor.errors import AdvisorError
from advisor.loop import outcome_metrics
from advisor.paths import share
from tests.examples import example_store

openmetrics = pytest.importorskip(
    "prometheus_client.openmetrics.parser", reason="prometheus_client is not installed"
)
JOB = {
    "op": "decide",
    "scheduler": "slurm",
    "hook": "cli_filter",
    "type": "sbatch",
    "script": "srun ./cg-solver n=4e6\n",
    "argv": ["job.sh"],
    "options": {"nodes": "1", "constraint": "broadwell", "exclusive": "exclusive"},
}


def parsed(text: str) -> dict[str, Any]:
    """Return the metric families by name."""
    return {f.name: f for f in openmetrics.text_string_to_metric_families(text)}


@pytest.fixture(scope="module")
def site() -> Iterator[Path]:
    folder = Path(f"/tmp/adm-{os.getpid()}-{time.monotonic_ns() % 10**9}")
    folder.mkdir()
    example_store(folder / "advisor.db", "ann")
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "advisor",
            "serve",
            "--socket",
            str(folder / "s"),
            "--db",
            str(folder / "advisor.db"),
            "--watch",
            "0",
        ],
        stderr=subprocess.DEVNULL,
    )
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            call(folder / "s", {"op": "ping"})
            break
        except AdvisorError:
            time.sleep(0.05)
    yield folder
    process.terminate()
    process.wait(15)
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def test_prometheus_reads_what_the_daemon_counts(
    site: Path, advisor: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for script in ("srun ./cg-solver n=4e6\n", "srun ./cg-solver n=4e6\n", "echo\n"):
        call(site / "s", {**JOB, "script": script})
    done = advisor("metrics", "--socket", site / "s", "--db", site / "advisor.db")
    assert (done.code, done.err) == (0, "")
    found = parsed(done.out)
    assert len(found) >= 8
    decisions = found["advisor_decisions"]
    assert decisions.type == "counter"
    assert all(set(s.labels) == {"reason", "changed"} for s in decisions.samples)
    assert sum(s.value for s in decisions.samples) == 3
    assert {"unrecognised"} < {s.labels["reason"] for s in decisions.samples}
    times = found["advisor_answer_seconds"]
    assert times.type == "histogram"
    count = next(s.value for s in times.samples if s.name.endswith("_count"))
    assert count >= 3
    assert found["advisor_models"].samples
    assert {s.labels["table"] for s in found["advisor_store_rows"].samples} == {
        "decisions",
        "outcomes",
        "observations",
    }
    trusted = {s.labels["trust"]: s.value for s in found["advisor_jobs_by_trust"].samples}
    stored = {s.labels["table"]: s.value for s in found["advisor_store_rows"].samples}
    assert set(trusted) == {"verified", "stamped", "unverified"}
    assert sum(trusted.values()) == stored["outcomes"] and min(trusted.values()) >= 0
    assert trusted["verified"] > 0
    assert {s.labels["by"] for s in found["advisor_saved_joules"].samples} >= {"promise"}
    monkeypatch.setattr(outcome_metrics, "NEWEST", 5)
    newest = parsed(advisor("metrics", "--socket", site / "s", "--db", site / "advisor.db").out)
    assert (
        0 < sum(s.value for s in newest["advisor_jobs_by_trust"].samples) <= 5 < stored["outcomes"]
    )
    on_socket = call(site / "s", {"op": "metrics"})["metrics"]
    assert len(parsed(str(on_socket))) >= 8


def test_a_file_for_node_exporter(site: Path, advisor: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "advisor.prom"
    done = advisor("metrics", "--socket", site / "s", "--output", file)
    assert (done.code, done.out) == (0, "")
    assert parsed(file.read_text())
    assert file.stat().st_mode & 0o777 == 0o644
    assert [p.name for p in tmp_path.iterdir() if "prom" in p.name] == ["advisor.prom"]
    folder = tmp_path / "folder"
    folder.mkdir()
    failed = advisor("metrics", "--socket", site / "s", "--output", folder)
    assert failed.code == 1 and "cannot be written" in failed.err
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".folder")]
    down = parsed(advisor("metrics", "--socket", tmp_path / "none").out)
    assert down["advisor_up"].samples[0].value == 0


def test_the_dashboard_asks_for_what_there_is(site: Path, advisor: Callable[..., Any]) -> None:
    text = advisor("metrics", "--socket", site / "s", "--db", site / "advisor.db").out
    dashboard = json.loads((share("config") / "grafana" / "advisor.json").read_text())
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"advisor_[a-z_]+", target["expr"])
    }
    known = parsed(text)
    assert {re.sub("_(total|bucket)$", "", name) for name in asked} <= set(known)


def test_text_is_escaped_and_times_are_sorted_into_buckets() -> None:
    counts = AnswerCounts()
    for seconds in (0.0, BUCKETS_S[0], 0.3):
        counts.answered(seconds)
    text = Text()
    text.histogram("t_seconds", "a\nb", counts.times, counts.time_s)
    text.family("x", "gauge", 'say "x"', [({"a": 'q"\\\n'}, 1.5), ({"a": "none"}, None)])
    found = parsed(text.text())
    values = {s.labels["le"]: s.value for s in found["advisor_t_seconds"].samples if s.labels}
    assert (values["2e-05"], values["0.25"], values["+Inf"]) == (2, 2, 3)
    (sample,) = found["advisor_x"].samples
    assert (sample.labels["a"], sample.value) == ('q"\\\n', 1.5)
