"""Which scripts are understood, and what they bind."""

from __future__ import annotations

import pytest

from advisor.core.inventory import Inventory
from advisor.core.stamp import make_stamp, read_stamp
from advisor.loop.execution import Execution
from advisor.loop.match import MatchedJob
from advisor.loop.runs_of_jobs import really_ran
from advisor.store.writer import Writer
from tests.unit.decide.site import BDW, FREQS, SCRIPT, ask, codes, model, policy, response

SEVERAL = {
    "srun ./stencil\nsrun ./stencil 2": "several-steps",
    "srun -n1 ./prepare; srun ./stencil": "several-steps",
    "python post.py\nsrun ./stencil": "several-steps",
    "python --version post.py\nsrun ./stencil": "several-steps",
    "./python --version\nsrun ./stencil": "several-steps",
    "srun python --version\nsrun ./stencil": "several-steps",
    "R -V <<EOF\nlm(x)\nEOF\nsrun ./stencil": "several-steps",
    "srun ./stencil | ./filter": "several-steps",
    "srun ./stencil | srun ./stencil": "several-steps",
    "srun ./stencil | tee x | srun ./stencil": "several-steps",
    "srun ./stencil |\nsrun ./stencil": "several-steps",
    "srun ./stencil | { srun ./stencil; }": "several-steps",
    "srun ./stencil && srun ./stencil": "several-steps",
    "srun ./stencil\n(srun ./stencil)": "several-steps",
    "srun ./stencil &\nsrun ./stencil\nwait": "several-steps",
    "srun ./stencil\n./stencil": "several-steps",
    "srun -n1 ./stencil\nsrun -n2 ./stencil": "several-steps",
    "srun ./stencil\nOMP_NUM_THREADS=4 srun ./stencil": "several-steps",
    "srun ./stencil $X\nX=2\nsrun ./stencil $X": "several-steps",
    "srun ./stencil $RANDOM\nsrun ./stencil $RANDOM": "several-steps",
    "srun ./stencil `date`\nsrun ./stencil `date`": "several-steps",
    "if [ -e x ]; then srun ./stencil; fi\nsrun ./stencil": "several-steps",
    "for i in 1 2; do srun ./stencil; done\nsrun ./stencil": "several-steps",
    "srun ./a || srun ./stencil": "several-steps",
    "srun ./mesh\nsrun ./stencil": "several-steps",
    "srun ./hostname\nsrun ./stencil": "several-steps",
    "srun sleep 60\nsrun ./stencil": "several-steps",
    "srun nvidia-smi -lgc 1200\nsrun ./stencil": "several-steps",
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
    "CMD='srun ./stencil'\neval $CMD\neval $OTHER": "several-steps",
    "CMD='sbatch next.sh'\neval $CMD\nsrun ./stencil": "several-steps",
    "CMD='export OMP_NUM_THREADS=1'\neval $CMD\nsrun ./stencil": "several-steps",
    "CMD='srun ./mesh'\neval $CMD\nsrun ./stencil": "several-steps",
    "for i in 1 2; do CMD='srun ./stencil'; eval $CMD; done": "loop-of-steps",
    "conda install x\nsrun ./stencil": "several-steps",
    "git bisect run make\nsrun ./stencil": "several-steps",
    "source ~/bashrc\nsrun ./stencil": "several-steps",
    "srun bash -c './stencil; ./other'": "script-not-understood",
    "torchrun --standalone srun ./stencil": "script-not-understood",
    "srun bash -c '/usr/bin/srun --overlap -n1 ./stencil'": "script-not-understood",
    "srun bash -c '/usr/bin/sbatch ./stencil'": "script-not-understood",
    "srun time srun ./stencil": "script-not-understood",
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
        "conda init bash\nconda activate x\ngit clone https://a.example/b.git\nsrun ./stencil",
        "source $HOME/.bash_profile\n. ~/OpenFOAM/OpenFOAM-10/etc/bashrc\nsrun ./stencil",
        # a centre's template
        'CMD="srun ./stencil > out.$SLURM_JOB_ID"\nif [ "$SLURM_JOB_NODELIST" ]; then\n'
        "  export NODEFILE=`generate_pbs_nodefile`\n  cat $NODEFILE | uniq > machine.file\nfi\n"
        "eval $CMD",
        "srun --nodes=1 -n1 hostname --ip-address\nsrun mkdir -p out\nsrun ./stencil",
        "python --version\n/usr/bin/gcc --version 2>&1\nnvcc -V\njava -version\nsrun ./stencil",
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
        # mpirun fills one node's tasks before the next node's: the ranks are not spread evenly
        ("-N2 --exclusive", "mpirun -np 2 ./stencil"),
        ("-N2 --exclusive", "mpirun -np 56 ./stencil"),
        ("-N2 -n4 --exclusive", "mpirun -np 2 ./stencil"),
        ("-N2 --ntasks-per-node=2 --exclusive", "mpirun -np 2 ./stencil"),
    ],
)
def test_ranks_that_cannot_be_told_are_not_guessed(
    store: Writer, arguments: str, script: str
) -> None:
    decision = ask(store, arguments, script)
    assert not decision.rewrite and not decision.environment
    assert "no-baseline" in codes(decision)


