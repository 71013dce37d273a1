"""Draws requests: pieces of the fixed ones, put together at random, the same for each seed."""

from __future__ import annotations

import random

from .shapes import Script, Shape, scripts

SIZES = (
    "-N1 --exclusive", "-N1 --exclusive -n1", "-N1 --exclusive -n1 -c28", "-N1 -n28 --exclusive",
    "-N1 -n4 -c7 --exclusive", "-N2 --ntasks-per-node=2 -c14 --exclusive", "-N2 --exclusive",
    "-N2 -n2 --exclusive", "-n28 --exclusive", "-N1 --exclusive --ntasks-per-node=14",
    "-N1 -n1 -c20 --mem=1000", "-N1 -n1 -c28 --mem=1000", "-N1 -n4 -c4 --mem=1000",
    "-N1 -n4 -c7", "-N1 -n28", "-N1 -n1 -c14 --mem-per-cpu=60", "-N1 -n8 --mem=500", "-N1 -c20",
)  # fmt: skip
PLACES = (
    "-p broadwell", "-p broadwell", "-p broadwell", "-p skylake", "-p milan", "-C broadwell",
    "-C skylake", "", "", "-p old", "-p whole", "-p memory", "-p narrow", "-p limits",
    "-p memorynode", "-p maxmemory", "-p broadwell,skylake", "-p oversubscribed", "-w bdw2",
    "-x skl1,mil[1-2]", "-C broadwell|skylake", "--prefer=broadwell", "-C [broadwell|milan]",
)  # fmt: skip
EXTRAS = (
    "-t 2", "-t 10", "--mem=1500", "--mem=0", "--mem-per-cpu=70", "--cpu-freq=1500000-2000000",
    "--cpu-freq=high", "--cpu-freq=medium", "--cpu-freq=1200000-2200000:Performance",
    "--cpu-freq=Performance", "--parsable", "-a 0-1", "--begin=now+1", "--export=NONE",
    "--export=ALL,OMP_NUM_THREADS=8", "--export=PATH,HOME", "--hint=nomultithread",
    "--threads-per-core=1", "--ntasks-per-core=1", "--ntasks-per-socket=14", "-m block:cyclic",
    "-B 2:14", "--cores-per-socket=14", "--mincpus=4", "--gres=none", "-L matlab:1", "--nice=5",
    "--comment=x", "-J stencil", "--no-requeue", "--signal=USR1@20", "--spread-job", "-q small",
    "-A proj", "--open-mode=append", "--core-spec=1", "--contiguous", "--switches=1",
    "--use-min-nodes", "-k", "--no-kill", "--wait-all-nodes=1", "--tmp=0", "--profile=none",
    "--acctg-freq=10", "--thread-spec=1", "--get-user-env=L", "--ignore-pbs", "-Q",
    "--oversubscribe", "--delay-boot=0", "--kill-on-invalid-dep=yes", "--cluster-constraint=x",
    "--container=x", "--propagate=NONE", "--mail-type=NONE",
)  # fmt: skip
VARIABLES: tuple[dict[str, str], ...] = (
    {"OMP_NUM_THREADS": "14"}, {"OMP_NUM_THREADS": "28", "OMP_PLACES": "cores"},
    {"OMP_PLACES": "{0:14},{14:14}"}, {"OMP_PROC_BIND": "close"}, {"MKL_NUM_THREADS": "8"},
    {"OMP_NUM_THREADS": "2,14"}, {"OMP_THREAD_LIMIT": "28"}, {"OMP_DYNAMIC": "true"},
    {"SRUN_CPUS_PER_TASK": "2"}, {"SLURM_CPUS_PER_TASK": "2"}, {"SLURM_CPU_FREQ_REQ": "1500000"},
    {"SLURM_HINT": "nomultithread"}, {"SLURM_CPU_BIND": "none"}, {"SLURM_DISTRIBUTION": "cyclic"},
    {"SLURM_NTASKS": "2"}, {"SLURM_NNODES": "1"}, {"SLURM_EXACT": "1"}, {"SLURM_OVERLAP": "1"},
    {"SLURM_MEM_PER_CPU": "40"}, {"SLURM_THREADS_PER_CORE": "1"}, {"SLURM_WHOLE": "1"},
    {"SBATCH_TIMELIMIT": "4"}, {"SBATCH_CONSTRAINT": "broadwell"}, {"SBATCH_EXCLUSIVE": "1"},
    {"SBATCH_CPU_FREQ_REQ": "1500000-1800000"}, {"SBATCH_HINT": "compute_bound"},
    {"SBATCH_EXPORT": "NONE"}, {"SBATCH_PARTITION": "skylake"}, {"SBATCH_QOS": "normal"},
    {"SBATCH_THREADS_PER_CORE": "1"}, {"SBATCH_DISTRIBUTION": "cyclic"}, {"SBATCH_GRES": "none"},
    {"SBATCH_JOB_NAME": "named"}, {"SBATCH_MEM_PER_NODE": "900"}, {"SBATCH_CORE_SPEC": "1"},
    {"ADVISOR_GOAL": "edp"}, {"ADVISOR_GOAL": "min_time"}, {"ADVISOR_MAX_SLOWDOWN": "2%"},
    {"ADVISOR_APPLICATION": "app"}, {"ADVISOR_MODE": "advise"}, {"KIND": "app"},
)  # fmt: skip
STATES = ("plain",) * 8 + ("unavailable", "reserved", "one-left", "enforced")
VIAS = ("file",) * 8 + ("directives", "directives", "stdin", "wrap")


def draw(seed: int, count: int) -> list[Shape]:
    """Return `count` shapes; the same ones for the same seed."""
    dice = random.Random(seed)
    known = list(scripts().values())
    plain = [s for s in known if s.name == "one-srun"]
    return [_one(dice, known, plain, f"drawn {seed}.{number}") for number in range(count)]


def _one(dice: random.Random, known: list[Script], plain: list[Script], name: str) -> Shape:
    # Most have something plain about them: what many things forbid shows nothing about one.
    script = dice.choice(plain if dice.random() < 0.4 else known)
    state = dice.choice(STATES)
    options = [*dice.choice(SIZES).split(), *dice.choice(PLACES).split()]
    for extra in dice.sample(EXTRAS, dice.choice((0, 0, 1, 1, 2, 3))):
        options += extra.split()
    if dice.random() < 0.02:  # a heterogeneous job
        options += [":", "-N1", "-n1", "-C", "broadwell"]
    environment: dict[str, str] = {}
    for more in dice.sample(VARIABLES, dice.choice((0, 0, 0, 1, 1, 2))):
        environment |= more
    via = dice.choice(VIAS)
    if dice.random() < 0.04 and script.name == "one-srun" and state != "enforced":
        via = dice.choice(("srun", "salloc"))
        options = [o for o in options if o.split("=")[0] not in _SBATCH_ONLY]
    if via == "directives" and ":" in options:
        via = "file"
    if via == "wrap" and ("\n" in script.text or script.shell != "/bin/bash"):
        via = "file"
    if state == "enforced":  # without the filter, ADVISOR=off reaches the hook with the environment
        options = [o for o in options if not o.startswith("--export")]
        environment.pop("SBATCH_EXPORT", None)
    return Shape(name, script, tuple(options), environment, via, state)


_SBATCH_ONLY = frozenset(
    {"--parsable", "-a", "0-1", "--export", "--no-requeue", "--open-mode", "--get-user-env",
     "--ignore-pbs", "--wait-all-nodes"}
)  # fmt: skip
