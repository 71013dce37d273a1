"""What in a script may end a program after a time, and what only looks like it."""

from __future__ import annotations

import math

import pytest

from advisor.core.script_limits import ends_after_s, ends_programs, limits_steps
from advisor.core.script_use import use_of_script


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("timeout 1h srun ./app", "timeout"),
        ("/usr/bin/timeout -k 5 60 srun ./app", "timeout"),
        ('bash -c "timeout 60 ./app"', "timeout"),
        ("gtimeout 60 ./app", "gtimeout"),
        ("T='timeout 60'\n$T srun ./app", "timeout"),
        ("python - <<E\nsubprocess.run(['srun', 'app'], timeout=60)\nE", "timeout="),
        ("env SLURM_TIMELIMIT=10 srun ./app", "_TIMELIMIT"),
        ("trap 'kill $P' ALRM\nsrun ./app", "ALRM"),
        ("perl -e 'alarm 60; exec @ARGV' srun ./app", "alarm"),
        ("ulimit -S -t 60\nsrun ./app", "ulimit -t"),
        ("prlimit --cpu=60 srun ./app", "ulimit -t"),
        ("(sleep 3600; kill $$) &\nsrun ./app", "kill beside sleep"),
        ("srun ./app & P=$!\nsleep 3600; kill -9 $P", "kill beside sleep"),
        ("srun ./app &\nsleep 3600\nscancel $SLURM_JOB_ID", "scancel beside sleep"),
        ("srun ./app &\nread -t 60 < pipe; pkill app", "pkill beside read"),
        ("srun ./a & srun ./b &\nwait -n\nkill $(jobs -p)", "kill beside wait"),
        ("while kill -0 $P; do sleep 1; done; skill app", "skill beside sleep"),
        ("srun ./a & srun ./b &\nwait -n", "its end after wait"),
        ("srun ./app &\nsleep 3600\necho done", "its end after sleep"),
        ("srun ./app &\nread -p 'how long' -t 60 answer", "its end after read"),
    ],
)
def test_what_may_end_a_program(script: str, what: str) -> None:
    assert ends_programs(script) == what


@pytest.mark.parametrize(
    "script",
    [
        "srun ./app",
        "#SBATCH --time=10 --signal=B:USR1@60\nsrun ./app",
        "# timeout 60 stops it\nsrun ./app  # no alarm or timeout here",
        "srun ./app --timeout 60",
        "export NCCL_TIMEOUT=22\nsrun ./app",
        "timeout=20\nsrun ./app",
        "ulimit -s unlimited\nsrun ./app",
        "ulimit -t unlimited\nsrun ./app",
        "sleep 10\nsrun ./app",
        "srun ./app &\nsleep 10\nwait",
        "for i in 1 2; do srun ./app & wait -n; done\nwait",
        "srun ./server &\nsleep 10\nsrun ./client",
        "srun ./app &\nwhile kill -0 $!; do sleep 1; done\nwait",
        "nvidia-smi -l > log &\nsleep 1\nsrun ./app\necho done",
        "cleanup() { kill $P; }\ntrap cleanup EXIT\nsrun ./app",
    ],
)
def test_what_ends_nothing(script: str) -> None:
    assert ends_programs(script) == ""


@pytest.mark.parametrize(
    ("script", "limited"),
    [
        ("srun -t 10 ./app", True),
        ("srun -n4 --time=10 ./app", True),
        ("srun -n 4 \\\n  --time 10 ./app", True),
        ("srun -lt10 ./app", True),
        ("OPTS='-t 10'\nsrun $OPTS ./app", True),
        ('bash -c "srun -t 10 ./app"', True),
        ("cat > run <<'E'\nsrun -N1 -t 5 ./app\nE\nbash run", True),
        ('run() { srun "$@"; }\nrun -t 10 ./app', True),
        ("srun -n $N -J x ./app\necho a -t 9", True),  # N may hold anything
        ("srun ./app", False),
        ("#SBATCH -t 10\nsrun -n 4 ./app", False),
        ("srun -n4 bwa mem -t 16 x", False),
        ("srun -l ./app -t 16", False),
        ("srun --exclusive -N1 julia -t 48 x", False),
        ('run() { srun "$@"; }\nrun -n 10 ./app', False),
        ("srun -n $N ./app", False),
        ("# srun -t 10\nmpirun -t 10 ./app", False),
    ],
)
def test_a_limit_of_a_step(script: str, limited: bool) -> None:
    assert bool(limits_steps("#!/bin/bash\n" + script)) is limited


@pytest.mark.parametrize(
    "script",
    [
        "(sleep 3600; kill $$) &\nsrun ./app",
        "sleep 3600 && kill $$ &\nsrun ./app",
        "watch_it() { sleep 60; kill $$; }\nwatch_it &\nsrun ./app",
        "trap 'kill 0' ALRM\nsrun ./app",
        "ulimit -t 60\nsrun ./app",
        "timeout $T srun ./app",
    ],
)
def test_a_script_whose_program_is_ended_is_not_understood(script: str) -> None:
    detail = "it ends its program after a time that cannot be read"
    assert use_of_script(script).obstacle == ("script-not-understood", detail)


@pytest.mark.parametrize(
    "script",
    [
        "trap 'kill $P' EXIT\nsrun ./app",
        "stop() { kill $P; }\nsrun ./app",
        "kill -0 1\nsleep 1\nsrun ./app\nkill $P",
    ],
)
def test_what_ends_others_behind_the_program_is_understood(script: str) -> None:
    assert use_of_script(script).obstacle == ("", "")


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("", math.inf),
        ("timeout 60", 60),
        ("timeout -k 5 1.5m", 90),
        ("nice /bin/timeout --signal KILL 2h", 7200),
        ("timeout 1d", 86400),
        ("timeout 0", math.inf),
        ("timeout 60 nice timeout 30", 30),
        ("timeout $T", None),
        ("timeout --foreground 5x", None),
    ],
)
def test_when_timeout_ends_a_program(words: str, seconds: float | None) -> None:
    assert ends_after_s(words.split()) == seconds