@pytest.mark.parametrize(
    "lines",
    [
        'OPTS="-n 7 -c 4"; srun $OPTS ./stencil',
        'OPTS=(-n 7 -c 4)\nsrun "${OPTS[@]}" ./stencil',
        'OPTS="-n 7"\nOPTS+=" -c 4"\nsrun $OPTS ./stencil',
        "srun ${OPTS:--n 7 -c 4} ./stencil",
        "srun ${OPTS-} ./stencil",
        "srun $OPTS ./stencil",
        'set -- -n 7 -c 4\nsrun "$@" ./stencil',
        "srun -lun7 ./stencil",
        "srun -n 1 -n 7 ./stencil",
        "X=--multi-prog; srun $X ./stencil",
        "N=1\nread N < file\nsrun -n $N ./stencil",
        "N=1\nf() { N=7; }\nf\nsrun -n $N ./stencil",
        "N=1\nfor N in 7; do :; done\nsrun -n $N ./stencil",
        "N=1; (( N = 7 )); srun -n $N ./stencil",
        "N=1; : ${M:=3}; printf -v N %s 7; srun -n $N ./stencil",
        "O='-n 7'; IFS=,; O=-n,7; srun $O ./stencil",
        'alias srun="srun -n 7"\nsrun ./stencil',
        'srun() { command srun -n 7 "$@"; }\nsrun ./stencil',
        "function srun { :; }\nsrun ./stencil",
        "srun --jobid=12 ./stencil",
        "srun --jobid $OTHER ./stencil",
        "srun -t 1 ./stencil",
        "export $SETTINGS\nsrun ./stencil",
        "env -i srun ./stencil",
        "env -iu A srun ./stencil",
        *(
            f"{front}\nsrun ./stencil"
            for front in (
                "export SLURM_NTASKS=7 SRUN_CPUS_PER_TASK=4",
                "export SLURM_NPROCS=7",
                "export SLURM_EXACT=1",
                "SLURM_EXACT=$UNKNOWN",
                "export SLURM_HINT=nomultithread",
                "export SLURM_OVERCOMMIT=1",
                "export SLURM_MULTI_PROG=1",
                "export SLURM_SRUN_MULTI=1",
                "export SLURM_NTASKS_PER_NODE=7",
                "declare -x SLURM_NTASKS=7",
                "typeset -x SLURM_NTASKS=7",
                "readonly SLURM_NTASKS=7",
                "read SLURM_NTASKS < file",
                "unset SLURM_NTASKS",
                "unset -v SLURM_NTASKS",
                "export -n SLURM_NTASKS",
                ": ${SLURM_NTASKS:=7}",
                "(( SLURM_NTASKS = 7 ))",
                "let SLURM_NTASKS=7",
                "printf -v SLURM_NTASKS 7",
                "export SLURM_JOB_NUM_NODES=1",
                "export SLURM_NNODES=1",
                "export SLURM_JOB_ID=12",
                "export SLURM_NEW=1",
                "if test -f x; then export SLURM_NTASKS=7; fi",
                "for SLURM_NTASKS in 7; do :; done",
                "set_it() { SLURM_NTASKS=7; }\nset_it",
                "export SLURM_HOSTFILE=hosts",
                "export SLURM_TASKS_PER_NODE=7",
            )
        ),
        "SLURM_NTASKS=7 srun ./stencil",
        "env SLURM_NTASKS=7 srun ./stencil",
        "env -u SLURM_NTASKS srun ./stencil",
        "OMPI_MCA_rmaps_base_mapping_policy=ppr:7:node mpirun -n 1 ./stencil",
        "export I_MPI_PERHOST=7\nmpirun -n 1 ./stencil",
        "export HYDRA_HOST_FILE=hosts\nmpiexec -n 1 ./stencil",
        "export MPIEXEC_TIMEOUT=60\nmpiexec -n 1 ./stencil",
    ],
)
def test_what_a_launcher_gets_by_variables_keeps_threads_and_node_type(
    store: Writer, lines: str
) -> None:
    decision = ask(store, "-N1 -n1 --exclusive", f"#!/bin/bash\n{lines}\n")
    assert not decision.environment and "constraint" not in decision.rewrite, decision.rewrite


