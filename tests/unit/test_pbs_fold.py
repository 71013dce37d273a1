"""What a PBS server adds after the hook is folded in before anything is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from advisor.core.availability import Availability, NodeKind, Queue, Room
from advisor.core.request import JobRequest
from advisor.schedulers.pbs.fold import fold
from advisor.schedulers.pbs.translator import parse_request

SERVER = Queue("", default={"ncpus": "1"}, default_chunk={"ncpus": "1"}, destinations=("workq",))
"""As PBS makes it: these two defaults are always there."""


def request(options: Mapping[str, str], **payload: Any) -> JobRequest:
    given = {"options": dict(options), "host_resources": ["node_type"], **payload}
    return parse_request(given, user="alice", uid=1000, choices={})


def site(*queues: Queue, server: Queue = SERVER) -> Availability:
    return Availability(queues={q.name: q for q in (server, *queues)})


def binds(options: Mapping[str, str], *queues: Queue, server: Queue = SERVER) -> set[str]:
    return set(fold(request(options), site(*queues, server=server)).binds)


ONE = {"select": "1:ncpus=28:mem=4gb"}


def test_a_plain_site_binds_nothing() -> None:
    assert binds(ONE, Queue("workq")) == set()
    unlimited = replace(request(ONE), time_limit_s=0)
    assert fold(request(ONE), site(Queue("workq"))) == unlimited


@pytest.mark.parametrize(
    ("queues", "server", "limit_s"),
    [
        ([Queue("workq", default={"walltime": "0:05:00"})], {}, 300),
        ([Queue("workq", most={"walltime": "24:00:00"})], {"walltime": "1:00:00"}, 3600),
        ([Queue("workq", most={"walltime": "2:00:00"})], {}, 7200),
        ([Queue("workq", default={"walltime": "90"}, most={"walltime": "1:00"})], {}, 90),
        ([Queue("workq", default={"walltime": "soon"})], {}, None),
        (
            [
                Queue("workq", destinations=("day", "week"), default={"walltime": "0:01:00"}),
                Queue("day", default={"walltime": "12:00:00"}),
                Queue("week", most={"walltime": "168:00:00"}),
            ],
            {},
            12 * 3600,
        ),
        ([Queue("workq", destinations=("gone",))], {"walltime": "1:00:00"}, None),
    ],
)
def test_the_walltime_of_a_job_that_states_none(
    queues: list[Queue], server: dict[str, str], limit_s: int | None
) -> None:
    state = site(*queues, server=replace(SERVER, default={**SERVER.default, **server}))
    assert fold(request(ONE), state).time_limit_s == limit_s
    assert fold(request({**ONE, "walltime": "0:30:00"}), state).time_limit_s == 1800
    assert fold(request({**ONE, "walltime": "0"}), state).time_limit_s == 1  # not: unlimited


@pytest.mark.parametrize(
    "queue", [Queue("workq", default={"cput": "1:00"}), Queue("workq", most={"pcput": "1:00"})]
)
def test_a_limit_on_processor_time_that_a_job_is_given(queue: Queue) -> None:
    assert binds(ONE, queue) == {"frequency", "threads", "node_type", "cores"}
    assert binds(ONE, Queue("workq", least={"cput": "1:00"})) == set()


@pytest.mark.parametrize("availability", [None, Availability(), site(), site(Queue("other"))])
def test_what_is_not_known_is_kept(availability: Availability | None) -> None:
    assert set(fold(request(ONE), availability).binds) == {"node_type", "cores", "threads"}
    own = request({"select": "1:ncpus=28:mem=4gb:ompthreads=28"})
    assert set(fold(own, availability).binds) == {"node_type", "cores"}


@pytest.mark.parametrize(
    ("queue", "bound"),
    [
        (Queue("workq", default={"place": "excl"}), {"cores"}),
        (Queue("workq", default={"node_type": "bdw"}), {"node_type"}),
        (Queue("workq", default_chunk={"node_type": "bdw"}), {"node_type"}),
        (Queue("workq", default_chunk={"ngpus": "1"}), {"node_type"}),
        (Queue("workq", default_chunk={"ompthreads": "4"}), {"threads"}),
        (Queue("workq", default_chunk={"mpiprocs": "4"}), {"threads", "cores"}),
        (Queue("workq", default={"mem": "2gb"}), set()),
        (Queue("workq", least={"ncpus": "4"}), {"cores"}),
        (Queue("workq", most={"ncpus": "64"}), set()),
        (Queue("workq", least={"ompthreads": "2"}), {"threads"}),
        (Queue("workq", most={"cpu_freq_mhz": "2000"}), {"frequency"}),
        (Queue("workq", limited=frozenset({"ncpus"})), {"cores"}),
        (Queue("workq", default={"place": "nonsense"}), {"all"}),
    ],
)
def test_defaults_and_limits(queue: Queue, bound: set[str]) -> None:
    assert binds(ONE, queue) == bound
    named = Queue("q", **{n: getattr(queue, n) for n in queue.__slots__ if n != "name"})
    assert binds({**ONE, "queue": "q"}, Queue("workq"), named) == bound
    assert binds(ONE, Queue("workq"), named) == set()
    server = Queue(
        "",
        **{n: getattr(queue, n) for n in queue.__slots__ if n not in ("name", "destinations")},
        destinations=("workq",),
    )
    assert binds(ONE, Queue("workq"), server=server) == bound


def test_a_default_place_makes_a_job_exclusive_or_spreads_it() -> None:
    two = {"select": "2:ncpus=4"}
    assert fold(request(two), site(Queue("workq"))).nodes is None
    known = fold(request(two), site(Queue("workq", default={"place": "scatter:excl"})))
    assert (known.nodes, known.ntasks_per_node, known.exclusive) == (2, 1, True)
    own = {**two, "place": "pack"}
    kept = fold(request(own), site(Queue("workq", default={"place": "scatter:excl"})))
    assert (kept.nodes, kept.exclusive) == (1, False)
    # PBS packs the chunk it makes for a job without select, whatever the default
    plain = fold(request({"ncpus": "4"}), site(Queue("workq", default={"place": "excl"})))
    assert not plain.exclusive
    assert not fold(
        request({"nodes": "1:ppn=4"}), site(Queue("workq", default={"place": "excl"}))
    ).exclusive


def test_defaults_complete_the_chunk() -> None:
    known = fold(request({"select": "2"}), site(Queue("workq", default_chunk={"ncpus": "14"})))
    assert (known.ntasks, known.cpus_per_task) == (2, 14)
    kind = fold(request(ONE), site(Queue("workq", default_chunk={"node_type": "bdw"})))
    assert kind.constraint == "node_type=bdw"
    assert kind.options == ONE
    plain = site(Queue("workq", default={"ncpus": "8", "node_type": "skl"}))
    shape = fold(request({}), plain)
    assert (shape.cpus_per_task, shape.constraint) == (8, "node_type=skl")
    # with a select, a default of the whole job picks no nodes
    assert fold(request(ONE), plain).constraint == ""


SMALL = Queue("small", most={"ncpus": "4"})
LARGE = Queue("large", least={"ncpus": "8"})


def test_routes() -> None:
    route = Queue("route", destinations=("small", "large"))
    assert binds({**ONE, "queue": "route"}, route, SMALL, LARGE) == {"node_type", "cores"}
    only = Queue("route", destinations=("large",))
    assert binds({**ONE, "queue": "route"}, only, LARGE) == {"cores"}
    further = Queue("first", destinations=("route",))
    assert binds({**ONE, "queue": "first"}, further, route, SMALL, LARGE) == {"node_type", "cores"}
    default = Queue("", destinations=("route",))
    assert binds(ONE, route, SMALL, LARGE, server=default) == {"node_type", "cores"}


def test_routes_whose_defaults_differ_change_nothing() -> None:
    route = Queue("route", destinations=("a", "b"))
    alone = Queue("b", default={"place": "excl"})
    assert "all" in binds({**ONE, "queue": "route"}, route, Queue("a"), alone)


@pytest.mark.parametrize("destination", ["far@elsewhere", "gone", "route"])
def test_routes_that_lead_away_or_nowhere(destination: str) -> None:
    route = Queue("route", destinations=("a", destination))
    found = binds({**ONE, "queue": "route"}, route, Queue("a"))
    assert found == {"node_type", "cores", "threads", "frequency"}


def test_what_the_job_binds_itself_keeps_its_name() -> None:
    job = request({"select": "1:ncpus=4:node_type=bdw"})
    folded = fold(job, site(Queue("workq", default_chunk={"node_type": "skl"})))
    assert folded.binds["node_type"] == "node_type=bdw"
    assert folded.constraint == "node_type=bdw"


def nodes(*kinds: NodeKind, **types: NodeKind) -> Availability:
    """Return a site of one queue whose hosts are of these kinds, by the name of a node type."""
    named = {f"t{at}": kind for at, kind in enumerate(kinds)} | types
    queues = site(Queue("workq", default={"place": "free"})).queues
    rooms = {(name, "workq"): Room(1, 1, kinds=frozenset({k})) for name, k in named.items()}
    return Availability(queues=queues, rooms=rooms)


def host(sharing: str, *, parted: bool = False, words: str = "") -> NodeKind:
    return NodeKind(frozenset(words.split()), 28, (sharing,), parted)


SHARING = {  # by the vnode's sharing: with no word of the job's, excl, shared, exclhost
    "default_shared": "-x-x",
    "default_excl": "xx-x",
    "default_exclhost": "hx-x",
    "ignore_excl": "----",
    "force_excl": "xxxx",
    "force_exclhost": "hhhh",
}
"""As PBS's scheduler has it: x: the vnode for itself (of exclhost the host), h: the host."""


