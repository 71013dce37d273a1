"""``benchmarks/reach.py``: how many scripts the advice reaches, on scripts posed for it."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from advisor.core.protocol import MAX_SCRIPT
from advisor.paths import share
from tests.forked import forked

PROGRAM = share("config").parent / "benchmarks" / "reach.py"

SLURM = {
    "srun.sh": "#SBATCH -N 2\n#SBATCH -n 64\nmodule load gcc\nsrun ./cfd case.in > out.txt",
    "openmp.sh": "#SBATCH -N 1\n#SBATCH --exclusive\nsrun ./stencil 4000",
    "hybrid.sh": "#SBATCH -N 2\n#SBATCH --ntasks-per-node=4\n#SBATCH -c 16\nsrun ./solver",
    "literal.sh": "#SBATCH -n 4\n#SBATCH -c 8\nexport OMP_NUM_THREADS=8\nsrun ./lattice",
    "python.sh": "#SBATCH -n 1\nconda activate x\npython train.py --epochs 3",
    "mpirun.sh": "#SBATCH -N 2\n#SBATCH --ntasks-per-node=8\nmpirun -np 16 ./wave",
    "container.sh": "#SBATCH -N 1\n#SBATCH -n 4\nsrun singularity exec image.sif ./fold x.pdb",
    "loop.sh": "#SBATCH -n 8\nfor i in 1 2 3; do\n  srun ./step $i\ndone",
    "several.sh": "#SBATCH -n 8\nsrun ./mesh\nsrun ./flow",
    "background.sh": "#SBATCH -n 8\nsrun ./server &\nwait",
    "nested.sh": "#SBATCH -n 1\n./prepare\nsbatch next.sh",
    "gpu.sh": "#SBATCH -n 1\n#SBATCH --gres=gpu:1\nsrun ./neural",
    "placeholder.sh": "#SBATCH --nodes=<NODES>\nsrun ./cfd",
    "silent.sh": "#SBATCH -n 1\necho hello",
}
PBS = {
    "chunks.pbs": "#PBS -l select=2:ncpus=32:mpiprocs=4:ompthreads=8\n#PBS -l place=scatter\n"
    "cd $PBS_O_WORKDIR\nmpiexec -n 8 ./ocean",
    "serial.pbs": "#PBS -l select=1:ncpus=1:mem=2gb\n./blast db.fasta",
    "older.pbs": "#PBS -l nodes=1:ppn=8\n#PBS -q long\nmpirun -np 8 ./md",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i, (name, text) in enumerate((SLURM | PBS).items()):
        place = tmp_path / "scripts" / f"repository{i % 3}"
        place.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(f"#!/bin/bash\n{text}\n")
    return tmp_path / "scripts"


def reach(folder: Path, *options: str, **environment: str) -> dict[str, Any]:
    """Run the program as a fork of this process; what it prints for people is asked of itself."""

    def run() -> int:
        sys.argv = [str(PROGRAM), str(folder), "--json", *options]
        sys.path.insert(0, str(PROGRAM.parent))
        runpy.run_path(str(PROGRAM), run_name="__main__")
        return 0

    done = forked(run, {**os.environ, **environment})
    assert (done.returncode, done.stderr) == (0, "")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def by_name(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {Path(s["file"]).name: s for s in result["scripts_by"]}


def reached(result: dict[str, Any], kind: str) -> set[str]:
    return {name for name, script in by_name(result).items() if script[kind]}


def test_keys_and_sums(folder: Path) -> None:
    result = reach(folder)
    assert result["schema"] == "advisor/reach/1"
    assert result["scripts"] == len(SLURM | PBS) == len(result["scripts_by"])
    for kind in ("threads", "cap", "cap_lands", "node_type", "at_submission", "history", "steps"):
        assert result[kind] == len(reached(result, kind))
    scripts = result["scripts_by"]
    for script in scripts:
        keys = {"file", "application", "workload", "threads", "cap", "cap_lands", "node_type"}
        assert keys | {"reason"} <= script.keys()
        some = script["threads"] or script["cap_lands"] or script["node_type"]
        assert (script["reason"] == "") == some, script
        assert script["cap"] or not script["cap_lands"]
    assert result["any"] == sum(not s["reason"] for s in scripts)
    assert sum(result["reasons"].values()) == result["scripts"] - result["any"]
    assert result["recognised"] == sum(bool(s["application"]) for s in scripts)
    assert result["hybrid_or_openmp"] == 3  # hybrid.sh, literal.sh, chunks.pbs


def test_what_reaches_slurm_scripts_of_whole_nodes(folder: Path) -> None:
    result = reach(folder, "--scheduler", "slurm")
    assert result["scripts"] == len(SLURM)
    by_srun = {"srun.sh", "openmp.sh", "hybrid.sh", "literal.sh", "container.sh", "gpu.sh"}
    by_history = {"loop.sh", "several.sh", "background.sh"}
    assert reached(result, "history") == by_history  # of what is read, and nothing else decides
    assert reached(result, "steps") == by_history | {"hybrid.sh", "literal.sh"}
    assert reached(result, "cap_lands") == by_srun | by_history
    assert reached(result, "cap") == by_srun | by_history | {"python.sh", "mpirun.sh"}
    capping = reach(folder, "--scheduler", "slurm", "--node-cap")
    assert reached(capping, "cap_lands") == reached(result, "cap")
    sharing = reach(folder, "--scheduler", "slurm", "--node-cap", "--site", "shared-caps")
    assert reached(sharing, "cap_lands") == reached(sharing, "cap") >= {"python.sh", "mpirun.sh"}
    assert reached(result, "node_type") == by_srun - {"gpu.sh"} | {"python.sh", "mpirun.sh"}
    one_rank_a_node = {"openmp.sh", "python.sh", "gpu.sh"}
    assert reached(result, "threads") == one_rank_a_node | {"hybrid.sh", "literal.sh"}
    assert reached(result, "at_submission") == by_srun | {"python.sh", "mpirun.sh"}
    scripts = by_name(result)
    assert scripts["container.sh"]["application"] == "fold"
    assert scripts["python.sh"]["application"] == "train.py"
    reasons = {name: s["reason"] for name, s in scripts.items() if s["reason"]}
    assert reasons == {
        "nested.sh": "nested-submit",
        "placeholder.sh": "bad-request",
        "silent.sh": "unrecognised",
    }
    several = {n for n, s in scripts.items() if "-steps" in s["why"].get("node_type", "")}
    assert several == by_history


def test_threads_need_a_run_that_counted_them_and_a_policy_that_lowers_them(folder: Path) -> None:
    unknown = reach(folder, "--scheduler", "slurm", "--unset", "unknown")
    assert reached(unknown, "threads") == {"literal.sh"}  # the one that sets its variable
    lowered = reach(folder, "--scheduler", "slurm", "--threads", "cap")
    assert {"openmp.sh", "hybrid.sh"} <= reached(lowered, "threads")
    assert by_name(lowered)["literal.sh"]["why"]["threads"] == "threads-own"
    assert lowered["hybrid_threads"] == 2  # literal.sh at its steps


def test_shared_nodes_get_less(folder: Path) -> None:
    result = reach(folder, "--scheduler", "slurm", "--site", "shared")
    assert reached(result, "cap") == reached(result, "cap_lands") == {"openmp.sh"}  # exclusive
    assert not by_name(result)["python.sh"]["cap_lands"]
    assert by_name(result)["srun.sh"]["why"]["cap_lands"] == "shared-nodes"


def test_pbs(folder: Path) -> None:
    result = reach(folder, "--scheduler", "pbs")
    assert set(by_name(result)) == set(PBS)
    assert reached(result, "cap_lands") == {"chunks.pbs", "serial.pbs", "older.pbs"}
    assert by_name(result)["older.pbs"]["why"]["node_type"] == "mixed-partition"
    shared = reach(folder, "--scheduler", "pbs", "--site", "shared")
    assert reached(shared, "cap_lands") == set()


def test_halves_and_most(folder: Path) -> None:
    names = [set(by_name(reach(folder, "--half", half))) for half in ("even", "odd", "all")]
    assert names[0] | names[1] == names[2] and not names[0] & names[1]
    few = reach(folder, "--most", "5")
    again = reach(folder, "--most", "5")
    assert few["scripts"] == 5 and set(by_name(few)) == set(by_name(again))


def test_files_that_are_no_scripts_are_counted_and_left_out(folder: Path) -> None:
    before = reach(folder)
    line = b"#!/bin/bash\n#SBATCH -n 4\n"
    (folder / "copy.sh").write_bytes((folder / "repository0" / "srun.sh").read_bytes())
    (folder / "binary.sh").write_bytes(line + b"\0\1\2")
    (folder / "huge.sh").write_bytes(line + b"#" * MAX_SCRIPT)
    (folder / "link.sh").symlink_to(folder / "copy.sh")
    (folder / "around").symlink_to(folder)
    (folder / "broken.sh").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe.sh")
    (folder / ".git").mkdir()
    (folder / ".git" / "hook.sh").write_bytes(line + b"srun ./hidden\n")
    (folder / "plain.txt").write_text("no options\n")
    (folder / "latin.sh").write_bytes(line + b"# \xe9t\xe9\nsrun ./cfd caf\xe9\n")
    odd = os.fsencode(folder) + b'/\xff \n".sh'
    Path(os.fsdecode(odd)).write_bytes(line + b"srun ./strange\n")
    (folder / "deep.sh").write_bytes(line + b"$(" * 20_000)
    result = reach(folder)
    assert result["skipped"] == {"binary": 1, "huge": 1, "link": 3, "special": 1}
    assert result["duplicates"] == 1
    assert result["scripts"] == before["scripts"] + 3  # latin, odd name, deep
    assert "error" not in result["reasons"]
    assert by_name(result)["latin.sh"]["cap_lands"]


def test_the_caller_s_own_environment_does_not_count(folder: Path) -> None:
    plain = reach(folder)
    inside = {
        "OMP_NUM_THREADS": "4",
        "ADVISOR": "off",
        "SBATCH_EXCLUSIVE": "1",
        "SLURM_NTASKS": "9",
    }
    assert reach(folder, **inside) == plain


def test_the_table_has_the_same_numbers(folder: Path) -> None:
    command = [sys.executable, str(PROGRAM), str(folder), "--site", "shared-caps"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    result = reach(folder, "--site", "shared-caps")
    rows = {line[:18].strip(): line[18:].split() for line in done.stdout.splitlines()}
    for kind in ("recognised", "threads", "cap", "cap_lands", "node_type", "any"):
        assert int(rows[kind.replace("_", " ")][0]) == result[kind]
    assert result["site"] == "shared-caps"


def test_no_folder_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAM), str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "none is no folder: name one" in done.stderr
    assert "Traceback" not in done.stderr


def test_several_programs_get_threads_where_hooks_look_at_one_file(tmp_path: Path) -> None:
    lines = "#!/bin/bash\n#SBATCH -n 1\n#SBATCH -c 8\n"
    bodies = {
        "ways.sh": "./flow 1\n./flow 2\n",
        "files.sh": "./mesh\n./flow\n",
        "container.sh": "singularity exec a.sif ./mesh\nsingularity exec a.sif ./flow\n",
        "own.sh": "export OMP_NUM_THREADS=8\n./flow 1\n./flow 2\n",
        "loop.sh": "./flow 1\nfor i in 2 3; do ./flow $i; done\n",
    }
    for name, body in bodies.items():
        (tmp_path / name).write_text(lines + body)
    result = reach(tmp_path, "--scheduler", "slurm")
    assert reached(result, "in_order") == {"ways.sh", "files.sh", "container.sh"}
    assert reached(result, "programs") == {"ways.sh", "container.sh"}
    assert (
        reached(result, "threads")
        == reached(result, "at_submission")
        == {
            "ways.sh",
            "container.sh",
        }
    )
    assert (result["hybrid_in_order"], result["hybrid_programs"]) == (3, 2)
    unknown = reach(tmp_path, "--scheduler", "slurm", "--unset", "unknown")
    assert reached(unknown, "programs") == set()
