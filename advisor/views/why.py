"""What was decided for a job and how it came out, as ``advisor why`` prints it."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.core.axes import extra_words
from advisor.core.columns import columns_of, padded
from advisor.core.decision import Decision
from advisor.core.units import duration_like, format_energy, format_freq
from advisor.core.words import describe, interval_words
from advisor.loop.execution import observed_khz
from advisor.loop.step_outcomes import StepOutcome
from advisor.loop.why import Answer, Compared
from advisor.schedulers.here import named
from advisor.schedulers.translators import translator
from advisor.store.records import Outcome
from advisor.views.decision import effects_text, heading, reason_lines, rewrite_text
from advisor.views.tables import table
from advisor.views.worth import Month, Worth

VERDICTS = {
    "as-promised": "as promised",
    "better": "better than promised",
    "worse": "worse than promised",
    "unknown": "not known",
    "left-alone": "nothing was promised: the job ran as you wrote it",
}

_SEEN = {
    "gpus": "the energy above is theirs alone",
    "nodes": "the energy above is that of the nodes, with them",
    "processors": "the energy above is that of the processors, without them",
}
"""What a job's measured energy has to do with that of its GPUs, by what the meter sees."""


def why_lines(answer: Answer, worth: Worth | None = None) -> list[str]:
    """Return what is known of a job as lines: decision, promise, outcome and reasons.

    ``worth`` is what the decision's change promises.
    """
    lines = _job(answer)
    lines += [f"note         {note}" for note in answer.notes]
    if answer.tasks:
        rows = [[o.job_id, o.state, VERDICTS.get(o.verdict, o.verdict)] for o in answer.tasks]
        lines += ["", *table(["task", "state", "came out"], rows)]
    decision = answer.decision
    if decision is None:
        return [
            *lines,
            "decision     not known: the job did not pass the advisor's hook, or its stamp "
            "was lost",
        ]
    promised = worth.lines() if worth and effects_text(decision) else []
    lines += [*_decision(answer, decision, promised), *_comparison(answer)]
    lines += [*_gpus(answer), *_steps(answer)]
    lines += reason_lines(decision)
    if decision.changed:
        of_scheduler = translator(named(decision.scheduler)).LEFT_ALONE
        off_command = "ADVISOR=off advisor run" if decision.hook == "run" else of_scheduler
        lines += [
            "",
            f"to turn the advisor off: {off_command} ... for one job, a line #ADVISOR off for a "
            "script, advisor choose --off for all your jobs",
        ]
    return lines


def _job(answer: Answer) -> list[str]:
    o = answer.outcome
    lines = [f"job          {answer.job_id}  {answer.state}".rstrip()]
    if o is not None:
        where = f"{o.nodes} node{'s' if o.nodes != 1 else ''} ({o.node_list})"
        partition = o.record.get("partition")
        lines.append(
            f"ran          {where}{f' of partition {partition}' if partition else ''}, "
            f"user {o.user}{f', account {o.account}' if o.account else ''}"
        )
        if not answer.collected and o.decision_id:
            lines.append("             not collected yet: this is the accounting as it is now")
    elif answer.state:
        lines.append("             it has not ended: nothing to compare yet")
    return lines


def _decision(answer: Answer, decision: Decision, worth: Sequence[str]) -> list[str]:
    d = decision
    lines = [f"decision     {d.id}  {_trust_words(answer)}", *heading(d)]
    if d.baseline:
        lines.append(f"asked for    {describe(d.baseline, node_type=True)}")
    if d.chosen:
        lead = "took         " if d.changed else "would take   "
        lines.append(f"{lead}{describe(d.chosen.configuration, node_type=True)}")
        if effects_text(d):
            lines += [f"promised     {effects_text(d)}", *worth]
    rewrite = rewrite_text(d)
    if rewrite or not d.changed:
        lines.append(f"rewritten    {rewrite or 'nothing'}")
    return lines


def _trust_words(answer: Answer) -> str:
    if answer.trust == "unverified":
        return f"(not trusted: {answer.trust_why})"
    return "(by its stamp)" if answer.trust == "stamped" else ""


def _comparison(answer: Answer) -> list[str]:
    o = answer.outcome
    if o is None:
        return []
    compared = answer.compared()
    lines = [""]
    if compared:
        rows = [["", "promised", "interval", "measured", ""]]
        rows += [_row(name, c) for name, c in compared.items()]
        widths = [max(columns_of(row[i]) for row in rows) for i in range(4)]
        for row in rows:
            cells = [padded(c, w) for c, w in zip(row, widths, strict=False)]
            lines.append("  ".join([*cells, row[4]]).rstrip())
    else:
        energy = format_energy(o.energy_j) if o.energy_j else _no_energy(o)
        time = duration_like(o.time_s)(o.time_s) if o.time_s is not None else "-"
        lines.append(f"measured     time {time}, energy {energy}")
    lines += _frequency(answer, o)
    if saved := _saved(answer, o):
        lines.append(saved)
    if o.decision_id:
        notes = "; ".join(str(n) for n in o.record.get("notes") or ())
        lines.append(
            f"came out     {VERDICTS.get(o.verdict, o.verdict)}{f' ({notes})' if notes else ''}"
        )
    return lines