@pytest.mark.parametrize("sharing", SHARING)
@pytest.mark.parametrize(("at", "place"), [*enumerate(["free", "excl", "free:shared", "exclhost"])])
def test_whole_hosts_are_what_place_and_sharing_say_together(
    sharing: str, at: int, place: str
) -> None:
    word = SHARING[sharing][at]
    job = request({"select": "1:ncpus=4:mem=4gb", "place": place})
    assert fold(job, nodes(host(sharing))).exclusive == (word != "-")
    parts = nodes(host(sharing, parted=True))
    whole_host = word == "h" or (word == "x" and place == "exclhost")
    assert fold(job, parts).exclusive == whole_host


def test_a_job_is_alone_where_it_is_so_on_every_host_it_may_land_on() -> None:
    job = request({"select": "1:ncpus=4:mem=4gb", "place": "excl"})
    mixed = nodes(host("default_shared", words="model=bro"), host("ignore_excl", words="model=sky"))
    assert not fold(job, mixed).exclusive
    for model, alone in (("bro", True), ("sky", False)):
        own = request({"select": f"1:ncpus=4:model={model}", "place": "excl"})
        assert fold(own, mixed).exclusive == alone
    small = NodeKind(frozenset(), 2, ("ignore_excl",))  # no chunk fits there
    assert fold(job, nodes(host("default_shared"), small)).exclusive
    # a shared request does not become smaller where it may get a whole host
    free = request({"select": "1:ncpus=4:mem=4gb"})
    some = fold(free, nodes(host("default_shared"), host("force_exclhost")))
    assert (some.exclusive, some.binds) == (False, {"cores": "sharing of the nodes"})


