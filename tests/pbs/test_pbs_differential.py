"""Every request is submitted twice, without and with the advisor: nothing else may differ.

The server's part is the stand-in's, the hook is the installed one in its own interpreter, and the
answers are decided from a real store, knowing the site as the daemon's watch reads it.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
import secrets
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import admission
import fake_mom
import fake_qmgr
import fake_qstat
import fake_qsub
import fake_server
import pytest
from hooked import HOOKS, daemon, run_hook
from pbs_shapes import FIXED, PLAIN, SHARING, SITES, Shape, drawn

from advisor.core.availability import Availability
from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.inventory import NodeType
from advisor.core.option import Option
from advisor.schedulers.node_state import rooms, sized
from advisor.schedulers.pbs.availability import reading_of
from advisor.schedulers.pbs.hooks import PbsHookSettings, queuejob_config
from advisor.schedulers.pbs.inventory import hook_inventory
from advisor.schedulers.pbs.translator import parse_request
from advisor.service.answered import Answered
from advisor.service.decide import decide
from advisor.service.snapshot import Snapshot, StoreSource
from advisor.store.writer import Writer
from tests.again import same_again

_BDW = {"ncpus": 28, "mem": "64gb", "node_type": "bdw", "model": "bro", "arch": "linux"}
_SKL = {"ncpus": 64, "mem": "256gb", "node_type": "skl", "model": "sky", "arch": "linux"}
pytestmark = pytest.mark.slow
NODES: dict[str, dict[str, Any]] = {
    "n1": _BDW,
    "n2": _BDW,
    "k1": {**_SKL, "queue": "fat"},
    "m1": {**_BDW, "queue": "mixed"},
    "k2": {**_SKL, "queue": "mixed"},
}
RESOURCES = {
    "node_type": ("string", "h"),
    "model": ("string", "h"),
    "bigmem": ("boolean", "h"),
    "scratch": ("size", "nh"),
    "matlab": ("long", "q"),
    "advisor_stamp": ("string", "rm"),
    "cpu_freq_mhz": ("long", "m"),
    "energy_j": ("long", "m"),
    "energy_nodes": ("long", "m"),
    "gpu_freq_mhz": ("long", "m"),
    "gpu_power_w": ("long", "m"),
    "advisor_gpus": ("string", "rm"),
}
SCHEDULED = frozenset("ncpus mem arch host vnode node_type model bigmem scratch".split())  # noqa: SIM905
EXPECTED = re.compile("job rewritten|the daemon says")
ON = ("enabled", "started")
STEPS = (1_200_000, 1_900_000, 2_200_000)
BDW = NodeType(
    "bdw",
    feature="node_type=bdw",
    partitions=("workq", "q", "small", "large", "mixed"),
    sockets=2,
    cores=28,
    memory_mb=65536,
    freq_khz=STEPS,
    default_freq_khz=2_200_000,
    nodes=("n1", "n2", "m1"),
    default_partition="workq",
    partition_nodes=(("mixed", 1),),
)
SKL = replace(
    BDW,
    name="skl",
    feature="node_type=skl",
    cores=64,
    memory_mb=262144,
    nodes=("k1", "k2"),
    partitions=("fat", "mixed"),
    partition_nodes=(("fat", 1), ("mixed", 1)),
    weight=10,
)


PROGRAMS = ("stencil", "pool", "blas")
"""With a model. PBS sets the first one's variable; the others have one that it leaves unset, and
only of the last the site says that it then uses all cores."""
STARTS = """\
#!/bin/sh
echo "${0##*/} $*|${OMP_NUM_THREADS-unset}|${MKL_NUM_THREADS-unset}" >> starts
"""


def option(kind: NodeType, nodes: int, ranks: int, threads: int, freq: int) -> Option:
    """A memory-bound application: fewer threads and a lower cap always pay."""
    time_s = 100 * (20 / min(threads, 20)) * (2.2e6 / freq) ** 0.1 / nodes
    energy = nodes * time_s * (90 + threads * (1.5 + 3 * (freq / 2.2e6) ** 3))
    c = Configuration(kind.name, nodes, ranks, threads, freq)
    return Option(
        c,
        time_s,
        time_s * 0.995,
        time_s * 1.005,
        energy,
        energy * 0.995,
        energy * 1.005,
        measured=True,
        confirmed=True,
        in_zone=True,
    )


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Snapshot]:
    with stored(tmp_path_factory.mktemp("store") / "advisor.db") as found:
        yield found


@contextmanager
def stored(path: Path) -> Iterator[Snapshot]:
    """Make a store that knows the node types, a policy and a model of each; load it."""
    with Writer(path) as writer:
        writer.save_node_types([BDW, SKL], source="test")
        base = {
            "mode": "apply",
            "goal": "min_energy",
            "max_slowdown": 0.2,
            "min_saving": 0.01,
            "holdout": 0.0,
            "axes": {"threads": "cap", "node_type": "fill"},
        }
        writer.apply_config(
            "policy", path="p.yaml", text="p", compiled={"base": base, "rules": []}, by="test"
        )
        rules: list[dict[str, object]] = [
            {"name": "pool", "executable": ["pool"], "threads_from": ["MKL_NUM_THREADS"]},
            {
                "name": "blas",
                "executable": ["blas"],
                "threads_from": ["MKL_NUM_THREADS"],
                "threads_unset": "all-cores",
            },
        ]
        compiled: dict[str, object] = {"applications": rules}
        writer.apply_config("site", path="s.yaml", text="s", compiled=compiled, by="test")
        for kind, application in itertools.product((BDW, SKL), PROGRAMS):
            # as a grid that was imported: measured neither with whole nodes nor with parts
            options = [
                option(kind, nodes, ranks, threads, freq)
                for nodes in (1, 2)
                for ranks in (1, 2, 4, 28)
                for threads in range(ranks, kind.cores + 1)
                if not threads % ranks
                for freq in STEPS
            ]
            writer.save_model(
                application,
                "default",
                kind.name,
                name="bspline",
                n_train=12,
                options=options,
                scope="all",
                owner="",
                energy_quality="measured",
                stats={},
            )
        source = StoreSource(path)
        source.refresh()
        yield source.snapshot
        source.close()


@dataclass
class Outcome:
    """What became of one submission: what the user sees and what the job gets."""

    said: str
    queue: str = ""
    wants: dict[str, Any] | None = None
    select: str = ""
    place: list[tuple[str, dict[str, str]]] | str = ""

    def compared(self, other: Outcome) -> list[str]:
        """Return how the outcome with the advisor differs from this one, beyond what it may."""
        found = []
        if self.said != other.said:
            found.append(f"qsub said {self.said!r}, then {other.said!r}")
        if self.queue != other.queue:
            found.append(f"queue {self.queue}, then {other.queue}")
        mine, theirs = self.wants or {}, other.wants or {}
        for name in sorted({*mine, *theirs} - {"advisor_stamp", "cpu_freq_mhz", "ompthreads"}):
            was, now = mine.get(name), theirs.get(name)
            if name in ("select", "ncpus"):
                continue  # below, with the chunks
            if was != now:
                found.append(f"{name} {was}, then {now}")
        if len(self.chunks()) != len(other.chunks()):
            found.append(f"select {self.select}, then {other.select}")
        for before, after in zip(self.chunks(), other.chunks(), strict=False):
            found += self._chunk(before, after)
        reasons = [p if isinstance(p, str) else "" for p in (self.place, other.place)]
        if reasons[0] != reasons[1]:
            found.append(f"started: {reasons[0] or 'at once'}, then {reasons[1] or 'at once'}")
        return found

    def _chunk(
        self, before: tuple[int, dict[str, str]], after: tuple[int, dict[str, str]]
    ) -> list[str]:
        (count, was), (count_then, now) = before, after
        found = [] if count == count_then else [f"{count} chunks, then {count_then}"]
        place = str((self.wants or {}).get("place"))
        for name in {*was, *now} - {"ompthreads"}:
            if was.get(name) == now.get(name):
                continue
            if name == "node_type" and name not in was and "excl" in place:
                continue
            shrinks = count == 1 and "mem" in was and "excl" not in place and "mpiprocs" not in was
            if name == "ncpus" and shrinks and int(now[name]) < int(was[name]):
                continue
            found.append(f"{name} of a chunk {was.get(name)}, then {now.get(name)}")
        return found

    def lasts_s(self) -> float:
        """Return how long the program takes where it was started, as its model has it."""
        places = self.place if isinstance(self.place, list) else []
        threads: Counter[str] = Counter()
        for vnode, chunk in places:
            each = int(chunk.get("ompthreads", chunk["ncpus"]))
            threads[vnode] += int(chunk.get("mpiprocs", 1)) * each
        if not threads:
            return 0.0
        kind = {"bdw": BDW, "skl": SKL}[NODES[places[0][0]]["node_type"]]
        freq = int((self.wants or {}).get("cpu_freq_mhz", 2200)) * 1000
        return option(kind, len(threads), 1, max(threads.values()), freq).time_s

    def ends(self) -> bool:
        """Tell whether that is within the job's time limit."""
        limit = (self.wants or {}).get("walltime")
        return limit is None or self.lasts_s() <= admission.amount(limit)

    def chunks(self) -> list[tuple[int, dict[str, str]]]:
        """Return the chunks the scheduler looks at."""
        return admission.chunks(self.select)


