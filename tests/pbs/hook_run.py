"""Runs a hook as PBS does: a fresh isolated interpreter, no site packages, -OO, one event.

python -I -S -OO hook_run.py HOOK < events.json > outcomes.json

Without HOOK it forks for each folder that is named on standard input, see interpreters.py.
"""

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Dict


def main() -> None:
    """Run one hook in this interpreter, or many in its forks."""
    assert False, "asserts are not stripped"  # noqa: B011
    sys.path.insert(0, str(Path(__file__).parent / "stand_in"))
    pbs = importlib.import_module("pbs")
    if sys.argv[1:]:
        run(pbs, compiled(Path(sys.argv[1]).read_text(encoding="ascii")))
    else:
        fork_for_each(pbs)


def compiled(source: str) -> Any:
    """Return the code of a hook; PBS, too, compiles it once for all events."""
    return compile(source, "<embedded code object>", "exec")


def fork_for_each(pbs: Any) -> None:
    """Run a hook in a fork for each folder on standard input, until that ends.

    The folder has what is asked and the events; there the output goes, the exit code at last. One
    runs at a time.
    """
    codes: Dict[str, Any] = {}
    for line in iter(sys.stdin.readline, ""):
        folder = Path(line.rstrip("\n"))
        asked = json.loads((folder / "asked").read_text())
        source = Path(asked["hook"]).read_text(encoding="ascii")
        if source not in codes:
            codes[source] = compiled(source)
        child = os.fork()
        if not child:
            enter(folder, asked)
            run(pbs, codes[source])
            sys.stdout.flush()
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        (folder / "code").write_text(str(code))


def enter(folder: Path, asked: Dict[str, Any]) -> None:
    """Become the program that a new interpreter would be."""
    for number, name, flags in (
        (0, "in", os.O_RDONLY),
        (1, "out", os.O_WRONLY | os.O_CREAT),
        (2, "err", os.O_WRONLY | os.O_CREAT),
    ):
        os.dup2(os.open(str(folder / name), flags), number)
    sys.stdin = os.fdopen(0, closefd=False)
    os.environ.clear()
    os.environ.update(asked["environment"])
    time.tzset()
    os.chdir(asked["folder"])


def run(pbs: Any, code: Any) -> None:
    """Run the events of standard input one after the other in this process."""
    outcomes = []
    for given in json.load(sys.stdin):
        pbs.LOG.clear()
        pbs.CONF.update(given.get("conf", {}))
        pbs.NODE = given.get("node", "node1")
        for name, kind in given.get("resources", {}).items():
            pbs.RESOURCES.setdefault(
                name, pbs.size if kind == "size" else {"int": int}.get(kind, str)
            )
        parameters: Dict[str, Any] = {}
        if "job" in given:
            parameters["job"] = pbs.Job(given["job"])
        if "job_list" in given:
            parameters["job_list"] = {
                name: pbs.Job({"id": name, **job}) for name, job in given["job_list"].items()
            }
        kind = getattr(pbs, given.get("event", "QUEUEJOB"))
        pbs._event = event = pbs.Event(kind, given.get("user", "root"), parameters)
        begin = time.perf_counter()
        failure = exit_code = None
        try:
            exec(code, {"__name__": "__main__", "__builtins__": __builtins__})
        except SystemExit as stop:
            exit_code = str(stop.code)
        except BaseException as error:
            failure = repr(error)
        took = time.perf_counter() - begin
        job = parameters.get("job")
        outcomes.append(
            {
                "answer": event.answer,
                "exit": exit_code,
                "failure": failure,
                "took_s": took,
                "log": [text for _, text in pbs.LOG],
                "resources": _shown(job.Resource_List) if job else {},
                "used": _shown(job.resources_used) if job else {},
                "written": job.Resource_List.written if job else [],
                "variables": dict(job.Variable_List) if job else {},
                "modules": sorted(sys.modules),
            }
        )
    json.dump(outcomes, sys.stdout)


def _shown(resources: Any) -> Dict[str, str]:
    return {name: str(resources[name]) for name in resources.keys()}  # noqa: SIM118


if __name__ == "__main__":
    main()