@pytest.mark.parametrize(
    ("select", "types"),
    [
        ("1:ncpus=28:model=bro", ("bdw",)),
        ("1:ncpus=28:system=polaris", ("bdw", "skl")),
        ("1:ncpus=28:model=bro:system=polaris:bigmem=False", ("bdw",)),
        ("1:ncpus=28:bigmem=true", ("skl",)),
        ("1:ncpus=28:model=rome", ()),
    ],
)
def test_constraints_are_matched_with_all_that_nodes_have(
    select: str, types: tuple[str, ...]
) -> None:
    """Whichever of a node's resources names its node type."""
    known = nodes(
        bdw=host("default_shared", words="node_type=bdw model=bro system=polaris"),
        skl=host("default_shared", words="node_type=skl model=sky system=polaris bigmem=True"),
    )
    kinds = ["node_type", "model", "system", "bigmem"]
    job = fold(request({"select": select, "place": "excl"}, host_resources=kinds), known)
    assert job.node_types == types
    again = JobRequest.from_summary(json.loads(json.dumps(job.summary())), "pbs", "", "alice", "")
    assert (again.node_types, again.completed) == (types, {})
    assert fold(request(ONE), known).node_types is None


def test_a_chunk_s_default_cores_are_as_good_as_its_own() -> None:
    queue = Queue("workq", default_chunk={"ncpus": "28"})
    job = fold(request({"select": "1:mem=4gb", "place": "excl"}), site(queue))
    assert job.completed == {"select": "1:mem=4gb:ncpus=28", "place": "excl"}
    assert set(job.binds) == {"cores"}
    summary = json.loads(json.dumps(job.summary()))
    assert JobRequest.from_summary(summary, "pbs", "", "alice", "").completed == job.completed
    # chunks of which nobody knew how many cores they use
    several = {"select": "2:mpiprocs=14:ompthreads=2"}
    assert "shape" in request(several).binds
    assert {"all", "shape"}.isdisjoint(fold(request(several), site(queue)).binds)
