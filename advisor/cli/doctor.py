"""``advisor doctor``: check this installation and say what to mend."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from advisor import __version__, paths
from advisor.cli.output import print_json
from advisor.core.codec import JsonForm
from advisor.core.units import format_count
from advisor.errors import AdvisorError, StoreError

if TYPE_CHECKING:
    from advisor.core.check import Check
    from advisor.core.inventory import Inventory
    from advisor.schedulers.base import Scheduler

_MARKS = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor doctor`` takes."""
    parser.description = (
        "Check store, policy, site, inventory, models, meters, scheduler, hooks and daemon. Each "
        "finding says what to do. Exits with 1 when something is broken."
    )
    parser.add_argument("--socket", metavar="FILE", help="the daemon's socket (or ADVISOR_SOCKET)")


@dataclass(frozen=True, slots=True)
class DoctorAnswer(JsonForm):
    """Every check of this installation, with what to do."""

    version: str
    ok: bool
    checks: list[Check]


def run(args: argparse.Namespace) -> int:
    """Check and print."""
    checks = list(_checks(args))
    failed = [c for c in checks if c.state == "fail"]
    if args.json:
        print_json("doctor", DoctorAnswer(__version__, not failed, checks))
        return 1 if failed else 0
    width = max(len(c.name) for c in checks)
    for c in checks:
        print(f"{_MARKS[c.state]}  {c.name:<{width}}  {c.text}")
        if c.todo:
            print(f"{'':<{width + 6}}  -> {c.todo}")
    warned = sum(c.state == "warn" for c in checks)
    print(
        f"\n{format_count(len(checks), 'check')}: {len(failed)} failed, "
        f"{format_count(warned, 'warning')}"
    )
    return 1 if failed else 0


def _checks(args: argparse.Namespace) -> Iterator[Check]:
    from advisor.core.check import check_error
    from advisor.core.inventory import Inventory
    from advisor.database import DatabaseAddress
    from advisor.loop import health, health_site, retention
    from advisor.schedulers.choose import every
    from advisor.service import units
    from advisor.store.clusters import inventory_here
    from advisor.store.reader import understood_options

    yield from health.check_python()
    store: Path | None = None
    try:
        store = paths.store_path(args.db)
    except StoreError as error:
        yield check_error("store", "fail", error)
    understood = understood_options(store) if store is not None else {}
    scheduler: Scheduler | None = None
    settings: Mapping[str, object] = {}
    of_scheduler: list[Check] = []
    for candidate in every():
        if (checker := candidate.health()) is None:
            continue
        answers, scheduler_checks = checker.check_scheduler(understood)
        if answers or scheduler is None:
            scheduler, settings, of_scheduler = candidate, answers, scheduler_checks
        if answers:
            break
    reader = None
    if store is None:
        pass  # its file system hangs
    elif (
        not isinstance(store, DatabaseAddress)
        and not os.path.exists(store)  # noqa: PTH110
        and (site := paths.closed_store())
    ):
        yield _unreadable_store(site)
    else:
        reader, opened = health.open_store(store)
        yield from opened
    inventory, version = Inventory(), None
    if reader is not None:
        with reader:
            where = "on the store's host: " if reader.published else ""
            try:
                version = reader.policy().version
                files = health_site.check_files(reader, paths.config_dir(args.config_dir))
                yield from _to_do(files, where)
                inventory = inventory_here(
                    reader, scheduler.cluster_name if scheduler is not None else str
                )
                yield from _to_do(health.check_inventory(inventory), where)
                yield from health_site.check_classes(reader, inventory)
                yield from _to_do(health.check_models(reader), where)
                yield from _to_do(health.check_loop(reader, reader.path), where)
                yield from retention.check_history(reader)
            except AdvisorError as error:
                yield check_error("store", "fail", error)
    yield from of_scheduler
    hooked: str | None = None
    if scheduler is not None and settings and (checker := scheduler.health()):
        if inventory.node_types:
            yield from health_site.check_cluster(inventory, scheduler)
        hooked, hooks = checker.check_hooks(settings, inventory.frequency_steps())
        yield from hooks
    yield _meters(bool(settings))
    yield from _gpus_here(inventory)
    yield from units.check_units(units.LOOKED_INTO, units.program())
    yield from _daemon(args, hooked, version)


def _unreadable_store(store: Path) -> Check:
    """Say of a store that a daemon answers from and we cannot read whether it is gone."""
    from advisor.core.check import Check

    if os.access(store.parent, os.X_OK) and not os.path.lexists(store):
        return Check(
            "store",
            "fail",
            f"{store} is gone",
            "put a backup or a published copy back: advisor store restore FILE",
        )
    return Check("store", "ok", f"{store}: its owner's only; the daemon shows you what is yours")


def _to_do(checks: Iterable[Check], where: str) -> Iterator[Check]:
    """Say of what must be written to the store where to do that: a published copy is only read."""
    for check in checks:
        writes = check.todo.startswith("advisor ") and " check" not in check.todo
        yield replace(check, todo=f"{where}{check.todo}") if writes else check


def _meters(scheduled: bool) -> Check:
    """Say which meter this host has; a cluster's nodes have their own."""
    from advisor.core.check import Check
    from advisor.meters.choose import best_meter

    choice = best_meter()
    todo = "" if choice.meter is not None else "only runs on this very host need one"
    state = "ok" if choice.meter is not None or scheduled else "warn"
    return Check("meters", "warn" if state == "warn" else "ok", f"here: {choice.sentence}", todo)