@pytest.mark.parametrize(
    "lines",
    [
        "export SLURM_EXPORT_ENV=ALL\nsrun ./stencil",
        "unset SLURM_EXPORT_ENV\nsrun ./stencil",
        "export SLURM_MPI_TYPE=pmix SLURM_UNBUFFEREDIO=1\nsrun ./stencil",
        'OPTS="-n 1 --mpi=pmix"\nsrun $OPTS ./stencil',
        'OPTS=(-n 1 --label)\nsrun "${OPTS[@]}" ./stencil',
        "OPTS=\nsrun $OPTS ./stencil",
        "N=1; srun -ln$N ./stencil",
        'srun --output="$HOME/out" ./stencil',
        "srun -o $HOME/out ./stencil",
        "srun --jobid=$SLURM_JOB_ID ./stencil",
        "while IFS= read -r line; do echo $line; done\nsrun ./stencil",
        "ll() { ls; }\nalias la='ls -a'\nsrun ./stencil",
        "cd $SLURM_SUBMIT_DIR && set -euo pipefail\nsrun ./stencil",
        "for i in 1 2; do mkdir -p d$i; done\nsrun ./stencil",
        "(cd /tmp; N=7)\nN=1\nsrun -n $N ./stencil",
    ],
)
def test_variables_that_change_nothing_of_the_ranks_keep_nothing(store: Writer, lines: str) -> None:
    decision = ask(store, "-N1 -n1 --exclusive", f"#!/bin/bash\n{lines}\n")
    assert decision.rewrite and decision.environment, decision.to_dict()["explanation"]


TWICE = "srun -o 1 ./stencil < in1\ncp out in2\nsrun -o 2 ./stencil < in2\n"


def test_what_is_piped_elsewhere_runs_one_after_the_other(store: Writer) -> None:
    decision = ask(store, "-N1 -n1 --exclusive", "srun ./stencil | tee a\nsrun ./stencil | tee b\n")
    assert "several-runs" in codes(decision)


def test_a_program_that_runs_twice_alike_keeps_all_but_its_cap(store: Writer) -> None:
    policy(store, axes={"threads": "override", "node_type": "override"})
    once, twice = ask(store, "-N1 -n1 --exclusive"), ask(store, "-N1 -n1 --exclusive", TWICE)
    assert once.environment and set(twice.rewrite) == {"cpu-freq"} and not twice.environment
    assert twice.baseline == once.baseline and "several-runs" in codes(twice)
    assert "runs its program 2 times" in " ".join(r.text for r in twice.reasons)
    chosen, written = twice.chosen, once.baseline_time_s
    assert chosen is not None and written is not None and twice.baseline_time_s == 2 * written
    assert chosen.time_s == pytest.approx(twice.baseline_time_s * (1 + chosen.time.change))
    assert chosen.energy_j == pytest.approx(
        (twice.baseline_energy_j or 0) * (1 + chosen.energy.change)
    )
    stamp = read_stamp(make_stamp(twice))
    assert stamp is not None and stamp.baseline_time_s == twice.baseline_time_s


def test_all_runs_of_a_program_must_end_within_the_time_limit(store: Writer) -> None:
    """One takes 100 s as written, 113 s at the lowest cap."""
    slow = {ask(store, "-N1 -n1 --exclusive -t " + t, TWICE).changed for t in ("10", "5", "4")}
    assert slow == {True}
    policy(store, max_slowdown=0.3, confidence=0.9)
    (free, tight) = (
        ask(store, f"-N1 -n1 --exclusive -t {t}", TWICE).chosen for t in ("0:10:00", "0:03:40")
    )
    assert free is not None and tight is not None
    assert free.time_s > 220 >= tight.time_s
    once = ask(store, "-N1 -n1 --exclusive -t 0:03:40").chosen
    assert once is not None and 2 * once.time_s > 220


def test_what_runs_twice_teaches_no_model(store: Writer) -> None:
    decision = ask(store, "-N1 -n1 --exclusive", TWICE)
    match = MatchedJob(decision, "verified")
    execution = Execution("bdw", 1, 1, 28, 0, True, 200.0, 1.0, 1000.0)
    inventory = Inventory.of([BDW])
    assert really_ran(match, execution, inventory) is None
