"""What stands in front of a program: read by its options, or the program is not known."""

from __future__ import annotations

from time import thread_time

import pytest

from advisor.core.recognise import recognise
from advisor.core.script import commands, main_command, read
from advisor.core.script_use import use_of_script
from advisor.core.wrappers import clearing, unwrap


def obstacle(script: str) -> str:
    return ": ".join(filter(None, use_of_script(f"#!/bin/bash\n{script}\n").obstacle))


@pytest.mark.parametrize(
    "front",
    [
        "taskset -c 0-3",
        "taskset 0xff",
        "numactl --physcpubind 0-3",
        "numactl -i all",
        "numactl --membind=0 -l",
        "/usr/bin/time -f '%E real'",
        "/usr/bin/time -vo log",
        "time -p",
        "stdbuf -o L",
        "stdbuf -oL",
        "nice -n 5",
        "nice -5",
        "ionice -c 3",
        "timeout --signal KILL 60",
        "timeout -k 5 60",
        "env --chdir /tmp A=1",
        "exec -a name",
        "chrt -i 0",
        "nohup",
        "command",
        "conda run -n x",
        "mamba run --no-capture-output -p /x",
        "singularity exec box/",
        "singularity -q exec --nv -B /a:/b image.simg",
        "apptainer exec --bind /a.sif:/b docker://x",
        "singularity exec $PWD/image",
        "shifter --image=docker:x",
        "shifter -i x --module=mpich",
        "micromamba run -n x",
        "uv run --with numpy",
        "poetry run",
        "xvfb-run -a -s '-screen 0 640x480x24'",
        "perf stat -e cycles,instructions -o counts",
        "perf record -F 99 -g --",
        "nsys profile --trace=cuda,nvtx -o out --force-overwrite true",
    ],
)
@pytest.mark.parametrize("launcher", ["", "srun -n 2 "])
def test_the_program_behind_it_is_known(front: str, launcher: str) -> None:
    if launcher and front in ("time -p", "nohup", "command", "exec -a name"):
        launcher = ""  # of the shell itself
    command = main_command(f"{launcher}{front} ./app x")
    assert command is not None
    profiler = front.split() if front.startswith(("perf", "nsys")) else ()
    assert (command.word, command.arguments) == ("./app", (*profiler, "x"))


@pytest.mark.parametrize(
    "line",
    [
        "singularity exec $IMAGE ./app",
        "singularity exec $OPTIONS image.sif ./app",
        "apptainer exec --unknown x image.sif ./app",
        "singularity exec --nv",
        "srun singularity exec $I a",
        "shifter --what x ./app",
        "conda run --what ./app",
    ],
)
def test_a_program_that_may_begin_elsewhere_stops_everything(line: str) -> None:
    """Before, it vanished, and another program counted as the job's only one."""
    assert "not known what" in obstacle(line)
    assert "not known what" in obstacle(f"{line}\n./other")


def test_an_image_that_the_script_names_is_known() -> None:
    command = main_command("I=/x/tool.img\nsrun singularity exec --nv $I python -u t.py")
    assert command is not None and command.executable == "t.py"
    assert command.wrappers[:4] == ("singularity", "exec", "--nv", "/x/tool.img")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("python -W ignore train.py", "train.py"),
        ("python3 -X dev train.py -c x", "train.py"),
        ("python -um pytest x", "python"),
        ("python -mpdb x.py", "python"),
        ("python -uc 'x' a", "python"),
        ("julia -t 8 sim.jl", "sim.jl"),
        ("julia --project=. -p 4 sim.jl", "sim.jl"),
        ("julia -O3 -e 'x' y", "julia"),
        ("perl -I lib x.pl", "x.pl"),
        ("perl -MPOSIX x.pl", "x.pl"),
        ("perl -ne 'x' y", "perl"),
        ("java -Xmx4g -cp a:b Main 3", "Main"),
        ("java -jar app.jar x", "app.jar"),
        ("Rscript --vanilla x.R", "x.R"),
        ("python - x", "python"),
        ("python", "python"),
    ],
)
def test_an_interpreter_is_named_by_its_file(line: str, name: str) -> None:
    command = main_command(line)
    assert command is not None and command.executable == name