def _gpus(answer: Answer) -> list[str]:
    """Say what the GPUs of a job had set and took, together and by device where its nodes tell."""
    lines = []
    if answer.gpu_j is not None:
        seen = _SEEN.get(answer.meter_sees, "")
        lines = ["", f"GPUs         {format_energy(answer.gpu_j)}{f' ({seen})' if seen else ''}"]
    elif answer.gpu_note:
        lines = ["", f"GPUs         energy not known: {answer.gpu_note}"]
    d = answer.decision
    chosen = d.chosen.configuration.extra if d and d.changed and d.chosen else ()
    promised = extra_words((d.node_axes if d else ()) or chosen)
    rows = [
        [
            g.device,
            g.node,
            promised or "nothing",
            extra_words(tuple(g.axes.items())) or "nothing",
            "not counted" if g.energy_j is None else format_energy(g.energy_j),
        ]
        for g in answer.gpus()
    ]
    return (
        [*lines, "", *table(["GPU", "node", "promised", "set", "energy"], rows)] if rows else lines
    )


def _steps(answer: Answer) -> list[str]:
    """Say which steps of a job with a plan got what, as far as the accounting tells."""
    rows = [[s.step, s.program, s.ranks, _got(s)] for s in answer.steps()]
    return ["", *table(["step", "program", "ranks", "got"], rows)] if rows else []


def _got(step: StepOutcome) -> str:
    got = f"at most {format_freq(step.cap_khz)}" if step.cap_khz else "no cap"
    if step.as_planned is not None:
        got += ", as planned" if step.as_planned else ", not as planned"
    if step.threads_new:
        threads = f"{step.threads_new} threads a rank"
        got += f"; {threads} where it was written with {step.threads}"
    return got


def _frequency(answer: Answer, o: Outcome) -> list[str]:
    """Say which cap was set or requested, which frequency was observed, and whether they agree."""
    requested, observed = o.freq_requested_khz, observed_khz(o.freq_observed_khz)
    d, set_freq_khz = answer.decision, 0
    if d is not None and d.changed and d.chosen is not None and d.baseline is not None:
        chosen = d.chosen.configuration
        set_freq_khz = chosen.freq_khz if chosen.freq_khz != d.baseline.freq_khz else 0
    if not (requested or observed or set_freq_khz):
        return []
    observed_words = f"{observed / 1e6:.2f} GHz observed" if observed else "observed: not known"
    cap = f"at most {format_freq(requested)} requested" if requested else "no cap requested"
    if requested and d is not None and d.node_cap_khz == requested:
        cap = f"at most {format_freq(requested)} set by its nodes"
    if set_freq_khz and not requested:
        cap = f"at most {format_freq(set_freq_khz)} set, but no step had it"
    lines = ["", f"frequency    {cap}, {observed_words}"]
    why = (o.record.get("ran") or {}).get("uncapped")
    if why and (set_freq_khz or requested):
        lines.append(f"             the cap had no effect: {why}")
    return lines


def drawn(answer: Answer) -> list[tuple[str, list[tuple[str, float, str]]]]:
    """Return what of energy and time can be compared: as written, promised, measured.

    For each of the two a title and (name, value, text) of what is known, J and s.
    """
    d, o = answer.decision, answer.outcome
    if d is None or d.chosen is None or not d.changed:
        return []
    ended = o if o is not None and not o.failure else None
    pairs: list[tuple[str, list[tuple[str, float | None]]]] = [
        (
            quantity,
            [
                ("as written", baseline_figure),
                ("promised", promised_figure),
                ("measured", measured_figure),
            ],
        )
        for quantity, baseline_figure, promised_figure, measured_figure in (
            ("energy", d.baseline_energy_j, d.chosen.energy_j, ended.energy_j if ended else None),
            ("time", d.baseline_time_s, d.chosen.time_s, ended.time_s if ended else None),
        )
    ]
    drawn_groups = []
    for quantity, figures in pairs:
        positive_figures = [(n, v) for n, v in figures if v is not None and v == v and v > 0]
        if len(positive_figures) > 1:
            form = format_energy if quantity == "energy" else duration_like(positive_figures[0][1])
            drawn_groups.append((quantity, [(n, v, form(v)) for n, v in positive_figures]))
    return drawn_groups


def _saved(answer: Answer, o: Outcome) -> str:
    """Say what the job saved against the prediction for it as it was written."""
    d = answer.decision
    if o.failure or d is None or not d.changed:
        return ""
    if o.energy_j is None or d.baseline_energy_j is None:
        return ""
    saved_j = d.baseline_energy_j - o.energy_j
    words = answer.tariff.words(saved_j)
    if d.baseline is not None and d.baseline_time_s is not None and o.time_s is not None:
        node_s = d.baseline.nodes * d.baseline_time_s - o.nodes * o.time_s
        words = Worth(saved_j, node_s / 3600, Month(answer.tariff)).of_run
    return f"saved        {words} against the prediction for the job as written"


def _no_energy(o: Outcome) -> str:
    why = (o.record.get("ran") or {}).get("energy_note")
    return f"not known{f' ({why})' if why else ''}"


def _row(name: str, c: Compared) -> list[str]:
    if name == "time":
        form = duration_like(c.promised.value)
    else:
        form = format_energy
    interval = interval_words(c.promised.lo, c.promised.hi, form)
    measured = form(c.measured) if c.measured is not None else "-"
    return [name, form(c.promised.value), interval, measured, c.words]