def state_of(site: str) -> dict[str, Any]:
    """Return the server of a site of pbs_shapes.py, as PBS makes it and qmgr changes it."""
    state: dict[str, Any] = {
        "nodes": {n: dict(has) for n, has in NODES.items()},
        "jobs": {},
        "given": {},
        "hooks": {},
        "queues": {},
        "resources": {n: {"type": t, "flag": f} for n, (t, f) in RESOURCES.items()},
        "server": {
            "default_queue": "workq",
            "resources_default": {"ncpus": "1"},
            "default_chunk": {"ncpus": "1"},
            "scheduling": "True",
        },
    }
    nobody = fake_server.Complex(Path("/nonexistent"))
    made = [f"create queue {q} queue_type=execution" for q in ("workq", "fat", "mixed")]
    made += [f"set queue {q} {a} = true" for q in ("workq", "fat", "mixed") for a in ON]
    for line in [*made, *SITES[site]]:
        fake_qmgr.manage(nobody, state, line, log=False)
    for has in state["nodes"].values() if site in SHARING else ():
        has["sharing"] = SHARING[site]
    return state


def put(state: dict[str, Any], given: dict[str, str], queue: str) -> Outcome:
    """Submit what the hooks left to a server; a job that can start has its nodes."""
    try:
        admission.check_given(state, given, user=False)
        name = admission.submit(state, queue or "workq", given, "alice")
        wants, select = admission.complete(state, state["queues"][name], given)
    except admission.RefusedError as error:
        return Outcome(str(error))
    job: dict[str, Any] = {
        "job_state": "Q",
        "queue": name,
        "Resource_List": wants,
        "schedselect": select,
    }
    place = admission.start(state, job, SCHEDULED)
    if isinstance(place, list):
        job["job_state"] = "R"
        job["exec_vnode"] = "+".join(f"({n}:{fake_mom.taken(state, c)})" for n, c in place)
    state["jobs"][f"{len(state['jobs']) + 1}.pbs1"] = job
    return Outcome("", name, wants, select, place)


