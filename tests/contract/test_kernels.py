"""``advisor lab bench --kernel``: kernels of users, and whose jobs their profiles advise."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from advisor.core.delivery import write_spool_file
from advisor.core.inventory import NodeType
from advisor.core.policy import Trust
from advisor.errors import AdvisorError
from advisor.instruments.bench import session
from advisor.instruments.machine import fingerprint
from advisor.loop.rerank import rank_all, site_thresholds
from advisor.loop.spool import take_spool
from advisor.ranking.files import read_kernels, read_thresholds
from advisor.ranking.suite import Microbenchmark, member
from advisor.schedulers.this_machine import local_node_type
from advisor.store.profiles import Bench, StoredProfile, profiles, save_kernels, save_profiles
from advisor.store.rankings import rankings, save_characterisation
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from advisor.training.training_job import current_user

Advisor = Callable[..., Any]
STREAM = {"size_kb": 3000.0, "stride_b": 8, "dtype_b": 8, "access": "P"}
APP = {
    "application": "app",
    "workload": "w",
    "node_type": "old",
    "threads": 4,
    "time_s": 8.0,
    "phases": [
        {
            "name": "solve",
            "weight": 1.0,
            "time_s": 8.0,
            "iterations": 4e9,
            "threads": 4,
            "streams": [STREAM],
        }
    ],
}
SCALE = """#include "walks.h"
double own_kernel(struct walk *w, long n) {
    const double *in = (const double *)w[0].zone + w[0].offset + w[0].index * w[0].step;
    double sum = 0;
    for (long i = 0; i < n; i++, in += w[0].step) sum += 0.5 * *in + 0.5;
    return sum;
}
"""


def suite(name: str, load_ns: float) -> list[StoredProfile]:
    """A node type whose loads take so long, whatever their size."""
    made = []
    for threads in (4, 1):
        zones = [(f, kb) for f in ("mbw1lc", "mbw1lp", "mbw1p") for kb in (256, 16384)]
        for family, kb in [*zones, ("chain", 0), ("fma", 0)]:
            ns = {"chain": 1.0, "fma": 0.1}.get(family, load_ns)
            one = member(family, threads, *([(kb, 8)] if kb else []))
            streams = tuple(s.to_dict() for s in one.streams)
            made.append(StoredProfile(name, family, streams, threads, ns / 1000, 0.01, 5))
    return made


def sent(node_type: str, ns: float) -> dict[str, object]:
    """What ``advisor lab bench --kernel`` hands over: ann's kernel has the phase's own stream."""
    profile = {
        "microbenchmark": "solve-loop",
        "streams": [STREAM],
        "threads": 4,
        "time_per_iter_us": ns / 1000,
        "spread": 0.01,
        "repeats": 9,
    }
    where = {"node_type": node_type, "machine": {"cores": 4}, "host": node_type}
    made = {"contributor": "ann", "kernel": "6.1", "compiler": "cc", "profiles": [profile]}
    return {**where, **made}


@pytest.fixture
def site(store_path: Path) -> Path:
    """Loads take half as long on ``new``; ann and bob characterised the same application."""
    with Writer(store_path) as store:
        types = [NodeType(n, feature=n, cores=4, nodes=(n,)) for n in ("old", "new")]
        store.save_node_types(types, source="slurm")
        for name, ns in (("old", 2.0), ("new", 1.0)):
            save_profiles(
                store, Bench(name, {"cores": 4}, name, "6.1", "cc", "root"), suite(name, ns)
            )
        for user in ("ann", "bob"):
            save_characterisation(store, "app", "w", "old", APP, contributor=user, scope="own")
    return store_path


@pytest.mark.parametrize(("trust", "advised"), [("own", {"ann"}), ("all", {"ann", "bob"})])
def test_a_users_kernel_advises_whom_the_policy_trusts_it_to(
    advisor: Advisor, site: Path, tmp_path: Path, trust: Trust, advised: set[str]
) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    for node_type, ns in (("old", 2.0), ("new", 3.0)):
        write_spool_file(spool, json.dumps(sent(node_type, ns)), "profiles")
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"version: 1\ntraining: {{trust: {trust}}}\n")
    assert advisor("policy", "apply", policy).code == 0
    with Writer(site) as store:
        rank_all(store, limits := read_thresholds(site_thresholds(tmp_path)))
        before = rankings(store, "app")
        assert all(r.estimate.time_ratio < 0.6 for r in before if r.estimate.node_type == "new")
        taken = take_spool(
            store,
            spool,
            lambda *_: "",
            lambda *_: "",
            lambda writer, whose: rank_all(writer, limits, whose).line,
        )
        assert (taken.kernels, taken.bad) == (2, [])
        new = {
            r.contributor: r.estimate
            for r in rankings(store, "app")
            if r.estimate.node_type == "new"
        }
        # the kernel takes 3 ns there in place of 2 on the base; loads alone 1 ns
        for user in ("ann", "bob"):
            expected = 1.5 if user in advised else 0.5
            assert new[user].time_ratio == pytest.approx(expected, rel=0.01), user
            assert {p.contributor for p in profiles(store, user=user)} == (
                {"", "ann"} if user in advised else {""}
            )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"node_type": "else"}, "no profiles of the suite yet"),
        ({"machine": {"cores": 8}}, "profiles of another machine (cores 4 and 8)"),
        ({"profiles": []}, "profiles: there must be 1 to 100"),
        ({"machine": {"cores": "4\x1b[2J"}}, "machine.cores: must be one line"),
    ],
)
def test_what_does_not_fit_the_suites_profiles_is_set_aside(
    site: Path, tmp_path: Path, changes: dict[str, object], why: str
) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    write_spool_file(spool, json.dumps({**sent("old", 2.0), **changes}), "profiles")
    with Writer(site) as store:
        taken = take_spool(store, spool, lambda *_: "", lambda *_: "", lambda *_: "")
        assert taken.kernels == 0 and why in taken.bad[0]
        assert all(not p.contributor for p in profiles(store))


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    (tmp_path / "scale.c").write_text(SCALE)
    file = tmp_path / "kernels.yaml"
    one = {
        "microbenchmark": "scale",
        "source": "scale.c",
        "adds": 1,
        "streams": [{**STREAM, "size_kb": 64}],
    }
    file.write_text(yaml.safe_dump([one]))
    return file


def test_a_kernel_is_compiled_measured_and_stored_beside_the_suite(
    advisor: Advisor, store_path: Path, kernel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("advisor.instruments.bench.RUN_S", 0.005)
    argv = ("bench", "--here", "--node-type", "mine", "--kernel", kernel, "--budget", "0.1s")
    machine = fingerprint(local_node_type())
    with Writer(store_path) as store:
        save_profiles(store, Bench("mine", machine, "n", "6", "cc", "root"), suite("mine", 1.0))
    shown = advisor(*argv)
    assert shown.code == 0 and "scale:" in shown.out and "stored in" in shown.out
    with Reader(store_path) as store:
        (own,) = [p for p in profiles(store) if p.contributor]
    assert (own.microbenchmark, own.contributor) == ("scale", current_user())
    assert own.time_per_iter_us > 0 and own.streams[0]["size_kb"] == 64
    assert f"kernel scale by {current_user()}" in advisor("bench", "show").out


def test_one_kernel_is_forgotten_and_nothing_else(advisor: Advisor, site: Path) -> None:
    with Writer(site) as store:
        for node_type, user in (("old", "ann"), ("new", "ann"), ("new", "bob")):
            save_kernels(store, sent(node_type, 3.0), contributor=user, scope="own")

    def left() -> list[tuple[str, str]]:
        with Reader(site) as reader:
            return [(p.node_type, p.contributor) for p in profiles(reader) if p.contributor]

    argv = ("bench", "forget", "--microbenchmark", "solve-loop")
    for words, why in (
        (("bench", "forget"), "which kernel"),
        (argv, "ann and bob each have a kernel solve-loop"),
        (("bench", "forget", "--microbenchmark", "mbw1lc"), "there is no kernel mbw1lc"),
        ((*argv, "--by", "eve"), "no kernel solve-loop by eve"),
        ((*argv, "--by", "bob", "--node-type", "old"), "by bob on old"),
    ):
        refused = advisor(*words)
        assert refused.code == 2 and why in refused.err, words
    assert len(left()) == 3
    refused = advisor(*argv, "--by", "ann", "--node-type", "new")
    assert refused.code == 2 and "--yes" in refused.err and len(left()) == 3
    done = advisor(*argv, "--by", "ann", "--node-type", "new", "--yes")
    assert done.code == 0 and "forgotten: solve-loop by ann on new" in done.out
    assert left() == [("old", "ann"), ("new", "bob")]
    data = advisor(*argv, "--by", "ann", "--json", "--yes").json()
    assert data["node_types"] == [
        {"node_type": "old", "forgotten": "solve-loop", "contributor": "ann"}
    ]
    assert left() == [("new", "bob")]
    with Reader(site) as reader:
        assert len([p for p in profiles(reader) if not p.contributor]) == 2 * len(suite("old", 1.0))


def test_work_that_a_kernel_leaves_out_is_noticed(kernel: Path) -> None:
    (one,) = read_kernels(kernel)
    short = replace(one, source=SCALE.replace("i < n;", "i < n / 2;"))
    request = Microbenchmark(one.name, 1, one.streams, own=True).request()
    operation, dtype, zone = request.split()
    with session(kernel=short) as asked, pytest.raises(AdvisorError, match="was not done"):
        asked.ask(f"run {operation} {dtype} 1 0.001 {zone}")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"microbenchmark": "mbw1c"}, "kernels.yaml:2: [0].microbenchmark: mbw1c is one of"),
        ({"source": "none.c"}, "[0].source: cannot read"),
        ({"streams": []}, "[0].streams: there must be 1 to 3"),
        ({"streams": [{**STREAM, "stride_b": 12}]}, "[0].streams[0].stride_b: must be whole"),
        ({"adds": 0}, "[0].adds: must be above 0"),
        ({"threads": 3}, "[0].threads: there are microbenchmark, source, streams and adds"),
    ],
)
def test_mistakes_in_a_kernels_file(
    advisor: Advisor, kernel: Path, changes: dict[str, object], why: str
) -> None:
    (one,) = yaml.safe_load(kernel.read_text())
    kernel.write_text(yaml.safe_dump([{**one, **changes}], sort_keys=False))
    done = advisor("bench", "--here", "--kernel", kernel)
    assert done.code == 1 and done.err.count("\n") == 1 and why in done.err


def test_a_source_that_does_not_compile_names_file_and_line(advisor: Advisor, kernel: Path) -> None:
    (kernel.parent / "scale.c").write_text("int x = ;\n")
    done = advisor("bench", "--here", "--kernel", kernel)
    assert done.code == 1 and "scale.c:1:9: error" in done.err and done.err.count("\n") == 1
    both = advisor("bench", "--here", "--kernel", kernel, "--wanted")
    assert both.code == 2 and "leave out --wanted" in both.err
