"""Read a job: what it runs, what its user wishes, what its script does with its cores.

Nothing here looks at a model or at the policy, so that a decision can be made again from what was
read (:class:`advisor.core.reading.JobReading`), under another policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from advisor.core.availability import Availability
from advisor.core.inventory import NodeType
from advisor.core.job_identity import job_identity
from advisor.core.policy import NodeTypeChange
from advisor.core.program import where
from advisor.core.reading import JobReading
from advisor.core.recognise import ApplicationRule, names_job, recognise
from advisor.core.request import JobRequest
from advisor.core.requested_configuration import partitions_of, threads_stated, use_of
from advisor.core.script import advisor_lines
from advisor.core.script_use import SEVERAL_STEPS, counts_threads, in_order, use_of_one
from advisor.core.settings import stated, with_choices
from advisor.schedulers.translators import translator
from advisor.service.snapshot import Snapshot


def read_job(request: JobRequest, rules: Sequence[ApplicationRule]) -> JobReading:
    """Return what a request and its script say, but for the use of its cores.

    Nothing is recognised in a job that is left alone whatever it runs: its user opted out, it is a
    step or heterogeneous.
    """
    stated_settings = stated(
        request.environment, advisor_lines(request.script) if request.script else {}
    )
    settings = with_choices(stated_settings, request.choices, "", "")
    if settings.off or request.kind == "step" or request.het:
        return JobReading(None, settings)
    recognised = recognise(
        request.script,
        job_name=request.job_name,
        script_arguments=request.command[1:] if request.script is not None else (),
        command=request.command if request.kind == "run" else (),
        submit_line=request.submit_line,
        stated={k: v for k, v in settings.values.items() if names_job(k)},
        rules=rules,
    )
    settings = with_choices(
        stated_settings, request.choices, recognised.application, recognised.workload
    )
    return JobReading(recognised, settings, job_identity(request))


def with_use(
    reading: JobReading,
    request: JobRequest,
    availability: Availability | None,
    rules: Sequence[ApplicationRule],
) -> JobReading:
    """Return the reading with what the script does with the job's cores."""
    recognised = reading.recognised
    if reading.use is not None or recognised is None:
        return reading
    vouched = "application" in reading.settings.values or bool(
        recognised.rule and recognised.rule.executable
    )
    use = use_of(request, recognised.threads_from, named=vouched)
    if use.obstacle[0]:
        several = use.obstacle[0] == SEVERAL_STEPS
        return replace(reading, use=use, apart=_apart(reading, request, rules) if several else ())
    settings = availability.settings if availability else {}
    language = translator(request.scheduler)
    uncapped = language.cap_obstacle(request, use, settings)
    return replace(
        reading,
        use=use,
        threads=threads_stated(request),
        uncapped=uncapped,
        node_cap=bool(uncapped) and language.caps_on_nodes(request, settings),
        axes_kept=language.axes_kept(request, use, settings) if request.gpus else ("", ""),
        counts_threads=bool(counts_threads(request.script or "", recognised.threads_from)),
    )


def _apart(
    reading: JobReading, request: JobRequest, rules: Sequence[ApplicationRule]
) -> tuple[JobReading, ...]:
    """Return the programs of a job's script, each read as if it were alone; none where the script
    leaves open what runs, or the user says what it is."""
    script, arguments = request.script, tuple(request.command[1:])
    if script is None or any(map(names_job, reading.settings.values)):
        return ()
    apart: list[JobReading] = []
    main = reading.recognised.command if reading.recognised else None
    moved = "chdir" in request.options
    files = {where(main, script, moved=moved): 1}
    programs, text = in_order(script, arguments)
    stated_settings = stated(request.environment, advisor_lines(script))
    for program in programs:
        words = (program.executable, *program.arguments)
        # not by the job's name, which is that of all of them
        recognised = replace(recognise(None, command=words, rules=rules), command=None, how=())
        if not recognised.application:
            return ()
        names = recognised.application, recognised.workload
        settings = with_choices(stated_settings, request.choices, *names)
        use = use_of_one(program, text, recognised.threads_from)
        place = where(program, script, moved=moved)
        file = files.setdefault(place, len(files) + 1) if place else 0
        apart.append(JobReading(recognised, settings, use=use, file=file))
    return tuple(apart)


def with_whole_nodes(request: JobRequest, snapshot: Snapshot) -> JobRequest:
    """Return the request as one for whole nodes where each of its partitions gives only these."""
    availability = snapshot.availability
    if availability is None or request.exclusive:
        return request
    names = partitions_of(request, snapshot.inventory)
    if not all(availability.gives_whole_nodes(name) for name in names):
        return request
    return replace(request, exclusive=True)


@dataclass(frozen=True, slots=True)
class PastAvailability(Availability):
    """What could be had when a job was submitted, as far as its decision kept it."""

    reading: JobReading | None = None

    def node_type_obstacle(
        self,
        request: JobRequest,
        baseline_type: NodeType,
        target: NodeType,
        partition: str,
        nodes: int,
        change: NodeTypeChange,
    ) -> tuple[str, str]:
        """Return what kept the job off a node type then; where nothing is known, it stays."""
        codes_by_type = self.reading.obstacles if self.reading else {}
        codes = codes_by_type.get(target.name, ("node-type-later",) * 2)
        code = codes[0 if change == "no-later" else 1]
        return (code, "as it was when the job was submitted") if code else ("", "")
