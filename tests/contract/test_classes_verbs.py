"""``advisor lab classify`` and ``lab classes``: from site.yaml and files to classes and back."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.core.configuration import Configuration
from advisor.core.signature import Signature
from advisor.store.signatures import save_signatures
from advisor.store.writer import Writer

SITE = """version: 1
node_types:
  spr:
    cores: 64
    sockets: 2
    classes:
      tag: spr8480
      folder: files
      limits: {cpu: {cpi: 0.4, gbs: 180}, memory: {cpi: 0.4, gbs: 250}}
"""
C = Configuration("spr", 1, 1, 64, 0)
BASES = ((0.4, 0.005, 800.0, 40.0), (1.6, 0.05, 100.0, 280.0), (0.9, 0.02, 350.0, 130.0))


@pytest.fixture
def site(advisor: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site with one node type; returns the folder of its class files."""
    config = tmp_path / "config"
    config.mkdir()
    (config / "site.yaml").write_text(SITE)
    assert advisor("site", "apply", config / "site.yaml").code == 0
    monkeypatch.chdir(tmp_path)
    return config / "files"


def write(tmp_path: Path, data: object) -> Path:
    path = tmp_path / "s.json"
    path.write_text(json.dumps(data))
    return path


def learn(store_path: Path, count: int = 45, **changes: object) -> None:
    draw = random.Random(14)
    with Writer(store_path) as store, store.batch():
        for i in range(count):
            cpi, tpi, gflops, gbs = (x * draw.lognormvariate(0, 0.1) for x in BASES[i % 3])
            run = Signature(
                cpi=cpi,
                tpi=tpi,
                gflops=gflops,
                gbs=gbs,
                configuration=C,
                source="ear",
                release="6",
                contributor="ann",
                scope="all",
            )
            save_signatures(store, f"app{i % 15}", f"w{i}", [replace(run, **changes)])  # type: ignore[arg-type]


def test_one_signature_and_a_list(advisor: Callable[..., Any], site: Path, tmp_path: Path) -> None:
    one = {"cpi": 0.4, "gbs": 250, "gflops": 10, "io_mbs": 1}
    data = advisor("classify", "--signature", write(tmp_path, one), "--json").json()
    assert (data["class"], data["strategy"], data["tag"]) == ("memory-bound", "default", "spr8480")
    assert (data["node_type"], data["runs"], data["source"]) == ("spr", 1, "file")
    assert data["agreement"] == {"default": "memory-bound"} and data["distances"] == {}
    assert data["signature"]["cpus"] == 64 and data["signature"]["tpi"] is None
    assert data["missing"] == [
        "tpi",
        "mpi_calls_s",
        "mpi_percent",
        "gpu_util",
        "cpu_util",
        "power_w",
        "time_s",
    ]
    assert 0 < data["stable"] < 1
    data = advisor("classify", "--signature", write(tmp_path, [one, {}]), "--json").json()
    assert [r["class"] for r in data["results"]] == ["memory-bound", "unknown"]
    assert advisor("classify", "--signature", write(tmp_path, []), "--json").json()["results"] == []
    ear6 = advisor("classify", "--signature", write(tmp_path, one), "--like", "ear6", "--json")
    assert ear6.json()["class"] == "mixed"
    people = advisor("classify", "--signature", write(tmp_path, one))
    assert people.out.startswith("this signature on spr: memory-bound (default)")


@pytest.mark.parametrize(
    ("one", "message"),
    [
        ({"gbps": 1, "cpi": 1}, "signature 1: unknown key gbps (did you mean gbs?)"),
        ({"CPI": 1}, "signature 1: unknown key CPI (did you mean cpi?)"),
        ({"bandwidth": 3}, "signature 1: unknown key bandwidth (known: cpi, tpi,"),
        ([{"cpi": 1}, {"cpi": 1, "power": 3}], "signature 2: unknown key power (did you mean"),
    ],
)
def test_a_misspelt_key_is_one_line(
    advisor: Callable[..., Any], site: Path, tmp_path: Path, one: object, message: str
) -> None:
    done = advisor("classify", "--signature", write(tmp_path, one))
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert message in done.err
    more = {"cpi": 1.5, "gbs": 400, "expect": "memory-bound", "name": "a"}
    assert advisor("classify", "--signature", write(tmp_path, more)).code == 0


def test_a_site_file_that_was_not_applied_holds_too(
    advisor: Callable[..., Any], tmp_path: Path, store_path: Path
) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "site.yaml").write_text(SITE)
    path = write(tmp_path, {"cpi": 0.4, "gbs": 180})
    done = advisor("classify", "--signature", path, "--node-type", "spr", "--json")
    assert done.json()["class"] == "cpu-bound" and not store_path.exists()
    done = advisor("classify", "--signature", path, "--node-type", "icl")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "node type 'icl' is unknown (known: spr)" in done.err


