"""What the hooks know of the cluster and of options is what the daemon knows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from advisor.schedulers.slurm import table as slurm_table
from advisor.schedulers.slurm.hook_files import SlurmHookSettings, module_files, steps_text
from tests.unit.hook_lua.modules import LUAS, run

pytestmark = pytest.mark.skipif(not LUAS, reason="lua5.1 is not installed")


LIMITS = """\
local json = use("json")
local plan = json.decode(io.read("*a"))
print(use("limits").refused({ options = plan[1] }, plan[2], use("inventory")))
"""


def refused(home: Path, plan: dict[str, str], **wanted: str) -> str:
    given_ = {k.replace("_", "-"): v for k, v in wanted.items()}
    return run(home, LIMITS, json.dumps([plan or {"": ""}, given_]).encode()).decode().strip()


@pytest.mark.parametrize(
    ("plan", "wanted"),
    [
        ({}, {"nodes": "6"}),
        ({"constraint": "new", "cpus-per-task": "80"}, {"nodes": "2-4"}),
        ({"cpus-per-task": "14"}, {"partition": "debug", "ntasks_per_node": "2"}),
        ({"cpus-per-task": "28"}, {"mem_per_cpu": "100"}),
        ({"constraint": "big"}, {"mem": "3.5G", "partition": "batch,debug"}),
        ({"cpu-freq": "1-2"}, {"constraint": "old&big|(new)"}),
        ({"cpus-per-task": "80"}, {"constraint": "old&big"}),  # Slurm's to judge
        ({"constraint": "old"}, {"mem": "4000"}),
        ({"constraint": "old"}, {"mem": "4096000K"}),
        ({"constraint": "new"}, {"mem": "0.007T"}),
        ({"constraint": "old"}, {"ntasks": "56", "nodes": "2"}),
        ({"constraint": "old"}, {"ntasks": "2", "cpus_per_task": "28"}),  # on two nodes
        ({"constraint": "old"}, {"ntasks": "4", "cpus_per_task": "14"}),
        ({"constraint": "old"}, {"ntasks": "4", "cpus_per_task": "14", "ntasks_per_node": "2"}),
        # where they fit does not change: Slurm's to judge
        ({"cpu-freq": "1-2"}, {"nodes": "7"}),
        ({"cpu-freq": "1-2"}, {"partition": "batch,debug", "constraint": "new"}),
    ],
)
def test_what_the_cluster_has(home: Path, plan: dict[str, str], wanted: dict[str, str]) -> None:
    assert refused(home, plan, **wanted) == ""


@pytest.mark.parametrize(
    ("plan", "wanted", "why"),
    [
        ({"nodes": "7"}, {}, "partition batch has no 7 nodes with 1 cores, 0 MB"),
        ({"constraint": "none"}, {}, "and feature none"),
        ({"constraint": "new"}, {"partition": "debug"}, "partition debug has no 1 nodes"),
        ({"constraint": "new"}, {"partition": "batch,debug"}, "partition debug has no"),
        ({"nodes": "3"}, {"partition": "debug"}, "partition debug has no 3 nodes"),
        ({"constraint": "old"}, {"partition": "gone"}, "partition gone is not in the inventory"),
        ({"cpus-per-task": "81"}, {}, "81 cores"),
        ({"cpus-per-task": "29"}, {"constraint": "old"}, "29 cores"),
        ({"cpus-per-task": "20"}, {"ntasks_per_node": "5"}, "100 cores"),
        ({"constraint": "old"}, {"ntasks": "57", "nodes": "2"}, "29 cores"),
        ({"constraint": "old"}, {"ntasks": "200"}, "no 200 places with 1 cores"),
        ({"constraint": "old"}, {"ntasks": "9", "cpus_per_task": "28"}, "no 9 places with 28"),
        ({"cpus-per-task": "28"}, {"mem_per_cpu": "1G"}, "28672 MB"),
        ({"constraint": "old"}, {"mem": "5000"}, "5000 MB and feature old"),
        ({"constraint": "old"}, {"mem": "4097000K"}, "4000 MB and feature old"),
        ({"constraint": "new"}, {"mem": "0.008T"}, "8388 MB and feature new"),
        ({"cpus-per-task": "29"}, {"constraint": "old", "ntasks_per_node": "0"}, "29 cores"),
        ({"constraint": "old"}, {"nodes": "5", "ntasks_per_node": "2"}, "no 5 nodes with 2"),
        ({"constraint": "old"}, {"ntasks": "5", "cpus_per_task": "15"}, "no 5 places with 15"),
    ],
)
def test_what_the_cluster_does_not_have(
    home: Path, plan: dict[str, str], wanted: dict[str, str], why: str
) -> None:
    assert why in refused(home, plan, **wanted)


BEYOND = """\
local json = use("json")
local case = json.decode(io.read("*a"))
local plan = { options = case.options, env = case.env }
print(use("limits").beyond(plan, case.wanted, case.variables, use("inventory"), case.steps))
"""
STEPS = {"old": " 1200000 1900000 ", "new": " 1500000 2000000 "}


def beyond(home: Path, plan: dict[str, str], env: dict[str, str], **other: Any) -> str:
    case = {"options": plan, "env": env, "wanted": {}, "variables": {}, "steps": STEPS, **other}
    return run(home, BEYOND, json.dumps(case).encode()).decode().strip()


@pytest.mark.parametrize(
    ("plan", "env", "wanted", "variables"),
    [
        ({}, {"OMP_NUM_THREADS": "7"}, {"cpus-per-task": "7"}, {}),
        ({}, {"OMP_NUM_THREADS": "7"}, {"cpus-per-task": "28"}, {"OMP_NUM_THREADS": "7"}),
        ({}, {"OMP_NUM_THREADS": "80"}, {}, {}),
        ({"constraint": "old"}, {"OMP_NUM_THREADS": "28"}, {}, {}),
        ({}, {"OMP_NUM_THREADS": "28"}, {"partition": "debug"}, {}),
        ({}, {"OMP_NUM_THREADS": "40"}, {"ntasks-per-node": "2"}, {}),
        ({"constraint": "old"}, {"OMP_NUM_THREADS": "7"}, {"ntasks": "4"}, {}),
        ({"constraint": "old"}, {"OMP_NUM_THREADS": "14"}, {"ntasks": "4", "nodes": "2"}, {}),
        ({}, {"OMP_NUM_THREADS": "7"}, {"constraint": "old&big"}, {}),
        ({"cpus-per-task": "10"}, {"OMP_NUM_THREADS": "10"}, {"cpus-per-task": "14"}, {}),
        ({"cpu-freq": "1200000-1900000"}, {}, {"constraint": "old"}, {}),
        ({"cpu-freq": "1200000-1900000"}, {}, {}, {}),  # it may get one of either
        ({"cpu-freq": "1200000-1200000"}, {}, {}, {}),
        ({"cpus-per-task": "14"}, {}, {"cpus-per-task": "14"}, {}),
        ({}, {"OMP_NUM_THREADS": "1"}, {"constraint": "none"}, {}),
        ({"cpu-freq": "1200000-2000000", "constraint": "new"}, {}, {}, {}),
    ],
)
def test_what_is_no_more_than_the_job_has(
    home: Path,
    plan: dict[str, str],
    env: dict[str, str],
    wanted: dict[str, str],
    variables: dict[str, str],
) -> None:
    assert beyond(home, plan, env, wanted=wanted, variables=variables) == ""


@pytest.mark.parametrize(
    ("plan", "env", "wanted", "variables", "why"),
    [
        ({}, {"OMP_NUM_THREADS": "8"}, {"cpus-per-task": "7"}, {}, "than the job has: 7"),
        ({}, {"OMP_NUM_THREADS": "99999"}, {}, {}, "OMP_NUM_THREADS=99999 are more threads"),
        ({"constraint": "old"}, {"OMP_NUM_THREADS": "29"}, {}, {}, "than the job has: 28"),
        ({}, {"OMP_NUM_THREADS": "29"}, {"constraint": "old"}, {}, "than the job has: 28"),
        ({}, {"OMP_NUM_THREADS": "29"}, {"partition": "debug"}, {}, "than the job has: 28"),
        ({}, {"OMP_NUM_THREADS": "41"}, {"ntasks-per-node": "2"}, {}, "than the job has: 40"),
        ({"constraint": "old"}, {"OMP_NUM_THREADS": "8"}, {"ntasks": "4"}, {}, "has: 7"),
        (
            {"constraint": "old"},
            {"OMP_NUM_THREADS": "15"},
            {"ntasks": "4", "nodes": "2"},
            {},
            "has: 14",
        ),
        (
            {"constraint": "old"},
            {"OMP_NUM_THREADS": "15"},
            {"ntasks": "3", "nodes": "2"},
            {},
            "has: 14",
        ),
        ({"constraint": "old"}, {"OMP_NUM_THREADS": "10"}, {"ntasks": "3"}, {}, "has: 9"),
        ({}, {"OMP_NUM_THREADS": "2"}, {"constraint": "none"}, {}, "has: 1"),
        ({}, {"MKL_NUM_THREADS": "8"}, {}, {"MKL_NUM_THREADS": "7"}, "than the job has: 7"),
        ({"cpus-per-task": "15"}, {}, {"cpus-per-task": "14"}, {}, "15 cores a task are more"),
        ({"cpus-per-task": "1"}, {}, {}, {}, "1 cores a task are more"),
        ({"cpu-freq": "1200000-1900001"}, {}, {}, {}, "1900001 kHz is no frequency step"),
        ({"cpu-freq": "1200000-2000000"}, {}, {"constraint": "old"}, {}, "2000000 kHz is no"),
        ({"cpu-freq": "1500000-2000000", "constraint": "old"}, {}, {}, {}, "2000000 kHz is no"),
    ],
)
def test_what_is_more_than_the_job_has(
    home: Path,
    plan: dict[str, str],
    env: dict[str, str],
    wanted: dict[str, str],
    variables: dict[str, str],
    why: str,
) -> None:
    assert why in beyond(home, plan, env, wanted=wanted, variables=variables)


def test_frequency_steps_by_what_the_store_knew_at_install(home: Path) -> None:
    plan = {"cpu-freq": "1200000-1900001"}
    assert beyond(home, plan, {}, steps={}) == ""
    assert beyond(home, plan, {}, steps={"": " 1900001 "}) == ""
    assert "no frequency step" in beyond(home, plan, {}, steps={"": " 1900000 "})
    assert beyond(home, plan, {}, steps={"old": STEPS["old"], "": " 1900001 "}) == ""
    assert "no frequency step" in beyond(home, plan, {}, steps={**STEPS, "": " 1900001 "})
    text = steps_text({"new": (1_500_000, 2_000_000), "": ()})
    assert '["new"] = " 1500000 2000000 "' in text and '[""] = "  "' in text


LOWEST = """\
local low = use("limits").lowest_step
local case = use("json").decode(io.read("*a"))
print((low(case[1], case[2], case[3], use("inventory"), case[4])))
"""


@pytest.mark.parametrize(
    ("cap_khz", "partition", "cpus", "lowest"),
    [
        (1_200_000, "batch", 28, "1200000"),
        (1_500_000, "batch", 80, "1500000"),
        (1_900_000, "batch", 28, "nil"),  # no cap, but all there is
        (1_500_000, "batch", 28, "nil"),
        (1_200_000, "batch", 80, "nil"),
        (1_200_000, "batch", 27, "nil"),
        (1_500_000, "debug", 80, "nil"),
        (200_000, "batch", 28, "nil"),
        (120_000, "batch", 28, "nil"),
        (1_200_000, "gone", 28, "nil"),
        (1_200_000, "", 28, "nil"),
    ],
)
def test_a_cap_of_a_step_is_a_frequency_step_of_its_nodes(
    home: Path, cap_khz: int, partition: str, cpus: int, lowest: str
) -> None:
    case = [cap_khz, partition, cpus, STEPS]
    assert run(home, LOWEST, json.dumps(case).encode()).decode().strip() == lowest
    assert run(home, LOWEST, json.dumps([*case[:3], {}]).encode()).decode().strip() == "nil"


def test_nothing_is_known_of_the_cluster(home: Path, tmp_path: Path) -> None:
    for name, data in module_files(SlurmHookSettings(Path("/nowhere")), None, {}).items():
        (tmp_path / name).write_bytes(data)
    assert "there is no inventory" in refused(tmp_path, {"constraint": "old"})


UNDERSTOOD = """\
local json = use("json")
local plans = json.decode(io.read("*l"))
for line in io.lines() do
  local case = json.decode(line)
  for _, plan in ipairs(plans) do
    print(use("understood").refused(plan, case.options, case.variables, case.program))
  end
