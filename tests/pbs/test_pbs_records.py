"""What PBS says of its jobs, hosts and queues, from recorded answers of a real OpenPBS."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.configuration import Configuration
from advisor.core.inventory import Inventory, NodeType
from advisor.errors import SchedulerError
from advisor.loop.execution import differs, ran
from advisor.schedulers.base import PlannedRun, SweepJob
from advisor.schedulers.grouping import Claim, group
from advisor.schedulers.pbs.accounting import parse_text, record_of, short_id
from advisor.schedulers.pbs.inventory import cluster_of, hook_inventory, read_hosts
from advisor.schedulers.pbs.submit import qsub_words

RECORDED = Path(__file__).parent / "recorded"


def load(name: str) -> Any:
    return json.loads((RECORDED / f"{name}.json").read_text())


JOBS: dict[str, dict[str, Any]] = load("jobs")["Jobs"]


@pytest.mark.parametrize(
    ("job_id", "state", "elapsed_s", "nodes"),
    [
        ("7.pbs1", "COMPLETED", 1.0, 1),
        ("9[1].pbs1", "COMPLETED", 1.0, 1),
        ("16.pbs1", "TIMEOUT", 11.0, 1),
        ("17.pbs1", "CANCELLED", 2.0, 1),
        ("18.pbs1", "FAILED", 0.0, 1),
    ],
)
def test_how_jobs_ended(job_id: str, state: str, elapsed_s: float, nodes: int) -> None:
    record = record_of(job_id, JOBS[job_id])
    assert record is not None
    assert record.finished
    assert (record.state, record.elapsed_s, record.nodes) == (state, elapsed_s, nodes)
    assert record.job_id == job_id.removesuffix(".pbs1")
    assert (record.user, record.partition, record.node_list) == ("alice", "workq", "pbs1")
    assert record.submitted_at.startswith("2026-11-21T0")
    assert record.ended_at >= record.submitted_at


def test_a_job_of_whole_nodes() -> None:
    record = record_of("7.pbs1", JOBS["7.pbs1"])
    assert record is not None
    assert (record.whole_nodes, record.cpus) == (True, 4)
    [step] = record.steps
    assert (step.tasks, step.cpus, step.numbered) == (2, 4, True)
    assert record.submit_line.startswith("qsub -l select=1:ncpus=4")
    other = record_of("18.pbs1", JOBS["18.pbs1"])
    assert other is not None
    assert other.whole_nodes is None


@pytest.mark.parametrize(
    ("sharing", "place", "energy_nodes", "whole"),
    [
        ("default_shared", "excl", None, True),
        ("default_shared", "free", None, None),
        ("ignore_excl", "excl", None, None),  # its cores tell
        ("ignore_excl", "excl", 1, True),  # it filled them, as the hook there saw
        ("force_exclhost", "free:shared", None, True),
        ("default_excl", "free", None, True),
    ],
)
def test_whole_nodes_are_what_place_and_sharing_say(
    sharing: str, place: str, energy_nodes: int | None, whole: bool | None
) -> None:
    job = copy.deepcopy(JOBS["7.pbs1"])
    job["Resource_List"]["place"] = place
    if energy_nodes:
        job["resources_used"]["energy_nodes"] = energy_nodes
    nodes = load("nodes")
    nodes["nodes"]["pbs1"]["sharing"] = sharing
    record = record_of("7.pbs1", job, {host.name: host for host in read_hosts(nodes)})
    assert record is not None and record.whole_nodes is whole


LEFT = {"select": "1:ncpus=28:ompthreads=20", "place": "excl", "cpu_freq_mhz": "1900"}


@pytest.mark.parametrize(
    ("asks", "left", "marked", "altered"),
    [
        ({}, LEFT, "", ""),
        ({"select": "1:ncpus=28:ompthreads=20:mpiprocs=28"}, LEFT, "", "select"),
        ({"select": "1:ncpus=28", "cpu_freq_mhz": 0}, LEFT, "+altered", "cpu_freq_mhz, select"),
        ({}, LEFT, "+altered", "request"),
        # the select is the server's
        (
            {"select": "1:ncpus=28:ompthreads=20", "place": "pack", "ncpus": 28, "ompthreads": 20},
            {"ncpus": "28", "ompthreads": "20"},
            "",
            "",
        ),
        (
            {"select": "1:ncpus=28:mpiprocs=28:ompthreads=20", "ncpus": 28, "ompthreads": 20},
            {"ncpus": "28", "ompthreads": "20"},
            "",
            "select",
        ),
        ({"select": "1:ncpus=28"}, None, "", ""),
    ],
)
def test_a_request_that_was_changed_behind_the_decision_is_told(
    asks: dict[str, Any], left: dict[str, str] | None, marked: str, altered: str
) -> None:
    """With or without a hook at postqueuejob; such a job gets no verdict."""
    job = copy.deepcopy(JOBS["7.pbs1"])
    wrote = json.dumps({"left": left, "before": {}})
    stamp = 'advisor:{"v":1}' + (f"+wrote:{wrote}{marked}" if left else "")
    job["Resource_List"] = {"nodect": 1, **(left or {}), **asks, "advisor_stamp": stamp}
    record = record_of("7.pbs1", job)
    assert record is not None and record.altered == altered


def test_threads_by_another_variable_are_seen() -> None:
    whole = next(j for j, a in JOBS.items() if record_of(j, a) and record_of(j, a).steps)  # type: ignore[union-attr]
    attributes = copy.deepcopy(JOBS[whole])
    attributes["Variable_List"] = {"ADVISOR_SET": "GOMAXPROCS=3 MKL_NUM_THREADS=3"}
    record = record_of(whole, attributes)
    assert record is not None and record.steps[0].threads_per_rank == 3


def test_what_qalter_changed_shows() -> None:
    """qalter passes no hook: only the record tells that another request ran."""
    attributes = JOBS["7.pbs1"]
    select = "1:ncpus=4:mpiprocs=1:ompthreads=2"
    wants = {**attributes["Resource_List"], "select": select, "walltime": "00:10:00"}
    record = record_of("7.pbs1", {**attributes, "Resource_List": wants, "run_count": 3})
    assert record is not None
    assert (record.restarts, record.time_limit_s) == (2, 600)
    node_type = NodeType("t", cores=4, nodes=("pbs1",))
    seen = ran(record, Inventory.of([node_type]))
    decided = Configuration("t", 1, 1, 3, 0)
    assert differs(decided, seen, Inventory()) == "its ranks had 2 threads, not 3"
    assert differs(Configuration("t", 1, 1, 2, 0), seen, Inventory()) == ""


def test_stamps_are_found() -> None:
    record = record_of("8.pbs1", JOBS["8.pbs1"])
    assert record is not None
    assert record.admin_comment == 'advisor:{"v":1,"a":"b c"}'


def test_where_a_sweeps_results_are_left() -> None:
    """What qsub is given for a sweep's run, PBS's record of the job says again."""
    place, node_type = Path("/home/alice/a b/to-collect"), NodeType("std", cores=4)
    run = PlannedRun(0, "baseline", Configuration("std", 1, 1, 4, 0))
    sweep = SweepJob("s", "design", Path("/f"), Path("/f"), node_type, (run,))
    assert "ADVISOR_RESULTS" not in " ".join(qsub_words(sweep, run, 1))
    words = qsub_words(replace(sweep, results=place), run, 1)
    variables = words[words.index("-v") + 1].split(",")
    job = copy.deepcopy(JOBS["7.pbs1"])
    job["Variable_List"].update(pair.split("=", 1) for pair in variables)
    found = [record_of("7.pbs1", each) for each in (job, JOBS["7.pbs1"])]
    assert [record.results for record in found if record] == [str(place), ""]


@pytest.mark.parametrize(
    ("used", "energy_j", "requested", "observed"),
    [
        ({"energy_j": 12345, "energy_nodes": 1, "cpu_freq_mhz": 1900}, 12345, 1_900_000, 1_900_000),
        ({"energy_j": 12345, "energy_nodes": 1, "cpu_freq_mhz": 1500}, 12345, 1_900_000, 1_500_000),
        ({"energy_j": 12345, "energy_nodes": 1, "cpu_freq_mhz": 0}, 12345, None, None),
        ({"energy_j": 12345, "energy_nodes": 2, "cpu_freq_mhz": 1900}, None, 1_900_000, 1_900_000),
        ({"energy_j": 12345}, None, 1_900_000, None),
        ({"energy_j": 0, "energy_nodes": 1}, None, 1_900_000, None),
        ({"energy_j": "x", "energy_nodes": "1"}, None, 1_900_000, None),
    ],
)
def test_energy_counts_when_every_node_told_its_part(
    used: dict[str, object], energy_j: float | None, requested: int | None, observed: int | None
) -> None:
    job = copy.deepcopy(JOBS["11.pbs1"])
    for name in ("energy_j", "cpu_freq_mhz"):
        job["resources_used"].pop(name)
    job["resources_used"].update(used)
    record = record_of("11.pbs1", job)
    assert record is not None
    assert record.energy_j == energy_j
    assert (record.freq_requested_khz, record.freq_observed_khz) == (requested, observed)


def test_a_cap_that_some_nodes_did_not_take_is_none() -> None:
    job = copy.deepcopy(JOBS["11.pbs1"])
    job["exec_host"] = "n1/0*4+n2/0*4"
    job["resources_used"].update(cpu_freq_mhz=1900, energy_j=100, energy_nodes=2)
    record = record_of("11.pbs1", job)
    assert record is not None
    assert record.freq_requested_khz is None
    assert record.node_list == "n1,n2"
    assert record.energy_j == 100
    job["resources_used"]["cpu_freq_mhz"] = 3800
    again = record_of("11.pbs1", job)
    assert again is not None
    assert again.freq_requested_khz == 1_900_000


def test_it_is_read_like_any_scheduler_s() -> None:
    job = copy.deepcopy(JOBS["11.pbs1"])
    job["resources_used"].update(energy_nodes=1)
    job["Resource_List"].update(place="excl", select="1:ncpus=4:mpiprocs=2")
    record = record_of("11.pbs1", job)
    assert record is not None
    inventory = Inventory.of([NodeType("bdw", cores=28, nodes=("pbs1",))])
    seen = ran(record, inventory)
    assert (seen.node_type, seen.nodes, seen.ranks_per_node, seen.threads_per_node) == (
        "bdw",
        1,
        2,
        4,
    )
    assert (seen.energy_j, seen.time_s, seen.whole_nodes) == (12345, 35.0, True)


def test_text_says_what_json_says() -> None:
    text = parse_text((RECORDED / "jobs.txt").read_text())
    assert list(text) == list(JOBS)
    for job_id, job in JOBS.items():
        assert record_of(job_id, text[job_id]) == record_of(job_id, job)
        assert {k: str(v) for k, v in job["Variable_List"].items()} == text[job_id]["Variable_List"]


@pytest.mark.parametrize("job_id", ["", "x", "12;ls", "12.pbs1 13", "-f", "12[", "../1"])
def test_what_is_no_job_id(job_id: str) -> None:
    with pytest.raises(SchedulerError, match="is not a PBS job id"):
        short_id(job_id)
    assert record_of(job_id, {}) is None


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "Resource_List",
                "resources_used",
                "exec_host",
                "ctime",
                "obittime",
                "job_state",
                "Exit_status",
                "substate",
                "history_timestamp",
                "Job_Owner",
            ]
        ),
        st.one_of(
            st.none(),
            st.integers(),
            st.text(),
            st.floats(),
            st.dictionaries(st.sampled_from(["select", "walltime", "energy_j"]), st.text()),
        ),
    )
)
def test_no_attributes_break_the_reader(attributes: dict[str, Any]) -> None:
    record = record_of("1.pbs1", attributes)
    assert record is not None
    assert record.job_id == "1"


# -- hosts and queues ----------------------------------------------------------------------------


def node(name: str, *, queue: str = "", **resources: object) -> dict[str, Any]:
    has = {"arch": "linux", "host": name, "vnode": name, "ncpus": 28, "mem": "65536000kb"}
    return {**({"queue": queue} if queue else {}), "resources_available": {**has, **resources}}


def nodes(*found: dict[str, Any]) -> dict[str, Any]:
    listed = {str(n["resources_available"]["vnode"]): n for n in found}
    return {"pbs_version": "23.06.06", "nodes": listed}


QUEUES = {"workq": {"queue_type": "Execution", "enabled": "True", "started": "True"}}
SERVER = {"default_queue": "workq"}


def test_the_recorded_complex() -> None:
    server = load("server")["Server"]["pbs1"]
    cluster = cluster_of(server, load("nodes"), load("queues")["Queue"])
    assert cluster.version == "PBS 23.06.06"
    [found] = cluster.nodes
    assert (found.name, found.cores, found.memory_mb) == ("pbs1", 28, 24105)
    assert found.features == ("node_type=broadwell",)
    assert found.partitions == ("workq",)
    [queue] = cluster.partitions
    assert (queue.name, queue.default) == ("workq", True)
    [node_type], notes = group(cluster)
    assert (node_type.name, node_type.feature) == ("broadwell", "node_type=broadwell")
    assert node_type.default_partition == "workq"
    assert notes == []


def test_kinds_of_hosts() -> None:
    found = nodes(
        node("n1", node_type="bdw", switch="s1", Qlist="workq"),
        node("n2", node_type="bdw", switch="s2", Qlist="workq"),
        node("f1", node_type="bdw", switch="s1", ncpus=28, mem="256gb", bigmem="true"),
        node("k1", node_type="skl", ncpus=64, ngpus=4, rack="7"),
    )
    cluster = cluster_of({**SERVER, "node_group_key": "switch"}, found, QUEUES)
    types, _ = group(cluster)
    assert [(t.name, t.feature, t.nodes, t.cores) for t in types] == [
        ("bigmem", "bigmem=True", ("f1",), 28),
        ("n", "", ("n1", "n2"), 28),
        ("skl", "node_type=skl", ("k1",), 64),
    ]
    claimed, _ = group(cluster, [Claim("bdw", feature="node_type=bdw")])
    assert [(t.name, t.feature) for t in claimed] == [
        ("bdw", "node_type=bdw"),
        ("skl", "node_type=skl"),
    ]


def test_a_resource_the_scheduler_does_not_look_at_selects_nothing() -> None:
    found = nodes(node("n1", node_type="bdw", fast="True"), node("k1", node_type="skl"))
    cluster = cluster_of(SERVER, found, QUEUES, frozenset({"ncpus", "mem"}))
    assert [n.features for n in cluster.nodes] == [("fast=True",), ()]
    hook = hook_inventory(SERVER, found, QUEUES, frozenset({"ncpus", "mem"}))
    assert hook.unscheduled == ("node_type",)
    assert hook_inventory(SERVER, found, QUEUES, frozenset({"node_type"})).unscheduled == ()


def test_vnodes_of_a_host_are_one_node() -> None:
    parts = [node(f"n1[{i}]", ncpus=16, mem="32gb") for i in (0, 1)]
    for part in parts:
        part["resources_available"]["host"] = "n1"
    found = {"nodes": {"n1": node("n1", ncpus=0), "n1[0]": parts[0], "n1[1]": parts[1]}}
    [host] = read_hosts(found)
    assert (host.name, host.ncpus) == ("n1", 32)
    with pytest.raises(SchedulerError, match="lists no nodes"):
        read_hosts({"nodes": None})


def test_queues_have_their_own_hosts() -> None:
    queues = {
        **QUEUES,
        "gpu": {"queue_type": "Execution", "enabled": "True", "resources_max": {"nodect": 1}},
        "big": {
            "queue_type": "Execution",
            "enabled": "True",
            "default_chunk": {"ncpus": 1, "bigmem": "True"},
        },
        "closed": {"queue_type": "Execution", "enabled": "False"},
        "route": {"queue_type": "Route", "enabled": "True", "route_destinations": "gpu,big@pbs1"},
        "loop": {"queue_type": "Route", "enabled": "True", "route_destinations": "loop"},
    }
    found = nodes(node("n1"), node("g1", queue="gpu"), node("b1", bigmem="t"))
    cluster = cluster_of(SERVER, found, queues)
    places = {n.name: set(n.partitions) for n in cluster.nodes}
    assert places == {"n1": {"workq"}, "g1": {"gpu", "route"}, "b1": {"workq", "big", "route"}}
    assert {p.name: p.max_nodes for p in cluster.partitions}["gpu"] == 1


def test_what_the_hook_checks_against() -> None:
    found = nodes(node("n1", node_type="bdw"), node("n2", node_type="bdw"), node("k1", ngpus=2))
    found["nodes"]["k1"]["sharing"] = "ignore_excl"
    hook = hook_inventory(SERVER, found, QUEUES)
    assert hook.host_resources == ("ngpus", "node_type")
    assert json.loads(hook.text()) == {
        "default": "workq",
        "queues": {
            "workq": [
                {
                    "nodes": 1,
                    "parted": False,
                    "sharings": ["ignore_excl"],
                    "resources": {"arch": "linux", "mem": 65536000 << 10, "ncpus": 28, "ngpus": 2},
                },
                {
                    "nodes": 2,
                    "parted": False,
                    "sharings": ["default_shared"],
                    "resources": {
                        "arch": "linux",
                        "mem": 65536000 << 10,
                        "ncpus": 28,
                        "node_type": "bdw",
                    },
                },
            ]
        },
        "defaults": {"workq": [{"place": "", "chunk": {}, "job": {}}]},
    }
    assert hook.sharings == {"k1": ("ignore_excl",)}


def test_what_the_hook_knows_of_defaults() -> None:
    """Of each queue that a route may end in; the queue's go before the server's."""
    server = {
        **SERVER,
        "resources_default": {"ncpus": 1, "place": "excl", "walltime": 60},
        "default_chunk": {"ncpus": 1},
    }
    queues = {
        "a": {"queue_type": "Execution", "resources_default": {"ncpus": 4, "place": "scatter"}},
        "b": {"queue_type": "Execution", "default_chunk": {"ncpus": 16}},
        "r": {"queue_type": "Route", "route_destinations": "a,b,a,r"},
    }
    plain = {"place": "scatter", "chunk": {"ncpus": "1"}, "job": {"ncpus": "4"}}
    whole = {"place": "excl", "chunk": {"ncpus": "16"}, "job": {"ncpus": "1"}}
    hook = hook_inventory(server, nodes(node("n1")), queues)
    assert hook.defaults == {"a": [plain], "b": [whole], "r": [plain, whole]}


@pytest.mark.parametrize(
    ("told", "devices"),
    [
        ({"n1": "0/150/0/500.0,1/150/0/501.5", "n2": "0/150/0/7.0"}, 3),
        ('{"n1": "0/150/0/500.0"}', 1),
        ('\'{"n1": "0/150/0/500.0"}\'', 1),
        ("seven", 0),
        ("[" * 5000, 0),
        ({"n1": 7, "n2": "0/150/0"}, 0),
    ],
)
def test_what_gpus_had_and_took_is_told_by_node(told: object, devices: int) -> None:
    job = copy.deepcopy(JOBS["11.pbs1"])
    job["resources_used"]["advisor_gpus"] = told
    record = record_of("11.pbs1", job)
    assert record is not None and len(record.gpus) == devices
    assert all(use.axes == {"gpu_power_w": 150} for use in record.gpus)


@pytest.mark.parametrize(
    ("ngpus", "told", "joules", "why"),
    [
        ("2", {"pbs1": "0/150/0/500.0,1/150/0/501.5"}, 1001.5, ""),
        ("4", {"pbs1": "0/150/0/500.0,1/150/0/501.5"}, None, "its nodes told of 2 of its 4 GPUs"),
        ("2", {"pbs1": "0/150/0/500.0,1/150/0/-"}, None, "GPU 1 on pbs1 counts no energy"),
        ("2", "", None, "no node told what its GPUs took"),
        ("0", "", None, ""),
    ],
)
def test_what_its_gpus_took_together_is_known_where_all_tell(
    ngpus: str, told: object, joules: float | None, why: str
) -> None:
    job = copy.deepcopy(JOBS["11.pbs1"])
    job["Resource_List"]["ngpus"] = ngpus
    job["resources_used"]["advisor_gpus"] = told
    record = record_of("11.pbs1", job)
    assert record is not None
    seen = ran(record, Inventory())
    assert (seen.energy_gpu_j, seen.gpu_note, seen.meter_sees) == (joules, why, "")
