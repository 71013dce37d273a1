"""What ``eval`` starts in a job script, as bash itself reads it."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.script import commands, read

PROGRAMS = ("app", "other", "mpirun")
RECORD = '#!/bin/bash\nprintf "%s\\0" "${0##*/}" "$@" "" >> "$LOG"; printf "\\1" >> "$LOG"\n'
JOB = {"SLURM_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"}


def ran(script: str) -> list[list[str]]:
    """Return the words of each program that bash starts for a script, in their order."""
    with tempfile.TemporaryDirectory() as folder:
        for name in PROGRAMS:
            program = Path(folder, name)
            program.write_text(RECORD)
            program.chmod(0o700)
        log, work = Path(folder, "log"), Path(folder, "work")
        work.mkdir()
        subprocess.run(
            ["/bin/bash", "-c", script],
            env={"PATH": folder, "LOG": str(log), **JOB},
            cwd=work,
            capture_output=True,
            timeout=20,
            check=False,
        )
        runs = log.read_text().split("\1")[:-1] if log.exists() else []
    return [run.split("\0")[:-2] for run in runs]


def words_read(script: str) -> list[list[str]] | None:
    """Return the same as it is read; None where it is not known what ``eval`` does."""
    found = commands(script)
    if read(script).unresolved or any(c.executable == "eval" for c in found):
        return None
    words = [
        [
            *([c.launcher] if c.launcher else []),
            *(w for o in c.launcher_options for w in o.split("=", 1)),
            c.word,
            *c.arguments,
        ]
        for c in found
    ]
    return [[_of_job(w) for w in run] for run in words]


def _of_job(word: str) -> str:
    for name, value in JOB.items():
        word = word.replace(f"${name}", value)
    return word


@pytest.mark.parametrize(
    "script",
    [
        'CMD="app -x 1"\neval $CMD',
        'application="app"\noptions="in.txt -n 3"\nCMD="$application $options"\neval $CMD',
        'CMD="mpirun -np 4 app in > out 2>&1"\neval "$CMD"',
        "CMD='app \"two words\" three'\neval $CMD",
        "N=5\nCMD='app $N'\nM=6\neval \"other $M\"",
        'eval "app $SLURM_ARRAY_TASK_ID" > log.$SLURM_JOB_ID',
        "i=$SLURM_ARRAY_TASK_ID\nCMD='app +experiment=x_'$i\neval $CMD",
        "if [ \"$SLURM_JOB_ID\" ]; then CMD='x'; fi\nCMD='app'\neval $CMD",
        "eval app   'a'  # not an argument",
        "eval app '#' x",
    ],
)
def test_one_program_is_read_as_bash_runs_it(script: str) -> None:
    expected = ran(script)
    assert len(expected) == 1
    assert words_read(script) == expected


@pytest.mark.parametrize(
    "text",
    [
        "$CMD",  # not known
        '"$1"',
        '"app $NAME"',  # a name may be `x; other`
        '"app $SLURM_JOB_NAME"',
        "'app; other'",
        "'app && other'",
        "'app | other'",
        "'app &'",
        "'(app)'",
        "'for i in 1 2; do app; done'",
        "'if true; then app; fi'",
        "'app $(other)'",
        "'app `other`'",
        "'app <<< x'",
        "'A=1 app'",
        "'OMP_NUM_THREADS=4 app'",
        "'A=1'",
        "'export OMP_NUM_THREADS=4'",
        "'unset OMP_NUM_THREADS'",
        "'cd run'",
        "'kill $$'",
        "'sleep 60'",
        "'sbatch next.sh'",
        "'env A=1 sbatch next.sh'",
        "'eval app'",
        "'f() { app; }'",
        "helper",
        "'app\nother'",
        "'app \"unbalanced'",
        "''",
        "",
        "'app " + "x " * 3000 + "'",
    ],
)
def test_what_may_be_anything_else_is_not_read(text: str) -> None:
    script = f"helper() {{ other; }}\neval {text}\n"
    found = [c for c in commands(script) if not c.place.function]
    assert all(c.executable == "eval" for c in found) or read(script).unresolved


def test_it_is_read_within_the_deadline_of_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.core.script.DEADLINE_S", -1.0)
    assert not commands("eval app " + "y " * 20)


PIECES = st.sampled_from(
    [
        *" '\"\\;|&><#=(){}!\n`",
        "app",
        "other",
        "-n",
        "3",
        "$A",
        "${A}",
        "$SLURM_JOB_ID",
        "x=1",
        "a,b",
    ]
)


@given(st.lists(PIECES, max_size=7), st.sampled_from(["$CMD", '"$CMD"', "app $CMD"]))
def test_whatever_is_read_is_what_bash_runs(pieces: list[str], evaluated: str) -> None:
    """A text that is read at all is one program with just these words, or bash refuses it."""
    text = "".join(pieces).replace("'", "'\\''")
    script = f"A='other x'\nCMD='app {text}'\neval {evaluated}"
    known = words_read(script)
    if known is not None and not read(script).shell.problem:
        assert ran(script) in (known, []), script
