"""Every rule of `make lint` finds what breaks it, says where, and is silent about the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lint.__main__ import RULES, broken
from tests.lint.processes import ASKING, ROOMS, STARTERS
from tests.lint.project import Project, Rule


@dataclass(frozen=True)
class Planted:
    """Files that break a rule, and the beginnings of what is then said, in order."""

    files: Mapping[str, str | None]
    says: tuple[str, ...]


ROOM = {f"advisor/schedulers/{room}/__init__.py": "" for room in ("local", "pbs", "slurm")}
STARTS = {f"{ROOMS}{name}": "import subprocess\n" for name in STARTERS}
ASKS = {f"{ROOMS}{name}": STARTS.get(f"{ROOMS}{name}", "") + "run_command()\n" for name in ASKING}

PLANTED = {
    "explained_constants": Planted(
        {
            "hooks/a.py": 'A = 1\n"""s"""\n\nB, C = 1, 2\nD = 3.0\n"""s"""\n# E\nE = 5\n\n'
            "F = (1, -2)\n\nx = 1\nG = True\nH: int = 2 * 3  # s\n",
            "db/b.py": "_LIMIT = 2**3",
        },
        ("db/b.py:1: say what _LIMIT = 2 ** 3 is", "hooks/a.py:10: say what F = (1, -2) is"),
    ),
    "rooms_of_schedulers": Planted(
        {
            **ROOM,
            "advisor/core/launchers.py": 'NAMES = ("SLURM_JOB_ID", "NCPUS")\n',
            "advisor/core/script.py": 'name = "slurm"\n',
            "advisor/loop/pbs_jobs.py": "",
            "advisor/loop/a.py": "\nfrom advisor.schedulers.local import x\n"
            "from advisor.schedulers import base, local\nos.environ['SBATCH_X']\nf = 'squeue'\n",
            "tui/b.py": "NCPUS = 'qstats'",
            "advisor/schedulers/pbs/d.py": "import advisor.schedulers.slurm.table\nname = 'pbs'\n",
        },
        (
            'advisor/core/script.py:1: "slurm" belongs into the room',
            "advisor/loop/a.py:2: advisor.schedulers.local: nobody outside",
            "advisor/loop/a.py:3: from advisor.schedulers import base, local: nobody outside",
            "advisor/loop/a.py:4: SBATCH_X belongs into the room",
            "advisor/loop/a.py:5: 'squeue' belongs into the room",
            "advisor/loop/pbs_jobs.py:1: a module's name",
            "advisor/schedulers/pbs/d.py:1: advisor.schedulers.slurm: a room knows no other",
            "tui/b.py:1: NCPUS belongs into the room",
        ),
    ),
    "room_of_the_instruments": Planted(
        dict.fromkeys(
            ("advisor/core/twin.py", "advisor/instruments/twin.py", "advisor/loop/trace/a.c"), ""
        ),
        ("advisor/core/twin.py:1: what measures", "advisor/loop/trace:1: what measures"),
    ),
    "classes_of_one_name": Planted(
        {
            "advisor/a.py": "class Same: ...\nclass _Private: ...\nT = 1\nLIMIT = 2\n",
            "advisor/b.py": "if x:\n    class Other: ...\nelse:\n    Same = int | str\nT = 1\n",
            "tui/advisor_tui/c.py": "class _Private: ...\nLIMIT = 2\n\n\nclass Other: ...\n",
        },
        (
            "advisor/b.py:4: Same is a class of advisor/a.py",
            "tui/advisor_tui/c.py:5: Other is a class of advisor/b.py",
        ),
    ),
    "locals_that_say_what_they_hold": Planted(
        {
            "advisor/a.py": "kept = 1\n\ndef f(told):\n    def g():\n        found = kept\n",
            "db/a.py": "class A:\n    kept: int\n\nf = lambda said: said\n",
        },
        ("advisor/a.py:3: say what it is that is told", "advisor/a.py:5: ", "db/a.py:4: "),
    ),
    "imports_without_circles": Planted(
        {
            "advisor/a.py": "import os\ndef f():\n    from advisor import b\n",
            "advisor/b.py": "from advisor.c.d import x\n",
            "advisor/c/__init__.py": "",
            "advisor/c/d.py": "import advisor.a\n",
            "advisor/e.py": "import advisor.a\n",
            "tui/advisor_tui/f.py": "\nfrom . import g\n",
        },
        (
            "advisor/a.py:1: imports itself by way of advisor.b, advisor.c.d",
            "tui/advisor_tui/f.py:2: a relative import",
        ),
    ),
    "spine_without_large_libraries": Planted(
        {
            "advisor/a.py": "import numpy\ndef f():\n    from scipy.special import stdtr\n",
            "tui/b.py": "import pandas as pd, statsmodels.api\n",
            "db/c.py": "import scipyfoo\nfrom . import patsy\n",
            "hooks/d.py": "from patsy import bs\n",
            "lab/advisor_lab/e.py": "import pandas\n",
        },
        (
            "advisor/a.py:3: scipy is the laboratory's: use numpy, or move it to lab/",
            "hooks/d.py:1: patsy is the laboratory's",
            "tui/b.py:1: pandas is the laboratory's",
            "tui/b.py:1: statsmodels is the laboratory's",
        ),
    ),
    "one_helper_starts_interpreters": Planted(
        {
            "advisor/interpreter.py": "import sys\nsys.executable\n",
            "advisor/errors.py": "from advisor.interpreter import this_python\n",
            "advisor/a.py": "import sys\nrun([sys.executable])\nfrom sys import _base_executable\n"
            "from advisor.interpreter import this_python\nimport multiprocessing.pool\n"
            "from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor\n"
            "a = ['/usr/bin/python3', x, '-c']\nb = (x, '-m', 'advisor')\n"
            "c = 'python3 -m http'\nd = 'python3 x -m'\n",
            "docs/security.md": "`python -m advisor` is wrong\n",
            "docs/user.md": "\ntype `python -m advisor serve`\n",
            "config/a.service": "ExecStart=python3.11 -c 'x'\n",
        },
        (
            *(f"advisor/a.py:{n}: own_python()" for n in range(2, 10)),
            "config/a.service:1: python3.11 -c: name",
            "docs/user.md:2: -m advisor: name",
        ),
    ),
    "one_way_to_ask_schedulers": Planted(
        {
            **STARTS,
            **ASKS,
            f"{ROOMS}command.py": "import subprocess\n",
            f"{ROOMS}thread_counter.py": None,
            f"{ROOMS}pbs/a.py": "import subprocess\nrun_command(['qstat'])\n",
            "advisor/loop/a.py": "x = []\ny = ['sacct', z]\nz = ['echo', 'sacct']\n",
        },
        (
            "advisor/loop/a.py:2: sacct is asked by control.ask()",
            "advisor/schedulers/command.py:1: no longer calls run_command",
            "advisor/schedulers/pbs/a.py:1: calls run_command: control.ask()",
            "advisor/schedulers/pbs/a.py:1: starts programs: control.ask()",
            "advisor/schedulers/thread_counter.py:1: is no longer there",
        ),
    ),
    "drafts_for_what_is_renamed": Planted(
        {
            "advisor/a.py": "import os\nos.replace(a, b)\npath.rename(b)\n'a'.replace('a', 'b')\n"
            "replace(a, b=1)\nrecord.replace(*a)\n",
            "advisor/b.py": "from advisor.drafts import draft\npath.replace(new)\n",
            "advisor/drafts.py": "path.replace(new)\n",
        },
        ("advisor/a.py:2: what is renamed", "advisor/a.py:3: what is renamed"),
    ),
    "commands_of_pages": Planted(
        {
            "docs/cli.md": "`advisor nothing`\n",
            "docs/a.md": "Say `advisor explain --jsn`, `advisor\nexplode`, `advisor hook x`.\n"
            "`--no-such-option` is none, `--goal` and `--exclusive` are, `-z` is none.\n\n"
            "    advisor explain -- -n 2\n    advisor explain job.sh -- -n 4\n",
        },
        (
            "docs/a.md:1: advisor explain has no --jsn",
            "docs/a.md:1: advisor explode: there is no such verb",
            "docs/a.md:2: advisor hook x: there is no such verb",
            "docs/a.md:3: --no-such-option: there is no such option",
            "docs/a.md:3: -z: there is no such option",
            "docs/a.md:5: advisor explain -- -n 2: ",
        ),
    ),
    "words_of_pages": Planted(
        {
            "README.md": "`ADVISOR_MOOD=x` and ADVISOR_RENEW\n\n`confirmed-by-nobody`\n\n"
            "    #ADVISOR goal=min_energy speed=fast\n",
            "advisor/a.py": "x = 'ADVISOR_MOODY'\n",
        },
        (
            "README.md:1: ADVISOR_MOOD: there is no such variable",
            "README.md:3: confirmed-by-nobody is no reason code",
            "README.md:5: speed is no setting of a script",
            "advisor/a.py:1: ADVISOR_MOODY is not in docs/generator/variables.py",
        ),
    ),
    "keys_of_pages": Planted(
        {
            "docs/a.md": "`training.trusted` and `training.trust`\n\n`training: {nod: auto}`\n\n"
            "`max_slowdown: many`, `max_slowdown: 5%`\n"
        },
        (
            "docs/a.md:1: training.trusted: there is no such key",
            "docs/a.md:3: training.nod: there is no such key",
            "docs/a.md:3: training: {nod: auto}: ",
            "docs/a.md:5: max_slowdown: many: ",
        ),
    ),
    "links_of_pages": Planted(
        {
            "README.md": "[a](docs/a.md) [b](docs/a.md#b) [b](https://b.org)\n"
            "![c](docs/pictures/c.svg)\n",
            "docs/a.md": "\n[gone](gone.md)\n",
            "docs/b.md": "![e](e.svg)",
            "docs/e.svg": "",
            "docs/pictures/c.svg": "",
            "docs/pictures/d.svg": "",
        },
        (
            "docs/a.md:2: gone.md: there is no such file",
            "docs/b.md:1: e.svg is not in docs/pictures",
            "docs/b.md:1: the README does not list",
            "docs/pictures/d.svg:1: no page shows",
        ),
    ),
    "sentences_of_pages": Planted(
        {
            "docs/a.md": f"{'It works. ' * 41}\n\n# {'title ' * 41}\n\n- {'so ' * 21}\n"
            f"- {'on ' * 21}\n\n| {'cell ' * 41}|\n\n    {'code ' * 41}\n\n"
            f"```\n{'code ' * 41}\n```\n\n`{'code ' * 41}` [{'link ' * 41}](a.md) {'and ' * 39}"
            f"\non. Is\n`it` {'so ' * 39}\n",
        },
        ("docs/a.md:16: a sentence of 42 words", "docs/a.md:17: a sentence of 41 words"),
    ),
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_what_breaks_a_rule_is_one_line(rule: Rule, tmp_path: Path) -> None:
    planted = PLANTED[rule.__name__]
    for name, text in planted.files.items():
        if text is None:  # one of those above it is not there
            continue
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "docs/generator").mkdir(parents=True, exist_ok=True)
    (tmp_path / "docs/generator/variables.py").touch()
    lines = [
        line for line in broken(Project(tmp_path), [rule]) if "nothing reads or sets" not in line
    ]
    assert len(lines) == len(planted.says), lines
    assert all(map(str.startswith, lines, planted.says)), lines


def test_a_documented_variable_that_nothing_reads(tmp_path: Path) -> None:
    (tmp_path / "docs/generator").mkdir(parents=True)
    (tmp_path / "docs/generator/variables.py").write_text('"ADVISOR_DB": ""\n"ADVISOR_GOAL": ""\n')
    (rule,) = (rule for rule in RULES if rule.__name__ == "words_of_pages")
    lines = broken(Project(tmp_path), [rule])
    assert "docs/generator/variables.py:2: nothing reads or sets ADVISOR_GOAL" in lines


def test_every_rule_has_what_breaks_it() -> None:
    assert set(PLANTED) == {rule.__name__ for rule in RULES}