def availability(state: dict[str, Any], snapshot: Snapshot) -> Availability:
    """Return what the daemon's watch would know of a server."""
    reading = reading_of("pbs1", state["server"], fake_qstat.nodes_of(state), state["queues"])
    inventory = snapshot.inventory
    return Availability(
        "pbs", rooms(inventory, reading.nodes), sized(inventory, reading.partitions), reading.queues
    )


def client(script: str) -> str:
    """Return what the login node's part sends along of a script."""
    spec = importlib.util.spec_from_file_location("qsub_client", HOOKS / "qsub.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    lines = script.splitlines()
    return str(module.client(script.encode(), module.directives(lines, "#PBS"), lines))


@contextmanager
def answering(
    path: Path, snapshot: Snapshot, decisions: list[Decision], handed: Mapping[str, str]
) -> Iterator[None]:
    """Answer a hook at a socket, from a snapshot and what was handed over by key."""

    def behave(connection: socket.socket, line: bytes) -> None:
        request = json.loads(line)
        request["client"] = handed.get(request["client"], "")
        try:
            job = parse_request(request, user="alice", uid=1000, choices={})
        except ValueError as error:
            connection.sendall(json.dumps({"v": 1, "error": str(error)}).encode() + b"\n")
            return
        decision = decide(job, snapshot, chance=lambda: 1.0)
        decisions.append(decision)
        connection.sendall(Answered(decision, request, 1000, False).line(decision.id, "now"))

    with daemon(path, behave):
        yield


def differences(
    shapes: list[Shape], snapshot: Snapshot, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, list[str]], Counter[str]]:
    """Submit all shapes twice; return what differs by shape, and how many were advised and why
    others were not."""
    found: dict[str, list[str]] = {}
    told: Counter[str] = Counter()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(folder)
    (folder / "job.sh").write_text(PLAIN)  # of the jobs that run already
    groups: dict[tuple[str, Any], list[Shape]] = {}
    for shape in shapes:
        groups.setdefault((shape.site, shape.running), []).append(shape)
    for number, ((site, running), group) in enumerate(groups.items()):
        state = state_of(site)
        for words in running:
            job, _, _ = fake_qsub.submission([*words, str(folder / "job.sh")])
            put(state, job["Resource_List"], "")
        before = json.dumps(state)
        submitted = []
        handed: dict[str, str] = {}
        for shape in group:
            (folder / "job.sh").write_text(shape.script)
            job, text, _ = fake_qsub.submission([*shape.words, "job.sh"])
            job["Variable_List"]["ADVISOR_QSUB"] = key = secrets.token_hex(16)
            handed[key] = client(text)
            submitted.append((shape, job))
        inventory = hook_inventory(state["server"], fake_qstat.nodes_of(state), state["queues"])
        settings = queuejob_config(
            PbsHookSettings(
                folder / f"s{number}",
                deadline_s=5.0,
                frequency_steps={kind.feature: STEPS for kind in (BDW, SKL)},
            ),
            inventory,
        )
        settings["breaker"] = str(folder / "breaker")
        known = replace(snapshot, availability=availability(state, snapshot))
        decisions: list[Decision] = []
        events = [
            {
                "event": "QUEUEJOB",
                "user": "alice",
                "job": {"id": "", **job},
                "resources": fake_server.types(state),
            }
            for _, job in submitted
        ]
        events = [e for e, (_, job) in zip(events, submitted, strict=True) if knows(state, job)]
        submitted = [(s, job) for s, job in submitted if knows(state, job)]
        with answering(folder / f"s{number}", known, decisions, handed):
            outcomes = run_hook("advisor_queuejob.py", events, settings, folder=folder)
        for (shape, job), outcome in zip(submitted, outcomes, strict=True):
            assert outcome["answer"] == ["accept", ""], outcome
            off = put(json.loads(before), job["Resource_List"], job["queue"])
            on = put(json.loads(before), outcome["resources"], job["queue"])
            wrong = off.compared(on)
            if off.ends() and not on.ends():
                wrong.append(f"takes {on.lasts_s():.0f} s of {(on.wants or {})['walltime']}")
            given = {k: v for k, v in job["Variable_List"].items() if not k.startswith("ADVISOR")}
            variables = {k: str(v) for k, v in outcome["variables"].items()}
            wrong += variables_changed(shape, given, variables)
            if variables != given or outcome["written"]:
                runs = [
                    started(folder, shape, side, v) for side, v in ((off, given), (on, variables))
                ]
                wrong += starts_changed(*runs)
            capped = "cpu_freq_mhz" in set(outcome["written"])
            if capped and not alone(state, off):
                wrong.append(f"a cap where others may run: {off.place}")
            wrong += [line for line in outcome["log"] if not EXPECTED.search(line)]
            if wrong:
                found[f"{shape} [{outcome['resources']}]"] = wrong
            changed = {k for k in outcome["written"] if k != "advisor_stamp"}
            told["advised" if changed else "left"] += 1
        for decision in decisions:
            told[decision.reasons[-1].code] += 1
            same_again(decision, known, lambda: 1.0)
    return found, told


