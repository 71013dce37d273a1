"""The installed cli_filter at a step: which plan it takes, which step gets what, which nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.core.program import find
from advisor.core.protocol import OFF
from advisor.core.recognise import clean_name
from advisor.core.step_plan import ANY, PlanEntry, digest, key_of, read_plan, step_identity
from advisor.core.wrappers import FRONTS_AT_STEP, program_at_step
from tests.unit.hook_lua.installed import DECISION, STAMP, Installed, Job, answer
from tests.unit.hook_lua.modules import LUAS, run

pytestmark = pytest.mark.skipif(not LUAS, reason="lua5.1 is not installed")

CAP = "1200000-1500000"
STEPS = {"old": (1_200_000, 1_500_000, 1_900_000), "new": (1_500_000, 2_000_000)}
APP = key_of("app in.dat")
ENTRY = PlanEntry(APP, 2, 14, False, 7, 1_500_000)
NODES_1: dict[str, Any] = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NUM_NODES": "1",
    "SLURM_JOB_CPUS_PER_NODE": "28",
    "SLURM_JOB_PARTITION": "batch",
    "SLURM_JOB_UID": str(os.geteuid()),
}
NODES_2: dict[str, Any] = {
    **NODES_1,
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_JOB_CPUS_PER_NODE": "28(x2)",
}
OURS = ("ADVISOR", "SLURM_ADVISOR", "OMP_", "MKL_", "JULIA_", "SLURM_CPU")


def plan_text(
    *entries: PlanEntry, uid: int | None = None, nodes: int = 1, cpus: int = 28, form: str = "1"
) -> str:
    """Write a plan of this decision, of whatever entries."""
    words = [form, DECISION, os.geteuid() if uid is None else uid, nodes, cpus]
    text = " ".join(map(str, [*words, *(entry.text for entry in entries), ""]))
    return text + key_of(text)


def step(
    installed: Installed,
    *entries: PlanEntry,
    plan: str | None = None,
    options: dict[str, str] | None = None,
    argv: tuple[str, ...] = ("./app", "in.dat"),
    unset: tuple[str, ...] = (),
    words: tuple[str, ...] = (),
    **env: Any,
) -> Job:
    """Start a step of 2 ranks with 14 threads each in a whole node, if nothing else is said."""
    given = {"jobid": "7", "nodes": "1", "ntasks": "2", **(options or {})}
    given = {name: value for name, value in given.items() if value}
    all_env: dict[str, Any] = {
        **NODES_1,
        "OMP_NUM_THREADS": "14",
        "ADVISOR_STAMP": STAMP,
        "ADVISOR_PLAN": plan_text(*entries or (ENTRY,)) if plan is None else plan,
        **env,
    }
    all_env = {name: value for name, value in all_env.items() if name not in unset}
    return installed.filter(given, kind="srun", argv=argv, words=words, **all_env)


def ours(job: Job) -> dict[str, str]:
    """Return what the filter may have set, but what is the same in all of these."""
    names = ("ADVISOR_PLAN", "ADVISOR_STAMP", "SLURM_ADVISOR_STAMP", "SLURM_ADVISOR_PLAN")
    return {n: v for n, v in job.env.items() if n.startswith(OURS) and n not in names}


def assert_capped(job: Job, threads: str | None, cap: str | None = CAP) -> None:
    """Check what a step got, and that it is written down what that was."""
    set_ = [f"OMP_NUM_THREADS={threads}<14"] if threads else []
    set_ += [f"SLURM_CPU_FREQ_REQ={cap}"] if cap else []
    assert job.values.get("cpu-freq") == cap
    assert (ours(job).get("OMP_NUM_THREADS"), ours(job)["ADVISOR_SET"]) == (
        threads or "14",
        " ".join(set_),
    )
    assert (job.said, job.log, job.results, job.requests) == ("", [], ["0"], [])


def assert_as_written(job: Job, log: str = "", **variables: str) -> None:
    """Check that a step is as it was written, and what the log says of it."""
    assert "cpu-freq" not in job.values
    assert ours(job) == {"OMP_NUM_THREADS": "14", **variables}
    assert (job.said, job.results, job.requests) == ("", ["0"], [])
    assert [line.partition(": ")[2] for line in job.log] == (
        [f"a step runs as written: {log}"] if log else []
    )


@pytest.fixture
def installed(home: Path, path: Path) -> Installed:
    """The installed hooks, which know the node types' caps."""
    return Installed(home, path.parent, steps=STEPS)


# -- the plan ------------------------------------------------------------------------------------

READ = """\
local json, step = use("json"), use("step")
for line in io.lines() do
  local plan, problem = step.read(json.decode(line)[1])
  if plan then
    io.write(plan.decision, (" %d %d %d"):format(plan.uid, plan.nodes, plan.cpus))
    for _, e in ipairs(plan) do
      io.write((" %s,%d,%d,%s,%d,%d,%s,%s"):format(
        e.key, e.ranks, e.threads, tostring(e.unset), e.new, e.khz, e.variable, e.build or ""))
    end
  else
    assert(problem:find("^the plan is %l"), problem)
    io.write("none")
  end
  io.write("\\n")
end
"""


def shown(text: str) -> str:
    """Return what the one definition of a plan reads in a text, as READ writes it."""
    plan = read_plan(text)
    if plan is None:
        return "none"
    words = [plan.decision, plan.uid, plan.nodes, plan.cpus]
    for e in plan.entries:
        unset = str(e.unset).lower()
        fields = e.key, e.ranks, e.threads, unset, e.threads_new, e.cap_khz, e.variable, e.build
        words.append(",".join(map(str, fields)))
    return " ".join(map(str, words))


def read_in_lua(home: Path, texts: list[str]) -> list[str]:
    lines = "".join(json.dumps([text]) + "\n" for text in texts)
    return run(home, READ, lines.encode()).decode().splitlines()