@pytest.mark.parametrize("option", ["-t 8", "--threads=8", "-t8", "-p 4"])
def test_threads_that_an_interpreter_is_given_are_kept(option: str) -> None:
    assert use_of_script(f"srun julia {option} sim.jl").threads


@pytest.mark.parametrize(
    "front",
    [
        "env -i",
        "env - A=1",
        "exec -c",
        "singularity exec --cleanenv a.sif",
        "singularity exec -e a.sif",
        "apptainer exec -eB /a:/b a.sif",
        "apptainer exec --containall a.sif",
        "singularity exec --env-file f a.sif",
        "shifter -E --image=x",
    ],
)
def test_what_takes_variables_away_stops_everything(front: str) -> None:
    assert "takes variables out" in obstacle(f"{front} ./app")
    assert clearing(unwrap(f"{front} ./app".split()).wrappers)


def test_what_takes_nothing_away() -> None:
    for front in ("singularity exec -B /a:/b a.sif", "env A=1 -u B", "exec -a name", "exec"):
        assert not clearing(front.split())


@pytest.mark.parametrize(
    "line",
    [
        "source activate x",
        "source ~/venv/bin/activate",
        "source deactivate",
        "deactivate",
        ". /mnt/apps/intel/bin/compilervars.sh intel64",
        "source $MODULESHOME/init/bash",
        "ldd ./app",
        "jq . x.json",
        "lfs setstripe -c 4 out",
        "find . -name '*.tmp' -exec rm {} +",
        "command -v app",
    ],
)
def test_light_commands_beside_the_program(line: str) -> None:
    assert obstacle(f"{line}\n./app\n{line}") == ""


@pytest.mark.parametrize(
    "line",
    [
        "source activate.sh",
        "source my/activate2",
        "find . -exec ./app {} +",
        "find . -exec",
        "find . -exec bash -c x {} +",
        "find . -exec rm {} + -exec ./app {} +",
        "conda run",
        "source myvars.sh",
    ],
)
def test_commands_that_may_start_others_are_not_light(line: str) -> None:
    assert obstacle(f"{line}\n./app").startswith(("several-steps", "script-not-understood"))


@pytest.mark.parametrize(
    "word",
    [
        '${1:-"x y"}',
        '"${A[${i}]}"',
        "${A:-${B}}",
        "${A:='x'}",
        "${A:-x\\}y}",
        '"${A:-"${B}"}"',
        "${A[$((i % 2))]}",
        "${A//\\//_}",
    ],
)
def test_a_variable_with_quotes_or_braces_is_read_and_not_known(word: str) -> None:
    shell = read(f"./app {word} && ./other")
    assert (shell.shell.problem, shell.unresolved) == ("", ())
    assert [c.executable for c in shell.commands] == ["app", "other"]
    started = main_command(f"srun -n {word} ./app")
    assert started is not None and started.unclear
    assert "not known what" in obstacle(f"{word} x")
    assert "not known what" in obstacle(f"srun {word} ./app")


@pytest.mark.parametrize(
    "word", ["${A:-$(./sneak)}", '"${A:-`./sneak`}"', '${A:-"$(./sneak)"}', "${A[$(./sneak)]}"]
)
def test_a_command_inside_of_a_variable_is_seen(word: str) -> None:
    """Before, ``${A:-$(./sneak)}`` hid it: another program counted as the job's only one."""
    names = [c.executable for c in commands(f"srun ./app {word}")]
    assert names == ["sneak", "app"]
    assert obstacle(f"./app {word}") == "several-steps: sneak, app"


@pytest.mark.parametrize("word", ["${A:-'}'}", "\"${A:-'$B'}\"", "${A:-$'x'}", "${A:-{}"])
def test_what_may_end_elsewhere_is_not_followed(word: str) -> None:
    assert read(f"./app {word}").shell.problem
    assert read(f"./app {word}\n./other x").commands[-1].executable == "other"


@pytest.mark.parametrize("word", ['${A:-"./app"}', "${A:-${B}/app}"])
def test_a_piece_of_a_variable_is_no_program(word: str) -> None:
    assert main_command(f"{word} x") is None


