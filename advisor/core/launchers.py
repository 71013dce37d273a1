"""What the commands of job scripts are known to do: launchers with their options, light commands.

A closed world: what is not listed here is not understood, and then the job is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from advisor.core.shell import read_shell

LAUNCHERS = frozenset(
    """
    srun aprun ibrun jsrun mpirun mpirun.mpich mpirun.openmpi mpiexec mpiexec.hydra mpiexec.mpich
    mpiexec.openmpi mpiexec_mpt orterun prterun prun
    """.split()  # noqa: SIM905
)
# Options of aprun, mpirun and their like that take no value of their own.
_FLAGS = frozenset(
    """
    -h -H -I -K -l -Q -s -u -V -v --verbose --quiet --label --oversubscribe --overcommit --bynode
    --bycore --report-bindings --allow-run-as-root --tag-output --bind-to-core --display-map
    --nolocal --do-not-launch -b --line-buffer --no-transfer --genvall --envall -envall
    """.split()  # noqa: SIM905
)
SRUN_LETTERS = "A:B:b:C:c:D:d:Ee:F:G:HhI::i:J:K::k::L:lM:m:N:n:Oo:p:Qq:r:S:sT:t:uVvW:w:Xx:Z"
"""srun's short options as getopt has them: with ":" where a value must follow, with "::" where one
may be written behind the letter. Several may stand in one word, as for all of Slurm's commands."""
SRUN_FLAGS = frozenset(
    """
    async bcast compress consolidate-segments contiguous debugger-test disable-status exact
    exclusive external-launcher help hold immediate interactive kill-on-bad-exit label multi-prog
    nice no-allocate no-kill oom-kill-step overcommit overlap oversubscribe parsable preserve-env
    propagate pty quiet quit-on-interrupt reboot resv-ports send-libs spread-job spread-segments
    stepmgr test-only unbuffered usage use-min-nodes verbose version wait-for-children whole x11
    """.split()  # noqa: SIM905
)
"""srun's long options that take no value from the next word."""
VALUE_IS_A_NAME = frozenset(
    """
    -o --output -e --error -i --input -J --job-name -D --chdir --comment --wdir -wdir
    --output-filename
    """.split()  # noqa: SIM905
)
"""Options whose value is a name: whatever it is, the launcher starts the same."""
_OWN_JOB = re.compile(r"\$\{?SLURM_JOB_?ID\}?")
# Open MPI's -mca and Hydra's -genv take a name and a value.
_TWO_VALUES = frozenset({"-mca", "--mca", "-gmca", "--gmca", "-genv", "-env"})

_NOTHING = """
    -n --ntasks -N --nodes --ntasks-per-node -K --kill-on-bad-exit -l --label -u --unbuffered -o
    --output -e --error -i --input -J --job-name -D --chdir -W --wait --mpi -Q --quiet -v --verbose
    -X --disable-status --resv-ports --msg-timeout --slurmd-debug --bcast --compress
    --propagate --prolog --epilog --task-prolog --task-epilog --comment --signal --mem-bind
    --profile --acctg-freq --gres-flags --sprof
    -np --np -q -prefix --prefix -wdir --wdir --tag-output --output-filename --report-bindings
    --display-map --allow-run-as-root -mca --mca -gmca --gmca -genv -env --env -genvall
    --genvall -envall --envall --line-buffer --no-transfer -print-rank-map
    -prepend-rank -ordered-output --timestamp-output
"""
_KEEPS = {
    "threads": "-c --cpus-per-task --cpus-per-proc --cpu-bind --cpu_bind --threads-per-core --hint "
    "-m --distribution --exclusive --exact --overlap --whole --mem --mem-per-cpu --export -ppn "
    "--ppn -perhost --perhost -npernode --npernode --map-by -map-by --bind-to -bind-to --rank-by "
    "-rank-by --bynode --bycore --bind-to-core --oversubscribe -d -j -S --depth -cc --cpu-set "
    "-genvlist -envlist",
    "node_type": "-w --nodelist -x --exclude -r --relative -F --nodefile --constraint -C --gres "
    "--gpus --gpus-per-node --gpus-per-task -G --gpu-bind --accel-bind -hostfile --hostfile "
    "-machinefile --machinefile -f -hosts --hosts -host --host -H",
    "frequency": "--cpu-freq",
}
OPTIONS: dict[str, str] = dict.fromkeys(_NOTHING.split(), "")
"""What a launcher's option keeps: an axis (``threads``, ``node_type``, ``frequency``) or nothing.

Of ``threads``: it sets the CPUs of a rank or their binding, so that the request's own say no
longer holds. Options that are not here are not understood.
"""
for _axis, _names in _KEEPS.items():
    OPTIONS.update(dict.fromkeys(_names.split(), _axis))

