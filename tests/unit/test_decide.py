"""Decisions over a real store: what is rewritten, what is left alone, and why."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from advisor.core.availability import Availability
from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.inventory import NodeType
from advisor.core.option import Option
from advisor.core.stamp import make_stamp, read_stamp
from advisor.schedulers.slurm.translator import parse_request, read_arguments, read_directives
from advisor.service.decide import decide
from advisor.service.snapshot import Snapshot, StoreSource
from advisor.store.writer import Writer
from tests.again import same_again

FREQS = tuple(range(1_200_000, 2_300_000, 100_000))
BDW = NodeType(
    "bdw", feature="broadwell", partitions=("batch", "mixed"), sockets=2, cores=28,
    memory_mb=64_000, freq_khz=FREQS, default_freq_khz=2_200_000,
    nodes=("bdw1", "bdw2", "bdw3", "bdw4"), default_partition="batch",
)  # fmt: skip
SKL = NodeType(
    "skl", feature="skylake", partitions=("mixed",), sockets=2, cores=40, memory_mb=96_000,
    nodes=("skl1", "skl2"), weight=10,
)  # fmt: skip
SCRIPT = "#!/bin/bash\nsrun ./stencil\n"


def response(node_type: str, nodes: int, ranks: int, threads: int, freq: int) -> Option:
    """A memory-bound application: threads saturate at 20, frequency hardly matters."""
    time_s = 100 * (20 / min(threads, 20)) * (2.2e6 / freq) ** 0.2 / nodes
    energy = nodes * time_s * (90 + threads * (1.5 + 3 * (freq / 2.2e6) ** 3))
    if node_type == "skl":
        time_s, energy = time_s * 0.9, energy * 0.6
    c = Configuration(node_type, nodes, ranks, threads, freq)
    return Option(
        c, time_s, time_s * 0.995, time_s * 1.005, energy, energy * 0.995, energy * 1.005,
        measured=True, confirmed=True, in_zone=True,
    )  # fmt: skip


@pytest.fixture
def store(store_path: Path) -> Iterator[Writer]:
    with Writer(store_path) as writer:
        writer.save_node_types([BDW, SKL], source="test")
        policy(writer)
        model(writer, "bdw", [response("bdw", n, 1, t, f)
                              for n in (1, 2) for t in range(4, 29, 4) for f in FREQS])  # fmt: skip
        yield writer


def policy(writer: Writer, **settings: Any) -> None:
    rules = settings.pop("rules", [])
    base = {"mode": "apply", "goal": "min_energy", "holdout": 0.0, **settings}
    writer.apply_config(
        "policy", path="p.yaml", text=repr(settings), compiled={"base": base, "rules": rules},
        by="test",
    )  # fmt: skip


def model(
    writer: Writer, node_type: str, options: list[Option], application: str = "stencil",
    workload: str = "default", **key: Any,
) -> int:  # fmt: skip
    settings = {"scope": "all", "owner": "", "energy_quality": "measured", "stats": {}, **key}
    return writer.save_model(
        application, workload, node_type, name="bspline", n_train=12, options=options,
        **settings,
    ).id  # fmt: skip


def snapshot(writer: Writer) -> Snapshot:
    source = StoreSource(Path(writer.path))
    source.refresh()
    source.close()
    return source.snapshot


def ask(
    writer: Writer,
    arguments: str = "-N1 --exclusive",
    script: str | None = SCRIPT,
    *,
    chance: Callable[[], float] = lambda: 1.0,
    choices: dict[str, Any] | None = None,
    user: str = "ada",
    **payload: Any,
) -> Decision:
    options = (read_directives(script) if script else {}) | read_arguments(arguments.split())
    request = parse_request(
        {"type": "sbatch", "options": options, "script": script, "script_path": "/home/job.sh",
         "argv": ["/home/job.sh"], **payload},
        user=user, uid=1000, choices=choices or {},
    )  # fmt: skip
    site = snapshot(writer)
    decision = decide(request, site, chance=chance)
    same_again(decision, site, chance)
    return decision


def codes(decision: Decision) -> set[str]:
    return {r.code for r in decision.reasons}


def test_a_known_application_is_rewritten(store: Writer) -> None:
    decision = ask(store)
    assert set(decision.rewrite) == {"cpu-freq"}
    low, high = decision.rewrite["cpu-freq"].split("-")
    assert int(low) == 1_200_000
    assert int(high) in FREQS
    assert decision.environment == {"OMP_NUM_THREADS": "20"}
    assert decision.baseline == Configuration("bdw", 1, 1, 28, 2_200_000)
    assert "stencil" in decision.message and "ADVISOR=off" in decision.message
    assert decision.chosen is not None
    assert decision.chosen.energy.change < -0.1
    assert decision.chosen.time.hi <= 0.06


@pytest.mark.parametrize(
    ("arguments", "script", "env", "code"),
    [
        ("-N1 --exclusive -c 28", SCRIPT, {}, "user-set"),
        ("-N1 -c 28", SCRIPT, {}, "user-set"),  # takes all cores of its node
        ("-N1 --exclusive", "export OMP_NUM_THREADS=28\nsrun ./stencil", {}, "threads-own"),
        ("-N1 --exclusive -c 28", "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\nsrun ./stencil",
         {"ADVISOR_MODE": "apply"}, "user-set"),
        ("-N1 --exclusive", "srun -c 28 ./stencil", {}, "threads-own"),
        ("-N1 --exclusive", "echo $OMP_NUM_THREADS\nsrun ./stencil", {}, "threads-own"),
        ("-N1 --exclusive", "echo $(nproc)\nsrun ./stencil", {}, "threads-own"),
        ("-N1 --exclusive", "export OMP_PLACES={0:28}\nsrun ./stencil", {}, "threads-own"),
        ("-N1 --exclusive", "srun --cpu-bind=map_cpu:0,1,2 ./stencil", {}, "threads-own"),
        ("-N1 --exclusive", "srun numactl -C 0-27 ./stencil", {}, "threads-own"),
        ("-N1 --exclusive", SCRIPT, {"OMP_NUM_THREADS": "28"}, "threads-own"),
        ("-N1 --exclusive", SCRIPT, {"GOMP_CPU_AFFINITY": "0-27"}, "threads-own"),
        ("-N1 --exclusive --export=NONE", SCRIPT, {}, "threads-own"),
    ],
)  # fmt: skip
def test_what_the_user_fixed_is_kept(
    store: Writer, arguments: str, script: str, env: dict[str, str], code: str
) -> None:
    decision = ask(store, arguments, script, env=env)
    assert decision.environment == {}
    assert set(decision.rewrite) == {"cpu-freq"}
    assert code in codes(decision)


def test_an_explicit_frequency_is_a_cap_that_may_be_lowered_never_raised(store: Writer) -> None:
    decision = ask(store, "-N1 --exclusive --cpu-freq=1200000-1800000")
    if "cpu-freq" in decision.rewrite:
        assert int(decision.rewrite["cpu-freq"].split("-")[1]) < 1_800_000
    assert decision.baseline is not None
    assert decision.baseline.freq_khz == 1_800_000
    policy(store, axes={"frequency": "fill"})
    assert "cpu-freq" not in ask(store, "-N1 --exclusive --cpu-freq=1200000-1800000").rewrite


@pytest.mark.parametrize(
    "script", ["echo $SLURM_CPU_FREQ_REQ\n", "env | grep -E '^(OMP|SLURM_CPU_FREQ)'\n"]
)
def test_a_script_that_reads_its_cap_keeps_it(store: Writer, script: str) -> None:
    decision = ask(store, "-N1 --exclusive", f"{script}srun ./stencil")
    assert set(decision.environment) == {"OMP_NUM_THREADS"}
    assert "cpu-freq" not in decision.rewrite
    assert "the script uses SLURM_CPU_FREQ" in str(decision.reasons)


SHARED = "-N1 -c 24 --mem=2G"


@pytest.mark.parametrize(
    ("script", "environment"),
    [
        (SCRIPT, {"OMP_NUM_THREADS": "20"}),
        ("export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\nsrun ./stencil", {}),
        (
            "export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK}\nsrun -c $SLURM_CPUS_PER_TASK ./stencil",
            {},
        ),
        ("srun --mpi=pmi2 ./stencil", {"OMP_NUM_THREADS": "20"}),
    ],
)
def test_a_request_that_shares_its_node_becomes_smaller(
    store: Writer, script: str, environment: dict[str, str]
) -> None:
    policy(store, axes={"threads": "cap"})
    decision = ask(store, SHARED, script)
    assert decision.rewrite == {"cpus-per-task": "20"}
    assert decision.environment == environment
    assert "shared-nodes" in codes(decision)  # no cap: others run there


@pytest.mark.parametrize(
    ("arguments", "script", "why"),
    [
        ("-N1 -c 24", SCRIPT, "memory is per core"),
        ("-N1 -c 24 --mem-per-cpu=100M", SCRIPT, "memory is per core"),
        (SHARED, "srun -c 24 ./stencil", "states what a step takes"),
        (SHARED, "srun -n 1 ./stencil", "states what a step takes"),
        (SHARED, "export OMP_NUM_THREADS=24\nsrun ./stencil", "sets its threads"),
        (SHARED, "N=$((SLURM_CPUS_ON_NODE / 2))\nsrun ./stencil", "SLURM_CPUS_ON_NODE"),
        (SHARED, "echo $SLURM_CPUS_PER_TASK\nsrun ./stencil", "SLURM_CPUS_PER_TASK"),
    ],
)
def test_why_a_request_that_shares_its_node_stays(
    store: Writer, arguments: str, script: str, why: str
) -> None:
    policy(store, axes={"threads": "cap"})
    decision = ask(store, arguments, script)
    assert not decision.rewrite and not decision.environment
    assert any(why in r.text for r in decision.reasons), decision.reasons


def test_requests_stay_as_they_are_where_the_policy_says_so(store: Writer) -> None:
    policy(store, axes={"threads": "cap"}, allocation="keep")
    decision = ask(store, SHARED)
    assert not decision.rewrite and "cores-kept" in codes(decision)
    policy(store, axes={"threads": "fill"})
    assert "user-set" in codes(ask(store, SHARED))
    policy(store, axes={"threads": "cap"})
    assert ask(store, SHARED).rewrite
    model(store, "bdw", [response("bdw", 1, 1, t, f) for t in (20, 24, 28) for f in FREQS],
          stats={"method": "variables"})  # fmt: skip
    assert not ask(store, SHARED).rewrite


def test_a_model_of_smaller_requests_is_not_used_inside_of_an_allocation(store: Writer) -> None:
    model(store, "bdw", [response("bdw", 1, 1, t, f) for t in (20, 28) for f in FREQS],
          stats={"method": "request"})  # fmt: skip
    decision = ask(store)
    assert not decision.rewrite and not decision.environment
    assert "measured-otherwise" in codes(decision)


SEVERAL = {
    "srun ./stencil\nsrun ./stencil 2": "several-steps",
    "srun -n1 ./prepare; srun ./stencil": "several-steps",
    "python post.py\nsrun ./stencil": "several-steps",
    "srun ./stencil | ./filter": "several-steps",
    "srun ./a || srun ./stencil": "several-steps",
    "srun hostname\nsrun ./stencil": "several-steps",
    "for i in 1 2 3; do srun ./stencil; done": "loop-of-steps",
    "while true; do\n srun ./stencil\ndone": "loop-of-steps",
    "srun ./stencil &\nwait": "background-steps",
    "(cd run && srun ./stencil) &\nwait": "background-steps",
    "srun ./stencil\nsbatch next.sh": "nested-submit",
    "sbatch $0\nsrun ./stencil": "nested-submit",
    "run() { srun ./stencil; }\nrun": "script-not-understood",
    "out=$(srun ./stencil)": "script-not-understood",
    "source ./lib.sh\nsrun ./stencil": "several-steps",
    "eval $CMD\nsrun ./stencil": "several-steps",
    "srun bash -c './stencil'": "script-not-understood",
    "srun ./stencil.sh": "script-not-understood",
    "bash run": "script-not-understood",
    "srun --multi-prog conf": "script-not-understood",
    "srun --new-option=1 ./stencil": "script-not-understood",
    "srun ./stencil 'unbalanced": "script-not-understood",
    "if srun ./stencil; then echo ok": "script-not-understood",
    "cat <<EOF\n$(srun ./x)\nEOF\nsrun ./stencil": "script-not-understood",
    "ls | xargs -n1 ./stencil\nsrun ./stencil": "several-steps",
    "trap './save' USR1\nsrun ./stencil": "several-steps",
    "$RUN ./prepare\nsrun ./stencil": "script-not-understood",
    "R='srun -n1'\n$R ./prepare\nsrun ./stencil": "several-steps",
    "/usr/bin/time -o t srun ./prepare\nsrun ./stencil": "several-steps",
    "perf stat srun ./stencil": "script-not-understood",
    "mpirun -n 2 ./stencil : -n 2 ./other": "script-not-understood",
    "make run": "script-not-understood",
    "if [ -f x ]; then E=./a; else E=./b; fi\n$E": "script-not-understood",
}


@pytest.mark.parametrize(("script", "code"), SEVERAL.items())
def test_a_script_that_is_not_understood_whole_is_left_alone(
    store: Writer, script: str, code: str
) -> None:
    decision = ask(store, script=f"#!/bin/bash\n{script}\n", env={"ADVISOR_APPLICATION": "stencil"})
    if code == "script-not-understood" and ".sh" in script:  # the user vouches for it
        decision = ask(store, script=f"#!/bin/bash\n{script}\n")
    assert not decision.rewrite and not decision.environment
    assert codes(decision) & set(SEVERAL.values()) == {code}


@pytest.mark.parametrize("interpreter", ["/usr/bin/env python3", "/bin/csh", "/usr/bin/perl -w"])
def test_scripts_of_other_languages_are_left_alone(store: Writer, interpreter: str) -> None:
    decision = ask(store, script=f"#!{interpreter}\nsrun ./stencil\n")
    assert not decision.rewrite and not decision.environment
    assert codes(decision) & {"script-not-understood", "unrecognised"}


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("timeout 101 srun ./stencil", "time-limit"),  # it takes 100 s, and may take more
        ("timeout -s INT -k 5 101s srun ./stencil", "time-limit"),
        ("srun timeout --preserve-status 1.6m ./stencil", "time-limit"),
        ("timeout $LIMIT srun ./stencil", "script-not-understood"),
        ("ulimit -St 120\nsrun ./stencil", "script-not-understood"),
    ],
)
def test_a_program_that_its_script_ends_must_not_become_too_slow(
    store: Writer, script: str, code: str
) -> None:
    decision = ask(store, script=f"#!/bin/bash\n{script}\n")
    assert code in codes(decision)
    assert not decision.rewrite or decision.chosen.time_s < 101  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "ends", ["timeout -k 10 2h srun ./stencil", "ulimit -t unlimited\nsrun ./stencil"]
)
def test_an_end_that_is_far_changes_nothing(store: Writer, ends: str) -> None:
    assert ask(store, script=f"#!/bin/bash\n{ends}\n").environment == {"OMP_NUM_THREADS": "20"}


@pytest.mark.parametrize(
    ("arguments", "threads"),
    [("-N1 --exclusive", 20), ("-n1 --exclusive", 1), ("-N1 -n1 --exclusive -c28", 20)],
)
def test_srun_on_its_own_gives_each_of_its_tasks_one_cpu(
    store: Writer, arguments: str, threads: int
) -> None:
    policy(store, axes={"threads": "override"})
    decision = ask(store, arguments, None, type="srun", argv=["./stencil"])
    assert decision.baseline is not None
    assert decision.baseline.threads_per_node == (28 if threads > 1 else 1)
    assert decision.environment == ({"OMP_NUM_THREADS": "20"} if threads > 1 else {})


@pytest.mark.parametrize(
    ("arguments", "nodes"),
    [("-w bdw1 --exclusive", 1), ("-w bdw[1-2] --exclusive", 2), ("-w bdw1 -N2 --exclusive", 2)],
)
def test_a_list_of_nodes_is_their_number(store: Writer, arguments: str, nodes: int) -> None:
    decision = ask(store, arguments)
    assert decision.baseline is not None and decision.baseline.nodes == nodes


@pytest.mark.parametrize(
    ("arguments", "whole"),
    [
        ("-N1 -n28 --mem=1000", True),
        ("-n28 --mem=1000", False),  # on how many nodes of others, nobody knows
        ("-n4 -c7 --mem=1000", False),
        ("-n28 --ntasks-per-node=28 --mem=1000", True),
        ("-n1 -c28 --mem=1000", True),
    ],
)
def test_tasks_that_may_be_spread_leave_room_for_others(
    store: Writer, arguments: str, whole: bool
) -> None:
    model(store, "bdw", [response("bdw", 1, r, 28, f) for r in (1, 4, 28) for f in FREQS])
    decision = ask(store, arguments)
    assert ("cpu-freq" in decision.rewrite) is whole, decision.reasons
    assert ("shared-nodes" in codes(decision)) is not whole


@pytest.mark.parametrize("nodes", ["1-4", "2-", "1,3,5", "1-9:2", "1k"])
def test_a_job_of_an_unknown_number_of_nodes_is_left_alone(store: Writer, nodes: str) -> None:
    decision = ask(store, f"-N {nodes} --exclusive")
    assert not decision.rewrite and not decision.environment
    assert "option-binds" in codes(decision)
    assert any("--nodes" in r.text for r in decision.reasons)
    assert ask(store, "-N 1-1 --exclusive").environment


@pytest.mark.parametrize(
    "binds", ["numactl -N 0 -m 0", "numactl --cpunodebind=1", "numactl -C 0-13"]
)
def test_threads_bound_to_a_part_of_the_node_are_kept(store: Writer, binds: str) -> None:
    for line in (f"srun {binds} ./stencil", f"{binds} ./stencil"):
        decision = ask(store, script=f"#!/bin/bash\n{line}\n")
        assert not decision.environment and "threads-own" in codes(decision)


@pytest.mark.parametrize(
    "argument", ["-ntomp 28", "--threads=28", "-t28", "-j 4", "--num-cpus 2", "-pk omp 14"]
)
def test_arguments_that_may_set_threads_keep_them(store: Writer, argument: str) -> None:
    decision = ask(store, script=f"#!/bin/bash\nsrun ./stencil {argument}\n")
    assert set(decision.rewrite) == {"cpu-freq"} and not decision.environment
    assert "threads-own" in codes(decision)


@pytest.mark.parametrize(
    "script",
    [
        "R='srun --mpi=pmi2'; $R ./stencil --size 28",
        "module load gcc\ncd $SLURM_SUBMIT_DIR\ntime srun ./stencil > out.txt 2>&1\necho done",
        "set -euo pipefail\nif [ ! -d out ]; then mkdir out; fi\nsrun ./stencil | tee log",
        "trap 'echo late; scontrol show job 1' USR1\nsrun --label -u ./stencil || exit 1",
        "cat > in.txt <<EOF\nsrun is no command here\nEOF\nsrun ./stencil",
        'log() { echo "$(date) $*"; }\nlog begin\nsrun ./stencil\nlog end',
        "source /etc/profile.d/modules.sh\nfor f in a b; do cp $f out/; done\nsrun ./stencil",
        'eval "$(conda shell.bash hook)"\nconda activate x\nexec srun ./stencil',
        "timeout 3600 srun --mpi=pmix ./stencil; tar czf out.tgz out",
    ],
)
def test_ordinary_scripts_are_understood(store: Writer, script: str) -> None:
    decision = ask(store, script=f"#!/bin/bash\n{script}\n")
    assert decision.environment == {"OMP_NUM_THREADS": "20"}, decision.reasons
    assert set(decision.rewrite) == {"cpu-freq"}


@pytest.mark.parametrize(
    ("arguments", "script"),
    [
        ("-N1 --exclusive", "mpirun ./stencil"),  # as many ranks as the node has cores
        ("-N1 --exclusive -c 14", SCRIPT),  # srun starts as many as fit
        ("-N1 --exclusive", "mpirun -np $RANKS ./stencil"),
        ("-N2 --exclusive -n2", "srun -N1 ./stencil"),
        ("-N1 --exclusive", "mpiexec -ppn 4 ./stencil"),
    ],
)
def test_ranks_that_cannot_be_told_are_not_guessed(
    store: Writer, arguments: str, script: str
) -> None:
    decision = ask(store, arguments, script)
    assert not decision.rewrite and not decision.environment
    assert "no-baseline" in codes(decision)


def test_a_site_rule_names_the_variables_that_set_the_threads(store: Writer) -> None:
    rule = {"name": "stencil", "executable": ["stencil"], "threads_from": ["MKL_NUM_THREADS"]}
    store.apply_config("site", path="s", text="s", compiled={"applications": [rule]}, by="test")
    assert ask(store).environment == {"MKL_NUM_THREADS": "20"}
    kept = ask(store, env={"MKL_NUM_THREADS": "28"})
    assert kept.environment == {} and "threads-own" in codes(kept)


def test_a_baseline_far_off_the_grid_is_not_guessed(store: Writer) -> None:
    decision = ask(store, "-N1 -n1")
    assert "baseline-outside-model" in codes(decision)
    near = ask(store, "-N1 -n1 -c 26")
    assert "baseline-nearest" in codes(near)


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        ({"env": {"ADVISOR": "off"}}, "opted-out"),
        ({"env": {"ADVISOR_MODE": "off"}}, "opted-out"),
        ({"script": "#ADVISOR off\nsrun ./stencil"}, "opted-out"),
        ({"choices": {"off": True}}, "opted-out"),
        ({"choices": {"workloads": {"stencil/*": {"off": True}}}}, "opted-out"),
        ({"script": "srun ./unknown"}, "no-model"),
        ({"script": "cd /tmp"}, "unrecognised"),
        ({"script": None}, "no-script"),
        ({"type": "salloc", "script": None, "argv": []}, "interactive"),
        ({"het": True}, "het-job"),
        ({"script": "#SBATCH hetjob\nsrun ./stencil"}, "het-job"),
        ({"env": {"ADVISOR_MODE": "observe"}}, "mode-observe"),
        ({"env": {"ADVISOR_MODE": "advise"}}, "mode-advise"),
        ({"arguments": "-N1 --exclusive -t 1"}, "time-limit"),
        ({"arguments": "-N1 --exclusive --constraint=a&b"}, "no-baseline"),
        ({"arguments": "-N1 --exclusive -p nowhere"}, "no-baseline"),
        ({"arguments": "-N 4 --exclusive"}, "baseline-outside-model"),
        ({"chance": lambda: 0.0}, "chosen"),
    ],
)
def test_jobs_left_alone_say_why(store: Writer, payload: dict[str, Any], code: str) -> None:
    decision = ask(store, **payload)
    assert code in codes(decision)
    if code != "chosen":
        assert not decision.rewrite
        assert not decision.environment


def test_holdout_is_drawn_and_recorded(store: Writer) -> None:
    policy(store, holdout=0.5)
    held = ask(store, chance=lambda: 0.4)
    assert held.holdout and not held.rewrite and "holdout" in codes(held)
    assert held.chosen is not None
    assert ask(store, chance=lambda: 0.6).rewrite


def test_the_time_limit_is_respected_and_never_touched(store: Writer) -> None:
    generous = ask(store, "-N1 --exclusive -t 10")
    assert generous.rewrite and "time" not in generous.rewrite
    tight = ask(store, "-N1 --exclusive -t 1:41")
    assert tight.chosen is None or tight.chosen.time_s * 1.005 <= 101
    assert "time-limit" in codes(tight)


def test_limits_that_rule_nothing_out_share_a_choice(store: Writer) -> None:
    site = snapshot(store)

    def decided(minutes: int) -> Decision:
        options = read_arguments(f"-N1 --exclusive -t {minutes}".split())
        payload = {"type": "sbatch", "options": options, "script": SCRIPT}
        request = parse_request(payload, user="ada", uid=1000, choices={})
        return decide(request, site, chance=lambda: 1.0)

    hours, days, tight = decided(60), decided(2 * 1440), decided(2)
    assert len(site.choices) == 2
    assert (hours.chosen, hours.codes) == (days.chosen, days.codes)
    assert "time-limit" in tight.codes and "time-limit" not in hours.codes


def test_no_steps_in_the_inventory_no_frequency_in_the_job(store: Writer) -> None:
    store.save_node_types([replace(BDW, freq_khz=(), default_freq_khz=0)], source="test")
    decision = ask(store)
    assert "cpu-freq" not in decision.rewrite
    assert decision.environment == {"OMP_NUM_THREADS": "20"}
    assert "no-frequency-steps" in codes(decision)


def test_a_node_type_that_is_gone_is_never_written(store: Writer) -> None:
    policy(store, node_type_change="allow")
    model(store, "skl", [response("skl", 1, 1, t, 2_000_000) for t in range(4, 29, 4)])
    moved = ask(store, "-N1 --exclusive -p mixed")
    assert moved.rewrite["constraint"] == "skylake"
    store.save_node_types([BDW], source="test", replace=True)
    stays = ask(store, "-N1 --exclusive -p mixed")
    assert "constraint" not in stays.rewrite
    assert "not-in-inventory" in codes(stays)


def test_a_constraint_by_the_user_keeps_the_node_type(store: Writer) -> None:
    policy(store, node_type_change="allow")
    model(store, "skl", [response("skl", 1, 1, t, 2_000_000) for t in range(4, 29, 4)])
    decision = ask(store, "-N1 --exclusive -p mixed -C broadwell")
    assert "constraint" not in decision.rewrite
    assert "user-set" in codes(decision)


def test_a_node_type_is_not_changed_where_nobody_knows_what_is_idle(store: Writer) -> None:
    model(store, "skl", [response("skl", 1, 1, t, 2_000_000) for t in range(4, 29, 4)])
    decision = ask(store, "-N1 --exclusive -p mixed")
    assert not decision.rewrite and not decision.environment
    assert "node-type-later" in codes(decision)


@pytest.mark.parametrize(
    ("says", "threads", "cap", "left"),
    [
        ({}, False, False, True),
        ({"other": []}, False, False, True),
        ({"project-code": []}, True, True, False),
        ({"project_code": ["node_type"]}, True, True, False),
        ({"project-code": ["threads"]}, False, True, False),
        ({"project-code": ["frequency", "threads"]}, False, False, False),
    ],
)
@pytest.mark.parametrize("name", ["project-code", "spank:site:project_code", "spank:project-code"])
def test_a_site_may_say_what_its_own_options_bind(
    store: Writer, says: dict[str, list[str]], threads: bool, cap: bool, left: bool, name: str
) -> None:
    compiled = {"understood_options": says}
    store.apply_config("site", path="s", text="s", compiled=compiled, by="test")
    options = {"nodes": "1", "exclusive": "", name: "a17"}
    request = parse_request(
        {"type": "sbatch", "options": options, "script": SCRIPT}, user="ada", uid=1, choices={}
    )
    decision = decide(request, snapshot(store), chance=lambda: 1.0)
    same_again(decision, snapshot(store), lambda: 1.0)
    assert ("option-not-understood" in codes(decision)) is left
    assert bool(decision.environment) is threads
    assert ("cpu-freq" in decision.rewrite) is cap


def test_a_site_cannot_loosen_what_the_table_says(store: Writer) -> None:
    says: dict[str, object] = {"understood_options": {"hint": [], "exclude": []}}
    store.apply_config("site", path="s", text="s", compiled=says, by="test")
    assert "option-binds" in codes(ask(store, "-N1 --exclusive --hint=nomultithread"))


@pytest.mark.parametrize("change", ["no-later", "allow"])
def test_a_scheduler_that_cannot_be_read_keeps_the_node_type_and_nothing_else(
    store: Writer, change: str
) -> None:
    """`allow` lets a job wait elsewhere; nobody lets it go where it may be refused."""
    policy(store, node_type_change=change)
    model(store, "skl", [response("skl", 1, 1, t, 2_000_000) for t in range(4, 29, 4)])
    unread = replace(snapshot(store), availability=Availability(problem="slurmctld is down"))
    unread.index()

    def decided(arguments: str) -> Decision:
        request = parse_request(
            {"type": "sbatch", "options": read_arguments(arguments.split()), "script": SCRIPT},
            user="ada", uid=1000, choices={},
        )  # fmt: skip
        decision = decide(request, unread, chance=lambda: 1.0)
        same_again(decision, unread, lambda: 1.0)
        return decision

    mixed = decided("-N1 --exclusive -p mixed")
    assert not mixed.rewrite and not mixed.environment
    assert "node-type-later" in codes(mixed)
    assert any("slurmctld is down" in r.text for r in mixed.reasons)
    assert decided("-N1 --exclusive -p batch").environment == {"OMP_NUM_THREADS": "20"}


@pytest.mark.parametrize(
    "script",
    ["echo $SLURM_CPUS_ON_NODE\nsrun ./stencil", "lscpu\nsrun ./stencil", "srun -w bdw1 ./stencil"],
)
def test_a_script_that_counts_cores_keeps_its_node_type(store: Writer, script: str) -> None:
    policy(store, node_type_change="allow")
    model(store, "skl", [response("skl", 1, 1, t, 2_000_000) for t in range(4, 29, 4)])
    decision = ask(store, "-N1 --exclusive -p mixed", script)
    assert not decision.rewrite and "mixed-partition" in codes(decision)


def test_several_partitions_of_several_node_types_are_left_alone(store: Writer) -> None:
    policy(store, node_type_change="allow")
    assert "several-partitions" in codes(ask(store, "-N1 --exclusive -p batch,mixed"))


def test_in_a_mixed_partition_the_node_type_is_pinned(store: Writer) -> None:
    policy(store, node_type_change="allow")
    decision = ask(store, "-N1 --exclusive -p mixed --mem=2G")
    assert decision.rewrite["constraint"] == "broadwell"


def test_a_job_is_never_bound_to_nodes_where_it_would_have_less_memory(store: Writer) -> None:
    policy(store, node_type_change="allow")
    decision = ask(store, "-N1 --exclusive -p mixed")  # it might land on skylake, with more
    assert not decision.rewrite and not decision.environment
    assert "no-room" in codes(decision)


def test_where_the_policy_keeps_node_types_a_mixed_partition_is_left_alone(store: Writer) -> None:
    policy(store, axes={"node_type": "keep"})
    decision = ask(store, "-N1 --exclusive -p mixed")
    assert not decision.rewrite
    assert "mixed-partition" in codes(decision)
    assert ask(store, "-N1 --exclusive -p mixed -C broadwell").rewrite
    assert ask(store, "-N1 --exclusive -p batch").rewrite


def test_suspended_models_change_nothing(store: Writer) -> None:
    store.set_model_state(1, "suspended", "jobs 7 and 8 were slower than promised")
    decision = ask(store)
    assert not decision.rewrite
    assert "suspended" in codes(decision)
    assert "jobs 7 and 8" in decision.reasons[-1].text


def test_another_users_runs_advise_nobody_else(store: Writer) -> None:
    fake = [response("bdw", 1, 1, t, 1_200_000) for t in (4, 28)]
    model(store, "bdw", fake, scope="own", owner="mallory")
    assert ask(store, user="ada").environment["OMP_NUM_THREADS"] == "20"
    assert ask(store, user="ada").model_id == 1
    assert ask(store, user="mallory").model_id == 2


def test_a_model_may_name_the_node_type_by_feature_or_by_its_nodes(store: Writer) -> None:
    for number, name in enumerate(("broadwell", "bdw")):
        options = [response(name, 1, 1, t, f) for t in (20, 28) for f in FREQS]
        model(store, name, options, application=f"app{number}")
    assert ask(store, script="srun ./app0").environment["OMP_NUM_THREADS"] == "20"
    store.save_node_types(
        [replace(BDW, name="bw", nodes=("bdw1", "bdw2"))], source="test", replace=True
    )
    decision = ask(store, script="srun ./app1")
    assert decision.environment["OMP_NUM_THREADS"] == "20"
    assert decision.baseline is not None and decision.baseline.node_type == "bw"


def test_account_models_reach_the_account_only(store: Writer) -> None:
    mine = [response("bdw", 1, 1, t, f) for t in (16, 28) for f in FREQS]
    number = model(store, "bdw", mine, scope="account", owner="proj")
    assert ask(store, "-N1 --exclusive -A proj").model_id == number
    assert ask(store, "-N1 --exclusive -A other").model_id == 1


def test_unknown_workloads_fall_back_to_default_or_not(store: Writer) -> None:
    script = "srun ./stencil --size 9"
    decision = ask(store, script=script)
    assert decision.rewrite and "workload-fallback" in codes(decision)
    policy(store, unknown_workload="skip")
    assert "no-model" in codes(ask(store, script=script))


def test_estimated_energy_only_advises_unless_the_site_says_otherwise(store: Writer) -> None:
    options = [response("bdw", 1, 1, t, f) for t in (20, 28) for f in FREQS]
    model(store, "bdw", options, energy_quality="estimated")
    decision = ask(store)
    assert not decision.rewrite and {"energy-estimated", "mode-advise"} <= codes(decision)
    assert "(estimated)" in decision.message
    policy(store, estimated_energy="apply")
    assert ask(store).rewrite


def test_a_pin_is_taken_even_where_the_site_only_advises(store: Writer) -> None:
    policy(store, mode="advise")
    pin = {"threads_per_node": 12, "freq_khz": 1_500_000}
    choices = {"version": 1, "workloads": {"stencil/default": {"pin": pin}}}
    decision = ask(store, choices=choices)
    assert decision.rewrite == {"cpu-freq": "1200000-1500000"}
    assert decision.environment == {"OMP_NUM_THREADS": "12"}
    assert "pinned" in codes(decision)
    impossible = {"workloads": {"stencil/default": {"pin": {"freq_khz": 9}}}}
    assert "pin-impossible" in codes(ask(store, choices=impossible))
    nonsense = {"workloads": {"stencil/default": {"pin": {"freq_khz": "fast"}}}}
    assert "pin-impossible" in codes(ask(store, choices=nonsense))


def test_users_may_be_stricter_and_laxer_only_within_limits(store: Writer) -> None:
    policy(store, user_limits={"mode": "apply", "max_slowdown": 0.1})
    strict = ask(store, env={"ADVISOR_MAX_SLOWDOWN": "0%"})
    assert strict.policy.max_slowdown == 0
    lax = ask(store, env={"ADVISOR_MAX_SLOWDOWN": "50%"})
    assert lax.policy.max_slowdown == 0.05
    assert "setting-refused" in codes(lax)
    bad = ask(store, env={"ADVISOR_GOAL": "speed", "ADVISOR_MODE": "yes"})
    assert [r.code for r in bad.reasons].count("setting-refused") == 2
    policy(store, mode="off")
    assert "mode-off" in codes(ask(store, env={"ADVISOR_MODE": "apply"}))


def test_rules_match_the_job(store: Writer) -> None:
    rule = {"match": {"partition": ["batch"], "user": ["ada"]}, "set": {"mode": "off"}}
    policy(store, rules=[rule])
    assert "mode-off" in codes(ask(store))
    assert ask(store, user="bob").rewrite


def test_a_missing_model_says_how_to_get_one(store: Writer) -> None:
    decision = ask(store, script="srun ./fresh")
    assert {"no-model", "training-ask"} <= codes(decision)
    assert "advisor train /home/job.sh" in decision.message
    policy(store, training={"mode": "off"})
    assert ask(store, script="srun ./fresh").message == ""


@pytest.mark.parametrize("options", [{"nodes": "two"}, {"time": "soon"}, {"mem": "lots"}])
def test_options_that_make_no_sense_are_named(options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        parse_request({"options": options}, user="a", uid=1, choices={})


def test_a_stamp_brings_the_decision_back(store: Writer) -> None:
    decision = ask(store)
    record = read_stamp("site comment " + make_stamp(decision) + " more")
    full = decision.to_dict()
    assert record is not None
    stamped = record.to_dict()
    for key in (
        "decision", "application", "workload", "baseline", "reasons", "chosen", "model_id", "mode",
        "goal", "holdout", "policy_version", "changed", "program", "predicted",
    ):  # fmt: skip
        assert stamped[key] == full[key] or key == "predicted", key
    assert record.changed and not record.rewrite
    assert record.chosen is not None and decision.chosen is not None
    assert record.chosen.time == pytest.approx(decision.chosen.time, abs=5e-5)
    assert record.chosen.time_s == pytest.approx(decision.chosen.time_s, rel=1e-5)


def test_a_decision_comes_back_from_its_json_form(store: Writer) -> None:
    for decision in (
        ask(store),
        ask(store, script="srun ./fresh"),
        ask(store, env={"ADVISOR": "off"}),
    ):
        full = json.loads(json.dumps(decision.to_dict()))
        again = Decision.from_dict(full)
        assert again.to_dict() == full
        assert [r.text for r in again.reasons] == [r.text for r in decision.reasons]
        assert again.request is not None and decision.request is not None
        assert again.request.summary() == decision.request.summary()


OLD = {
    "decision": "00000000000000aa", "created_at": "2026-03-01T08:00:00+00:00",
    "scheduler": "slurm", "hook": "cli_filter", "user": "ada", "account": "", "mode": "apply",
    "goal": "min_energy", "application": "stencil", "workload": "default",
    "baseline": {"node_type": "bdw", "nodes": 1, "ranks_per_node": 1, "threads_per_node": 28,
                 "threads_per_rank": 28, "freq_khz": 2_200_000, "time_s": 100.0, "energy_j": 9e3},
    "rewrite": {"cpu-freq": "1900000"}, "environment": {},
    "chosen": {"node_type": "bdw", "nodes": 1, "ranks_per_node": 1, "threads_per_node": 28,
               "threads_per_rank": 28, "freq_khz": 1_900_000},
    "predicted": {"time_s": 102.0, "energy_j": 8.1e3, "time_pct": 2.0, "energy_pct": -10.0,
                  "time_pct_interval": [1.0, 3.0], "energy_pct_interval": [-12.0, -8.0],
                  "energy_quality": "measured"},
    "alternatives": [], "reasons": ["chosen"], "explanation": ["chosen: energy −10.0 %"],
    "message": "", "holdout": False, "model_id": 3, "policy_version": 2,
    "request": {"kind": "batch", "time_limit_s": 600, "explicit": ["nodes"]},
}  # fmt: skip
"""A decision as version 0.2 stored it, without ``changed`` and ``program``."""
OLD_STAMP = (
    'advisor:{"v":1,"id":"00000000000000aa","at":"2026-03-01T08:00:00+00:00","app":"stencil",'
    '"wl":"default","mode":"apply","goal":"min_energy","pol":2,"why":["chosen"],"chg":1,"ho":0,'
    '"m":3,"eq":"measured","base":["bdw",1,1,28,2200000,100.0,9000.0],"to":["bdw",1,1,28,1900000],'
    '"t":[102.0,2.0,1.0,3.0],"e":[8100.0,-10.0,-12.0,-8.0]}'
)


def test_decisions_and_stamps_of_earlier_versions_stay_readable() -> None:
    stored, stamped = Decision.from_dict(OLD), read_stamp(OLD_STAMP)
    assert stamped is not None
    assert {
        **stored.to_dict(), "request": OLD["request"],
    } == {**OLD, "changed": True, "program": {}}  # fmt: skip
    assert stored.request is not None and stored.request.time_limit_s == 600
    for decision in (stored, stamped):
        assert decision.changed and decision.configuration == Configuration(
            "bdw", 1, 1, 28, 1_900_000
        )
        assert (decision.baseline_time_s, decision.baseline_energy_j) == (100.0, 9000.0)
        assert decision.chosen is not None and decision.chosen.energy.hi == pytest.approx(-0.08)
    assert (stamped.model_id, stamped.codes, stamped.rewrite) == (3, ("chosen",), {})


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*Decision.from_dict({}).to_dict(), "job_id"]), JSON_VALUES))
def test_no_record_breaks_reading_a_decision(data: dict[str, Any]) -> None:
    Decision.from_dict(data).to_dict()


@given(st.text(max_size=200))
def test_no_text_breaks_reading_a_stamp(text: str) -> None:
    read_stamp(text)
    read_stamp("advisor:{" + text)
    read_stamp('advisor:{"v":1,"id":"0123456789abcdef","base":' + text)


OPTION_TEXT = st.dictionaries(
    st.sampled_from(["nodes", "ntasks", "cpus-per-task", "time", "mem", "cpu-freq", "constraint",
                     "exclusive", "partition", "nodelist", "export", "wrap", "array"]),
    st.text(max_size=12),
)  # fmt: skip


@example({"cpu-freq": "\u00b2"}, "", {})  # a digit to Python, and no number
@given(OPTION_TEXT, st.text(max_size=60), st.dictionaries(st.text(max_size=8), st.text(max_size=8)))
def test_no_request_breaks_the_decision(
    options: dict[str, str], script: str, environment: dict[str, str]
) -> None:
    payload = {"options": options, "script": script, "env": environment}
    try:
        request = parse_request(payload, user="a", uid=1, choices={})
    except ValueError as error:
        assert str(error).startswith("--")
        return
    decision = decide(request, Snapshot())
    assert not decision.rewrite
    assert decision.reasons
    assert read_stamp(make_stamp(decision)) is not None


def pinned(writer: Writer, pin: object, **more: Any) -> Decision:
    return ask(writer, choices={"workloads": {"stencil/default": {"pin": pin, **more}}})


@pytest.mark.parametrize(
    ("pin", "said"),
    [
        ({"freq_khz": 9}, "not among the options"),
        ({"threads_per_node": 13}, "not among the options"),
        ({"node_type": "skl"}, "not among the options"),
        ({"nodes": 2, "threads_per_node": 20}, "not among the options"),  # the job has one
        ({"freq_khz": "fast"}, "freq_khz='fast'"),
        ({"threads_per_node": -4}, "threads_per_node=-4"),
        ({"threads_per_node": 0}, "threads_per_node=0"),
        ({"threads": 16}, "threads: not known"),
        ({"node_type": 7}, "node_type=7"),
        ({}, "it names nothing"),
    ],
)
def test_a_pin_that_cannot_be_had_leaves_the_job_as_written(
    store: Writer, pin: dict[str, object], said: str
) -> None:
    """Nothing else is taken in its place."""
    decision = pinned(store, pin)
    assert not decision.changed and decision.chosen is None
    (why,) = [r for r in decision.reasons if r.code == "pin-impossible"]
    assert said in why.text and why.text.startswith("nothing changed")


def test_a_pin_is_for_jobs_of_its_nodes_and_ranks(store: Writer) -> None:
    decision = pinned(store, {"nodes": 1, "ranks_per_node": 1, "threads_per_node": 12})
    assert "pinned" in codes(decision) and decision.changed
    assert decision.chosen is not None and decision.chosen.configuration.threads_per_node == 12


def test_what_is_wrong_in_a_choices_file_is_ignored_and_named(store: Writer) -> None:
    usual = ask(store)
    for choices in (
        {"workloads": ["stencil"]},
        {"workloads": {"stencil/default": "off"}},
        {"pin": "16 cores"},
        {"version": 7, "off": True},
    ):
        decision = ask(store, choices=choices)
        assert "choices-bad" in codes(decision), choices
        assert decision.rewrite == usual.rewrite
    for more in ({"goal": "fast"}, {"max_slowdown": "nan%"}, {"max_slowdown": -1}):
        decision = ask(store, choices=more)
        assert "setting-refused" in codes(decision), more
        assert decision.rewrite == usual.rewrite
