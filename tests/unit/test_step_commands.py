"""What a script is read to start as steps of srun, one by one."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from advisor.core.recognise import ApplicationRule
from advisor.core.request import JobRequest
from advisor.core.script import command_of
from advisor.core.step_commands import JobSteps, job_steps, named_step, step_names
from advisor.core.step_plan import ANY
from advisor.core.wrappers import program_at_step, starter_of


def steps(script: str, *rules: ApplicationRule, **more: Any) -> JobSteps:
    return job_steps(request(script, **more), rules)


def request(script: str, **more: Any) -> JobRequest:
    given: dict[str, Any] = {"script": f"#!/bin/bash\n{script}\n", "command": ("job.sh",), **more}
    return JobRequest("slurm", "cli_filter", "ann", 1000, **given)


@pytest.mark.parametrize(
    ("script", "program", "arguments", "ranks"),
    [
        ("srun ./app in.dat", "app", "in.dat", None),
        ("srun -n 8 /opt/app/bin/app  'a  b' c", "app", "a b c", 8),
        ("srun -n $SLURM_NTASKS app", "app", "", None),
        ("srun -n $N app", "app", "", 0),
        ("srun --ntasks-per-node=4 app", "app", "", 0),
        ("srun app $CASE", "app", ANY, None),
        ("CASE=big; srun app $CASE", "app", "big", None),
        ("for c in a b; do srun app $c; done", "app", ANY, None),
        ("run() { srun app x; }; run", "app", "x", None),
        ("srun app x &\nwait", "app", "x", None),
        ("if test -e y; then srun app x; fi", "app", "x", None),
        ("srun python train.py --epochs 3", "train.py", "--epochs 3", None),
        ("srun python3 -u -B train.py", "train.py", "", None),
        ("srun python -m module", "python", "-m module", None),
        ("srun python3.11 -W ignore train.py x", "train.py", "x", None),
        ("time -p srun -n 8 ./app x", "app", "x", 8),
        ("exec nice -n 5 srun ./app x", "app", "x", None),
        ("srun singularity exec --nv -B /a:/b image.sif ./app x", "app", "x", None),
        ("srun apptainer exec $DIR/image.sif python3 -u a.py x", "a.py", "x", None),
        ("srun shifter --image=c ./app x", "app", "x", None),
        ("srun conda run -n env python a.py", "a.py", "", None),
        ("srun stdbuf -oL -e 0 ./app x", "app", "x", None),
        ("srun julia --project=. -O3 sim.jl x", "sim.jl", "x", None),
        ("srun Rscript --vanilla fit.R x", "fit.R", "x", None),
        ("srun app --password=hunter2", "app", "--password=...", None),
        ("srun app 'a;b' \"c*d\"", "app", "a_b c_d", None),
    ],
)
def test_a_step(script: str, program: str, arguments: str, ranks: int | None) -> None:
    (step,) = steps(script).commands
    assert (step.program, step.arguments, step.ranks) == (program, arguments, ranks)
    assert step.variable == "OMP_NUM_THREADS" and not step.fills_cores
    assert bool(step.threads_kept) == (arguments == ANY)
    assert step_names(request(script)) == {program}


@pytest.mark.parametrize(
    "script",
    [
        "./app",
        "mpirun ./app",
        "srun $APP",
        "srun numactl -i all ./app",
        "srun singularity exec --cleanenv image.sif ./app",
        "srun singularity exec --env OMP_NUM_THREADS=4 image.sif ./app",
        "srun singularity exec $IMAGE ./app",
        "srun shifter --clearenv --image=c ./app",
        "srun julia -t 8 sim.jl",
        "srun torchrun --nproc_per_node=4 train.py",
        "srun time ./app",
        "srun timeout 60 ./app",
        "srun env A=1 ./app",
        "srun taskset -c 0-3 ./app",
        "srun bash run.sh",
        "srun ./run.sh",
        "srun env -i ./app",
    ],
)
def test_what_is_not_looked_up(script: str) -> None:
    assert steps(script).commands == ()


WORDS = """
singularity /opt/bin/apptainer exec run --nv --rocm -B --bind a:b --bind=a:b -ec -ev -q --cleanenv
image.sif docker://x shifter --image=c -i -E conda -n env --no-capture-output micromamba -r stdbuf
-oL -i 0 --output=L python python3.11 pypy -u -Bs -W -Wignore -X -m -c -x - -- julia --project
--project=. -O3 -t 8 -e Rscript --vanilla ./app a/x.py in.dat --flag x
""".split()  # noqa: SIM905


@settings(max_examples=300)
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=7))
@example(["singularity", "exec", "image.sif", "python3.11", "-u", "a/x.py", "x"])
def test_the_program_at_a_step_is_the_one_that_its_line_is_read_to_start(words: list[str]) -> None:
    position = program_at_step(words)
    command = command_of(words)
    if position and command is not None and not starter_of(command.wrappers):
        front = len(command.wrappers)
        # Reading may go further, and then nothing is planned; it never stops at another program.
        assert front >= position and command.word == words[front]
        if front == position:
            assert list(command.arguments) == words[position + 1 :]


def test_each_program_once_and_not_too_many() -> None:
    several = steps("srun ./a x\nsrun ./b\nsrun -n 2 ./a x\nsrun ./a x\n").commands
    assert [(s.program, s.ranks) for s in several] == [("a", None), ("b", None), ("a", 2)]
    many = steps("\n".join(f"srun ./a{n}" for n in range(100))).commands
    assert len(many) == 40


@pytest.mark.parametrize(
    ("script", "threads"),
    [
        ("srun app", ()),
        ("export OMP_NUM_THREADS=8\nsrun app", (8,)),
        ("export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\nsrun app", ()),
        ("export OMP_NUM_THREADS=$N\nsrun app", None),
        ("OMP_NUM_THREADS=2 srun app\nOMP_NUM_THREADS=4 srun app", None),
    ],
)
def test_the_threads_that_a_script_states(script: str, threads: tuple[int, ...] | None) -> None:
    assert steps(script).threads == threads


def test_what_a_script_keeps() -> None:
    assert "list of cores" in steps("export OMP_PLACES='{0:4}'\nsrun app").threads_kept
    assert "SLURM_CPU_FREQ_REQ" in steps("echo $SLURM_CPU_FREQ_REQ\nsrun app").frequency_kept
    assert steps("srun app -nt 8").commands[0].threads_kept
    plain = steps("srun app")
    assert not (plain.threads_kept or plain.frequency_kept or plain.commands[0].threads_kept)
    assert JobSteps.from_dict(plain.to_dict()) == plain


def test_a_sites_rules_name_programs() -> None:
    rule = ApplicationRule("gromacs", executable=("gmx*",), threads_from=("GMX_THREADS",))
    (step,) = steps("srun gmx_mpi mdrun", rule).commands
    assert (step.program, step.application, step.workload) == ("gmx_mpi", "gromacs", "mdrun")
    assert step.variable == "GMX_THREADS"
    two = ApplicationRule("gromacs", executable=("gmx*",), threads_from=("A", "B"))
    assert steps("srun gmx_mpi mdrun", two).commands == ()


def test_a_name_alone_tells_a_program_where_no_rule_asks_for_arguments() -> None:
    step = named_step("app", None, "", ())
    assert step is not None
    assert (step.arguments, step.application, step.workload) == (ANY, "app", "default")
    fixed = ApplicationRule("x", executable=("app",), workload="w")
    step = named_step("app", None, "", (fixed,))
    assert step is not None and (step.application, step.workload) == ("x", "w")
    by_arguments = ApplicationRule("y", arguments=(re.compile("big"),))
    assert named_step("app", None, "", (by_arguments,)) is None
    assert named_step("app", None, "", (fixed, by_arguments)) is not None
    assert named_step("app", ["big"], "", (by_arguments,)) is not None
    assert named_step("bash", None, "", ()) is None
