"""`python tests/slurm/testbed --dir DIR start|stop|status|shell-env`: a cluster to play with."""

from __future__ import annotations

import argparse
import atexit
import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from testbed import Testbed, TestbedError

USAGE = """\
The cluster runs. To use it from a shell:

    eval "$({program} --dir {directory} shell-env)"
    sinfo -o '%n %t %c %f'
    sbatch --exclusive -N1 --wrap 'srun --cpu-freq=1200000-1800000 simapp --kernel stencil'
    sacct -o JobID,JobName,State,ElapsedRaw,ConsumedEnergyRaw,ReqCPUFreqMax

As an unprivileged user of account proj, put `setpriv --reuid=$(id -u {user}) --clear-groups` in
front. Hooks (cli_filter.lua, job_submit.lua) live in {conf_dir}. Logs are in {directory}/log.
Stop it with

    {program} --dir {directory} stop
"""


def main(argv: list[str]) -> int:
    """Do one action and return the exit code: 0 done, 1 failed."""
    parser = argparse.ArgumentParser(prog="testbed", description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path("/tmp/slurm-testbed"))
    parser.add_argument("--no-hooks", action="store_true", help="start without Lua plugins")
    parser.add_argument("action", choices=["start", "stop", "status", "shell-env"])
    args = parser.parse_args(argv)
    testbed = Testbed(args.dir, lua_hooks=not args.no_hooks)
    program = f"{shlex.quote(sys.executable)} {shlex.quote(str(Path(__file__).resolve().parent))}"
    try:
        if args.action == "start":
            testbed.start()
            atexit.unregister(testbed.stop)
            print(
                USAGE.format(
                    program=program,
                    directory=testbed.directory,
                    conf_dir=testbed.conf_dir,
                    user=testbed.user,
                ),
                end="",
            )
        elif args.action == "stop":
            testbed.stop(remove=True)
        elif args.action == "status":
            processes = testbed.processes()
            print(f"{testbed.directory}: {len(processes)} processes")
            if not processes:
                return 1
            print(testbed.run(["sinfo", "-o", "%P %D %t %c %f %N"]).stdout, end="")
        else:
            environ = testbed.env()
            for name in ("SLURM_CONF", "PATH"):
                print(f"export {name}={shlex.quote(environ[name])}")
    except TestbedError as error:
        print(f"testbed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
