"""Requests to submit twice, without and with the advisor, and the sites they are submitted to.

Used on the PBS made of files by test_pbs_differential.py, on a real server by real_server.py.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field

KIND = "node_type"
PLAIN = "#!/bin/bash\n./stencil\n"


@dataclass(frozen=True)
class Shape:
    """One submission: qsub's words, the script, and the site by name."""

    words: tuple[str, ...]
    site: str = "plain"
    script: str = PLAIN
    running: tuple[tuple[str, ...], ...] = field(default=())
    """Jobs that run already, by their qsub words."""

    def __str__(self) -> str:
        told = " ".join(self.words) or "nothing asked"
        return f"{self.site}: {told}" + (" (another script)" if self.script != PLAIN else "")


def queue(name: str, **attributes: str) -> list[str]:
    """Return qmgr's lines that make an execution queue."""
    lines = [f"create queue {name} queue_type=execution"]
    lines += [f"set queue {name} {k.replace('__', '.')} = {v}" for k, v in attributes.items()]
    return [*lines, f"set queue {name} enabled = true", f"set queue {name} started = true"]


def route(name: str, *destinations: str) -> list[str]:
    """Return qmgr's lines that make a routing queue."""
    return [
        f"create queue {name} queue_type=route",
        f'set queue {name} route_destinations = "{",".join(destinations)}"',
        f"set queue {name} enabled = true",
        f"set queue {name} started = true",
    ]


_SMALL, _LARGE = (
    queue("small", resources_max__ncpus="16"),
    queue("large", resources_min__ncpus="17"),
)
SITES: dict[str, list[str]] = {
    "plain": [],
    "default-excl": queue("q", resources_default__place="scatter:excl"),
    "default-mem": queue("q", resources_default__mem="8gb", resources_default__walltime="3600"),
    "default-chunk": queue("q", default_chunk__mem="2gb", default_chunk__ncpus="4"),
    "default-threads": queue("q", default_chunk__ompthreads="4"),
    "default-ranks": queue("q", default_chunk__mpiprocs="4"),
    "default-kind": queue("q", default_chunk__node_type="bdw"),
    "default-kind-of-job": queue("q", resources_default__node_type="bdw"),
    "minimum": queue("q", resources_min__ncpus="24"),
    "minimum-threads": queue("q", resources_min__ompthreads="24"),
    "maximum": queue("q", resources_max__ncpus="28", resources_max__mem="32gb"),
    "maximum-cap": queue("q", resources_min__cpu_freq_mhz="2000"),
    "route": [*_SMALL, *_LARGE, *route("q", "small", "large")],
    "route-strict": [*_LARGE, *route("q", "large")],
    "route-kinds": [
        *queue("small", default_chunk__node_type="bdw"),
        *route("q", "small"),
    ],
    "route-acl": [
        *queue("small", acl_user_enable="true", acl_users="bob"),
        *queue("large"),
        *route("q", "small", "large"),
    ],
    "route-nowhere": [
        *queue("small", acl_user_enable="true", acl_users="bob"),
        *route("q", "small"),
    ],
    "acl": queue("q", acl_user_enable="true", acl_users="bob"),
    "default-time": queue("q", resources_default__walltime="104"),
    "default-time-of-two": queue("q", resources_default__walltime="00:00:52"),
    "maximum-time": queue("q", resources_max__walltime="104"),
    "server-time": [*queue("q"), "set server resources_default.walltime = 104"],
    "route-times": [
        *queue("small", resources_max__ncpus="16", resources_default__walltime="3600"),
        *queue("large", resources_default__walltime="104"),
        *route("q", "small", "large"),
    ],
    "default-cores": queue("q", default_chunk__ncpus="28"),
    "default-cores-excl": queue(
        "q", default_chunk__ncpus="28", resources_default__place="scatter:excl"
    ),
    **{
        f"sharing-{word}": queue("q")
        for word in (
            "default_excl",
            "default_exclhost",
            "ignore_excl",
            "force_excl",
            "force_exclhost",
        )
    },
}
SHARING = {site: site.removeprefix("sharing-") for site in SITES if site.startswith("sharing-")}
"""What the vnodes' ``sharing`` is, by site, where it is set."""