counts = st.sampled_from([0, 1, 7, 9_999_999, 10_000_000])
entries = st.builds(
    PlanEntry,
    st.sampled_from([APP, APP[1:], APP.upper(), APP + "0"]),
    counts,
    counts,
    st.booleans(),
    st.sampled_from([0, 1, 6, 7, 9_999_998]),
    st.sampled_from([0, 999, 1000, 1_800_000, 99_999_999, 100_000_000]),
    st.sampled_from(["OMP_NUM_THREADS", "A", "", "a", "1A", "A b", "A" * 64, "A" * 65]),
    st.sampled_from(["", "0a1b2c3d", "0a1b2c3", "0A1b2c3d", "0a1b2c3d0"]),
)
texts = st.builds(
    lambda made, uid, nodes, cpus, form: plan_text(
        *made, uid=uid, nodes=nodes, cpus=cpus, form=form
    ),
    st.lists(entries, max_size=3),
    st.sampled_from([0, 1000, 4_294_967_294, 9_999_999_999, 10_000_000_000]),
    counts,
    counts,
    st.sampled_from(["1"] * 8 + ["2", "01", "1 1", " 1"]),
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(texts, min_size=30, max_size=60), st.randoms(use_true_random=False))
def test_a_plan_is_read_as_the_daemon_would_read_it(
    home: Path, made: list[str], random: Any
) -> None:
    for text in list(made):
        at, char = random.randrange(len(text)), random.choice("0 1a,-u\nZ\x7f\u00e9")
        forged = text[: random.randrange(len(text))] + char + text[at:]
        made += [text[:at], text[:at] + char + text[at + 1 :], forged[:-8] + key_of(forged[:-8])]
    assert read_in_lua(home, made) == [shown(text) for text in made]


BAD = """
    KEY,1,2,-,1,0, KEY,1,2,-,1,0,, KEY,1,2,-,1,0,OMP_NUM_THREADS KEY,1,2,-,1,0,A, x,A KEY,1,2,-,1,0x
    KEY,1,2,-,1,0,,0a1b2c3 KEY,1,2,-,1,0,,0a1b2c3dd KEY,1,2,-,1,0,,x0a1b2c3d KEY,1,2,-,1,0,,0A1B2C3D
    KEY,1,2,-,1,0,A,0a1b2c3d, KEY,1,2,-,1,0,A,0a1b2c3d,x KEY,1,2,-,1,0,x,A KEY,1,2,-,1,0x,A
    KEY,1,2,-,1,0,A,x,0a1b2c3d
    KEY,1,2,-,1,0,a KEY,1,2,-,1,0,1A KEY,1,2,-,1,0,_A KEY,1,2,-,1,0,A-B KEY,1,2,-,1,0,A,x
    xKEY,1,2,-,1,0 KEY0,1,2,-,1,0 KEY,1,2,,1,0 KEY,1,2,x,1,0 KEY,1,2,uu,1,0 KEY;1,2,-,1,0
    KEY,0,2,-,1,0 KEY,1,0,-,0,0 KEY,01,2,-,1,0 KEY,1,02,-,1,0 KEY,1,2,-,01,0 KEY,1,2,-,1,00
    KEY,1,2,-,1,01000 KEY,10000000,2,-,1,0 KEY,1,10000000,-,1,0 KEY,1,99999999,-,10000000,0
    KEY,1,2,-,1,100000000 KEY,1,2,-,1,1 KEY,1,2,-,1,999 KEY,1,2,-,2,0 KEY,1,2,-,3,0 KEY,1,2,-,2,1000
    KEY,,2,-,1,0 KEY,1,,-,1,0 KEY,1,2,-,,0 KEY,1,2,-,1, KEY,1,2,-,1 KEY KEY,-1,2,-,1,0
"""
BAD_WORDS = [word.replace("KEY", APP) for word in BAD.split()]
BAD_WORDS += [f" {APP},1,2,-,1,0", f"{APP},1,2,-,1,0 ", "", f"{APP},1,2,-,1,0,{'A' * 65}"]


def test_the_bounds_of_a_plan(home: Path) -> None:
    fine = [
        PlanEntry(APP, 9_999_999, 9_999_999, True, 9_999_998, 99_999_999),
        PlanEntry(APP, 1, 1, False, 0, 1000),
        PlanEntry(APP, 1, 2, False, 1, 0, "A" * 64),
        PlanEntry(APP, 1, 2, False, 0, 0, build="0a1b2c3d"),
        PlanEntry(APP, 1, 2, False, 0, 0, "A_1", "0a1b2c3d"),
    ]
    room = [PlanEntry(APP, 1, 10, False, 1, 1000)] * 82
    long = [PlanEntry(APP, 1, 10, False, 1, 1000, "A" * n) for n in range(1, 60)]
    plans = [plan_text(e) for e in fine]
    plans += [plan_text(*fine), plan_text(*fine, uid=0), plan_text(*fine, uid=9_999_999_999)]
    sizes = {len(text): text for e in long for text in [plan_text(*room, e, uid=1000)]}
    plans += [sizes[2000]]
    assert "none" not in read_in_lua(home, plans)
    none = []
    for word in BAD_WORDS:
        text = plan_text(fine[1]).replace(f" {fine[1].text} ", f" {word} ")[:-8]
        none.append(text + key_of(text))
    none += [sizes[2001], plan_text(), "", "1"]
    none += [plan_text(*fine, nodes=0), plan_text(*fine, cpus=0), plan_text(*fine, form="2")]
    none += [plan_text(*fine, uid=10_000_000_000), plan_text(*fine, nodes=10_000_000)]
    none += [plan_text(*fine, form="x1"), plan_text(*fine, form="1 1")]
    assert read_in_lua(home, none) == ["none"] * len(none)
    assert [shown(text) for text in (*plans, *none)] == read_in_lua(home, [*plans, *none])


KEYS = """\
local json, step = use("json"), use("step")
for line in io.lines() do
  local text, key, any = unpack(json.decode(line))
  local plan, problem = step.read(text, key, any)
  io.write(problem or "", ";")
  for _, e in ipairs(plan or {}) do io.write(e.key, ",", e.ranks, " ") end
  io.write("\\n")
end
"""


