"""Check the applied policy and site files, and the inventory against the cluster: what it is, and
what the daemon sees of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from advisor.core.check import Check, check_error
from advisor.core.inventory import Inventory
from advisor.core.policy import PolicySet
from advisor.core.power import DROPPED
from advisor.core.units import format_count
from advisor.derive.node_classes import classifier
from advisor.errors import AdvisorError
from advisor.loop.clock import utc
from advisor.loop.execution import IMPOSSIBLE
from advisor.schedulers.base import Scheduler
from advisor.schedulers.choose import every
from advisor.store.reader import Reader
from advisor.store.records import ConfigKind
from advisor.store.trials import trials, under_way

_SHOWN = 60
"""Characters of a list of names in one line of ``doctor``."""
_UNKNOWN = "no job goes to another node type"


def check_files(reader: Reader, folder: Path) -> Iterator[Check]:
    """Check what is applied, and whether the files in ``folder`` say the same."""
    kinds: tuple[ConfigKind, ...] = ("policy", "site")
    for kind in kinds:
        yield from _check_file(reader, folder / f"{kind}.yaml", kind)
    yield from _check_policy(reader)
    yield from check_trials(reader)
    yield from check_energies(reader)


def _check_file(reader: Reader, path: Path, kind: ConfigKind) -> Iterator[Check]:
    applied = reader.config(kind)
    exists = path.is_file()
    if applied is None:
        if kind == "site" and not exists:
            yield Check("site", "ok", "no site file is applied: applications by launcher line only")
            return
        yield Check(
            kind,
            "warn",
            f"no {kind} is applied" + (", the built-in default holds" if kind == "policy" else ""),
            f"advisor {kind} apply" + ("" if exists else f" (there is no {path} yet)"),
        )
    else:
        when = f"applied by {applied.applied_by} at {utc(applied.applied_at)}"
        yield Check(kind, "ok", f"version {applied.version}, {when}")
    if exists:
        yield from _compare(path, kind, "" if applied is None else applied.text)


def _compare(path: Path, kind: ConfigKind, applied: str) -> Iterator[Check]:
    from advisor.policy.load import check_text

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        yield Check(kind, "warn", f"{path} cannot be read: {error}", "mend its permissions or text")
        return
    if text == applied:
        return
    compiled, problems = check_text(text, str(path), kind)
    if compiled is None:
        wrong = [p for p in problems if not p.warning]
        yield Check(
            kind,
            "warn",
            f"{path} has {format_count(len(wrong), 'mistake')}: {wrong[0]}",
            f"advisor {kind} check",
        )
    elif applied:
        yield Check(
            kind,
            "warn",
            f"{path} is not what is applied",
            f"advisor {kind} diff shows it, advisor {kind} apply lets it hold",
        )


def _check_policy(reader: Reader) -> Iterator[Check]:
    try:
        policy: PolicySet = reader.policy()
    except AdvisorError as error:
        yield check_error("policy", "fail", error)
        return
    base = policy.base
    yield Check(
        "policy",
        "ok",
        f"mode {base.mode}, goal {base.goal}, {len(policy.rules)} rules, holdout "
        f"{100 * base.holdout:.1f} %, training {base.training.mode} (trust {base.training.trust})",
    )


def check_energies(reader: Reader) -> Iterator[Check]:
    """Count the readings of meters that were dropped; nothing where there are none."""
    jobs = reader.rows(
        "SELECT count(*) FROM outcomes WHERE json_extract(record, '$.ran.energy_note') = ?",
        (IMPOSSIBLE,),
    )[0][0]
    runs = reader.rows(
        "SELECT count(*) FROM observations WHERE json_extract(extra, ?) IS NOT NULL",
        (f"$.{DROPPED}",),
    )[0][0]
    if jobs or runs:
        yield Check(
            "energy",
            "warn",
            f"the meters of {format_count(jobs, 'job')} and {format_count(runs, 'imported run')} "
            "said what their nodes cannot have used; these readings were dropped",
            "see what the scheduler's energy plugin reads on these nodes: advisor why JOB",
        )


def check_trials(reader: Reader) -> Iterator[Check]:
    """Check the trials of applications never swept; nothing where there are none."""
    all_trials = trials(reader)
    if not all_trials:
        return
    states = Counter(t.state for t in all_trials)
    text = ", ".join(f"{n} {state}" for state, n in states.most_common())
    stopped_classes = under_way(reader).stopped
    for node_type, name in sorted(stopped_classes):
        bad = {
            t.application
            for t in all_trials
            if (t.node_type, t.class_name, t.state) == (node_type, name, "bad")
        }
        yield Check(
            "trials",
            "warn",
            f"no more trials of {name} jobs on {node_type}: two came out badly, of "
            f"{', '.join(sorted(bad))[:_SHOWN]}",
            "measure them: advisor train SCRIPT; or take them out: advisor store forget APP",
        )
    if not stopped_classes:
        yield Check("trials", "ok", f"of applications never swept: {text}")


def check_classes(reader: Reader, inventory: Inventory) -> Iterator[Check]:
    """Check the class files of all node types; nothing where all can be read."""
    for name in inventory.node_types:
        class_model = classifier(reader, name, inventory)
        for problem in class_model.setup.files.problems if class_model is not None else ():
            yield Check(
                "classes",
                "warn",
                f"{problem}; signatures of {name} keep the classes they have",
                f"write it again: advisor lab classes train or peaks --node-type {name}",
            )


def check_cluster(inventory: Inventory, scheduler: Scheduler) -> Iterator[Check]:
    """Compare the inventory with the nodes the scheduler has now."""
    who = scheduler.LABEL
    try:
        cluster = scheduler.cluster()
    except AdvisorError as error:
        yield check_error("cluster", "warn", error)
        return
    if cluster is None:
        return
    from advisor.policy.render import fold

    inventory_nodes = {name: t for t in inventory.node_types.values() for name in t.nodes}
    cluster_nodes = {node.name: node for node in cluster.nodes}
    served = {name for name, node in cluster_nodes.items() if node.partitions}
    other_cores = {
        n
        for n, node in cluster_nodes.items()
        if n in inventory_nodes and node.cores != inventory_nodes[n].cores
    }
    todo = "advisor site discover"
    any_checked = False
    for text, names in (
        (f"in the inventory, but not in {who}", inventory_nodes.keys() - cluster_nodes.keys()),
        (f"in {who}, but of no node type", served - inventory_nodes.keys()),
        ("with another number of cores than their node type", other_cores),
    ):
        if names:
            any_checked = True
            yield Check("cluster", "warn", f"{text}: {fold(names)[:_SHOWN]}", todo)
    features = cluster.features()
    lost_features = sorted(
        t.feature for t in inventory.node_types.values() if t.feature and t.feature not in features
    )
    if lost_features:
        any_checked = True
        effect = scheduler.WITHOUT_FEATURE
        text = (
            f"{who} has no node with feature {', '.join(lost_features)}: jobs sent there {effect}"
        )
        yield Check("cluster", "fail", text, todo)
    if not any_checked:
        yield Check(
            "cluster", "ok", f"{cluster.version}: {len(cluster_nodes)} nodes as in the inventory"
        )


def check_watch(status: Mapping[str, object]) -> Iterator[Check]:
    """Check what the daemon's status says of its watch on the scheduler."""
    if "availability" not in status:  # an older daemon
        return
    watch = status["availability"]
    if not isinstance(watch, Mapping):
        yield Check(
            "watch",
            "warn",
            f"it does not watch the scheduler: {_UNKNOWN}",
            "start it without --watch 0 where the scheduler's commands are",
        )
        return
    labels = {s.NAME: s.LABEL for s in every()}
    who = labels.get(str(watch.get("scheduler")), "the scheduler")
    age = watch.get("age_s")
    old = "" if age is None else f" (last read {age:g} s ago)"
    if watch.get("error"):
        consequence = "" if watch.get("known") else f": {_UNKNOWN}"
        yield Check(
            "watch",
            "warn",
            f"it cannot read {who}{old}{consequence}: {watch['error']}",
            str(watch.get("hint") or "") or "run the scheduler's commands as the daemon's user",
        )
    elif not watch.get("known"):
        yield Check(
            "watch",
            "warn",
            f"what it knows of {who} is too old{old}: {_UNKNOWN}",
            "is the machine overloaded? see the daemon's log",
        )
    elif not watch.get("limits_known"):
        yield Check(
            "watch",
            "warn",
            f"it cannot read limits{old}: no job goes to nodes of another size: "
            f"{watch.get('limits_error') or 'not read yet'}",
            "run the daemon as a user who may run: sacctmgr show assoc",
        )
    else:
        yield Check("watch", "ok", f"{who}'s nodes and limits are known{old}")