WHOLE = ("-l", "select=1:ncpus=28", "-l", "place=excl")
_S = "-l select="
FIXED: list[Shape] = [
    # whole nodes: what the advisor is for
    *(
        Shape(tuple(words.split()))
        for words in (
            f"{_S}1:ncpus=28 -l place=excl",
            f"{_S}1:ncpus=28 -l place=exclhost",
            f"{_S}1:ncpus=28 -l place=pack:excl",
            f"{_S}1:ncpus=28",
            f"{_S}ncpus=28",
            f"{_S}1:ncpus=28:mem=10gb -l place=excl",
            f"{_S}1:ncpus=28:ompthreads=28 -l place=excl",
            f"{_S}1:ncpus=28:ompthreads=20 -l place=excl",
            f"{_S}1:ncpus=28:node_type=bdw",
            f"{_S}1:ncpus=28:node_type=bdw:mem=10gb -l place=excl",
            f"{_S}1:ncpus=28:mpiprocs=1:ompthreads=28 -l place=scatter:excl",
            f"{_S}1:ncpus=28 -l place=excl -l walltime=00:10:00",
            f"{_S}1:ncpus=28 -l place=excl -A climate -N run -p 10 -r n -m n -j oe",
            f"{_S}1:ncpus=28 -l place=excl -J 1-2",
            "-l ncpus=28",
            "-l ncpus=28,mem=4gb",
            "-l nodes=1:ppn=28",
            "-l nodes=1:ppn=28#excl",
            f"{_S}2:ncpus=28 -l place=scatter:excl",
            f"{_S}2:ncpus=28:mpiprocs=28 -l place=scatter:excl",
            f"{_S}1:ncpus=28+1:ncpus=28 -l place=scatter:excl",
            f"{_S}4:ncpus=7 -l place=pack:excl",
            f"{_S}1:ncpus=28 -l place=excl -v OMP_NUM_THREADS=4",
            f"-q fat {_S}1:ncpus=64 -l place=excl",
            f"-q fat {_S}1:ncpus=64",
            f"-q fat {_S}1:ncpus=32:mem=10gb",
            f"-q fat {_S}1:ncpus=32:mem=10gb -l place=pack:excl",
            f"-q mixed {_S}1:ncpus=28 -l place=excl",
            f"-q mixed {_S}1:ncpus=28",
            f"-q mixed {_S}1:ncpus=28:node_type=bdw -l place=excl",
            f"-q mixed {_S}1:ncpus=64:node_type=skl -l place=excl",
            f"-q mixed {_S}1:ncpus=28:mem=10gb:ompthreads=28 -l place=scatter:excl",
            f"-q mixed {_S}1:ncpus=14:mem=4gb",
            f"-q mixed {_S}2:ncpus=28 -l place=scatter:excl",
            f"{_S}1:ncpus=28:ompthreads=14 -l place=excl -l cpu_freq_mhz=1900",
        )
    ),
    # parts of nodes, several kinds, and what makes no sense
    *(
        Shape(tuple(words.split()))
        for words in (
            "",
            "-l walltime=60",
            "-l mem=1gb",
            "-l ncpus=4",
            "-l nodes=2",
            "-l nodes=2:ppn=4",
            "-l nodes=1:ppn=2:cpp=4",
            "-l nodes=n1:ppn=4",
            "-l nodes=2 -l ncpus=8",
            f"{_S}1:ncpus=14:mem=4gb",
            f"{_S}1:ncpus=14",
            f"{_S}2:ncpus=14 -l place=free",
            f"{_S}4:ncpus=7",
            f"{_S}1:ncpus=14:mem=4gb -l place=shared",
            f"{_S}3",
            f"{_S}1:ncpus=4:host=n1",
            f"{_S}1:ncpus=28:vnode=n2 -l place=excl",
            f"{_S}1:ncpus=4+2:ncpus=28:mpiprocs=28",
            f"{_S}1:ncpus=64",
            f"{_S}1:ncpus=28:bigmem=True -l place=excl",
            f"{_S}1:ncpus=8:scratch=10gb",
            f"{_S}1:ncpus=28 -l place=excl -l matlab=1",
            f"{_S}1:ncpus=28 -l place=group=rack",
            f"{_S}1:ncpus=65",
            f"{_S}3:ncpus=28:node_type=bdw -l place=scatter",
            f"{_S}1:ncpus=4:nosuch=1",
            f"{_S}1:ncpus=4 -l ncpus=4",
            f"{_S}1:ncpus=28:node_type=rome",
            f"{_S}2:ncpus=1:mem=100gb -l place=pack",
            f"{_S}2:ncpus=1:mem=40gb -l place=pack",
            f"{_S}2:ncpus=28:mem=40gb -l place=pack:excl",
            f"{_S}1:ncpus=28 -l place=excl -h",
            f"{_S}1:ncpus=28 -l place=excl -l cput=01:00:00",
            f"{_S}1:ncpus=28:mpiprocs=4 -l place=excl",
            "-q nosuch",
        )
    ),
    # what the site adds, limits and routes
    *(
        Shape(("-q", "q", *words.split()), site)
        for site in SITES
        if site != "plain"
        for words in (
            f"{_S}1:ncpus=28:mem=10gb -l place=excl",
            f"{_S}1:ncpus=14:mem=4gb",
            f"{_S}2:ncpus=28",
            "-l ncpus=28",
        )
    ),
    # chunks without cores, other words for the same nodes
    *(
        Shape(("-q", "q", *words.split()), site)
        for site in ("default-cores", "default-cores-excl")
        for words in (
            f"{_S}1",
            f"{_S}1 -l place=excl",
            f"{_S}1:mem=4gb -l place=excl",
            f"{_S}1:node_type=bdw -l place=excl",
            f"{_S}2:mpiprocs=14:ompthreads=2",
        )
    ),
    *(
        Shape(tuple(words.split()))
        for words in (
            f"{_S}1:ncpus=28:model=bro -l place=excl",
            f"{_S}1:ncpus=28:model=bro",
            f"-q mixed {_S}1:ncpus=28:model=bro -l place=excl",
            f"-q mixed {_S}1:ncpus=28:model=sky -l place=excl",
            f"{_S}1:ncpus=28:model=rome",
        )
    ),
    *(
        Shape(("-q", "q", *words.split()), site)
        for site in SHARING
        for words in (
            f"{_S}1:ncpus=14:mem=4gb -l place=free:shared",
            f"{_S}1:ncpus=14 -l place=free",
            f"{_S}1:ncpus=14:mem=4gb -l place=exclhost",
            "-l nodes=1:ppn=14",
        )
    ),
    # a default queue that routes, a busy site
    Shape(WHOLE, "route"),
    *(
        Shape(tuple(words.split()), running=(("-l", "select=2:ncpus=28:node_type=bdw"),))
        for words in (
            f"{_S}1:ncpus=28 -l place=excl",
            f"{_S}1:ncpus=14:mem=4gb",
            f"{_S}1:ncpus=28:node_type=bdw -l place=excl",
        )
    ),
    # more cores than any node of the queue has, of which the script uses fewer
    *(
        Shape(tuple(words.split()), script="#!/bin/bash\nexport OMP_NUM_THREADS=14\n./stencil\n")
        for words in (f"{_S}1:ncpus=64 -l place=excl", f"{_S}1:ncpus=64:mem=40gb -l place=excl")
    ),
    # more threads than the chunk has cores, as many as a node has
    *(
        Shape(tuple(words.split()))
        for words in (
            f"{_S}1:ncpus=1:mpiprocs=2:ompthreads=14",
            f"{_S}1:ncpus=1:ompthreads=28",
            f"{_S}1:mpiprocs=2:ompthreads=14:mem=4gb -l place=vscatter",
        )
    ),
    Shape(("-q", "q", "-l", "select=1:ncpus=14:mpiprocs=7"), "default-threads"),
    Shape(("-q", "q", "-l", "select=1:ncpus=28"), "route-kinds", "#!/bin/bash\n./stencil $NCPUS\n"),
    # scripts
    *(
        Shape(WHOLE, script=f"#!/bin/bash\n{lines}")
        for lines in (
            "export OMP_NUM_THREADS=14\n./stencil\n",
            "./stencil\n./stencil\n",
            "for i in 1 2; do ./stencil; done\n",
            "./stencil &\nwait\n",
            "qsub next.sh\n./stencil\n",
            "mpirun -np $NCPUS ./stencil\n",
            "./stencil $NCPUS\n",
            "./other\n",
            "#ADVISOR off\n./stencil\n",
            "export OMP_NUM_THREADS=$NCPUS\n./stencil\n",
            "#PBS -l walltime=60\n./stencil\n",
        )
    ),
]