def test_a_plan_is_read_for_one_program(home: Path) -> None:
    other, any_, third = "00000001", "00000002", "00000003"
    entries = [
        PlanEntry(key, ranks, 14, False, 7)
        for ranks, key in enumerate((other, APP, any_, APP, third), 1)
    ]
    text = plan_text(*entries)
    broken = f"{APP},1,2,-,2,0"  # not fewer threads
    bad = plan_text(*entries).replace(entries[0].text, broken.replace(APP, other))[:-8]
    worse = plan_text(*entries).replace(entries[1].text, broken)[:-8]
    asked = {
        (text, APP, any_): f";{APP},2 {any_},3 {APP},4 ",
        (text, "0000000a", third): f";{third},5 ",
        (text, third, "0000000a"): f";{third},5 ",
        (text, "none", "none"): ";",
        (text, APP[1:], APP[:-1]): ";",
        (text[:-1] + "g", APP, any_): "the plan is malformed;",
        (text[:-8] + key_of("x"), APP, any_): "the plan is cut or changed;",
        (text[:-8] + key_of("x"), "none", "none"): ";",  # nothing of it is used
        (bad + key_of(bad), APP, any_): f";{APP},2 {any_},3 {APP},4 ",
        (bad + key_of(bad), other, any_): "the plan is malformed;",
        (worse + key_of(worse), APP, any_): "the plan is malformed;",
    }
    lines = "".join(json.dumps(words) + "\n" for words in asked)
    code = "unpack = unpack or table.unpack\n" + KEYS
    assert run(home, code, lines.encode()).decode().splitlines() == list(asked.values())


HASH = 'io.write(use("step").hash(io.read("*a")))'


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=300) | st.just(b"\xff" * 2000))
def test_the_hash_is_exact_in_every_lua(home: Path, data: bytes) -> None:
    assert run(home, HASH, data).decode() == f"{digest(data):08x}"


PROGRAM = """\
for line in io.lines() do
  local file, key, any = use("step").program_of(use("json").decode(line))
  io.write(file or "none", "\\t", key or "", "\\t", any or "", "\\n")
end
"""
words = st.text(st.sampled_from("ab1 /.-_+:=,@%*$;'~"), min_size=1, max_size=12)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(words | st.just("x" * 120), min_size=1, max_size=5), min_size=9))
def test_a_program_has_the_key_that_the_plan_has(home: Path, commands: list[list[str]]) -> None:
    expected = []
    for argv in commands:
        name = argv[0].rpartition("/")[2]
        identity = step_identity(name, clean_name(" ".join(argv[1:])))
        keys = key_of(identity), key_of(step_identity(name, ANY))
        expected.append([argv[0], *keys] if clean_name(name) else ["none", "", ""])
    lines = "".join(json.dumps(argv) + "\n" for argv in commands)
    said = run(home, PROGRAM, lines.encode()).decode().splitlines()
    assert [line.split("\t") for line in said] == expected


@pytest.mark.parametrize(
    ("argv", "file", "identity"),
    [
        (["python", "x.py"], "./x.py", "x.py"),
        (["/usr/bin/python3", "../a/x.py", "-n", "4"], "../a/x.py", "x.py -n 4"),
        (["python", "-u", "x.py", "-u"], "./x.py", "x.py -u"),
        (["python3", "-Bs", "-O", "a/x.py"], "a/x.py", "x.py"),
        (["python", "-m", "x.py"], "python", "python -m x.py"),
        (["python", "-u", "-W", "x.py"], "python", "python -u -W x.py"),
        (["python", "-ux", "x.py"], "python", "python -ux x.py"),
        (["python", "-"], "python", "python -"),
        (["python", "-u"], "python", "python -u"),
        (["python3"], "python3", "python3"),
        (["python3", "/x.py"], "/x.py", "x.py"),
        (["python3", "x-u"], "./x-u", "x-u"),
        (["app", "  x", "a$b;", "  "], "app", "app x a_b_"),
        (["python3.11", "x.py"], "./x.py", "x.py"),
        (["pythonx", "x.py"], "pythonx", "pythonx x.py"),
        (["python3x", "x.py"], "python3x", "python3x x.py"),
        (["cpython3", "x.py"], "cpython3", "cpython3 x.py"),
        (["singularity", "exec", "--nv", "-B", "/a:/b", "i.sif", "app", "x"], "app", "app x"),
        (["singularity", "exec", "i.sif", "python3", "-u", "a.py"], "./a.py", "a.py"),
        (["singularity", "exec", "i.sif", "python3", "-m", "a"], "python3", "python3 -m a"),
        (["singularity", "-q", "exec", "i.sif", "app"], "app", "app"),
        (["singularity", "-q", "-s", "exec", "i.sif", "app"], "app", "app"),
        (["singularity", "exec", "--bind=/a", "--nv=x", "-B/a", "i.sif", "app"], "app", "app"),
        *(
            (["singularity", *words, "i.sif", "app"], "singularity", "singularity " + shown)
            for words, shown in (
                (["run"], "run i.sif app"),
                (["-q"], "-q i.sif app"),
                (["exec", "-"], "exec - i.sif app"),
                (["exec", "--other"], "exec --other i.sif app"),
                (["exec", "--other=x"], "exec --other=x i.sif app"),
                (["exec", "-q--nv=x"], "exec -q--nv=x i.sif app"),
                (["exec", "--nv", "-"], "exec --nv - i.sif app"),
            )
        ),
        (["singularity", "exec", "i.sif"], "singularity", "singularity exec i.sif"),
        (["singularity", "exec", "i.sif", "-x"], "singularity", "singularity exec i.sif -x"),
        (["singularity", "exec", "i.sif", ""], "singularity", "singularity exec i.sif"),
        (["stdbuf", "-oL", "-e", "0", "--input=0", "./app", "-i"], "./app", "app -i"),
        (["stdbuf", "-xL", "./app"], "stdbuf", "stdbuf -xL ./app"),
        (["python", "-u -v", "x.py"], "python", "python -u -v x.py"),
        (["julia", "--project", "-t", "8", "a.jl"], "julia", "julia --project -t 8 a.jl"),
        (["cpython", "x.py"], "cpython", "cpython x.py"),
        (["bash", "x.sh"], "bash", "bash x.sh"),
        (["a/b", " ", "\x20"], "a/b", "b"),
        (["app", "x" * 300], "app", "app " + "x" * 200),
        (["app", "x" * 199 + " y"], "app", "app " + "x" * 199),
        (["a" * 201], "a" * 201, "a" * 200),
    ],
)
def test_which_file_a_step_runs(home: Path, argv: list[str], file: str, identity: str) -> None:
    said = run(home, PROGRAM, json.dumps(argv).encode() + b"\n").decode().rstrip("\n").split("\t")
    assert said[:2] == [file, key_of(identity)]


