"""Whatever the daemon says, a job gets no more threads, no fewer cores and no cap beyond bounds."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hooked import HOOKS, answering, daemon, job, plan, run_hook
from queuejob.whole import HOOK, WHOLE, inventory, stamped, untouched

ALL = {"select": "1:ncpus=28:mem=4gb", "place": "excl"}
PART = {"select": "1:ncpus=14:mem=4gb"}
SHARINGS = (
    "default_shared",
    "default_excl",
    "default_exclhost",
    "ignore_excl",
    "force_excl",
    "force_exclhost",
)


def with_(given: dict[str, str], words: str) -> dict[str, str]:
    return {"select": f"{given['select']}:{words}"}


@pytest.mark.parametrize(
    ("given", "rewrite", "env", "said"),
    [
        # threads
        (ALL, with_(ALL, "ompthreads=99999"), {}, "99999 threads are more than a rank has: 28"),
        (ALL, with_(ALL, "ompthreads=29"), {}, "more than a rank has: 28"),
        (WHOLE, with_(WHOLE, "ompthreads=29"), {}, "more than a rank has: 28"),
        (
            {"select": "1:ncpus=28:mpiprocs=4:ompthreads=4", "place": "excl"},
            {"select": "1:ncpus=28:mpiprocs=4:ompthreads=7"},
            {},
            "more than a rank has: 4",
        ),
        (
            {"select": "1:ncpus=28:mpiprocs=4", "place": "excl"},
            {"select": "1:ncpus=28:mpiprocs=4:ompthreads=8"},
            {},
            "more than a rank has: 7",
        ),
        (
            {"select": "1:mem=4gb", "place": "excl"},
            {"select": "1:mem=4gb:ompthreads=2"},
            {},
            "more than a rank has: 1",
        ),
        ({"ncpus": "4"}, {"ompthreads": "5"}, {}, "more than a rank has: 4"),
        ({"ncpus": "28", "mpiprocs": "4"}, {"ompthreads": "8"}, {}, "more than a rank has: 7"),
        ({}, {"ompthreads": "2"}, {}, "more than a rank has: 1"),
        (ALL, {}, {"MKL_NUM_THREADS": "29"}, "more than a rank has: 28"),
        (PART, {}, {"MKL_NUM_THREADS": "15"}, "more than a rank has: 14"),
        # cores
        (ALL, {"select": "1:ncpus=20:mem=4gb"}, {}, "its nodes are whole"),
        ({**ALL, "place": "exclhost"}, {"select": "1:ncpus=20:mem=4gb"}, {}, "its nodes are whole"),
        # caps
        (ALL, {"cpu_freq_mhz": "999999"}, {}, "999999 MHz is no processor's frequency"),
        (ALL, {"cpu_freq_mhz": "1901"}, {}, "1901 MHz is no frequency step of its nodes"),
        (PART, {"cpu_freq_mhz": "1900"}, {}, "its nodes may be shared"),
        ({**PART, "place": "free:shared"}, {"cpu_freq_mhz": "1900"}, {}, "may be shared"),
        ({"select": "2:ncpus=14", "place": "scatter"}, {"cpu_freq_mhz": "1900"}, {}, "be shared"),
        ({"select": "1:ncpus=28"}, {"cpu_freq_mhz": "1900"}, {}, "be shared"),  # of 64 in places
        (
            {"select": "2:ncpus=14:node_type=bdw", "place": "scatter"},
            {"cpu_freq_mhz": "1900"},
            {},
            "be shared",
        ),
        (
            {"select": "1:ncpus=14:node_type=bdw+1:ncpus=14:node_type=bdw"},
            {"cpu_freq_mhz": "1900"},
            {},
            "be shared",
        ),
        (
            {"select": "3:ncpus=9:node_type=bdw", "place": "pack"},
            {"cpu_freq_mhz": "1900"},
            {},
            "be shared",
        ),
        ({"ncpus": "28"}, {"cpu_freq_mhz": "1900"}, {}, "be shared"),
        ({"nodes": "2:ppn=14"}, {"cpu_freq_mhz": "1900"}, {}, "be shared"),
        (
            {"select": "1:ncpus=28:mem=999gb", "place": "excl"},
            {"cpu_freq_mhz": "1900"},
            {},
            "queue workq has no nodes for 1 of ncpus=28:mem=999gb",
        ),
        # 72 GB in words of 8 bytes
        (
            {"select": "1:ncpus=28:mem=9gw:node_type=bdw", "place": "excl"},
            {"cpu_freq_mhz": "1900"},
            {},
            "queue workq has no nodes for 1 of ncpus=28:mem=9gw",
        ),
    ],
)
def test_no_answer_goes_beyond_what_the_job_has(
    tmp_path: Path,
    path: Path,
    settings: dict[str, object],
    given: dict[str, str | int],
    rewrite: dict[str, str],
    env: dict[str, str],
    said: str,
) -> None:
    event = job(given)
    with daemon(path, answering(plan(rewrite, env=env))):
        [done] = run_hook(HOOK, [event], settings, folder=tmp_path)
    assert untouched(done, event)
    assert said in done["log"][0]
    assert not (tmp_path / "breaker").exists()


@pytest.mark.parametrize(
    ("given", "rewrite", "env"),
    [
        (ALL, {**with_(ALL, "ompthreads=28"), "cpu_freq_mhz": "1200"}, {"MKL_NUM_THREADS": "28"}),
        (PART, {"select": "1:ncpus=13:mem=4gb"}, {}),
        ({"select": "1:ncpus=14:mem=4GB"}, {"select": "1:ncpus=13:mem=4GB"}, {}),
        ({"select": "4:ncpus=7:node_type=bdw", "place": "pack"}, {"cpu_freq_mhz": "1900"}, {}),
        ({"select": "1:ncpus=28:node_type=bdw"}, {"cpu_freq_mhz": "1900"}, {}),
        ({"select": "1:ncpus=64"}, {"cpu_freq_mhz": "1900"}, {}),
        ({"select": "1:ncpus=14:ompthreads=20", "place": "excl"}, {"cpu_freq_mhz": "1900"}, {}),
    ],
)
def test_what_is_within_them_is_written(
    tmp_path: Path,
    path: Path,
    settings: dict[str, object],
    given: dict[str, str],
    rewrite: dict[str, str],
    env: dict[str, str],
) -> None:
    with daemon(path, answering(plan(rewrite, env=env))):
        [done] = run_hook(HOOK, [job(given)], settings, folder=tmp_path)
    assert done["resources"] == stamped(given, rewrite), done["log"]
    assert env.items() <= done["variables"].items()


def test_a_queue_may_be_named_with_its_server(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    rewrite = {"cpu_freq_mhz": "1900"}
    given = {"select": "1:ncpus=28:node_type=bdw"}
    with daemon(path, answering(plan(rewrite))):
        [done] = run_hook(HOOK, [job(given, queue="bdw@pbs1")], settings, folder=tmp_path)
    assert done["resources"] == stamped(given, rewrite), done["log"]


def test_what_the_server_fills_in_counts(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    """A chunk's default cores and a default place are as good as the job's own."""
    settings["inventory"] = inventory(
        default_chunk={"ncpus": 28, "node_type": "bdw"}, resources_default={"place": "scatter:excl"}
    ).text()
    rewrite = {"select": "1:mem=4gb:ompthreads=20", "cpu_freq_mhz": "1900"}
    with daemon(path, answering(plan(rewrite))):
        [done] = run_hook(HOOK, [job({"select": "1:mem=4gb"})], settings, folder=tmp_path)
    assert done["resources"] == stamped({"select": "1:mem=4gb"}, rewrite), done["log"]


def test_steps_that_were_not_known_at_install(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    for steps, cap, taken in (
        ({}, "1901", True),
        ({"node_type=skl": [1901]}, "1901", False),
        ({"": [1901]}, "1901", True),
        ({"": [1900]}, "1901", False),
        ({}, "20000", True),
        ({}, "20001", False),
    ):
        path.unlink(missing_ok=True)
        with daemon(path, answering(plan({"cpu_freq_mhz": cap}))):
            known = {**settings, "steps_mhz": steps}
            [done] = run_hook(HOOK, [job(WHOLE)], known, folder=tmp_path)
        assert ("cpu_freq_mhz" in done["resources"]) == taken, done["log"]


def test_without_an_inventory_nothing_is_changed(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    with daemon(path, answering(plan({"cpu_freq_mhz": "1900"}))):
        [done] = run_hook(HOOK, [job(ALL)], {**settings, "inventory": ""}, folder=tmp_path)
    assert untouched(done, job(ALL))
    assert "there is no inventory" in done["log"][0]


@pytest.mark.parametrize("sharing", SHARINGS)
def test_a_cap_needs_nodes_that_are_the_job_s_by_place_and_sharing(
    tmp_path: Path, path: Path, settings: dict[str, object], sharing: str
) -> None:
    settings["inventory"] = inventory(sharing).text()
    places = ("free", "excl", "free:shared", "exclhost")
    with daemon(path, answering(plan({"cpu_freq_mhz": "1900"}))):
        events = [job({**PART, "place": place}) for place in places]
        done = run_hook(HOOK, events, settings, folder=tmp_path)
    capped = "".join("x" if "cpu_freq_mhz" in one["resources"] else "-" for one in done)
    assert (
        capped
        == {
            "default_shared": "-x-x",
            "default_excl": "xx-x",
            "default_exclhost": "xx-x",
            "ignore_excl": "----",
            "force_excl": "xxxx",
            "force_exclhost": "xxxx",
        }[sharing]
    ), [one["log"] for one in done]


@pytest.mark.parametrize(
    ("rewrite", "said"),
    [
        ({"select": "1:ncpus=10:mem=4gb"}, "its nodes are whole"),
        ({"cpu_freq_mhz": "1900"}, "its nodes may be shared"),
    ],
)
def test_hosts_of_either_kind_count(
    tmp_path: Path, path: Path, settings: dict[str, object], rewrite: dict[str, str], said: str
) -> None:
    """Where a job may get whole hosts or shared ones, both bounds hold."""
    known = json.loads(str(settings["inventory"]))
    for kind in known["queues"]["workq"]:
        if kind["resources"]["ncpus"] == 28:
            kind["sharings"] = ["force_exclhost"]
    settings["inventory"] = json.dumps(known)
    with daemon(path, answering(plan(rewrite))):
        [done] = run_hook(HOOK, [job(PART)], settings, folder=tmp_path)
    assert untouched(done, job(PART))
    assert said in done["log"][0]


def test_each_vnode_of_a_host_must_be_the_job_s(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    known = json.loads(str(settings["inventory"]))
    for kind in known["queues"]["workq"]:
        kind["sharings"] = ["force_excl", "default_shared"]
    settings["inventory"] = json.dumps(known)
    with daemon(path, answering(plan({"cpu_freq_mhz": "1900"}))):
        [done] = run_hook(HOOK, [job(PART)], settings, folder=tmp_path)
    assert untouched(done, job(PART))
    assert "its nodes may be shared" in done["log"][0]


@pytest.mark.parametrize(
    ("asked", "has", "capped"),
    [
        ("true", "True", True),
        ("Y", "True", True),
        ("false", "True", False),
        ("false", "False", True),
        ("No", None, True),
        ("true", "False", False),
        ("true", None, False),
        ("maybe", "True", False),
    ],
)
def test_hosts_have_what_is_true_or_false(
    tmp_path: Path, path: Path, settings: dict[str, Any], asked: str, has: str | None, capped: bool
) -> None:
    known = json.loads(settings["inventory"])
    for kind in known["queues"]["workq"]:
        kind["resources"]["bigmem"] = has
    changed = {"inventory": json.dumps(known), "resources": [*settings["resources"], "bigmem"]}
    event = job({"select": f"1:ncpus=14:bigmem={asked}", "place": "excl"})
    with daemon(path, answering(plan({"cpu_freq_mhz": "1900"}))):
        [done] = run_hook(HOOK, [event], {**settings, **changed}, folder=tmp_path)
    assert ("cpu_freq_mhz" in done["resources"]) == capped, done["log"]
    if not capped:
        assert "has no nodes for 1 of" in done["log"][0]


@pytest.mark.parametrize(
    ("name", "has", "asked"),
    [("mem", 2**30, "2gb"), ("vmem", 2**30, "2gb"), ("hbmem", 2**30, "2gb"), ("arch", "a", "b")],
)
def test_what_a_job_asks_for_beside_chunks_is_looked_for_on_its_host(
    tmp_path: Path,
    path: Path,
    settings: dict[str, Any],
    name: str,
    has: object,
    asked: str,
) -> None:
    known = json.loads(settings["inventory"])
    for kind in known["queues"]["bdw"]:
        kind["resources"][name] = has
    changed = {"inventory": json.dumps(known), "resources": [*settings["resources"], name]}
    event = job({"ncpus": "28", name: asked}, queue="bdw")
    with daemon(path, answering(plan({"cpu_freq_mhz": "1900"}))):
        [done] = run_hook(HOOK, [event], {**settings, **changed}, folder=tmp_path)
    assert untouched(done, event)
    assert "queue bdw has no nodes for 1 of" in done["log"][0]


def test_a_host_may_have_several_values_of_a_resource(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    known = json.loads(str(settings["inventory"]))
    for kind in known["queues"]["workq"]:
        kind["resources"]["node_type"] += ",other"
    settings["inventory"] = json.dumps(known)
    with daemon(path, answering(plan({"cpu_freq_mhz": "1900"}))):
        [done] = run_hook(HOOK, [job(WHOLE)], settings, folder=tmp_path)
    assert done["resources"]["cpu_freq_mhz"] == "1900", done["log"]


@pytest.mark.parametrize(("place", "capped"), [("excl", False), ("exclhost", True)])
def test_a_vnode_may_be_a_part_of_its_host(
    tmp_path: Path, path: Path, settings: dict[str, object], place: str, capped: bool
) -> None:
    known = json.loads(str(settings["inventory"]))
    for kind in known["queues"]["workq"]:
        kind["parted"] = True
    settings["inventory"] = json.dumps(known)
    with daemon(path, answering(plan({"cpu_freq_mhz": "1900"}))):
        [done] = run_hook(HOOK, [job({**ALL, "place": place})], settings, folder=tmp_path)
    assert ("cpu_freq_mhz" in done["resources"]) == capped, done["log"]


# -- a hook behind this one ----------------------------------------------------------------------


def after(resources: dict[str, str], **variables: str) -> dict[str, object]:
    """Return the event of a job that is in its queue."""
    queued = job(resources, variables)
    return {**queued, "event": "POSTQUEUEJOB", "job": {**queued["job"], "id": "7.pbs1"}}


@pytest.mark.parametrize(
    ("given", "rewrite", "filled"),
    [
        (ALL, {**with_(ALL, "ompthreads=20"), "cpu_freq_mhz": "1900"}, {"ncpus": "28"}),
        (
            {"select": "2:ncpus=28"},
            {"select": "2:ncpus=28:ompthreads=20"},
            {"place": "free", "ncpus": "56", "nodect": "2"},
        ),
        (
            {"ncpus": "4"},
            {"ompthreads": "2"},
            {"place": "pack", "select": "1:ncpus=4:ompthreads=2", "nodect": "1"},
        ),
        (
            {},
            {"ompthreads": "1"},
            {"place": "pack", "ncpus": "1", "select": "1:ncpus=1:ompthreads=1"},
        ),
        (
            {"nodes": "2:ppn=28"},
            {"cpu_freq_mhz": "1200"},
            {"place": "scatter", "select": "2:ncpus=28:mpiprocs=28", "ncpus": "56"},
        ),
        ({"place": "excl"}, {"cpu_freq_mhz": "1900"}, {"select": "1:ncpus=1:mpiprocs=1"}),
        ({"place": "excl"}, {"cpu_freq_mhz": "1900"}, {"ncpus": "1"}),
    ],
)
def test_what_the_server_fills_in_is_no_change(
    tmp_path: Path,
    settings: dict[str, object],
    given: dict[str, str],
    rewrite: dict[str, str],
    filled: dict[str, str],
) -> None:
    sets = {"GOMAXPROCS": "20", "ADVISOR_SET": "GOMAXPROCS=20"}
    event = after({**stamped(given, rewrite), **filled}, **sets)
    [done] = run_hook(HOOK, [event], settings, folder=tmp_path)
    assert (done["answer"], done["written"], done["log"]) == (["accept", ""], [], [])
    assert sets.items() <= done["variables"].items()  # they are this job's, not inherited
    assert not (tmp_path / "altered").exists()


@pytest.mark.parametrize(
    ("given", "rewrite", "then", "left", "changed"),
    [
        # ranks behind our threads: 28 of 20 each
        (
            ALL,
            {**with_(ALL, "ompthreads=20"), "cpu_freq_mhz": "1900"},
            {"select": "1:ncpus=28:mem=4gb:ompthreads=20:mpiprocs=28"},
            {"select": "1:ncpus=28:mem=4gb:mpiprocs=28", "cpu_freq_mhz": "0"},
            ["select"],
        ),
        (
            {"select": "1:ncpus=28:ompthreads=28", "place": "excl"},
            {"select": "1:ncpus=28:ompthreads=20:node_type=bdw"},
            {"select": "2:ompthreads=20:ncpus=28:node_type=bdw+1:ncpus=4"},
            {"select": "2:ompthreads=28:ncpus=28+1:ncpus=4"},
            ["select"],
        ),
        (
            PART,
            {"select": "1:ncpus=10:mem=4gb"},
            {"select": "1:ncpus=10:mem=4gb:mpiprocs=14"},
            {"select": "1:ncpus=14:mem=4gb:mpiprocs=14"},
            ["select"],
        ),
        (ALL, {"cpu_freq_mhz": "1900"}, {"place": "free:shared"}, {"cpu_freq_mhz": "0"}, ["place"]),
        (
            {"select": "1:ncpus=64"},
            {"cpu_freq_mhz": "1900"},
            {"place": "scatter:shared"},
            {"cpu_freq_mhz": "0"},
            ["place"],
        ),
        (
            {**ALL, "cpu_freq_mhz": "2200"},
            {"cpu_freq_mhz": "1900"},
            {"select": "1:ncpus=4"},
            {"cpu_freq_mhz": "2200"},
            ["select"],
        ),
        # a cap of the later hook's own stays
        (
            ALL,
            {**with_(ALL, "ompthreads=20"), "cpu_freq_mhz": "1900"},
            {"cpu_freq_mhz": "1200"},
            {"select": "1:ncpus=28:mem=4gb"},
            ["cpu_freq_mhz"],
        ),
        (
            {"ncpus": "28"},
            {"ompthreads": "20"},
            {"mpiprocs": "28", "select": "1:ncpus=28:mpiprocs=28:ompthreads=20", "place": "pack"},
            {"ompthreads": "28"},
            ["select"],
        ),
        (
            {"ncpus": "28"},
            {"ompthreads": "20"},
            {"select": "2:ncpus=28:ompthreads=20"},
            {"select": "2:ncpus=28:ompthreads=20", "ompthreads": "28"},
            ["select"],
        ),
        (
            {"ncpus": "28"},
            {"ompthreads": "20"},
            {"select": "1:ncpus=14:ompthreads=20"},
            {"select": "1:ncpus=14:ompthreads=20", "ompthreads": "28"},
            ["select"],
        ),
        (
            {"ncpus": "28"},
            {"ompthreads": "20"},
            {"select": "1:ncpus=1:ompthreads=20"},
            {"select": "1:ncpus=1:ompthreads=20", "ompthreads": "28"},
            ["select"],
        ),
        (
            {"select": "2:ncpus=4:mem=1gb+2:ncpus=4:mem=1gb"},
            {"select": "2:ncpus=4:mem=1gb:ompthreads=2+2:ncpus=4:mem=1gb"},
            {"select": "2:ncpus=4:mem=1gb:ompthreads=2:mpiprocs=4+2:ncpus=4:mem=1gb"},
            {"select": "2:ncpus=4:mem=1gb:mpiprocs=4+2:ncpus=4:mem=1gb"},
            ["select"],
        ),
        # each chunk has what was written into itself: the second one's threads are the user's
        (
            {"select": "2:ncpus=4:mem=1gb+2:ncpus=4:mem=1gb:ompthreads=2"},
            {"select": "2:ncpus=4:mem=1gb:ompthreads=2+2:ncpus=4:mem=1gb:ompthreads=2"},
            {"select": "2:ncpus=4:mem=1gb:ompthreads=2:mpiprocs=4+2:ncpus=4:mem=1gb:ompthreads=2"},
            {"select": "2:ncpus=4:mem=1gb:mpiprocs=4+2:ncpus=4:mem=1gb:ompthreads=2"},
            ["select"],
        ),
        (
            {"select": "2:ncpus=4:mem=1gb+2:ncpus=4:mem=1gb"},
            {"select": "2:ncpus=4:mem=1gb:ompthreads=2+2:ncpus=4:mem=1gb:ompthreads=3"},
            {"select": "2:ncpus=4:mem=1gb:ompthreads=2:mpiprocs=4+2:ncpus=4:mem=1gb:ompthreads=3"},
            {"select": "2:ncpus=4:mem=1gb:mpiprocs=4+2:ncpus=4:mem=1gb"},
            ["select"],
        ),
        (
            {},
            {"ompthreads": "1"},
            {"place": "excl", "select": "1:ncpus=1:ompthreads=1"},
            {"ompthreads": "1"},
            ["place"],
        ),
        (
            {"nodes": "1:ppn=28"},
            {"cpu_freq_mhz": "1200"},
            {"nodes": "2:ppn=28"},
            {"cpu_freq_mhz": "0"},
            ["nodes"],
        ),
        # threads of the later hook's own stay
        ({"ncpus": "28"}, {"ompthreads": "20"}, {"ompthreads": "7"}, {}, ["ompthreads"]),
    ],
)
def test_what_another_hook_changed_is_taken_back_and_recorded(
    tmp_path: Path,
    settings: dict[str, object],
    given: dict[str, str],
    rewrite: dict[str, str],
    then: dict[str, str],
    left: dict[str, str],
    changed: list[str],
) -> None:
    resources = {**stamped(given, rewrite), **then}
    sets = {
        "MKL_NUM_THREADS": "20",
        "GOMAXPROCS": "3",
        "ADVISOR_SET": "MKL_NUM_THREADS=20 GOMAXPROCS=20 X=1",
    }
    event = after(resources, **sets)
    stamp = resources["advisor_stamp"] + "+altered"
    done, again = run_hook(HOOK, [event, event], settings, folder=tmp_path)
    assert done["answer"] == ["accept", ""]
    assert done["resources"] == {**resources, **left, "advisor_stamp": stamp}, done["log"]
    assert "MKL_NUM_THREADS" not in done["variables"] and done["variables"]["GOMAXPROCS"] == "3"
    assert f"another hook changed its {', '.join(changed)}" in done["log"][0]
    assert json.loads((tmp_path / "altered").read_text()) == {
        "count": 2,
        "job": "7.pbs1",
        "changed": changed,
    }
    # the server calls again for each queue that a job comes into
    event["job"]["Resource_List"] = done["resources"]  # type: ignore[index]
    [third] = run_hook(HOOK, [event], settings, folder=tmp_path)
    assert (third["written"], third["log"]) == ([], [])
    assert again["resources"] == done["resources"]


@pytest.mark.parametrize("stamp", ["", "advisor:{}", "advisor:{}+wrote:", "advisor:{}+wrote:[1]"])
def test_a_job_that_was_not_rewritten_stays(
    tmp_path: Path, settings: dict[str, object], stamp: str
) -> None:
    event = after({**ALL, **({"advisor_stamp": stamp} if stamp else {})})
    [done] = run_hook(HOOK, [event], settings, folder=tmp_path)
    assert done["answer"] == ["accept", ""]
    assert done["written"] == []
    assert (done["log"] == []) == ("+wrote:" not in stamp)


@pytest.mark.parametrize("without", ["select", "inventory"])
def test_what_is_gone_keeps_no_cap(
    tmp_path: Path, settings: dict[str, object], without: str
) -> None:
    """A request in another form, or an installation that knows no queues any more."""
    rewrite = {**with_(ALL, "ompthreads=20"), "cpu_freq_mhz": "1900"}
    asks = {**stamped(ALL, rewrite), "place": "shared"}
    known = {**settings, **({"inventory": ""} if without == "inventory" else {})}
    event = after({n: v for n, v in asks.items() if n != without})
    [done] = run_hook(HOOK, [event], known, folder=tmp_path)
    assert done["resources"]["cpu_freq_mhz"] == "0"
    assert done["resources"].get("select") == (ALL["select"] if without == "inventory" else None)


@pytest.mark.parametrize(
    ("defaults", "given", "rewrite", "filled"),
    [
        (
            {"place": "scatter:excl"},
            {"select": ALL["select"]},
            with_(ALL, "ompthreads=20"),
            {"place": "scatter:excl"},
        ),
        (
            {"select": "1:ncpus=28:mpiprocs=28"},
            {"place": "excl"},
            {"cpu_freq_mhz": "1900"},
            {"select": "1:ncpus=28:mpiprocs=28"},
        ),
    ],
)
def test_what_the_queue_fills_in_is_no_change(
    tmp_path: Path,
    settings: dict[str, object],
    defaults: dict[str, str],
    given: dict[str, str],
    rewrite: dict[str, str],
    filled: dict[str, str],
) -> None:
    settings["inventory"] = inventory(resources_default=defaults).text()
    event = after({**stamped(given, rewrite), **filled})
    [done] = run_hook(HOOK, [event], settings, folder=tmp_path)
    assert (done["written"], done["log"]) == ([], [])


def test_the_note_for_the_admin_is_written_through_no_link(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    (tmp_path / "altered").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "altered.new").symlink_to(tmp_path / "elsewhere")
    event = after({**stamped(ALL, {"cpu_freq_mhz": "1900"}), "place": "shared"})
    run_hook(HOOK, [event], settings, folder=tmp_path)
    assert not (tmp_path / "elsewhere").exists()
    note = tmp_path / "altered"
    assert json.loads(note.read_text())["count"] == 1
    assert not note.is_symlink() and note.stat().st_mode & 0o7777 == 0o644


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"count": "x"}', '{"count": null}'])
def test_a_note_that_is_not_the_hook_s_own_counts_for_nothing(
    tmp_path: Path, settings: dict[str, object], text: str
) -> None:
    note = tmp_path / "altered"
    if text:
        note.write_text(text)
    else:
        (tmp_path / "elsewhere").write_text('{"count": 41}')
        note.symlink_to("elsewhere")
    event = after({**stamped(ALL, {"cpu_freq_mhz": "1900"}), "place": "shared"})
    run_hook(HOOK, [event], settings, folder=tmp_path)
    assert json.loads(note.read_text())["count"] == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_a_note_of_another_user_counts_for_nothing(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    (tmp_path / "altered").write_text('{"count": 41}')
    os.chown(tmp_path / "altered", 65534, 65534)
    event = after({**stamped(ALL, {"cpu_freq_mhz": "1900"}), "place": "shared"})
    run_hook(HOOK, [event], settings, folder=tmp_path)
    assert json.loads((tmp_path / "altered").read_text())["count"] == 1


def test_a_note_that_cannot_be_written_keeps_no_cap(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    note = tmp_path / "nosuch" / "altered"
    event = after({**stamped(ALL, {"cpu_freq_mhz": "1900"}), "place": "shared"})
    [done] = run_hook(HOOK, [event], {**settings, "altered": str(note)}, folder=tmp_path)
    assert done["resources"]["cpu_freq_mhz"] == "0"
    assert done["log"][0] == f"advisor: {note}: No such file or directory"
    assert "is taken back" in done["log"][1]


def test_a_release_without_the_event_runs_it_all_the_same(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    hook = tmp_path / "older.py"
    text = (HOOKS / HOOK).read_text()
    assert text.count('"POSTQUEUEJOB"') == 1
    hook.write_text(text.replace('"POSTQUEUEJOB"', '"NOSUCHEVENT"'))
    with daemon(path, answering(plan({"cpu_freq_mhz": "1900"}))):
        [done] = run_hook(str(hook), [job(ALL)], settings, folder=tmp_path)
    assert done["resources"]["cpu_freq_mhz"] == "1900", done["log"]


GPUS = {"select": "1:ncpus=14:ngpus=2"}


def test_a_gpu_job_gets_a_clock_or_limit_on_a_shared_node_too(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    settings["inventory"] = inventory(ngpus=4).text()
    rewrite = {"gpu_freq_mhz": "900", "gpu_power_w": "150"}
    with daemon(path, answering(plan(rewrite))):
        [done] = run_hook(HOOK, [job(GPUS)], settings, folder=tmp_path)
    assert done["resources"] == stamped(GPUS, rewrite), done["log"]


@pytest.mark.parametrize(
    ("given", "rewrite", "why"),
    [
        ({**GPUS, "gpu_power_w": "300"}, {"gpu_power_w": "150"}, "not the advisor's to write"),
        (GPUS, {"gpu_power_w": "0"}, "is not one the advisor writes so"),
        (GPUS, {"gpu_power_w": "150 W"}, "is not one the advisor writes so"),
        (GPUS, {"gpu_freq_mhz": "900000"}, "is not one the advisor writes so"),
        (GPUS, {"gpu_voltage": "low"}, "no resource gpu_voltage"),
        ({"select": "1:ncpus=14"}, {"gpu_power_w": "150"}, "it asks for no GPUs"),
    ],
)
def test_of_its_gpus_nothing_else_is_written(
    tmp_path: Path,
    path: Path,
    settings: dict[str, object],
    given: dict[str, str],
    rewrite: dict[str, str],
    why: str,
) -> None:
    settings["inventory"] = inventory(ngpus=4).text()
    with daemon(path, answering(plan(rewrite))):
        [done] = run_hook(HOOK, [job(given)], settings, folder=tmp_path)
    assert untouched(done, job(given)) and why in done["log"][0]


def test_a_gpu_limit_is_taken_back_where_a_later_hook_changed_the_job(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    settings["inventory"] = inventory(ngpus=4).text()
    with daemon(path, answering(plan({"gpu_power_w": "150"}))):
        [done] = run_hook(HOOK, [job(GPUS)], settings, folder=tmp_path)
    later = job({**done["resources"], "select": "1:ncpus=14:ngpus=4"}, done["variables"])
    later = {**later, "event": "POSTQUEUEJOB", "job": {**later["job"], "id": "7.pbs1"}}
    [again] = run_hook(HOOK, [later], settings, folder=tmp_path)
    assert again["resources"]["gpu_power_w"] == "0", again["log"]