_ATTRIBUTES = (
    ("default_chunk__ncpus", "28"),
    ("default_chunk__ncpus", "14"),
    ("default_chunk__mem", "2gb"),
    ("default_chunk__mpiprocs", "4"),
    ("default_chunk__ompthreads", "4"),
    ("default_chunk__node_type", "bdw"),
    ("default_chunk__arch", "linux"),
    ("resources_default__place", "scatter:excl"),
    ("resources_default__place", "pack"),
    ("resources_default__walltime", "104"),
    ("resources_default__mem", "8gb"),
    ("resources_default__ncpus", "28"),
    ("resources_max__walltime", "104"),
    ("resources_max__ncpus", "28"),
    ("resources_min__ncpus", "14"),
    ("resources_max__mem", "32gb"),
)
_sites = random.Random(23)
# after FIXED, which tries each of the sites above: these are drawn alone, several attributes each
SITES |= {f"drawn-{n}": queue("q", **dict(_sites.sample(_ATTRIBUTES, 3))) for n in range(24)}

#: What drawn scripts are put together from: W stands for the launcher's words, P for the program.
_SETTINGS = (
    "export OMP_NUM_THREADS=14",
    "export OMP_NUM_THREADS=$NCPUS",
    "unset OMP_NUM_THREADS",
    "export MKL_NUM_THREADS=4",
    "export MKL_NUM_THREADS=$OMP_NUM_THREADS",
    "set -euo pipefail",
    "unset MKL_NUM_THREADS",
    'cd "$PWD"',
    "echo start",
    "set -a\nOMP_NUM_THREADS=7\nset +a",
    "RANKS=$(wc -l < $PBS_NODEFILE)",
    "RANKS=28",
    "module() { :; }\nmodule load gcc",
    "export OMP_PLACES=cores",
)
_WORDS = (
    "",
    "",
    "-np 1",
    "-n 28",
    "-np $NCPUS",
    "-np 4 -ppn 4",
    "--bind-to core",
    "-x OMP_NUM_THREADS",
    "-genv OMP_NUM_THREADS 7",
    "-np $(wc -l < $PBS_NODEFILE)",
    "-np $RANKS",
    "-np $((2 * 14))",
    "-np $(($(sort -u $PBS_NODEFILE | wc -l) * 28)) -ppn 28",
    "-np 28 --ppn 28 --depth 1 --cpu-bind depth",
    "-np 4 --ppn 4 --env A=1",
    "-hostfile $PBS_NODEFILE",
)
_LINES = (
    "./P",
    "./P",
    "./P",
    "./P",
    "mpirun W ./P",
    "mpirun W ./P",
    "mpiexec W ./P",
    'OPTS="W"\nmpirun $OPTS ./P',
    'OPTS=(W)\nmpirun "${OPTS[@]}" ./P',
    'OPTS=()\nOPTS+=(W)\nmpirun "${OPTS[@]}" ./P',
    'set -- W\nmpirun "$@" ./P',
    "shopt -s expand_aliases\nalias run='mpirun W'\nrun ./P",
    'mpirun() { command mpirun W "$@"; }\nmpirun ./P',
    'run() { "$@"; }\nrun ./P',
    "OMP_NUM_THREADS=7 ./P",
    "env MKL_NUM_THREADS=2 ./P",
    "time ./P",
    "timeout 60 ./P",
    "./P > out",
    "for i in 1 2; do ./P; done",
    "./P &\nwait",
    "./P || exit 1",
    "bash -c ./P",
    "if true; then ./P; fi",
    "PROGRAM=./P\n$PROGRAM",
    "eval ./P",
    "(./P)",
    "./P | cat",
    "./P\n./other",
    "./P\necho done",
    "echo $OMP_NUM_THREADS\n./P",
    '[ "$NCPUS" -gt 20 ] && ./P || ./other',
    "./P $NCPUS",
)


