"""What an experiment does after each run: read its counters, post-process it, keep a summary.

Source: Endrei 2019, appendix A.1.2 (postExec, retries, reget), A.1.3 and A.1.5. It happens where
the sweep is started, once a run has ended: it is no part of what is measured.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from advisor.core.codec import Record
from advisor.drafts import write_whole
from advisor.schedulers.base import PlannedRun, RunResult, SweepJob
from advisor_lab.hpcprobe.extraction import NO_RULES, CounterRules, read_rules
from advisor_lab.hpcprobe.summary import SummaryRun, run_parameters, write_summary

JOB_RESULTS = "jobResults"
KEPT = "counters.json"
"""In a sweep's folder: the counters of each run by number, so that nothing is read twice."""
_PLACEHOLDER = re.compile(r"%\((\w+)\)s")
_PLAIN = re.compile(r"[\w./+:@,=~ -]*")
_LONGEST_S = 3600.0
"""Seconds that one command of an experiment may take."""


def placeholders(command: str) -> list[str]:
    """Return the names in ``%(name)s`` of a command."""
    return _PLACEHOLDER.findall(command)


@dataclass(frozen=True, slots=True)
class PostProcessing(Record):
    """What follows each run of an experiment.

    ``rules`` is the counter file ("": none), ``parameters`` describe every run; the summary goes
    to ``output_folder``/``experiment`` too, where there is one.
    """

    experiment: str = ""
    file: str = ""
    rules: str = ""
    post_exec: str = ""
    retries: int = 0
    output_folder: str = ""
    parameters: Mapping[str, object] = field(default_factory=dict)

    def for_run(self, **parameters: object) -> PostProcessing:
        """Return the same with more parameters; those that are None are left out."""
        stated = {name: value for name, value in parameters.items() if value is not None}
        return replace(self, parameters={**self.parameters, **stated})


@dataclass(slots=True)
class PostProcessor:
    """The post-processing of one sweep, in its folder."""

    settings: PostProcessing
    folder: Path
    working_folder: Path
    kept: dict[str, dict[str, float | str]] = field(default_factory=dict)
    _rules: CounterRules | None = None

    def __post_init__(self) -> None:
        try:
            data = json.loads((self.folder / KEPT).read_text())
        except (OSError, ValueError):
            return
        self.kept = data if isinstance(data, dict) else {}

    def forget(self) -> None:
        """Have every run read again."""
        self.kept = {}

    def take(self, job: SweepJob, run: PlannedRun, result: RunResult) -> str:
        """Read the counters of a good run, if that was not done; return what went wrong, or ""."""
        if str(run.seq) in self.kept:
            return ""
        parameters = {**self.settings.parameters, **run_parameters(run.configuration)}
        name = f"{run.seq}-{result.attempt}"
        output = _text(job.folder / "output" / f"run-{name}.log")
        counters, hidden = self.rules.read("run", output, parameters)
        problem = ""
        if self.settings.post_exec:
            place = job.folder / "output" / f"post-{name}"
            values = {**parameters, **counters, JOB_RESULTS: str(place)}
            log, problem = self._post(values, place.with_suffix(".log"))
            more, also_hidden = self.rules.read("post", log, parameters)
            counters, hidden = {**counters, **more}, hidden | also_hidden
        shown = {k: v for k, v in counters.items() if k not in hidden}
        self.kept[str(run.seq)] = {**result.counters, **shown}
        write_whole(self.folder / KEPT, json.dumps(self.kept))
        return problem

    @property
    def rules(self) -> CounterRules:
        """The counter file, read once. Raises InputError."""
        if self._rules is None:
            path = self.settings.rules
            self._rules = read_rules(Path(path)) if path else NO_RULES
        return self._rules

    def _post(self, values: Mapping[str, object], log: Path) -> tuple[str, str]:
        """Run postExec, again where it fails and retries are left; return its output."""
        absent = [n for n in placeholders(self.settings.post_exec) if n not in values]
        if absent:
            return "", f"postExec did not run: the output of the run has no {absent[0]}"
        odd = [
            n for n in placeholders(self.settings.post_exec) if not _PLAIN.fullmatch(str(values[n]))
        ]
        if odd:
            return "", f"postExec did not run: {odd[0]} is not a plain name: {values[odd[0]]!r}"
        command = _PLACEHOLDER.sub(lambda m: str(values[m[1]]), self.settings.post_exec)
        why = ""
        for _ in range(self.settings.retries + 1):
            try:
                with log.open("wb") as file:
                    process = subprocess.run(
                        ["bash", "-c", command],
                        cwd=self.working_folder,
                        stdin=subprocess.DEVNULL,
                        stdout=file,
                        stderr=subprocess.STDOUT,
                        timeout=_LONGEST_S,
                        check=False,
                    )
            except (OSError, subprocess.TimeoutExpired) as error:
                why = str(error)
                continue
            if process.returncode == 0:
                return _text(log), ""
            why = f"exit code {process.returncode}; output in {log}"
        return _text(log), f"postExec failed: {why}"

    def summarise(self, runs: Sequence[tuple[PlannedRun, RunResult]]) -> list[Path]:
        """Write the summary of all good runs; return where it is. Raises OSError."""
        summaries = [
            SummaryRun(run.configuration, result, self.kept.get(str(run.seq), {}))
            for run, result in runs
        ]
        paths = [self.folder / "summary.yml"]
        if self.settings.output_folder:
            place = Path(os.path.expandvars(self.settings.output_folder)).expanduser()
            execution = self.settings.parameters.get("execParam", "")
            nodes = self.settings.parameters.get("nodes", "")
            folder = (self.working_folder / place / self.settings.experiment).absolute()
            folder.mkdir(parents=True, exist_ok=True)
            parts = folder / "parts"
            parts.mkdir(exist_ok=True)
            write_summary(parts / f"{nodes}-{execution}.yml", summaries, self.settings.parameters)
            texts = [path.read_text() for path in sorted(parts.glob("*.yml"))]
            merged_file = folder / "summary.yml"
            write_whole(merged_file, "".join(texts))
            paths.append(merged_file)
        write_summary(paths[0], summaries, self.settings.parameters)
        return paths


def after_run(settings: Mapping[str, Any], folder: Path, working_folder: Path) -> PostProcessor:
    """Return what follows each run of a sweep in ``folder``, by its experiment's ``after``."""
    return PostProcessor(PostProcessing.from_dict(settings), folder, working_folder)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