def test_peaks_are_written_and_hold(
    advisor: Callable[..., Any], site: Path, tmp_path: Path, store_path: Path
) -> None:
    peaks = ("classes", "peaks", "--node-type", "spr")
    assert advisor(*peaks).code == 3
    done = advisor(*peaks, "--processor", "AMD EPYC 9654 96-Core Processor", "--write", "paper")
    assert done.code == 0
    assert (site / "roofline.spr8480.data").read_text() == "921.6 22732.8\n"
    path = write(tmp_path, {"gflops": 5000, "gbs": 691.2, "cpi": 1})
    done = advisor("classify", "--signature", path, "--json").json()
    assert (done["class"], done["strategy"]) == ("memory-bound", "roofline")
    assert done["agreement"] == {"roofline": "memory-bound", "default": "memory-bound"}
    learn(store_path, 3)
    data = advisor(*peaks, "--processor", "EPYC 9654", "--json").json()
    assert data["measured"]["gbs"] < 350 and data["measured"]["gflops"] == 22732.8
    assert data["measured_by"] == "a run of app1" and data["written"] == []
    parts = ("--cores", 36, "--ghz", 2.4, "--flops-per-cycle", 32, "--channels", 8, "--gts", 3.2)
    assert advisor(*peaks, *parts, "--json").json()["paper"] == {
        "gbs": 409.6,
        "gflops": 5529.6,
        "ridge": 13.5,
    }
    assert advisor(*peaks, "--processor", "Z80").code == 2
    (site.parent / "site.yaml").write_text("version: 1\nnode_types: {spr: {cores: 192}}\n")
    assert advisor("site", "apply", site.parent / "site.yaml").code == 0
    found = advisor(*peaks, "--processor", "EPYC 9654", "--json").json()["paper"]
    assert (found["gbs"], found["gflops"]) == (921.6, 22732.8)  # two sockets fill 192 cores


@pytest.mark.parametrize("order", ["page", "ear"])
def test_training_writes_what_classify_reads(
    advisor: Callable[..., Any], site: Path, store_path: Path, tmp_path: Path, order: str
) -> None:
    learn(store_path)
    learn(store_path, 4, release="4", tpi=9.0)
    learn(store_path, 2, scope="own", contributor="eve")
    train = ("classes", "train", "--node-type", "spr", "--order", order)
    data = advisor(*train, "--dry-run", "--json").json()
    assert (data["rows"], data["applications"], data["written"]) == (45, 15, [])
    assert data["left_out"] == {"not shared with all": 2, "with TPI on another scale": 4}
    assert [m["class"] for m in data["medoids"]] == ["cpu-bound", "memory-bound", "mixed"]
    assert not site.exists()
    done = advisor(*train)
    assert done.code == 0 and "45 workloads of 15 applications; silhouette 0." in done.out
    assert advisor("classes", "check", site).code == 0
    for (cpi, tpi, gflops, gbs), name in zip(
        BASES, ("cpu-bound", "memory-bound", "mixed"), strict=True
    ):
        one = write(tmp_path, {"cpi": cpi, "tpi": tpi, "gflops": gflops, "gbs": gbs})
        found = advisor("classify", "--signature", one, "--order", order, "--json").json()
        assert (found["class"], found["strategy"]) == (name, "kmedoids")
        assert min(found["distances"], key=found["distances"].get) == name


def test_too_few_rows_are_refused(
    advisor: Callable[..., Any], site: Path, store_path: Path
) -> None:
    learn(store_path, 29)
    done = advisor("classes", "train", "--node-type", "spr")
    assert done.code == 3 and "29 workloads of 15 applications are too few" in done.err
    assert not site.exists()


def test_applications_of_the_store(
    advisor: Callable[..., Any], site: Path, store_path: Path
) -> None:
    assert advisor("classify").code == 3
    learn(store_path, 3)
    assert len(advisor("classify", "--json").json()["results"]) == 3
    data = advisor("classify", "app0", "--json").json()
    assert (data["application"], data["workload"], data["source"]) == ("app0", "w0", "ear")
    assert advisor("classify", "nothing").code == 3
    assert "app1" in advisor("classify").out
    done = advisor("classify", "app0", "--strategy", "roofline")
    assert done.code == 1 and "strategy roofline is not available" in done.err
    done = advisor("classify", "app0", "--strategy", "best")
    assert done.code == 2 and "choose from: default, kmedoids, roofline" in done.err


def test_show_says_what_holds(advisor: Callable[..., Any], site: Path) -> None:
    site.mkdir()
    (site / "roofline.spr8480.data").write_text("1 nan")
    done = advisor("classes", "show")
    assert "spr: tag spr8480, by default" in done.out and "'nan' is not a finite" in done.out
    (one,) = advisor("classes", "show", "--json").json()["node_types"]
    assert (one["files"], one["strategy"], one["limits"]["from"]) == ([], "default", "site.yaml")
    done = advisor("classes", "check", site)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)


def test_a_tag_that_is_not_known_is_said(
    advisor: Callable[..., Any], site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.mkdir()
    (site / "roofline.spr.data").write_text("100 1000")
    found = advisor("classify", "--signature", write(tmp_path, {"cpi": 1, "gbs": 9}), "--json")
    assert "there are no files of tag spr8480, only of spr" in found.json()["reasons"]
    assert advisor("classes", "check", site).code == 0
    (tmp_path / "ear").mkdir()
    (tmp_path / "ear" / "ear.conf").write_text("Tag=spr8480 default=yes\nIsland=0 Nodes=n1\n")
    monkeypatch.setenv("EAR_ETC", str(tmp_path))
    done = advisor("classes", "check", site)
    assert done.code == 1 and "ear.conf has no tag 'spr'" in done.err


def test_one_users_signatures_do_not_move_what_all_see(
    advisor: Callable[..., Any], site: Path, store_path: Path
) -> None:
    learn(store_path, 1)
    before = advisor("classify", "app0", "--json").json()
    learn(store_path, 1, scope="own", contributor="eve", cpi=9.0)
    assert advisor("classify", "app0", "--json").json() == before