def variables_changed(
    shape: Shape, before: Mapping[str, str], after: Mapping[str, str]
) -> list[str]:
    """Return which of a job's variables changed that may not, the advisor's apart."""
    wrong = []
    for name in sorted({*before, *after}):
        was, now = before.get(name), after.get(name)
        if was == now or name.startswith("ADVISOR"):
            continue
        fewer = was is None or (
            was.isdigit() and (now or "").isdigit() and int(now or 0) <= int(was)
        )
        if name == "MKL_NUM_THREADS" and "blas" in shape.script and fewer:
            continue
        wrong.append(f"variable {name} {was}, then {now}")
    return wrong


def started(
    folder: Path, shape: Shape, outcome: Outcome, variables: Mapping[str, str]
) -> list[list[str]]:
    """Run a job's script as PBS's daemon on the node does; return what it started: words and
    variables of threads."""
    place = outcome.place
    if not isinstance(place, list):
        return []
    where = folder / "run"
    where.mkdir(exist_ok=True)
    for name in ("mpirun", "mpiexec", "other", *PROGRAMS):
        (where / name).write_text(STARTS)
        (where / name).chmod(0o755)
    (where / "starts").write_text("")
    ranks = [int(chunk.get("mpiprocs", 1)) for _, chunk in place]
    hosts = [f"{vnode}\n" * n for (vnode, _), n in zip(place, ranks, strict=True)]
    (where / "nodes").write_text("".join(hosts))
    threads = place[0][1].get("ompthreads", place[0][1]["ncpus"])
    environment = {
        "PATH": f"{where}:/usr/bin:/bin",
        **{k: v for k, v in variables.items() if k != "PATH"},
        "PBS_NODEFILE": "nodes",
        "NCPUS": threads,
        "OMP_NUM_THREADS": threads,
    }
    done = subprocess.run(
        ["bash", "-c", shape.script],
        env=environment,
        cwd=where,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
        check=False,
    )
    lines = (where / "starts").read_text().splitlines()
    return [[f"exit {done.returncode}", "unset", "unset"], *(line.rsplit("|", 2) for line in lines)]