end
"""


def asked(plans: Sequence[Mapping[str, object]], *cases: str) -> bytes:
    """Return what UNDERSTOOD reads: the plans, then each case, which is JSON, in a line."""
    return "".join(f"{line}\n" for line in (json.dumps(plans), *cases)).encode()


VALUES_SET = [
    "1",
    "",
    "0",
    "no",
    "yes",
    "unset",
    "ALL",
    "ALL,OMP_NUM_THREADS=4",
    "map_cpu:1,2",
    "cores",
    "quiet,mask_cpu:0x1",
    "block:cyclic",
    "plane=4",
    "1200000-1900000",
    "1-2:Performance",
    "high",
    "1-4",
    "2-2",
    "1,3,5",
    "1-9:2",
    "4-",
    "2k",
    "2-2k",
    "x2-2",
    "(null)",
    "+1",
    "-1",
    "00",
    "10",
    "1x",
    "x1",
    "YES",
    "all",
    "Mask_cpu:1",
    "a@b",
]


CHANGED = {"constraint": "node_type", "cpu-freq": "frequency", "cpus-per-task": "cores"}


PLANS: list[dict[str, dict[str, str]]] = [
    *({"options": {name: "1"}, "env": {}} for name in CHANGED),
    {"options": {}, "env": {"OMP_NUM_THREADS": "4"}},
]
AXES = [*CHANGED.values(), "threads"]
"""What each of the plans changes."""


@cache
def judged(program: str) -> tuple[bytes, dict[tuple[str, str], bool]]:
    """Return the cases of a program as Lua reads them, and whether each binds a plan for each axis.

    Once for every Lua.
    """
    options = [*slurm_table.OPTIONS, "no-such", "spank:x", "cpu_freq"]
    more = "SLURM_NEW SBATCH_NEW SRUN_NEW SLURM_JOB_ID OMP_PLACES SLURM_ SLURM ADVISOR aSLURM_X"
    groups = ("HET_GROUP_0", "HET_GROUP_0X", "PACK_GROUP_1", "PACK_GROUP_1X", "PACK_GROUP_")
    variables = [*slurm_table.VARIABLES, *more.split(), *(f"SLURM_NEW_{g}" for g in groups)]
    cases: list[tuple[dict[str, str], dict[str, str]]] = [
        *(({option: value}, {}) for option in options for value in VALUES_SET),
        *(({}, {variable: value}) for variable in variables for value in VALUES_SET),
        *(({slurm_table.SETS.get(v, "mem"): "1"}, {v: "2"}) for v in variables),
    ]
    lines, binds = [], {}
    for given, set_ in cases:
        lines.append(json.dumps({"program": program, "options": given, "variables": set_}))
        found = slurm_table.judge(given, set_, program)
        for axis in AXES:
            cap_of_job = axis == "frequency" and program != slurm_table.STEP
            whatever = {"all"} if cap_of_job else {"all", "shape"}
            bound = {axis, *whatever} & found.binds.keys() or found.not_understood
            binds[lines[-1], axis] = bool(bound)
    assert len(binds) == len(cases) * len(AXES)
    return asked(PLANS, *lines), binds


@pytest.mark.parametrize("program", slurm_table.READS)
def test_the_hooks_judge_everything_as_the_daemon_does(home: Path, program: str) -> None:
    lines, binds = judged(program)
    said = [text != "nil" for text in run(home, UNDERSTOOD, lines).decode().splitlines()]
    assert dict(zip(binds, said, strict=True)) == binds


@pytest.mark.parametrize(
    ("plan", "options", "said"),
    [
        # what a plan changes beyond the three axes is bound by whatever binds one
        ({"nodes": "2"}, {"nodelist": "a"}, "--nodelist binds it"),
        ({"nodes": "2"}, {"comment": "x"}, "nil"),
        ({"cpu-freq": "1-2"}, {f"no-{c}": "1" for c in "hgfedcba"}, "--no-a is not understood"),
    ],
)
def test_the_first_that_binds_a_plan_is_told(
    home: Path, plan: dict[str, str], options: dict[str, str], said: str
) -> None:
    plans = [{"options": plan, "env": {}}]
    case = {"options": options, "variables": {}, "program": "sbatch"}
    assert run(home, UNDERSTOOD, asked(plans, json.dumps(case))).decode().strip() == said


def test_the_hooks_know_what_the_site_says_of_its_own_options(home: Path, tmp_path: Path) -> None:
    site = {
        "project-code": (),
        "SLURM-SITE": ("threads",),
        "power-mode": ("frequency", "node_type"),
        "SLURM-CPU-FREQ-REQ=2000000": (),
    }
    settings_ = SlurmHookSettings(Path("/nowhere"), understood=site)
    for name, data in module_files(settings_, None, {}).items():
        (tmp_path / name).write_bytes(data)
    for options, variables, bound in [
        ({"project_code": "1"}, {}, set()),
        ({"spank:x:project-code": "1"}, {}, set()),
        ({"spank:power_mode": "1"}, {}, {"node_type", "frequency"}),
        ({}, {"SLURM_SITE": "1"}, {"threads"}),
        ({"other": "1"}, {}, {"node_type", "frequency", "cores", "threads"}),
        ({}, {"SLURM_CPU_FREQ_REQ": "2000000"}, set()),  # of everybody
        ({}, {"SLURM_CPU_FREQ_REQ": "1200000-2000000"}, set()),
        ({}, {"SLURM_CPU_FREQ_REQ": "12000000"}, {"frequency"}),
        ({}, {"SLURM_CPU_FREQ_REQ": "2000000-1800000"}, {"frequency"}),
        ({}, {"SLURM_CPU_FREQ_REQ": "2000000x"}, {"frequency"}),
    ]:
        case = {"program": "sbatch", "options": options, "variables": variables}
        said = run(tmp_path, UNDERSTOOD, asked(PLANS, json.dumps(case))).decode().splitlines()
        assert {a for a, text in zip(AXES, said, strict=True) if text != "nil"} == bound


def test_a_site_may_say_it_of_a_variable_whatever_its_value(tmp_path: Path) -> None:
    settings = SlurmHookSettings(Path("/nowhere"), understood={"SLURM-CPU-FREQ-REQ": ()})
    for name, data in module_files(settings, None, {}).items():
        (tmp_path / name).write_bytes(data)
    plan = next(plan for plan in PLANS if "cpu-freq" in plan["options"])
    case = {"program": "sbatch", "options": {}, "variables": {"SLURM_CPU_FREQ_REQ": "1900000"}}
    assert run(tmp_path, UNDERSTOOD, asked([plan], json.dumps(case))).decode().split() == ["nil"]
