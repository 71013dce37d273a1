"""Draws requests: pieces of the fixed ones, put together at random, the same for each seed.

Their scripts are the fixed ones, or put together as well: what is set before, how the launcher's
words come into its line, and what stands around that line (`compose`).
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

import yaml

from .cluster import MODELLED
from .shapes import HERE, Script, Shape, scripts

SIZES = (
    "-N1 --exclusive",
    "-N1 --exclusive -n1",
    "-N1 --exclusive -n1 -c28",
    "-N1 -n28 --exclusive",
    "-N1 -n4 -c7 --exclusive",
    "-N2 --ntasks-per-node=2 -c14 --exclusive",
    "-N2 --exclusive",
    "-N2 -n2 --exclusive",
    "-n28 --exclusive",
    "-N1 --exclusive --ntasks-per-node=14",
    "-N1 -n1 -c20 --mem=1000",
    "-N1 -n1 -c28 --mem=1000",
    "-N1 -n4 -c4 --mem=1000",
    "-N1 -n4 -c7",
    "-N1 -n28",
    "-N1 -n1 -c14 --mem-per-cpu=60",
    "-N1 -n8 --mem=500",
    "-N1 -c20",
)
#: Whole nodes, in words of which the advisor reads nodes, ranks and threads.
WHOLE = (
    "-N1 --exclusive",
    "-N1 --exclusive -n1",
    "-N1 --exclusive -n1 -c28",
    "-N1 -n4 -c7 --exclusive",
    "-N2 --ntasks-per-node=2 -c14 --exclusive",
    "-N2 -n2 --exclusive",
    "-n28 --exclusive",
    "-N1 -n28 --mem=1000",
)
PLACES = (
    "-p broadwell",
    "-p broadwell",
    "-p broadwell",
    "-p skylake",
    "-p milan",
    "-C broadwell",
    "-C skylake",
    "",
    "",
    "-p old",
    "-p whole",
    "-p memory",
    "-p narrow",
    "-p limits",
    "-p memorynode",
    "-p maxmemory",
    "-p broadwell,skylake",
    "-p oversubscribed",
    "-w bdw2",
    "-p sharing",
    "-p peruser",
    "-p brief",
    "-p brief -C broadwell",
    "-p briefest",
    "-p briefest -C skylake",
    "-p most",
    "-p most -C broadwell",
    "-p tight -C broadwell",
    "-x skl1,mil[1-2]",
    "-C broadwell|skylake",
    "--prefer=broadwell",
    "-C [broadwell|milan]",
)
EXTRAS = (
    "-t 2",
    "-t 10",
    "--mem=1500",
    "--mem=0",
    "--mem-per-cpu=70",
    "--cpu-freq=1500000-2000000",
    "--cpu-freq=high",
    "--cpu-freq=medium",
    "--cpu-freq=1200000-2200000:Performance",
    "--cpu-freq=Performance",
    "--parsable",
    "-a 0-1",
    "--begin=now+1",
    "--export=NONE",
    "--export=ALL,OMP_NUM_THREADS=8",
    "--export=PATH,HOME",
    "--hint=nomultithread",
    "--threads-per-core=1",
    "--ntasks-per-core=1",
    "--ntasks-per-socket=14",
    "-m block:cyclic",
    "-B 2:14",
    "--cores-per-socket=14",
    "--mincpus=4",
    "--gres=none",
    "-L matlab:1",
    "--nice=5",
    "--comment=x",
    "-J stencil",
    "--no-requeue",
    "--signal=USR1@20",
    "--spread-job",
    "-q small",
    "-A proj",
    "--open-mode=append",
    "--core-spec=1",
    "--contiguous",
    "--switches=1",
    "--use-min-nodes",
    "-k",
    "--no-kill",
    "--wait-all-nodes=1",
    "--tmp=0",
    "--profile=none",
    "--acctg-freq=10",
    "--thread-spec=1",
    "--get-user-env=L",
    "--ignore-pbs",
    "-Q",
    "--oversubscribe",
    "-s",
    "--exclusive=user",
    "--exclusive=mcs",
    "--delay-boot=0",
    "--kill-on-invalid-dep=yes",
    "--cluster-constraint=x",
    "--container=x",
    "--propagate=NONE",
    "--mail-type=NONE",
)
VARIABLES: tuple[dict[str, str], ...] = (
    {"OMP_NUM_THREADS": "14"},
    {"OMP_NUM_THREADS": "28", "OMP_PLACES": "cores"},
    {"OMP_PLACES": "{0:14},{14:14}"},
    {"OMP_PROC_BIND": "close"},
    {"MKL_NUM_THREADS": "8"},
    {"OMP_NUM_THREADS": "2,14"},
    {"OMP_THREAD_LIMIT": "28"},
    {"OMP_DYNAMIC": "true"},
    {"SRUN_CPUS_PER_TASK": "2"},
    {"SLURM_CPUS_PER_TASK": "2"},
    {"SLURM_CPU_FREQ_REQ": "1500000"},
    {"SLURM_HINT": "nomultithread"},
    {"SLURM_CPU_BIND": "none"},
    {"SLURM_DISTRIBUTION": "cyclic"},
    {"SLURM_NTASKS": "2"},
    {"SLURM_NNODES": "1"},
    {"SLURM_EXACT": "1"},
    {"SLURM_OVERLAP": "1"},
    {"SLURM_MEM_PER_CPU": "40"},
    {"SLURM_THREADS_PER_CORE": "1"},
    {"SLURM_WHOLE": "1"},
    {"SBATCH_TIMELIMIT": "4"},
    {"SBATCH_CONSTRAINT": "broadwell"},
    {"SBATCH_EXCLUSIVE": "1"},
    {"SBATCH_CPU_FREQ_REQ": "1500000-1800000"},
    {"SBATCH_HINT": "compute_bound"},
    {"SBATCH_EXPORT": "NONE"},
    {"SBATCH_PARTITION": "skylake"},
    {"SBATCH_QOS": "normal"},
    {"SBATCH_THREADS_PER_CORE": "1"},
    {"SBATCH_DISTRIBUTION": "cyclic"},
    {"SBATCH_GRES": "none"},
    {"SBATCH_JOB_NAME": "named"},
    {"SBATCH_MEM_PER_NODE": "900"},
    {"SBATCH_CORE_SPEC": "1"},
    {"ADVISOR_GOAL": "edp"},
    {"ADVISOR_GOAL": "min_time"},
    {"ADVISOR_MAX_SLOWDOWN": "2%"},
    {"ADVISOR_APPLICATION": "app"},
    {"ADVISOR_MODE": "advise"},
    {"KIND": "app"},
)
#: One kind of nodes, with the time limits that partitions and their QOS give.
OF_ONE_KIND = (
    "-p broadwell",
    "-p broadwell",
    "-p broadwell",
    "-p skylake",
    "-p milan",
    "-C broadwell",
    "-p whole -C broadwell",
    "-p memory -C broadwell",
    "-p brief -C broadwell",
    "-p briefest -C skylake",
    "-p most -C broadwell",
    "-p tight -C broadwell",
    "-w bdw2",
)
STATES = ("plain",) * 8 + ("unavailable", "reserved", "one-left", "enforced")
VIAS = ("file",) * 8 + ("directives", "directives", "stdin", "wrap")


def draw(seed: int, count: int) -> list[Shape]:
    """Return `count` shapes; the same ones for the same seed."""
    dice = random.Random(seed)
    known = list(scripts().values())
    parts = yaml.safe_load((HERE / "parts.yaml").read_text())
    return [_one(dice, known, parts, f"drawn {seed}.{number}") for number in range(count)]


def compose(dice: random.Random, parts: Mapping[str, Sequence[str]]) -> Script:
    """Return a script of parts: most with few, since each may be what keeps a job as it is."""
    program = dice.choice((*MODELLED[:1] * 4, *MODELLED[1:]))
    line = dice.choice(parts["lines"]) if dice.random() < 0.4 else "srun W P"
    words = dice.choice(parts["words"]) if dice.random() < 0.4 else ""
    around = dice.choice(parts["around"]) if dice.random() < 0.25 else "L"
    settings = dice.sample(parts["settings"], dice.choice((0, 0, 0, 1, 1, 2)))
    *before, last = line.split("\n")
    text = "\n".join([*settings, *before, re.sub(r"\bL\b", lambda _: last, around)])
    text = re.sub(r"\bW\b", lambda _: words, text)
    return Script("composed", re.sub(r"\bP\b", program, text))


def _one(
    dice: random.Random, known: list[Script], parts: Mapping[str, Sequence[str]], name: str
) -> Shape:
    # Most have something plain about them: what many things forbid shows nothing about one.
    plain = dice.random() < 0.6
    script = compose(dice, parts) if dice.random() < 0.75 else dice.choice(known)
    state = dice.choice(STATES)
    sizes, places = (WHOLE, OF_ONE_KIND) if plain else (SIZES, PLACES)
    options = [*dice.choice(sizes).split(), *dice.choice(places).split()]
    for extra in dice.sample(EXTRAS, 0 if plain else dice.choice((0, 1, 1, 2, 3))):
        options += extra.split()
    if dice.random() < 0.02:  # a heterogeneous job
        options += [":", "-N1", "-n1", "-C", "broadwell"]
    environment: dict[str, str] = {}
    for more in dice.sample(VARIABLES, 0 if plain else dice.choice((0, 0, 1, 1, 2))):
        environment |= more
    via = dice.choice(VIAS)
    if dice.random() < 0.04 and state != "enforced":
        via = dice.choice(("srun", "salloc"))
        script = Script("one-srun", "srun app")
        options = [o for o in options if o.split("=")[0] not in _SBATCH_ONLY]
    # sbatch reads no components from lines; of srun's, which one writes first is chance.
    if via in ("directives", "srun") and ":" in options:
        via = "file"
    if via == "wrap" and ("\n" in script.text or script.shell != "/bin/bash"):
        via = "file"
    if state == "enforced":  # without the filter, ADVISOR=off reaches the hook with the environment
        options = [o for o in options if not o.startswith("--export")]
        environment.pop("SBATCH_EXPORT", None)
    speaks_for_others = script.name == "another-script-srun"  # its one step runs app and other
    if speaks_for_others or "app" not in script.text.split():
        # who names the wrong program, or one for several, gets its threads
        environment.pop("ADVISOR_APPLICATION", None)
    return Shape(name, script, tuple(options), environment, via, state)


_SBATCH_ONLY = frozenset(
    {
        "--parsable",
        "-a",
        "0-1",
        "--export",
        "--no-requeue",
        "--open-mode",
        "--get-user-env",
        "--ignore-pbs",
        "--wait-all-nodes",
    }
)