LIGHT = frozenset(
    """
    [ [[ (( : . alias awk basename bc bg break builtin cal cat cd chgrp chmod chown cksum clear
    cmp comm continue cp cut date dd df diff dirname dirs du echo egrep enable exit expr export
    false fg fgrep file fold free getopts grep groups gunzip gzip hash head hostname id install
    jobs join kill last less let ln local locale logger logname ls lsb_release lsof man md5sum
    mkdir mkfifo mktemp ml module more mv nl paste pathchk popd printenv printf ps pushd pwd read
    readlink readonly realpath return rev rm rmdir sacct scancel sed seq set sha1sum sha256sum
    shift shopt shuf sinfo sleep sort source split squeue sstat stat stdbuf sum sync tac tail tar
    tee test touch tr trap true truncate tty type typeset ulimit umask unalias uname uniq unset
    unzip uptime users vmstat wait wc which who whoami whereis xz zcat zip bzip2 bunzip2 sbcast
    nvidia-smi rocm-smi lscpu nproc numastat getconf jq ldd lfs uuidgen seff qstat pbsnodes
    deactivate clean_scratch generate_pbs_nodefile curl wget rsync scp svnversion
    """.split()  # noqa: SIM905
)
"""Commands that use no cores worth speaking of and start no others; see :func:`is_light`."""
_LIGHT_OF_FIND = frozenset(
    """
    basename cat chgrp chmod chown cp du echo file grep head ln ls md5sum mkdir mv rm stat tail
    touch wc
    """.split()  # noqa: SIM905
)
"""What ``find -exec`` may run."""
_SUBCOMMANDS = {
    "conda": {
        "activate",
        "deactivate",
        "init",
        "config",
        "info",
        "shell.bash",
        "shell.posix",
        "env",
        "list",
    },
    "mamba": {"activate", "deactivate", "info", "shell", "list"},
    "micromamba": {"activate", "deactivate", "info", "shell", "list"},
    "spack": {"load", "unload", "env", "find", "location"},
    "scontrol": {"show", "ping"},
    "git": {"rev-parse", "describe", "log", "status", "show", "clone", "checkout", "pull", "fetch"},
    "env": set[str](),
    "find": None,
    "exec": None,
    "eval": None,
}
# Commands that may name a launcher and do not start it: `which srun`.
_NAMES_OTHERS = frozenset(
    {"which", "type", "echo", "printf", "hash", "whereis", "module", "ml", "test", "[", "[["}
)
_SYSTEM_FOLDERS = ("/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin")
NO_PROGRAMS = frozenset({"source", ".", "trap", *_SUBCOMMANDS})
"""Commands that are never a job's program, though they may start one."""
SUBMITS = frozenset({"sbatch", "qsub", "salloc", "bsub", "msub", "qresub", "scrontab", "strigger"})
_SYSTEM_FILE = re.compile(
    r"/(etc|usr|opt|lib|sw|apps|software|cvmfs|cm|bgfs|nopt)/\S*|(\S*/)?(de)?activate|\S*/(setvars\.sh|"
    r"profile\.d/\S+|setup-env\.sh|(compiler|icc|ifort|mkl|mpi|tbb)?vars\.sh|GMXRC|init/(ba)?sh)|"
    r"~?/?\.(bashrc|bash_profile|profile)|\S*/\.(bashrc|bash_profile|profile)|"
    # folder by folder: a long word is looked at once
    r"\S*/OpenFOAM[^\s/]*+(/[^\s/]*+)?/etc/bashrc"
)
_HOOK = re.compile(r"\$\((\S*(conda|mamba|micromamba) shell|ssh-agent|modulecmd)\b[^;|&]*\)")


_TELLS_VERSION = {
    "--version": frozenset(
        """
        python python2 python3 pip pip3 java julia R Rscript perl gcc g++ gfortran clang clang++ icc
        icpc ifort icx icpx ifx mpicc mpicxx mpif90 mpifort nvcc hipcc cmake singularity apptainer
        """.split()  # noqa: SIM905
    ),
    "-V": frozenset({"python", "python2", "python3", "nvcc"}),
    "-version": frozenset({"java"}),
}
"""Programs that only say which version they are, where they are asked so and nothing else."""


_ENDS_AT_ONCE = frozenset(
    "date echo hostname id mkdir pwd touch uname whoami".split()  # noqa: SIM905
)
"""Not ``nvidia-smi``, which may set clocks or go on, nor ``true``, run to fetch a container."""


def ends_at_once(words: Sequence[str]) -> bool:
    """Tell whether a command is light and short, so that a step of it changes nothing of its job.

    A longer one, ``srun sleep 60``, is metered with the job's program.
    """
    return words[0].rpartition("/")[2] in _ENDS_AT_ONCE and is_light(words)