FRONT_WORDS = sorted(
    {w for name, f in FRONTS_AT_STEP.items() for w in (name, f.verb, *f.flags, *f.values) if w}
)
front_words = st.sampled_from(
    [*FRONT_WORDS, "python3.11", "./app", "a/x.py", "image", "--nv=x", "-oL", "-Bs", "-eB", "-u -v"]
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(front_words, min_size=1, max_size=7), min_size=30))
def test_the_program_is_the_one_that_the_plan_is_written_for(
    home: Path, commands: list[list[str]]
) -> None:
    lines = "".join(json.dumps(argv) + "\n" for argv in commands)
    said = run(home, PROGRAM, lines.encode()).decode().splitlines()
    for argv, line in zip(commands, said, strict=True):
        position = program_at_step(argv)
        name = argv[position].rpartition("/")[2]
        identity = step_identity(name, clean_name(" ".join(argv[position + 1 :])))
        assert line.split("\t")[1] == key_of(identity), argv


@pytest.mark.parametrize(
    "argv", [["caf\u00e9"], ["app", "\u00fc"], ["app", "a\tb"], ["a\x7f"], ["/"]]
)
def test_what_is_no_plain_name_is_in_no_plan(home: Path, argv: list[str]) -> None:
    assert run(home, PROGRAM, json.dumps(argv).encode() + b"\n").decode().split() == ["none"]


# -- the step ------------------------------------------------------------------------------------


def test_a_step_in_the_plan_gets_threads_and_cap(installed: Installed) -> None:
    job = step(installed)
    assert_capped(job, "7")
    assert ours(job) == {
        "OMP_NUM_THREADS": "7",
        "ADVISOR_SET": f"OMP_NUM_THREADS=7<14 SLURM_CPU_FREQ_REQ={CAP}",
        "ADVISOR_DECISION": DECISION,
    }
    given = {"type": "srun", "jobid": "7", "nodes": "1", "ntasks": "2", "cpu-freq": CAP}
    assert job.values == given


def test_the_precompiled_modules_do_the_same(home: Path, path: Path) -> None:
    precompiled = Installed(home, path.parent, steps=STEPS, precompiled=True)
    assert_capped(step(precompiled), "7")
    assert_as_written(step(precompiled, argv=("other",)))
    assert_as_written(step(precompiled, plan="x"), "the plan is malformed")


def test_an_entry_may_leave_threads_or_clock_or_both(installed: Installed) -> None:
    assert_capped(step(installed, PlanEntry(APP, 2, 14, False, 7)), "7", None)
    assert_capped(step(installed, PlanEntry(APP, 2, 14, False, 0, 1_500_000)), None)
    assert_as_written(step(installed, PlanEntry(APP, 2, 14, False), ENTRY))


def test_the_first_entry_that_matches_counts(installed: Installed) -> None:
    others = [
        PlanEntry(key_of("app"), 2, 14, False, 1),
        PlanEntry(APP, 4, 14, False, 2),
        PlanEntry(APP, 2, 13, False, 3),
        PlanEntry(APP, 2, 14, False, 4, build="00000000"),
    ]
    any_ = PlanEntry(key_of(f"app {ANY}"), 2, 14, False, 5, 1_500_000)
    assert_capped(step(installed, *others, ENTRY, any_), "7")
    assert_capped(step(installed, *others, any_, ENTRY), "5")
    assert_as_written(step(installed, *others))


@pytest.mark.parametrize("kind", ["file", "python"])
def test_another_build_is_another_program(installed: Installed, kind: str) -> None:
    (installed.folder / "app").write_text("#!/bin/sh\nexit 0\n")
    (installed.folder / "app").chmod(0o755)
    build = str(find("./app", installed.folder)["build"])
    argv = ("python3", "app", "in.dat") if kind == "python" else ("./app", "in.dat")
    mine = PlanEntry(APP, 2, 14, False, 7, 1_500_000, build=key_of(build))
    another = PlanEntry(APP, 2, 14, False, 5, build=key_of("0a1b2c3d"))
    assert_capped(step(installed, another, mine, argv=argv), "7")
    assert_as_written(step(installed, another, argv=argv))
    assert_as_written(step(installed, mine, argv=argv, options={"chdir": "/tmp"}))
    full = (*argv[:-2], str(installed.folder / "app"), "in.dat")
    assert_capped(step(installed, mine, argv=full, options={"chdir": "/tmp"}), "7")
    (installed.folder / "app").unlink()
    assert_as_written(step(installed, mine, argv=argv))


CONTAINER = ("apptainer", "exec", "--nv", "image.sif", "./app", "in.dat")


def test_a_program_in_a_container_is_the_one_of_its_name(installed: Installed) -> None:
    assert_capped(step(installed, argv=CONTAINER), "7")
    assert_as_written(step(installed, argv=(*CONTAINER[:2], "--cleanenv", *CONTAINER[3:])))
    # The file of that name out here is not the one inside.
    (installed.folder / "app").write_text("#!/bin/sh\nexit 0\n")
    (installed.folder / "app").chmod(0o755)
    build = key_of(str(find("./app", installed.folder)["build"]))
    measured = PlanEntry(APP, 2, 14, False, 7, 1_500_000, build=build)
    assert_capped(step(installed, measured), "7")
    assert_as_written(step(installed, measured, argv=CONTAINER))


