"""What the program before PBS's qsub costs a submission, without a PBS.

Runs, one after the other in each round, a qsub that does nothing, a program in Python that only
becomes that qsub, and the advisor's, for a script of 40 lines. Prints the processor's time of each,
and how many times that of the program that only becomes qsub, which is Python's start, the
advisor's takes. A real qsub takes some 15 ms itself.

    python benchmarks/qsub.py [--rounds 100] [--python /usr/bin/python3] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path

from advisor.schedulers.pbs.hooks import client_text

BAR = 2.0
SCRIPT = (
    """#!/bin/bash
#PBS -l select=2:ncpus=28:mpiprocs=28
#PBS -l walltime=1:00:00
module load gcc mpi
cd $PBS_O_WORKDIR
export OMP_NUM_THREADS=1
SIZE=100
"""
    + "".join(f"cp input.{n} work/\n" for n in range(32))
    + "mpirun ./stencil --size $SIZE\n"
)


def spent_ms(program: Path, words: list[str], environment: dict[str, str]) -> float:
    """Return the processor's time of one call and all it starts, in ms."""
    nowhere = [(os.POSIX_SPAWN_OPEN, n, os.devnull, os.O_RDWR, 0) for n in (0, 1, 2)]
    pid = os.posix_spawn(program, [str(program), *words], environment, file_actions=nowhere)
    _, status, used = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"{program} failed")
    return 1e3 * (used.ru_utime + used.ru_stime)


def ours_in(folder: Path, real: Path) -> str:
    """Return the advisor's program, which leaves what it read in a folder instead of the home.

    The server gives its jobs no variables, and no daemon listens.
    """
    text = client_text(real, folder / "no-daemon")
    return text.replace('FOLDER = ".cache/advisor/qsub"', f"FOLDER = {str(folder / 'left')!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="qsub-") as name:
        folder = Path(name)
        real, start = folder / "real", f"#!{args.python} -IS\n"
        programs = {
            "qsub that does nothing": (real, "#!/bin/sh\n"),
            "Python that becomes it": (
                folder / "nothing",
                f"{start}import os, sys\nos.execv({str(real)!r}, ['qsub', *sys.argv[1:]])\n",
            ),
            "the advisor's program": (
                folder / "advisors",
                start + ours_in(folder, real).partition("\n")[2],
            ),
        }
        for path, text in programs.values():
            path.write_text(text)
            path.chmod(0o755)
        (folder / "job.sh").write_text(SCRIPT)
        (folder / "qstat").write_text("#!/bin/sh\necho Server: here\n")
        (folder / "qstat").chmod(0o755)
        environment = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": name}
        times: dict[str, list[float]] = {label: [] for label in programs}
        for _ in range(args.rounds):
            for label, (path, _) in programs.items():
                times[label].append(spent_ms(path, [str(folder / "job.sh")], environment))
    medians = {label: statistics.median(found) for label, found in times.items()}
    _, nothing, ours = medians.values()
    if args.json:
        print(json.dumps({**medians, "ratio": ours / nothing, "bar": BAR}))
        return
    for label, took in medians.items():
        print(f"{label:24} {took:6.1f} ms")
    met = "below" if ours < BAR * nothing else "NOT below"
    print(f"{ours / nothing:.1f} times a program that does nothing: {met} the bar of {BAR:g}")


if __name__ == "__main__":
    main()