def starts_changed(off: list[list[str]], on: list[list[str]]) -> list[str]:
    """Return what a script started otherwise; threads of the programs with a model may be fewer."""
    if [words for words, *_ in off] != [words for words, *_ in on]:
        return [f"started {off}, then {on}"]
    wrong = []
    for (words, *before), (_, *after) in zip(off, on, strict=True):
        for was, now in zip(before, after, strict=True):
            fewer = was.isdigit() and now.isdigit() and int(now) <= int(was)
            vouched = "blas" in words and was == "unset"
            if was != now and not (fewer or vouched):
                wrong.append(f"threads of {words} {was}, then {now}")
    return wrong


def alone(state: dict[str, Any], job: Outcome) -> bool:
    """Tell whether nobody else can get CPUs of a job's hosts, by the scheduler's own rules."""
    words = str((job.wants or {}).get("place", "")).split(":")
    taken: Counter[str] = Counter()
    for vnode, chunk in job.place if isinstance(job.place, list) else ():
        taken[vnode] += int(chunk["ncpus"])
    return all(
        admission.is_excl(words, state["nodes"][n].get("sharing", "default_shared"))
        or cores >= int(state["nodes"][n]["ncpus"])
        for n, cores in taken.items()
    )


def knows(state: dict[str, Any], job: dict[str, Any]) -> bool:
    """Tell whether the server passes a request to its hooks at all."""
    try:
        admission.check_given(state, job["Resource_List"], user=True)
    except admission.RefusedError:
        return False
    return True


def test_fixed_shapes(snapshot: Snapshot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(FIXED) >= 100
    found, told = differences(FIXED, snapshot, tmp_path, monkeypatch)
    assert found == {}, told
    assert told["advised"] >= 40, told


def test_drawn_shapes(snapshot: Snapshot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, told = differences(drawn(300, seed=12), snapshot, tmp_path, monkeypatch)
    assert found == {}, told
    assert told["advised"] >= 40, told


@pytest.mark.parametrize(
    ("site", "given", "rewritten", "sees"),
    [
        ("plain", {"select": "2:ncpus=28:mem=40gb"}, {"place": "pack"}, "place free, then pack"),
        ("plain", {"select": "1:ncpus=28"}, {"place": "excl"}, "place free, then excl"),
        (
            "plain",
            {"ncpus": "4", "mem": "1gb"},
            {"select": "1:ncpus=4", "ncpus": "", "mem": ""},
            "mem 1gb, then None",
        ),
        ("minimum", {"select": "1:ncpus=28"}, {"select": "1:ncpus=20"}, "violates queue"),
        ("route-strict", {"select": "1:ncpus=28"}, {"select": "1:ncpus=14"}, "all possible"),
        ("route", {"select": "1:ncpus=28"}, {"select": "1:ncpus=14"}, "queue large, then small"),
        (
            "default-kind",
            {"select": "1:ncpus=28"},
            {"select": "1:ncpus=28:node_type=skl"},
            "then Can Never Run",
        ),
        (
            "plain",
            {"select": "1:ncpus=28:mem=2gb", "place": "excl"},
            {"select": "1:ncpus=20:mem=2gb"},
            "ncpus of a chunk 28, then 20",
        ),
        ("plain", {"select": "1:ncpus=28"}, {"advisor_stampp": "x"}, "Unknown resource"),
    ],
)
def test_what_harmed_jobs_before_is_seen(
    site: str, given: dict[str, str], rewritten: dict[str, str], sees: str
) -> None:
    state = state_of(site)
    queue = "" if site == "plain" else "q"
    after = {k: v for k, v in {**given, **rewritten}.items() if v}
    before = json.dumps(state)
    found = put(json.loads(before), given, queue).compared(put(json.loads(before), after, queue))
    assert any(sees in line for line in found), found