@pytest.mark.parametrize(
    "variable",
    [
        "SINGULARITYENV_OMP_NUM_THREADS",
        "APPTAINERENV_MKL_NUM_THREADS",
        "APPTAINER_CLEANENV",
        "SINGULARITY_CONTAINALL",
        "APPTAINER_ENV_FILE",
        "SINGULARITY_CONTAIN",
        "SINGULARITY_ENV",
        "APPTAINER_COMPAT",
    ],
)
def test_a_container_with_other_variables_keeps_its_threads(
    installed: Installed, variable: str
) -> None:
    env: dict[str, Any] = {variable: "4"}
    assert_as_written(step(installed, argv=CONTAINER, **env))
    if not variable.endswith("_NUM_THREADS"):
        assert_capped(step(installed, **env), "7")
    only_cap = PlanEntry(APP, 2, 14, False, 0, 1_500_000)
    assert_capped(step(installed, only_cap, argv=CONTAINER, **env), None)


CAPPED: dict[str, dict[str, Any]] = {
    "the stamp of a job that exports not all": {
        "unset": ("ADVISOR_STAMP", "ADVISOR_PLAN"),
        "SLURM_ADVISOR_STAMP": STAMP,
        "SLURM_ADVISOR_PLAN": plan_text(ENTRY),
    },
    "no stamp, but a decision": {"unset": ("ADVISOR_STAMP",), "ADVISOR_DECISION": DECISION},
    "salloc": {"unset": ("SLURM_JOB_UID",)},
    "an old name": {"unset": ("SLURM_JOB_ID",), "SLURM_JOBID": "7"},
    "CPUs that take all": {"options": {"cpus-per-task": "14"}},
    "CPUs of the job that srun does not read": {"SLURM_CPUS_PER_TASK": "28"},
    "tasks of a node": {"options": {"ntasks": "", "ntasks-per-node": "2"}},
    "both": {"options": {"ntasks-per-node": "2"}},
    "names as older Slurms write them": {"options": {"ntasks": "", "ntasks_per_node": "2"}},
    "tasks by a variable": {"SLURM_NTASKS": "2", "SLURM_NPROCS": "2"},
    "harmless options": {
        "options": {"label": "set", "job-name": "a b", "kill-on-bad-exit": "1", "mpi": "pmix"}
    },
    "all exported": {"options": {"export": "ALL"}},
    "memory": {"options": {"mem-per-cpu": "50"}, "SLURM_MEM_PER_CPU": "50"},
    "in an array": {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_JOB_ID": "5"},
    "not off": {"ADVISOR": "on"},
    "one thread of another library": {"MKL_NUM_THREADS": "1", "JULIA_NUM_THREADS": ""},
    "places of no number": {"OMP_PLACES": "cores", "OMP_PROC_BIND": "close"},
    "a dynamic number": {"OMP_DYNAMIC": "false"},
}


@pytest.mark.parametrize("changes", CAPPED.values(), ids=CAPPED.keys())
def test_what_does_not_bind_a_step(installed: Installed, changes: dict[str, Any]) -> None:
    assert_capped(step(installed, **changes), "7")


AS_WRITTEN: dict[str, dict[str, Any]] = {
    "another program": {"argv": ("./other", "in.dat")},
    "other arguments": {"argv": ("./app", "other.dat")},
    "no arguments": {"argv": ("./app",)},
    "a wrapper": {"argv": ("numactl", "./app", "in.dat")},
    "more ranks": {"options": {"ntasks": "4"}},
    "fewer ranks": {"options": {"ntasks": "1"}},
    "one rank a node": {"options": {"ntasks": ""}},
    "a list of ranks": {"options": {"ntasks": "2x"}},
    "a range of nodes": {"options": {"nodes": "1-2"}},
    "no nodes": {"options": {"nodes": ""}},
    "a part of the CPUs": {"options": {"cpus-per-task": "7"}},
    "CPUs alone": {"options": {"ntasks": "", "cpus-per-task": "14"}},
    "CPUs and tasks of a node": {
        "options": {"ntasks": "", "ntasks-per-node": "2", "cpus-per-task": "14"}
    },
    "exact": {"options": {"exact": "set"}},
    "exclusive": {"options": {"exclusive": "exclusive"}},
    "overlapping": {"options": {"overlap": "set"}},
    "named nodes": {"options": {"nodelist": "a1"}},
    "relative": {"options": {"relative": "0"}},
    "without nodes": {"options": {"exclude": "a2"}},
    "a time limit": {"options": {"time": "5"}},
    "several programs": {"options": {"multi-prog": "set"}},
    "a part of a het job": {"options": {"het-group": "1"}},
    "a het job": {"SLURM_HET_SIZE": "2"},
    "several components": {"words": (":", "./b")},
    "a container": {"options": {"container": "x"}},
    "an option of tomorrow": {"options": {"no-such": "1"}},
    "a variable of tomorrow": {"SLURM_NO_SUCH": "1"},
    "tasks that srun did not read": {"options": {"ntasks": ""}, "SLURM_NTASKS": "2"},
    "binding": {"options": {"cpu-bind": "cores"}},
    "distribution": {"options": {"distribution": "block"}},
    "a hint": {"options": {"hint": "compute_bound"}},
    "exported by name": {"options": {"export": "ALL,OMP_NUM_THREADS=14"}},
    "exported none": {"options": {"export": "NONE"}},
    "the environment kept": {"options": {"preserve-env": "set"}},
    "another job": {"options": {"jobid": "8"}},
    "any job": {"options": {"jobid": ""}},
    "a plan on top": {"ADVISOR_SET": "GOMAXPROCS=4", "also": ("ADVISOR_SET",)},
    "a plan on top, in a job that exports not all": {
        "SLURM_ADVISOR_SET": "GOMAXPROCS=4",
        "also": ("SLURM_ADVISOR_SET",),
    },
    "places": {"OMP_PLACES": "{0:14}", "also": ("OMP_PLACES",)},
    "threads bound by GNU": {"GOMP_CPU_AFFINITY": "0-13"},
    "threads bound by Intel": {"KMP_AFFINITY": "compact,1,0"},
    "a subset": {"KMP_HW_SUBSET": "14c"},
    "threads bound to places": {"OMP_PROC_BIND": "1", "also": ("OMP_PROC_BIND",)},
    "ranks bound": {"I_MPI_PIN_DOMAIN": "14"},
    "a limit": {"OMP_THREAD_LIMIT": "14", "also": ("OMP_THREAD_LIMIT",)},
    "another library": {"MKL_NUM_THREADS": "14", "also": ("MKL_NUM_THREADS",)},
    "another language": {"JULIA_NUM_THREADS": "14", "also": ("JULIA_NUM_THREADS",)},
    "another count": {"GOMAXPROCS": "14"},
    "another partition": {"SLURM_JOB_PARTITION": "gone"},
    "no partition": {"unset": ("SLURM_JOB_PARTITION",)},
    **{f"off: {word}": {"ADVISOR": word, "also": ("ADVISOR",)} for word in (*OFF, "OFF")},
}


@pytest.mark.parametrize("changes", AS_WRITTEN.values(), ids=AS_WRITTEN.keys())
def test_what_binds_a_step(installed: Installed, changes: dict[str, Any]) -> None:
    changes = dict(changes)
    also = {name: changes[name] for name in changes.pop("also", ())}
    assert_as_written(step(installed, **changes), **also)


def test_the_reason_is_told_who_asks(installed: Installed) -> None:
    job = step(installed, ADVISOR_DEBUG="1", argv=("other",))
    text = "advisor: a step runs as written: its program is not in the plan\n"
    assert (job.said, job.log, ours(job)) == (
        text,
        [],
        {"OMP_NUM_THREADS": "14", "ADVISOR_DEBUG": "1"},
    )


OTHER_UID = str(os.geteuid() + 1)
FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "cut": ({"plan": plan_text(ENTRY)[:-1]}, "the plan is malformed"),
    "cut in the middle": ({"plan": plan_text(ENTRY, ENTRY)[:-30] + "x"}, "the plan is malformed"),
    "changed": ({"plan": plan_text(ENTRY).replace(",7,", ",6,")}, "the plan is cut or changed"),
    "empty": ({"plan": ""}, "the plan is malformed"),
    "long": ({"plan": plan_text(*[ENTRY] * 80)}, "the plan is too long"),
    "another user's": (
        {"plan": plan_text(ENTRY, uid=os.geteuid() + 1)},
        "the plan is another user's",
    ),
    "of another user's job": ({"SLURM_JOB_UID": OTHER_UID}, "the plan is another user's"),
    "of more nodes": ({"plan": plan_text(ENTRY, nodes=2)}, "the plan is of a job with other nodes"),
    "of other nodes": (
        {"plan": plan_text(ENTRY, cpus=40)},
        "the plan is of a job with other nodes",
    ),
    "of two kinds of nodes": (
        {"SLURM_JOB_CPUS_PER_NODE": "28,40"},
        "the plan is of a job with other nodes",
    ),
    "an old Slurm": (
        {"unset": ("SLURM_JOB_CPUS_PER_NODE",)},
        "the plan is of a job with other nodes",
    ),
    "an older Slurm": (
        {"unset": ("SLURM_JOB_NUM_NODES",)},
        "the plan is of a job with other nodes",
    ),
    "another decision's": (
        {"ADVISOR_STAMP": STAMP.replace("f", "e")},
        "the plan is of another decision",
    ),
    "nobody's": ({"unset": ("ADVISOR_STAMP",)}, "the plan is of another decision"),
    "forged": (
        {"ADVISOR_STAMP": f"x{STAMP}", "ADVISOR_DECISION": "0", "also": ("ADVISOR_DECISION",)},
        "the plan is of another decision",
    ),
}


