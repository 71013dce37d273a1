"""Runs a hook as PBS does: a fresh isolated interpreter, no site packages, -OO, one event.

python -I -S -OO hook_run.py HOOK < event.json > outcome.json
"""

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any, Dict


def main() -> None:
    """Run the events of standard input one after the other in this interpreter."""
    assert False, "asserts are not stripped"  # noqa: B011
    sys.path.insert(0, str(Path(__file__).parent / "stand_in"))
    pbs: Any = importlib.import_module("pbs")
    source = Path(sys.argv[1]).read_text(encoding="ascii")
    code = compile(source, "<embedded code object>", "exec")  # as PBS: once for all events
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
