"""Checking site files, and laying them over what a scheduler says."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.core.inventory import Inventory, NodeType
from advisor.core.nodelist import expand
from advisor.core.recognise import ApplicationRule, recognise
from advisor.paths import share
from advisor.policy.inventory import (
    SITE_SOURCE,
    doubts,
    merge_applied,
    merge_discovered,
    missing,
)
from advisor.policy.load import check_text
from advisor.policy.problems import Problem
from advisor.policy.render import effective, fold, to_yaml


def check(text: str) -> tuple[dict[str, Any] | None, list[Problem]]:
    return check_text(text, "site.yaml", "site")


def good(text: str) -> dict[str, Any]:
    compiled, problems = check(text)
    assert not problems, [str(p) for p in problems]
    assert compiled is not None
    return compiled


def node_type(text: str) -> dict[str, Any]:
    found: dict[str, Any] = good(f"version: 1\nnode_types:\n  t: {text}\n")["node_types"]["t"]
    return found


def problem(text: str, key: str) -> Problem:
    compiled, problems = check(text)
    assert compiled is None
    assert [p.key for p in problems] == [key], [str(p) for p in problems]
    return problems[0]


def test_the_example_is_good_and_recognises_its_applications() -> None:
    compiled = good(share("config/site.yaml").read_text())
    assert compiled["node_types"]["broadwell"]["freq_khz"][:2] == [1_200_000, 1_300_000]
    rules = [ApplicationRule.from_dict(a) for a in compiled["applications"]]
    found = recognise("#!/bin/sh\nsrun ./stencil64_omp -n 512 -v\n", rules=rules)
    assert (found.application, found.workload) == ("stencil64", "n512")
    found = recognise("#!/bin/sh\nsrun wrf.exe\n", job_name="daily-forecast-1", rules=rules)
    assert (found.application, found.workload) == ("wrf", "forecast")
    assert not recognise("#!/bin/sh\nsrun wrf.exe\n", rules=rules).how[0].code.endswith("rule")


def test_the_commented_lines_of_the_example_are_good_too() -> None:
    text = share("config/site.yaml").read_text()
    text = re.sub(r"^#((?:  +)?(?:- )?[a-z_]+:( .*)?)$", r"\1", text, flags=re.MULTILINE)
    compiled, problems = check(text)
    assert compiled is not None, [str(p) for p in problems]
    assert compiled["default_partition"] == "work"
    assert compiled["default_node_types"] == {"work": "broadwell"}
    assert len(compiled["node_types"]["elsewhere"]["nodes"]) == 16


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("{freq_khz: [2.4 GHz, 1200 MHz, 1500000, 1.2 GHz]}", [1_200_000, 1_500_000, 2_400_000]),
        (
            "{freq_khz: {min: 1.2 GHz, max: 1.5 GHz, step: 100 MHz}}",
            [1_200_000, 1_300_000, 1_400_000, 1_500_000],
        ),
        ("{freq_khz: {min: 2 GHz, max: 2 GHz, step: 100000}}", [2_000_000]),
        ("{freq_khz: 2401 MHz}", [2_401_000]),
        ("{freq_khz: []}", []),
    ],
)
def test_frequency_steps(text: str, steps: list[int]) -> None:
    assert node_type(text)["freq_khz"] == steps


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        ("{freq_khz: [2.4]}", "freq_khz[0]", "2.4 GHz"),
        ("{freq_khz: [2400]}", "freq_khz[0]", "2400 MHz"),
        ("{freq_khz: [fast]}", "freq_khz[0]", "not a frequency"),
        ("{freq_khz: [20 GHz]}", "freq_khz[0]", "not a processor"),
        ("{freq_khz: {min: 1 GHz, max: 2 GHz}}", "freq_khz.step", "missing"),
        ("{freq_khz: {min: 1 GHz, max: 2 GHz, stp: 1 MHz, step: 1 GHz}}", "freq_khz.stp", "'step'"),
        ("{freq_khz: {min: 2 GHz, max: 1 GHz, step: 100 MHz}}", "freq_khz.max", "below"),
        ("{freq_khz: {min: 1 GHz, max: 2 GHz, step: 300 MHz}}", "freq_khz", "whole number"),
        ("{freq_khz: {min: 1 GHz, max: 2 GHz, step: 1 MHz}}", "freq_khz.step", "more than"),
        ("{freq_khz: {min: 1 GHz, max: 2 GHz, step: 1}}", "freq_khz.step", "1 MHz to 1 GHz"),
        ("{freq_khz: [1 GHz], default_freq_khz: 2 GHz}", "default_freq_khz", "steps"),
        ("{cores: 0}", "cores", "1 to"),
        ("{cores: 2, sockets: 4}", "cores", "sockets"),
        ("{memory_mb: lots}", "memory_mb", "192 GB"),
        ("{memory_mb: 0}", "memory_mb", "range"),
        ("{nodes: 'n[1-'}", "nodes", "brackets"),
        ("{nodes: 'n[4-1]'}", "nodes", "backwards"),
        ("{nodes: 'n[1-9999999]'}", "nodes", "more than"),
        ("{nodes: {a: b}}", "nodes", "mapping"),
        ("{partitions: 'a b'}", "partitions[0]", "not a name"),
        ("{partitions: []}", "partitions", "empty"),
        ("{feature: 'a&b'}", "feature", "not a name"),
        ("{feature: [a]}", "feature", "list"),
        ("{base_power_w: -1}", "base_power_w", "range"),
        ("{weigth: 3}", "weigth", "'weight'"),
        ("[]", "", "keys with values"),
    ],
)
def test_mistakes_in_a_node_type(text: str, key: str, said: str) -> None:
    key = f"node_types.t.{key}" if key else "node_types.t"
    found = problem(f"version: 1\nnode_types:\n  t: {text}\n", key)
    assert found.line == 3
    assert said in str(found)


def test_names_of_node_types_are_checked() -> None:
    found = problem("version: 1\nnode_types:\n  'a b': {cores: 1}\n", "node_types.a b")
    assert found.line == 3


def test_units_and_node_lists() -> None:
    found = node_type('{memory_mb: 192 GB, nodes: [a1, "b[08-10]"], partitions: work, feature: ""}')
    assert found == {
        "memory_mb": 196608,
        "nodes": ["a1", "b08", "b09", "b10"],
        "partitions": ["work"],
        "feature": "",
    }


APPLICATION = "version: 1\napplications:\n  - "


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        ("{name: x}", "match", "missing"),
        ("{match: {executable: x}}", "name", "missing"),
        ("{name: x, match: {}}", "match", "executable"),
        ("{name: 'a;b', match: {executable: x}}", "name", "not a name"),
        ("{name: x, match: {arguments: '('}}", "match.arguments[0]", "regular expression"),
        ("{name: x, match: {exe: x}}", "match.exe", "executable"),
        ("{name: x, match: {executable: y}, workload: 'n{size}'}", "workload", "(?P<size>"),
        ("{name: x, match: {arguments: '(?P<n>.)'}, workload: 'n{m}'}", "workload", "allowed: n"),
        ("{name: x, match: {executable: y}, workload: 'n{'}", "workload", "brace"),
        ("{name: x, match: {executable: y}, workload: 'a;b'}", "workload", "not a name"),
        ("{name: x, match: {executable: y}, ranks: any}", "ranks", "fixed"),
    ],
)
def test_mistakes_in_an_application(text: str, key: str, said: str) -> None:
    found = problem(f"{APPLICATION}{text}\n", f"applications[0].{key}")
    assert found.line == 3
    assert said in str(found)


def test_options_that_only_this_site_has() -> None:
    text = "version: 1\nunderstood_options:\n  project-code: harmless\n"
    text += "  SLURM_SITE: {binds: [threads]}\n  power: {binds: [frequency, node_type]}\n"
    compiled = good(text)
    assert compiled["understood_options"] == {
        "project-code": [],
        "SLURM_SITE": ["threads"],
        "power": ["frequency", "node_type"],
    }
    assert good(to_yaml("site", compiled)) == compiled


@pytest.mark.parametrize(
    ("says", "said"),
    [
        ("free", "'free' is not known"),
        ("[threads]", "harmless, or binds"),
        ("{binds: threads}", "harmless, or binds"),
        ("{binds: []}", "harmless, or binds"),
        ("{binds: [thread]}", "'thread' is not an axis"),
        ("{binds: [all]}", "'all' is not an axis"),
    ],
)
def test_mistakes_in_what_an_option_binds(says: str, said: str) -> None:
    _, [problem] = check(f"version: 1\nunderstood_options: {{x: {says}}}\n")
    assert problem.key.startswith("understood_options.x") and said in str(problem)


def test_mistakes_in_several_places_at_once() -> None:
    compiled, problems = check(
        "version: 1\n"
        "node_type: {}\n"
        "node_types:\n"
        "  a: {freq_khz: [1 GHz, x, 3]}\n"
        "  b: {freq_khz: {min: x}}\n"
        "default_node_types: [a]\n"
        "applications:\n"
        "  name: x\n"
    )
    assert compiled is None
    assert [(p.line, p.key) for p in problems] == [
        (2, "node_type"),
        (4, "node_types.a.freq_khz[1]"),
        (4, "node_types.a.freq_khz[2]"),
        (5, "node_types.b.freq_khz.min"),
        (5, "node_types.b.freq_khz.max"),
        (5, "node_types.b.freq_khz.step"),
        (6, "default_node_types"),
        (7, "applications"),
    ]
    assert "'node_types'" in problems[0].hint


def test_shadowed_applications_and_folders_are_warnings() -> None:
    compiled, problems = check(
        f"{APPLICATION}{{name: x, match: {{executable: 'x*'}}}}\n"
        "  - {name: y, match: {executable: [xa, xb], job_name: y}}\n"
        "  - {name: z, match: {executable: /opt/z, arguments: [a, b]}}\n"
        "  - {name: w, match: {executable: z, arguments: a}}\n"
        "  - {name: w, match: {executable: z, arguments: [b, a]}}\n"
    )
    assert compiled is not None
    assert [(p.key, p.warning) for p in problems] == [
        ("applications[1]", True),
        ("applications[2].match.executable", True),
        ("applications[4]", True),
    ]
    assert "'z'" in problems[1].hint


NODE_TYPE = st.fixed_dictionaries(
    {},
    optional={
        "cores": st.integers(1, 99),
        "memory_mb": st.integers(1, 10**6),
        "freq_khz": st.lists(st.integers(800_000, 4_000_000), max_size=5),
        "nodes": st.lists(st.from_regex(r"[ab][0-9]{1,3}", fullmatch=True), max_size=9),
    },
)


@given(st.dictionaries(st.sampled_from(["a", "b", "off", "1"]), NODE_TYPE))
@settings(max_examples=60, deadline=None)
def test_what_is_shown_can_be_applied_and_means_the_same(types: dict[str, Any]) -> None:
    import yaml

    given_types = {k: {f: v for f, v in t.items() if f != "nodes" or v} for k, t in types.items()}
    compiled, problems = check(yaml.safe_dump({"version": 1, "node_types": given_types}))
    assert compiled is not None, [str(p) for p in problems]
    again, problems = check(to_yaml("site", compiled))
    assert again is not None, [str(p) for p in problems]
    for found in (again, compiled):
        for one in found["node_types"].values():
            if "nodes" in one:
                one["nodes"] = sorted(one["nodes"])
    assert effective("site", again) == effective("site", compiled)


# -- node lists ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("bdw[1-4,7]", "bdw1 bdw2 bdw3 bdw4 bdw7"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("a,b[1-2],c", "a b1 b2 c"),
        ("r[1-2]n[1-2]", "r1n1 r1n2 r2n1 r2n2"),
        ("r[1-2]-x", "r1-x r2-x"),
        ("a, a ,b", "a b"),
        ("", ""),
    ],
)
def test_expand(text: str, names: str) -> None:
    assert expand(text) == tuple(names.split())


@pytest.mark.parametrize(
    "text", ["a[1", "a1]", "a[]", "a[1-]", "a[x]", "a[[1]]", "a,,b", "a b", ","]
)
def test_what_is_no_node_list(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        expand(text)


def test_fold() -> None:
    names = ["bdw7", "bdw1", "bdw2", "login", "n010", "n009", "r1n1", "r1n2", "r2n1", "r2n2"]
    assert fold(names) == "bdw[1-2,7],login,n[009-010],r[1-2]n[1-2]"
    assert fold([]) == ""
    assert fold(["n08", "n10", "n9"]) == "n[9,08,10]"


@given(st.lists(st.from_regex(r"[a-c]{0,2}[0-9]{0,4}[xy]?", fullmatch=True).filter(bool)))
@settings(max_examples=150, deadline=None)
def test_folding_loses_no_name(names: list[str]) -> None:
    assert set(expand(fold(names))) == set(names)


# -- merging -------------------------------------------------------------------------------------

BDW = NodeType(
    "bdw",
    feature="bdw",
    partitions=("work",),
    sockets=2,
    cores=28,
    memory_mb=128_000,
    nodes=("bdw1", "bdw2"),
)
SKL = NodeType("skl", feature="skl", partitions=("work",), cores=40, nodes=("skl1",))


def site(**node_types: dict[str, Any]) -> dict[str, Any]:
    return {"node_types": node_types}


def test_what_is_written_by_hand_wins() -> None:
    merged = merge_discovered(
        [BDW, SKL],
        site(bdw={"cores": 26, "freq_khz": [1_000_000, 2_000_000], "base_power_w": 90.0}),
        features={"bdw", "skl"},
    )
    assert merged.known == (
        replace(
            BDW,
            cores=26,
            freq_khz=(1_000_000, 2_000_000),
            default_freq_khz=2_000_000,
            base_power_w=90.0,
        ),
        SKL,
    )
    assert not merged.extra and not merged.notes


def test_but_never_so_that_the_scheduler_would_refuse_a_job() -> None:
    merged = merge_discovered(
        [BDW],
        site(
            bdw={
                "feature": "haswell",
                "cores": 64,
                "nodes": ["bdw1", "bdw9"],
                "partitions": ["work", "gone"],
            },
            new={"cores": 4, "feature": "nothing"},
            misspelt={"freq_khz": [1_000_000]},
        ),
        features={"bdw"},
    )
    assert merged.known == (replace(BDW, nodes=("bdw1",)),)
    assert merged.extra == (NodeType("new", cores=4),)
    told = "\n".join(merged.notes)
    for word in ("haswell", "64", "bdw9", "gone", "nothing", "misspelt"):
        assert word in told


def test_a_site_file_alone_is_the_whole_inventory() -> None:
    found, waiting = merge_applied([], {}, site(a={"cores": 4}, b={"freq_khz": []}), {})
    assert found == {SITE_SOURCE: [NodeType("a", cores=4)]}
    assert waiting == ["b"]
    old = [NodeType("gone", cores=2)]
    found, waiting = merge_applied(old, {"gone": "site"}, {}, site(gone={"cores": 2}))
    assert found == {SITE_SOURCE: []} and not waiting


def test_what_only_people_know_is_taken_over_at_once_the_rest_waits() -> None:
    sources = {"bdw": "slurm", "skl": "slurm", "mine": "site"}
    inventory = [
        replace(BDW, freq_khz=(1, 2), default_freq_khz=1, core_power_w=3.0),
        SKL,
        NodeType("mine", cores=2),
    ]
    former = site(bdw={"freq_khz": [1, 2], "default_freq_khz": 1, "core_power_w": 3.0})
    found, waiting = merge_applied(
        inventory,
        sources,
        site(bdw={"freq_khz": [5, 6], "feature": "x"}, new={"cores": 9}),
        former,
    )
    assert found["slurm"] == [replace(BDW, freq_khz=(5, 6), default_freq_khz=6), SKL]
    assert found[SITE_SOURCE] == []
    assert "bdw.feature" in waiting and "new" in waiting
    assert "bdw.freq_khz" not in waiting


def test_steps_no_longer_written_are_gone_until_the_next_discovery() -> None:
    inventory = [replace(BDW, freq_khz=(1, 2), default_freq_khz=2)]
    found, waiting = merge_applied(inventory, {"bdw": "slurm"}, {}, site(bdw={"freq_khz": [1, 2]}))
    assert found["slurm"] == [BDW]
    assert waiting == ["bdw.freq_khz"]


def test_a_default_partition_by_hand_wins() -> None:
    told = replace(BDW, partitions=("work", "big"), default_partition="work")
    chosen = {"default_partition": "big"}
    merged = merge_discovered([told, SKL], chosen)
    assert [t.default_partition for t in merged.known] == ["big", ""]
    merged = merge_discovered([told, SKL], {"default_partition": "nowhere"})
    assert merged.known == (told, SKL)
    found, waiting = merge_applied([told], {"bdw": "slurm"}, chosen, {})
    assert found["slurm"][0].default_partition == "big" and not waiting
    found, waiting = merge_applied(found["slurm"], {"bdw": "slurm"}, {}, chosen)
    assert found["slurm"][0].default_partition == "big" and waiting == ["default_partition"]


def test_what_is_missing_and_doubtful_is_told() -> None:
    lacks = missing([BDW, replace(SKL, feature="", freq_khz=(1,))], by_feature=True)
    assert [m.node_types for m in lacks] == [("bdw",), ("skl",)]
    compiled, problems = check("version: 1\nnode_types:\n  " + "\n  ".join(lacks[0].lines))
    assert compiled is not None, problems
    notes = doubts(
        {
            "default_partition": "nowhere",
            "default_node_types": {"work": "bdw", "gpu": "skl", "big": "huge"},
        },
        [BDW, SKL],
    )
    assert len(notes) == 3
    assert "nowhere" in notes[0] and "gpu" in notes[1] and "huge" in notes[2]


def test_an_inventory_survives_its_json_form() -> None:
    one = replace(BDW, partition_nodes=(("work", 1),), default_partition="work")
    assert NodeType.from_dict(one.to_dict()) == one
    assert one.nodes_in("work") == 1 and BDW.nodes_in("work") == 2 and BDW.nodes_in("x") == 0
    assert Inventory.of([SKL, one]).default_partition == "work"
    assert Inventory.of([SKL]).default_partition == ""