@pytest.mark.parametrize(("changes", "log"), FAULTS.values(), ids=FAULTS.keys())
def test_a_plan_that_is_not_this_job_s(
    installed: Installed, changes: dict[str, Any], log: str
) -> None:
    changes = dict(changes)
    also = {name: changes[name] for name in changes.pop("also", ())}
    assert_as_written(step(installed, **changes), log, **also)


def test_a_plan_of_several_nodes(installed: Installed) -> None:
    entry = PlanEntry(APP, 4, 14, False, 7, 1_500_000)
    env: dict[str, Any] = {**NODES_2, "ADVISOR_PLAN": plan_text(entry, nodes=2)}
    options = {"nodes": "2", "ntasks": "4"}
    assert_capped(step(installed, options=options, **env), "7")
    per_node = {"nodes": "2", "ntasks": "", "ntasks-per-node": "2"}
    assert_capped(step(installed, options=per_node, **env), "7")
    assert_as_written(step(installed, options={**options, "nodes": "1"}, **env))
    one = PlanEntry(APP, 2, 14, False, 0, 1_500_000)
    env["ADVISOR_PLAN"] = plan_text(one, nodes=2)
    assert_capped(step(installed, options={"nodes": "2", "ntasks": ""}, **env), None)
    few = PlanEntry(APP, 1, 14, False, 0, 1_500_000)
    env["ADVISOR_PLAN"] = plan_text(few, nodes=2)  # srun then takes one node
    assert_as_written(step(installed, options={"nodes": "2", "ntasks": "1"}, **env))