@pytest.mark.parametrize("word", ["$SCRIPT", "${SCRIPT}.py", '"${SCRIPT:-${DIR}/x.py}"'])
def test_an_interpreter_s_file_that_only_a_variable_names_is_not_known(word: str) -> None:
    """Before, the variable's name was the application's, the same for all of its files."""
    assert main_command(f"srun python -u {word} x") is None
    assert "not known what" in obstacle(f"./app\npython {word} x")


def test_aprun_and_mpt() -> None:
    command = main_command("aprun -n 32 -cc depth ./app")
    assert command is not None and command.word == "./app"
    assert use_of_script("aprun -n 32 -cc depth ./app").threads == "aprun -cc sets it"
    command = main_command("./setup\nmpiexec_mpt -n 8 ./app")
    assert command is not None and (command.launcher, command.word) == ("mpiexec_mpt", "./app")
    assert "dplace" in obstacle("mpiexec_mpt dplace -s 1 ./app")
    assert use_of_script("mpirun -genvlist A,B -n 4 ./app").threads == "mpirun -genvlist sets it"


def test_what_makes_a_run_another_one_is_of_its_workload() -> None:
    """Before, a model of four processes served eight of them, and one process alone."""
    fronts = "torchrun --nproc_per_node=4;torchrun --nproc_per_node=8;python;deepspeed;"
    fronts += "perf record -g python;nsys profile -o out python"
    known = [recognise(f"srun {front} train.py x") for front in fronts.split(";")]
    assert {r.application for r in known} == {"train.py"}
    assert len({r.workload for r in known}) == len(known)


@pytest.mark.parametrize(
    "front",
    [
        "torchrun --standalone --nnodes=1 --nproc_per_node 4",
        "torchrun --nproc_per_node=gpu --rdzv-backend c10d",
        "python3 -u -m torch.distributed.run --nproc_per_node 4",
        "python -m torch.distributed.launch --use_env --nproc_per_node=$GPUS",
        "accelerate launch --config_file c.yaml --num_processes $N",
        "deepspeed --num_gpus 4 --master_port 29500",
    ],
)
def test_the_program_behind_a_starter_is_known_and_keeps_its_threads(
    front: str,
) -> None:
    script = f"#!/bin/bash\nsrun {front} train.py --lr 1\n"
    command = main_command(script)
    assert command is not None
    assert command.executable == "train.py"
    assert command.arguments == (*front.split(), "--lr", "1")
    use = use_of_script(script)
    assert use.obstacle == ("", "")
    assert "starts processes of its own" in use.threads
    assert "starts processes of its own" in use.node_type
    assert not use.frequency


@pytest.mark.parametrize(
    "line",
    [
        "torchrun $ARGS train.py",
        "torchrun --nproc_per_node 4 $SCRIPT",
        "torchrun --nproc_per_node 4 -m package.train",
        "accelerate launch --multi_node_magic 3 train.py",
        "nsys profile --delay 3 --duration 60 ./app",
        "perf stat --repeat 5 ./app",
        "perf stat -p 17",
        "uv run -m package",
        "uv run --env-file variables ./app",
        "deepspeed --hostfile nodes train.py",
        "uv sync",
        "poetry install",
        "torchrun --help",
        "python -m torch.utils.collect_env x",
    ],
)
def test_where_the_program_begins_is_not_guessed(line: str) -> None:
    """Then what stands in front is the program, with all its words."""
    command = main_command(line)
    words = line.split()
    assert command is not None and (command.word, *command.arguments) == tuple(words)
    if words[0] in ("torchrun", "accelerate", "deepspeed"):
        assert "starts processes of its own" in use_of_script(line).threads


@pytest.mark.parametrize("text", ["./app x", "/opt/bin/app x", "./app  x"])
@pytest.mark.parametrize("front", ["srun bash", "mpirun -n 2 sh"])
def test_a_shell_s_one_command_is_the_program(front: str, text: str) -> None:
    command = main_command(f"{front} -c '{text}'")
    assert command is not None
    assert (command.executable, command.arguments) == ("app", ("x",))
    assert obstacle(f"{front} -c '{text}'") == ""