def _gpus_here(inventory: Inventory) -> Iterator[Check]:
    """Say what keeps this host's NVIDIA GPUs from being set; nothing where it has none."""
    from advisor.core.check import Check
    from advisor.errors import MeterError
    from advisor.meters.base import MeteredNode
    from advisor.meters.nvml import Nvml, cautions_here, gpus_here

    try:
        gpus, notes = gpus_here()
        cautions = cautions_here()
    except MeterError as error:
        if Nvml(MeteredNode()).present():
            yield Check("gpus", "warn", f"here: {error}", error.hint or "install NVIDIA's driver")
        return
    can_be_set = bool(gpus.freq_khz or gpus.power_w)
    for note in notes:
        yield Check("gpus", "ok" if can_be_set else "warn", f"here: {note}")
    for caution in cautions:
        yield Check("gpus", "warn", f"here: {caution}")
    host = platform.node().partition(".")[0]
    node_type = next((t for t in inventory.node_types.values() if host in t.nodes), None)
    if node_type is not None and node_type.gpus.count != gpus.count:
        count = format_count(gpus.count, "GPU")
        text = f"{count}, where the inventory has {node_type.gpus.count}"
        yield Check("gpus", "warn", f"here: {text} for {node_type.name}", "advisor site discover")
    elif gpus.count and not notes:
        yield Check("gpus", "ok", f"here: {gpus.count} x {gpus.model}")


def _daemon(args: argparse.Namespace, hooked: str | None, policy: int | None) -> Iterator[Check]:
    """Ask the daemon: at the socket given, else where the hooks ask, else the default."""
    from advisor.core.check import Check
    from advisor.core.protocol import call
    from advisor.core.units import format_duration
    from advisor.loop.health_site import check_watch
    from advisor.store.connection import OLD_S

    socket: Path = paths.socket_path(args.socket or hooked)
    try:
        status = call(socket, {"v": 1, "op": "status"}, timeout_s=3.0)
    except AdvisorError as error:
        if os.path.exists(socket) and not socket.is_socket():  # noqa: PTH110  its folder may be closed
            yield Check(
                "daemon",
                "fail",
                f"{socket} is not a socket, so nobody can ask the daemon",
                f"rm {socket} && systemctl restart advisor.socket, or run advisor serve",
            )
            return
        if isinstance(error.__context__, TimeoutError):
            yield Check(
                "daemon",
                "fail",
                f"the daemon at {socket} does not answer within 3 s: it hangs, is stopped or is "
                "overloaded; jobs run as written",
                "systemctl restart advisor.service (without systemd kill -9 it and run advisor "
                "serve again); journalctl -u advisor.service says what came before",
            )
            return
        state = "fail" if hooked else "warn"
        yield Check(
            "daemon",
            "fail" if state == "fail" else "warn",
            f"no daemon answers at {socket}" + (": jobs run as written" if hooked else ""),
            "systemctl enable --now advisor.socket, or run advisor serve",
        )
        return
    latency = status.get("answer_us")
    median = latency.get("p50") if isinstance(latency, dict) else None
    yield Check(
        "daemon",
        "ok",
        f"{status.get('version')} at {socket}; models: {status.get('models')}, decisions: "
        f"{status.get('decisions')}, rewritten: {status.get('changed')}"
        + (f", median {median} us" if median is not None else ""),
    )
    age_s = status.get("store_age_s")
    if isinstance(age_s, (int, float)) and age_s > OLD_S:
        yield Check(
            "daemon",
            "warn",
            f"it answers from a copy that is {format_duration(age_s)} old",
            "on the store's host: is it up? "
            "advisor store publish must run there after each collect",
        )
    scripts = status.get("scripts")
    incomplete_jobs = scripts.get("missing") if isinstance(scripts, dict) else 0
    if isinstance(incomplete_jobs, int) and incomplete_jobs:
        yield Check(
            "daemon",
            "warn",
            f"of {incomplete_jobs} jobs it did not get what the login nodes' part read, and left "
            "them as written",
            "the daemon has to run as root, and its host to have the users' homes, or the login "
            "nodes' part to be on its host alone",
        )
    if status.get("store_hangs"):
        yield Check(
            "daemon",
            "fail",
            f"it waits for its store: {status['store_error']}",
            "mend or remount that file system; the daemon goes on by itself",
        )
    elif status.get("store_error"):
        store_unread = status.get("store_read") is False
        consequence = (
            "it has read none yet, so jobs run as written"
            if store_unread
            else ("it answers from what it read last")
        )
        yield Check(
            "daemon",
            "fail",
            f"it cannot read its store: {status['store_error']}",
            f"{consequence}; put a backup or a published copy back: advisor store restore FILE",
        )
    elif policy is not None and status.get("policy_version") != policy:
        yield Check(
            "daemon",
            "warn",
            f"it decides by policy version {status.get('policy_version')}, applied is {policy}",
            f"does it use another store? ({status.get('store')})",
        )
    yield from check_watch(status)
    if status.get("version") != __version__:
        yield Check(
            "daemon",
            "warn",
            f"it is {status.get('version')}, this command {__version__}",
            "restart it: systemctl restart advisor",
        )