def test_a_variable_that_is_unset(installed: Installed) -> None:
    entry = PlanEntry(APP, 2, 14, True, 7, 1_500_000)
    job = step(installed, entry, unset=("OMP_NUM_THREADS",))
    assert (ours(job)["OMP_NUM_THREADS"], job.values["cpu-freq"]) == ("7", CAP)
    assert ours(job)["ADVISOR_SET"] == f"OMP_NUM_THREADS=7 SLURM_CPU_FREQ_REQ={CAP}"
    assert_capped(step(installed, entry), "7")
    for entry in (ENTRY, PlanEntry(APP, 2, 7, True, 0, 1_500_000)):
        job = step(installed, entry, unset=("OMP_NUM_THREADS",))
        assert (ours(job), "cpu-freq" in job.values) == ({}, False)
    own_cores = {"cpus-per-task": "14"}  # which the plan did not know, nor any run perhaps
    fewer = PlanEntry(APP, 2, 14, True, 7, 1_500_000)
    job = step(installed, fewer, options=own_cores, unset=("OMP_NUM_THREADS",))
    assert (ours(job), "cpu-freq" in job.values) == ({}, False)
    capped = PlanEntry(APP, 2, 14, True, 0, 1_500_000)
    job = step(installed, capped, options=own_cores, unset=("OMP_NUM_THREADS",))
    assert job.values["cpu-freq"] == CAP
    of_job: dict[str, Any] = {"unset": ("OMP_NUM_THREADS",), "SLURM_CPUS_PER_TASK": "14"}
    job = step(installed, PlanEntry(APP, 2, 14, True, 7), options=own_cores, **of_job)
    assert ours(job)["OMP_NUM_THREADS"] == "7"
    job = step(installed, PlanEntry(APP, 2, 14, True, 7), OMP_NUM_THREADS="")
    assert ours(job) == {"OMP_NUM_THREADS": ""}


def test_a_number_that_is_the_user_s_own_stays(installed: Installed) -> None:
    own = PlanEntry(APP, 2, 7, False, 3, 1_500_000)
    assert_as_written(step(installed, own, OMP_NUM_THREADS="7"), OMP_NUM_THREADS="7")
    cap = PlanEntry(APP, 2, 7, False, 0, 1_500_000)
    assert step(installed, cap, OMP_NUM_THREADS="7").values["cpu-freq"] == CAP
    assert_as_written(step(installed, OMP_NUM_THREADS="14,2"), OMP_NUM_THREADS="14,2")


def test_threads_by_another_variable(installed: Installed) -> None:
    entry = PlanEntry(APP, 2, 14, False, 7, variable="JULIA_NUM_THREADS")
    env: dict[str, Any] = {"unset": ("OMP_NUM_THREADS",), "JULIA_NUM_THREADS": "14"}
    job = step(installed, entry, **env)
    assert (ours(job)["JULIA_NUM_THREADS"], "cpu-freq" in job.values) == ("7", False)
    for name in ("PATH_X", "LD_X", "NUM_THREADS"):
        env = {name: "14", "unset": ("OMP_NUM_THREADS",)}
        job = step(installed, PlanEntry(APP, 2, 14, False, 7, variable=name), **env)
        assert (job.env[name], ours(job)) == ("14", {})


def test_one_thread_is_a_number_of_threads(installed: Installed) -> None:
    assert_capped(step(installed, PlanEntry(APP, 2, 14, False, 1)), "1", None)


def test_what_is_no_number_is_not_counted(installed: Installed) -> None:
    one = PlanEntry(APP, 1, 14, False, 0, 1_500_000)
    assert_as_written(step(installed, one, options={"ntasks": "", "ntasks-per-node": "x"}))
    all_ = PlanEntry(APP, 28, 14, False, 0, 1_500_000)
    assert_as_written(step(installed, all_, options={"ntasks": "28", "cpus-per-task": "x"}))
    assert_capped(step(installed, all_, options={"ntasks": "28", "cpus-per-task": "1"}), None)


@pytest.mark.parametrize("option", ["exact", "exclusive", "overlap", "nodelist", "time"])
def test_a_cap_is_not_for_a_part_of_the_job(installed: Installed, option: str) -> None:
    cap = PlanEntry(APP, 2, 14, False, 0, 1_500_000)
    assert_as_written(step(installed, cap, options={option: "set"}))


def test_a_cap_leaves_what_binds_threads_alone(installed: Installed) -> None:
    cap = PlanEntry(APP, 2, 14, False, 0, 1_500_000)
    for options in ({"cpu-bind": "cores"}, {"distribution": "block:cyclic"}):
        assert_capped(step(installed, cap, options=options), None)
    assert_capped(step(installed, cap, OMP_PLACES="{0:14}", MKL_NUM_THREADS="14"), None)
    for binding in ("none", "quiet,NONE", "verbose,no"):
        job = step(installed, cap, options={"cpu-bind": binding})
        assert_as_written(job)


@pytest.mark.parametrize("khz", [1_200_001, 1_900_000, 1_000_000, 2_000_000, 1000])
def test_a_cap_that_its_nodes_do_not_have(installed: Installed, khz: int) -> None:
    assert_as_written(step(installed, PlanEntry(APP, 2, 14, False, 7, khz)))


@pytest.mark.parametrize("threads_only", [True, False])
def test_a_step_with_a_cap_of_the_user_s_is_none_of_the_plan_s(
    home: Path, path: Path, threads_only: bool
) -> None:
    entry = PlanEntry(APP, 2, 14, False, 7, 0 if threads_only else 1_500_000)
    site = {"SLURM-CPU-FREQ-REQ=1900000": ()}
    installed = Installed(home, path.parent, steps=STEPS, understood=site)
    own = "1200000-1500001"
    envs: list[dict[str, Any]] = [{}, {"SLURM_CPU_FREQ_REQ": own}]
    for env in envs:
        job = step(installed, entry, options={"cpu-freq": own}, **env)
        assert (job.values["cpu-freq"], ours(job)["OMP_NUM_THREADS"]) == (own, "14")
    cap_of_all = {"cpu-freq": "1900000"}
    job = step(installed, entry, options=cap_of_all, SLURM_CPU_FREQ_REQ="1900000")
    assert job.values["cpu-freq"] == ("1900000" if threads_only else CAP)
    before = "" if threads_only else f" SLURM_CPU_FREQ_REQ={CAP}<1900000"
    assert ours(job)["ADVISOR_SET"] == f"OMP_NUM_THREADS=7<14{before}"
    job = step(installed, entry, options={"cpu-freq": "1900000"})  # on its line, so its own
    assert ours(job) == {"OMP_NUM_THREADS": "14"}


