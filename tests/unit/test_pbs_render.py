"""A choice written back into PBS's options, and what keeps the job as it was."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.availability import Availability, Queue
from advisor.core.configuration import Configuration
from advisor.core.request import CannotWriteError
from advisor.core.requested_configuration import configuration_of, fills_nodes
from advisor.core.script_use import NO_USE
from advisor.schedulers.pbs.translator import fold, render
from tests.unit.pbs_request import BDW, request


@pytest.mark.parametrize("names", [("MKL_NUM_THREADS",), ("OMP_NUM_THREADS", "MKL_NUM_THREADS")])
def test_variables_that_a_site_rule_names_are_set(names: tuple[str, ...]) -> None:
    job = request({"select": "1:ncpus=28", "place": "excl"})
    base, new = configuration_of(job, BDW), Configuration("bdw", 1, 1, 20, 2_200_000)
    rewrite, environment = render(base, new, BDW, job, pin_node_type=False, variables=names)
    assert environment == {"MKL_NUM_THREADS": "20"}
    assert rewrite == ({"select": "1:ncpus=28:ompthreads=20"} if len(names) > 1 else {})


def write(
    options: dict[str, str],
    nodes: int,
    ranks: int,
    threads: int,
    freq: int = 2_200_000,
    *,
    pin: bool = False,
) -> dict[str, str]:
    job = request(options)
    base = configuration_of(job, BDW)
    new = Configuration("bdw", nodes, ranks, threads, freq)
    whole = job.exclusive or fills_nodes(job, BDW, NO_USE)
    rewrite, environment = render(base, new, BDW, job, pin_node_type=pin, whole=whole)
    assert environment == {}
    return rewrite


@pytest.mark.parametrize(
    ("options", "new", "rewrite"),
    [
        # nothing changes
        ({"select": "1:ncpus=28"}, (1, 1, 28), {}),
        # the cap, where the job has its nodes for itself
        ({"select": "1:ncpus=28"}, (1, 1, 28, 1_900_000), {"cpu_freq_mhz": "1900"}),
        ({"ncpus": "28"}, (1, 1, 28, 1_900_000), {"cpu_freq_mhz": "1900"}),
        ({"nodes": "2:ppn=28"}, (2, 28, 28, 1_900_000), {"cpu_freq_mhz": "1900"}),
        (
            {"select": "1:ncpus=4", "place": "excl"},
            (1, 1, 4, 1_900_000),
            {"cpu_freq_mhz": "1900"},
        ),
        # threads, inside the same cores
        ({"select": "1:ncpus=28"}, (1, 1, 20), {"select": "1:ncpus=28:ompthreads=20"}),
        (
            {"select": "1:ncpus=28:node_type=bdw:mem=4gb", "place": "exclhost"},
            (1, 1, 20),
            {"select": "1:ncpus=28:node_type=bdw:mem=4gb:ompthreads=20"},
        ),
        (
            {"select": "2:ompthreads=14:ncpus=28:mpiprocs=2", "place": "scatter"},
            (2, 2, 20),
            {"select": "2:ompthreads=10:ncpus=28:mpiprocs=2"},
        ),
        (
            {"select": "1:ncpus=28+ncpus=28", "place": "scatter"},
            (2, 1, 20, 1_900_000),
            {
                "select": "1:ncpus=28:ompthreads=20+ncpus=28:ompthreads=20",
                "cpu_freq_mhz": "1900",
            },
        ),
        (
            {"select": "4:ncpus=7", "place": "pack"},
            (1, 4, 20),
            {"select": "4:ncpus=7:ompthreads=5"},
        ),
        ({"ncpus": "28", "mem": "4gb"}, (1, 1, 20), {"ompthreads": "20"}),
        # a job that shares its node becomes smaller
        ({"select": "1:ncpus=14:mem=4gb"}, (1, 1, 10), {"select": "1:ncpus=10:mem=4gb"}),
        (
            {"select": "ncpus=14:mem=4gb:ompthreads=14"},
            (1, 1, 10),
            {"select": "ncpus=10:mem=4gb:ompthreads=10"},
        ),
    ],
)
def test_choices_are_written_back(
    options: dict[str, str], new: tuple[int, ...], rewrite: dict[str, str]
) -> None:
    assert write(options, *new) == rewrite


@pytest.mark.parametrize(
    ("options", "new", "why"),
    [
        ({"select": "1:ncpus=4"}, (1, 1, 4, 1_900_000), "nodes may be shared"),
        ({"ncpus": "4"}, (1, 1, 4, 1_900_000), "nodes may be shared"),
        ({"select": "4:ncpus=7"}, (1, 4, 28, 1_900_000), "nodes may be shared"),
        ({"select": "1:ncpus=14"}, (1, 1, 10), "no memory in the chunk"),
        ({"ncpus": "14", "mem": "4gb"}, (1, 1, 10), "without select"),
        ({"select": "2:ncpus=7:mem=4gb", "place": "pack"}, (1, 2, 10), "more than one chunk"),
        ({"select": "1:ncpus=14:mem=4gb", "place": "shared"}, (1, 1, 10), "place=shared"),
        ({"select": "1:ncpus=14:mem=4gb"}, (1, 1, 20), "not made larger"),
        ({"select": "1:ncpus=4", "place": "excl"}, (1, 1, 8), "4 cores each"),
        ({"nodes": "1:ppn=28"}, (1, 28, 56), "-l nodes binds it"),
        ({"select": "1:ncpus=28:mpiprocs=4"}, (1, 4, 20), "mpiprocs without ompthreads"),
        ({"select": "1:ncpus=28"}, (1, 2, 28), "not the advisor's to change"),
        ({"select": "1:ncpus=28", "cput": "1:00:00"}, (1, 1, 20), "cput=1:00:00 binds it"),
        ({"select": "1:ncpus=28:eoe=low"}, (1, 1, 28, 1_900_000), "eoe=low binds it"),
        ({"select": "1:ncpus=28", "mppwidth": "4"}, (1, 1, 20), "mppwidth=4 binds it"),
    ],
)
def test_what_cannot_be_written_says_why(
    options: dict[str, str], new: tuple[int, ...], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        write(options, *new)


def test_a_node_type_is_pinned_by_its_resource() -> None:
    assert write({"select": "1:ncpus=28"}, 1, 1, 28, pin=True) == {
        "select": "1:ncpus=28:node_type=bdw",
    }
    for options in (
        {"ncpus": "2"},
        {"nodes": "1"},
        {"select": "1:ncpus=28:node_type=skl"},
        {"select": "1:ncpus=28:ngpus=1"},
        {"select": "1:ncpus=28", "place": "group=rack"},
        {"select": "1:ncpus=28:vnode=n1"},
    ):
        with pytest.raises(ValueError, match="node_type is kept"):
            write(
                options, 1, 1, int(options.get("ncpus", 28 if "select" in options else 1)), pin=True
            )


@given(
    count=st.integers(1, 4),
    ranks=st.integers(1, 4),
    threads=st.integers(1, 7),
    place=st.sampled_from(["", "free", "pack", "scatter", "scatter:excl", "excl"]),
    new_threads=st.integers(1, 7),
    freq=st.sampled_from(BDW.freq_khz),
)
def test_what_is_written_asks_for_what_was_chosen(
    count: int, ranks: int, threads: int, place: str, new_threads: int, freq: int
) -> None:
    """Reading a rewritten job back gives the configuration it was rewritten to, and all else
    as it was written."""
    chunk = f"ncpus={ranks * threads}:mpiprocs={ranks}:ompthreads={threads}"
    options = {"select": f"{count}:{chunk}", "place": place}
    job = request(options)
    base = configuration_of(job, BDW)
    per_node = base.ranks_per_node * new_threads
    if base.threads_per_node > 28 or per_node > 28:
        return
    new = Configuration("bdw", base.nodes, base.ranks_per_node, per_node, freq)
    try:
        whole = job.exclusive or fills_nodes(job, BDW, NO_USE)
        rewrite, _ = render(base, new, BDW, job, pin_node_type=False, whole=whole)
    except ValueError:
        return
    after = {k: v for k, v in {**options, **rewrite}.items() if v}
    if job.nodes is not None:  # else it depends on what is idle
        assert configuration_of(request(after), BDW) == new
    assert set(rewrite) <= {"select", "cpu_freq_mhz"}
    kept = rewrite.get("select", options["select"]).replace(
        f"ompthreads={new_threads}", f"ompthreads={threads}"
    )
    assert kept == options["select"]


def test_a_chunk_without_cores_has_the_server_s() -> None:
    """Its own words stay letter for letter."""
    site = Availability(
        queues={
            "": Queue("", default_chunk={"ncpus": "1"}, destinations=("workq",)),
            "workq": Queue("workq", default_chunk={"ncpus": "28"}),
        }
    )
    job = fold(request({"select": "1:mem=4gb", "place": "excl"}), site)
    base, new = configuration_of(job, BDW), Configuration("bdw", 1, 1, 20, 1_900_000)
    assert base.threads_per_node == 28
    rewrite, _ = render(base, new, BDW, job, pin_node_type=False)
    assert rewrite == {"select": "1:mem=4gb:ompthreads=20", "cpu_freq_mhz": "1900"}


# -- exactly at the bounds -----------------------------------------------------------------------


def test_threads_up_to_the_cores_of_the_chunk_are_no_more_than_it_has() -> None:
    shared = {"select": "1:ncpus=14:ompthreads=7:mem=4gb"}
    assert write(shared, 1, 1, 14) == {"select": "1:ncpus=14:ompthreads=14:mem=4gb"}
    with pytest.raises(ValueError, match="not made larger"):
        write(shared, 1, 1, 15)
    whole = {"select": "1:ncpus=28:mpiprocs=2:ompthreads=7", "place": "excl"}
    assert write(whole, 1, 2, 28) == {"select": "1:ncpus=28:mpiprocs=2:ompthreads=14"}
    with pytest.raises(CannotWriteError, match="28 cores each") as caught:
        write(whole, 1, 2, 30)
    assert (caught.value.axis, caught.value.binding) == ("threads", "ncpus=28")


def test_the_chunk_s_threads_stay_where_a_site_rule_names_another_variable() -> None:
    job = request({"select": "1:ncpus=28:ompthreads=28", "place": "excl"})
    base, new = configuration_of(job, BDW), Configuration("bdw", 1, 1, 20, 2_200_000)
    names = ("MKL_NUM_THREADS",)
    rewrite, environment = render(base, new, BDW, job, pin_node_type=False, variables=names)
    assert rewrite == {} and environment == {"MKL_NUM_THREADS": "20"}


@pytest.mark.parametrize(("feature", "word"), [("kind=skl", "kind=skl"), ("bigmem", "bigmem=True")])
def test_another_node_type_is_named_even_where_none_is_pinned(feature: str, word: str) -> None:
    job = request({"select": "1:ncpus=28", "place": "excl"})
    other = replace(BDW, name="skl", feature=feature)
    new = Configuration("skl", 1, 1, 28, 2_200_000)
    written = render(configuration_of(job, BDW), new, other, job, pin_node_type=False)
    assert written == ({"select": f"1:ncpus=28:{word}"}, {})


def test_a_resource_of_the_user_s_own_is_never_replaced() -> None:
    job = request({"select": "1:ncpus=28:gen=2", "place": "excl"})
    base, third = configuration_of(job, BDW), replace(BDW, feature="gen=3")
    with pytest.raises(CannotWriteError, match="gen=2 is yours") as caught:
        render(base, base, third, job, pin_node_type=True)
    assert (caught.value.axis, caught.value.binding) == ("node_type", "gen=2")


def test_a_cap_is_written_where_it_differs_from_what_the_job_has() -> None:
    capped = {"select": "1:ncpus=28", "place": "excl", "cpu_freq_mhz": "1900"}
    assert write(capped, 1, 1, 28, 1_900_000) == {}
    assert write(capped, 1, 1, 28, 1_200_000) == {"cpu_freq_mhz": "1200"}
    assert write(capped, 1, 1, 28, 2_200_000) == {"cpu_freq_mhz": "2200"}
    job, bare = request({"select": "1:ncpus=28", "place": "excl"}), replace(BDW, freq_khz=())
    new = Configuration("bdw", 1, 1, 28, 1_900_000)
    assert render(configuration_of(job, BDW), new, bare, job, pin_node_type=False) == ({}, {})