def _script(luck: random.Random) -> str:
    program = luck.choice(("stencil",) * 4 + ("pool", "blas"))
    settings = luck.sample(_SETTINGS, luck.choice((0, 0, 0, 1, 1, 2)))
    lines = luck.choice(_LINES) if luck.random() < 0.6 else "./P"
    text = "\n".join(["#!/bin/bash", *settings, lines, ""])
    words = luck.choice(_WORDS)
    return re.sub(r"\bP\b", program, re.sub(r"\bW\b", lambda _: words, text))


def drawn(count: int, seed: int) -> list[Shape]:
    """Return shapes put together at random, the same for the same seed."""
    luck = random.Random(seed)
    return [_draw(luck) for _ in range(count)]


def _draw(luck: random.Random) -> Shape:
    site = luck.choice([*SITES, *["plain"] * 16])
    words = ["-q", "q"] if site != "plain" else luck.choice(([], [], [], ["-q", "mixed"]))
    words = list(words)
    form = luck.choices(("select", "ncpus", "nodes", "none"), (12, 3, 2, 1))[0]
    if form == "select":
        chunks = (
            [_chunk(luck)] * luck.choice((1, 1, 1, 2))
            if luck.random() < 0.9
            else [_chunk(luck), _chunk(luck)]
        )
        words += ["-l", "select=" + "+".join(chunks)]
        if luck.random() < 0.7:
            place = luck.choice(("free", "pack", "scatter", "vscatter"))
            sharing = luck.choice(("", ":excl", ":excl", ":shared", ":exclhost"))
            words += ["-l", f"place={luck.choice((place + sharing, 'excl', place))}"]
    elif form == "ncpus":
        words += ["-l", f"ncpus={luck.choice((1, 4, 14, 28, 28, 64))}"]
        if luck.random() < 0.5:
            words += ["-l", f"mem={luck.choice((1, 8, 40))}gb"]
        if luck.random() < 0.2:
            words += ["-l", f"ompthreads={luck.choice((1, 4, 14))}"]
    elif form == "nodes":
        ppn = luck.choice(("", ":ppn=14", ":ppn=28", ":ppn=2:cpp=14"))
        words += ["-l", f"nodes={luck.choice((1, 2))}{ppn}{luck.choice(('', '#excl', '#shared'))}"]
    for option, share in (
        ("-l walltime=3600", 0.3),
        ("-h", 0.05),
        ("-J 1-3", 0.05),
        ("-N name", 0.2),
        ("-A climate", 0.1),
        ("-W umask=22", 0.1),
        ("-l matlab=1", 0.05),
        ("-r n", 0.1),
        ("-l cpu_freq_mhz=1900", 0.05),
        ("-v OMP_NUM_THREADS=7", 0.1),
        ("-V", 0.1),
        ("-l cput=3600", 0.05),
        ("-v ADVISOR=off", 0.03),
    ):
        if luck.random() < share:
            words += option.split()
    script = PLAIN if luck.random() < 0.3 else _script(luck)
    busy = (("-l", f"select={luck.choice((1, 2))}:ncpus=28:node_type=bdw"),)
    return Shape(tuple(words), site, script, busy if luck.random() < 0.3 else ())


def _chunk(luck: random.Random) -> str:
    words = [luck.choice(("1", "1", "1", "2", "4"))]
    ncpus = luck.choice((4, 14, 28, 28, 28, 64))
    parts = [f"ncpus={ncpus}"]
    if luck.random() < 0.4:
        parts.append(f"mem={luck.choice((1, 4, 10, 40))}gb")
    if luck.random() < 0.3:
        ranks = luck.choice((1, 2, 4, ncpus))
        parts.append(f"mpiprocs={ranks}")
        if luck.random() < 0.6:
            parts.append(f"ompthreads={max(1, ncpus // ranks)}")
    if luck.random() < 0.25:
        parts.append(luck.choice(("node_type=bdw", "node_type=skl", "bigmem=False", "model=bro")))
    if luck.random() < 0.1:
        parts.remove(f"ncpus={ncpus}")
    luck.shuffle(parts)
    return ":".join([*words, *parts])