def test_a_later_component_gets_nothing(installed: Installed) -> None:
    env: dict[str, Any] = {**NODES_1, "OMP_NUM_THREADS": "14", "ADVISOR_STAMP": STAMP}
    job = installed.filter(
        {"jobid": "7", "nodes": "1", "ntasks": "2"},
        kind="srun",
        argv=("./app", "in.dat"),
        offsets=[1],
        ADVISOR_PLAN=plan_text(ENTRY),
        **env,
    )
    assert_as_written(job)


def test_what_slurm_says_cannot_be_read(installed: Installed) -> None:
    env: dict[str, Any] = {**NODES_1, "OMP_NUM_THREADS": "14", "ADVISOR_STAMP": STAMP}
    for explicit in ("x", '{"jobid":{}}'):
        job = installed.filter(
            {},
            kind="srun",
            argv=("app", "in.dat"),
            explicit=explicit,
            ADVISOR_PLAN=plan_text(ENTRY),
            **env,
        )
        assert "cpu-freq" not in job.values and ours(job) == {"OMP_NUM_THREADS": "14"}
        assert len(job.log) == 1 and "advisor: a step runs as written: " in job.log[0]


def test_what_was_set_is_taken_back_where_slurm_does_not_take_the_rest(
    installed: Installed,
) -> None:
    given = {"jobid": "7", "nodes": "1", "ntasks": "2"}
    job = installed.filter(
        given,
        kind="srun",
        argv=("./app", "in.dat"),
        fails="cpu-freq",
        OMP_NUM_THREADS="14",
        ADVISOR_STAMP=STAMP,
        ADVISOR_PLAN=plan_text(ENTRY),
        **NODES_1,
    )
    assert_as_written(job, "Slurm does not take it")


# -- what a step was given goes no further ---------------------------------------------------------


@pytest.mark.parametrize("name", ["SLURM_STEP_ID", "SLURM_STEPID"])
@pytest.mark.parametrize("off", [{}, {"ADVISOR": "off"}])
def test_a_step_inside_a_step_is_as_it_is_without_us(
    installed: Installed, name: str, off: dict[str, str]
) -> None:
    inside: dict[str, Any] = {name: "0", "SLURM_CPU_FREQ_REQ": CAP, "OMP_NUM_THREADS": "7", **off}
    set_ = f"OMP_NUM_THREADS=7<14 SLURM_CPU_FREQ_REQ={CAP}"
    job = step(installed, options={"cpu-freq": CAP}, ADVISOR_SET=set_, **inside)
    assert job.values["cpu-freq"] == "4294967294"  # Slurm's word for none
    assert ours(job) == {"OMP_NUM_THREADS": "14", **off}
    job = step(installed, options={"cpu-freq": "1200000"}, ADVISOR_SET=set_, **inside)
    assert job.values["cpu-freq"] == "1200000"
    before = f"OMP_NUM_THREADS=7 SLURM_CPU_FREQ_REQ={CAP}<1900000"
    job = step(installed, options={"cpu-freq": CAP}, ADVISOR_SET=before, **inside)
    assert job.values["cpu-freq"] == "1900000"
    assert ours(job) == {"SLURM_CPU_FREQ_REQ": "1900000", **off}
    threads = "OMP_NUM_THREADS=7<14"  # the cap is then the user's
    job = step(installed, options={"cpu-freq": CAP}, ADVISOR_SET=threads, **inside)
    assert (job.values["cpu-freq"], ours(job)["OMP_NUM_THREADS"]) == (CAP, "14")
    outside: dict[str, Any] = {name: "0"}
    assert_as_written(step(installed, **outside))


@pytest.mark.parametrize("kind", ["sbatch", "salloc", "srun"])
@pytest.mark.parametrize("name", ["ADVISOR_PLAN", "SLURM_ADVISOR_PLAN"])
@pytest.mark.parametrize("off", [{}, {"ADVISOR": "off"}])
def test_a_plan_goes_with_no_other_job(
    installed: Installed, kind: str, name: str, off: dict[str, Any]
) -> None:
    installed.reply = lambda _: answer(stamp=None)
    job = installed.filter(kind=kind, **{**off, name: plan_text(ENTRY)})
    assert len(job.requests) == (not off)
    assert {n: v for n, v in job.env.items() if n.startswith(("ADV", "SLURM_ADV"))} == (
        off or {"ADVISOR_DECISION": DECISION}
    )


@pytest.mark.parametrize("kind", ["sbatch", "salloc"])
def test_the_daemon_s_plan_goes_with_the_job(installed: Installed, kind: str) -> None:
    text = plan_text(ENTRY)
    installed.reply = lambda _: answer(plan=text)
    for export, name in (("", "ADVISOR_"), ("ALL,A=1", "ADVISOR_"), ("NONE", "SLURM_ADVISOR_")):
        job = installed.filter({"export": export} if export else {}, kind=kind)
        assert job.env[f"{name}PLAN"] == text
        assert job.env[f"{name}STAMP"] == STAMP
        assert "ADVISOR_SET" not in job.env and job.values.get("export", "") == export
    installed.reply = lambda _: answer(plan=text.replace(DECISION, "f" * 16))
    job = installed.filter(kind=kind)
    assert "ADVISOR_PLAN" not in job.env
    assert "the plan for its steps is malformed" in job.log[0]


def test_without_modules_a_step_goes_on(installed: Installed) -> None:
    for file in (installed.folder / "advisor" / "id").iterdir():
        file.unlink()
    assert_as_written(step(installed))


def test_without_a_plan_nothing_is_loaded(installed: Installed) -> None:
    for file in (installed.folder / "advisor" / "id").iterdir():
        file.unlink()
    job = step(installed, unset=("ADVISOR_PLAN",), ADVISOR_DEBUG="1")
    assert (job.said, job.results) == ("", ["0"])