@pytest.mark.parametrize(
    "text",
    [
        "cd x && ./app",
        "./app; ./other",
        "./app | tee log",
        "./app > log",
        "./app $N",
        "./app `date`",
        "A=1 ./app",
        "./app &",
        "source x",
        "exec ./app",
        "./a\n./b",
        "~/app",
        "./*",
        "{ ./app; }",
        "./job.sh",
        "nice -n 5 ./app",  # a name alone may be the shell's own
        "/usr/bin/srun ./app",
        "/usr/bin/sbatch next",
    ],
)
def test_of_a_shell_s_longer_text_nothing_is_understood(text: str) -> None:
    assert "may run anything" in obstacle(f"srun bash -c '{text}'")


def test_a_shell_that_reads_profiles_or_gets_arguments_is_none_of_these() -> None:
    for line in (
        "bash -lc './app x'",
        "bash -c './app x' name",
        "bash -xc './app'",
        'bash -c "$X"',
    ):
        assert "may run anything" in obstacle(line)


@pytest.mark.parametrize(
    "word",
    [
        *("env ", "time -p ", "exec -x ", "singularity exec a ", "julia -t "),
        *("perf stat ", "torchrun --tee ", "uv run ", "python -m torch.distributed.run "),
    ],
)
def test_many_words_in_front_take_no_longer_than_others(word: str) -> None:
    """``env env env ...`` kept the daemon busy for a second, with the square of its words."""
    script = word * (10_000 // len(word)) + "./app"
    begin_s = thread_time()
    use_of_script(script)
    assert thread_time() - begin_s < 0.3


def test_a_starter_s_program_with_the_name_of_a_light_command_is_seen() -> None:
    """Before, it vanished, and another program counted as the job's only one."""
    assert obstacle("torchrun test x\n./other") == "several-steps: test, other"


@pytest.mark.parametrize(
    "value", ["`wc -l < $PBS_NODEFILE`", "$(wc -l < $PBS_NODEFILE)", "$(cat $(ls x) | wc -l)"]
)
def test_a_value_that_is_substituted_is_one_word(value: str) -> None:
    """Its own words stood for options and the program: ``mpirun`` seemed to start ``<``."""
    command = main_command(f"NP={value}\nmpirun -np $NP ./app x")
    assert command is not None
    assert (command.word, command.arguments) == ("./app", ("x",))
    assert command.launcher_options == (f"-np={value}",)
    use = use_of_script(f"NP={value}\nmpirun -np $NP ./app x")
    assert (use.ranks, use.ranks_unclear) == (None, "ls x" in value)


@pytest.mark.parametrize(
    ("count", "own", "follows"),
    [
        ("$(cat $PBS_NODEFILE | wc -l)", True, ""),
        ("`cat $PBS_NODEFILE|wc -l`", True, ""),
        ("$(wc -l < ${PBS_NODEFILE})", True, ""),
        ("$(wc -l $PBS_NODEFILE | awk '{print $1}')", True, ""),
        ("$(sort -u $PBS_NODEFILE | wc -l)", True, "$((PBS_NUM_NODES))"),
        ("$(uniq $PBS_NODEFILE | wc -l)", False, ""),
        ("$(wc -l < nodes)", False, ""),
        ("$(( 2 * $(wc -l < $PBS_NODEFILE) ))", True, "$((2*PBS_NP))"),
    ],
)
def test_lines_of_the_node_file_are_the_job_s_own_ranks(
    count: str, own: bool, follows: str
) -> None:
    for script in (f"NP={count}\nmpirun -np $NP ./app x", f'mpirun -np "{count}" ./app x'):
        use = use_of_script(script)
        assert use.obstacle == ("", "")
        assert (use.ranks, use.ranks_of_job, use.ranks_unclear) == (None, follows, not own)


@pytest.mark.parametrize("piece", ["$(", "`a ", "$(a (", "$(a)b "])
def test_a_value_of_many_substitutions_takes_no_longer(piece: str) -> None:
    begin_s = thread_time()
    main_command(f"A='{piece * 8000}'\nmpirun $A ./app")
    assert thread_time() - begin_s < 1