def is_light(words: Sequence[str]) -> bool:
    """Tell whether a command uses no cores worth speaking of, and cannot start one that does."""
    folder, _, name = words[0].rpartition("/")
    rest = words[1:]
    if name not in _NAMES_OTHERS and _names_launcher(rest):
        return False  # time -o FILE srun ...
    if folder and folder not in _SYSTEM_FOLDERS:
        return False
    if name == "trap":
        # Its argument is a script, which runs at a signal or at the end.
        handler = read_shell(rest[0]) if rest else None
        return handler is None or (
            not handler.problem and all(is_light(c.words) for c in handler.commands)
        )
    if name in (".", "source"):
        return bool(rest) and _SYSTEM_FILE.fullmatch(rest[0]) is not None
    if name == "find":
        starts = (i for i, w in enumerate(rest) if w.startswith(("-exec", "-ok")))
        return all(rest[i + 1 : i + 2] and rest[i + 1] in _LIGHT_OF_FIND for i in starts)
    if name == "eval":
        return len(rest) == 1 and _HOOK.fullmatch(rest[0]) is not None
    if name == "exec":
        return not rest
    if len(rest) == 1 and name in _TELLS_VERSION.get(rest[0], ()):
        return True
    if name in _SUBCOMMANDS:
        subcommands = _SUBCOMMANDS[name]
        word = next((w for w in rest if not w.startswith("-")), "")
        return subcommands is not None and (word in subcommands or not word)
    return name in LIGHT


def _names_launcher(words: Sequence[str]) -> bool:
    for word in words:
        if word in LAUNCHERS or ("/" in word and word.rsplit("/", 1)[-1] in LAUNCHERS):
            return True
    return False


def option_keeps(launcher: str, option: str) -> str | None:
    """Return what an option on a launcher's line keeps (see OPTIONS), None for an unknown one."""
    name = option.partition("=")[0]
    if name == "-x" and launcher != "srun":
        return ""  # Open MPI: a variable that goes along
    if launcher != "srun" and name not in OPTIONS and not name.startswith("--"):
        name = name[:2]
    value = option.partition("=")[2]
    if name == "--jobid" and _OWN_JOB.fullmatch(value):
        return ""  # of another job nobody knows the cores
    if name in ("--export",) and value.upper().startswith("ALL"):
        return ""
    return OPTIONS.get(name)


def split_options(launcher: str, words: list[str]) -> tuple[list[str], list[str]]:
    """Return a launcher's options, each with its value behind ``=``, and the words after them."""
    options: list[str] = []
    i = 0
    while i < len(words) and words[i].startswith("-") and words[i] != "-":
        word = words[i]
        i += 1
        if word == "--":
            break
        if launcher == "srun":
            name, values = _srun_option(word, options)
        else:
            name, values = word, _values_of(word, words[i : i + 1])
        options.append(name)
        for value in words[i : i + values]:
            options[-1] += f"={value}"
        i += values
    return options, words[i:]


def _srun_option(word: str, options: list[str]) -> tuple[str, int]:
    """Return the last option of a word of srun's and how many words are its value.

    Letters before it go to ``options``: ``-ln4`` is ``-l`` and ``-n=4``.
    """
    if word.startswith("--"):
        return word, 0 if "=" in word or word[2:] in SRUN_FLAGS else 1
    for position in range(1, len(word)):
        letter, rest = word[position], word[position + 1 :]
        place = -1 if letter == ":" else SRUN_LETTERS.find(letter)
        value = SRUN_LETTERS[place + 1 : place + 3] if place >= 0 else "?"
        if not value.startswith(":"):  # no value, or one that srun does not know
            if rest:
                options.append(f"-{letter}")
                continue
            return f"-{letter}", 0
        if rest:
            return f"-{letter}={rest.removeprefix('=')}", 0
        return f"-{letter}", 0 if value == "::" else 1
    return word, 0


def _values_of(word: str, following: Sequence[str]) -> int:
    if word in _TWO_VALUES:
        # PALS's -env takes one, NAME=VALUE.
        return 1 if word in ("-env", "-genv") and "=" in "".join(following) else 2
    if word.startswith("--"):
        return 0 if "=" in word or word in _FLAGS else 1
    if word in _FLAGS:
        return 0
    short_with_glued_value = re.fullmatch(r"-[A-Za-z]\S+", word) and not re.fullmatch(
        r"-(np|hostfile|hosts?|machinefile|map-by|bind-to|rank-by|ppn|npernode|perhost|x|wdir|prefix"
        r"|cc|cp|sn|sl|genvlist|envlist)",
        word,
    )
    return 0 if short_with_glued_value else 1
