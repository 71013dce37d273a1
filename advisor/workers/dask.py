"""Work on Dask: processes of this host, or jobs of the site's own scheduler by dask-jobqueue.

Dask's scheduler lives in this process as long as the work. It has no authentication of its own, so
it speaks TLS alone, also on this host, with a certificate that is made for this run and dies with
it: who has not the certificate's key can neither send nor take work. Workers get it in a folder
that is closed to others. Its pages (HTTP) are switched off.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import shlex
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from advisor.core.protocol import OFF
from advisor.core.workers_setup import WorkersSetup
from advisor.errors import AdvisorError, InputError, MissingExtraError
from advisor.interpreter import own_python
from advisor.workers.base import Done, Task, done, perform

_SETTINGS = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.scheduler.allowed-failures": 1,
    "distributed.comm.require-encryption": True,
    "distributed.admin.log-format": "%(name)s: %(message)s",
}
"""No pages; a task whose worker died twice is given up."""
_LOOKS_S = 1.0
"""Between two looks at whether workers are there, while no result comes."""
_PYTHON, _WORKER = "python", "distributed.cli.dask_worker"
"""How dask-jobqueue would start a worker."""


class Dask:
    """Workers of one core each, as many as the site says, which end with the work."""

    DESCRIPTION: ClassVar[str] = "on Dask: this host's processes, or the scheduler's own jobs"

    def __init__(self, setup: WorkersSetup) -> None:
        self._setup = setup

    def run(self, tasks: Sequence[Task]) -> Iterator[Done]:
        """Yield what came of every task. Raises AdvisorError where no cluster can be made."""
        if not tasks:
            return
        left = set(range(len(tasks)))
        with ExitStack() as stack:
            client = stack.enter_context(_client(self._setup, min(self._setup.jobs, len(tasks))))
            for number, future in _results(client, tasks, self._setup):
                left.discard(number)
                yield _done(number, future)
            why = _why_given_up(client, self._setup)
        for number in sorted(left):
            yield Done(number, problem=why)


@contextmanager
def _client(setup: WorkersSetup, count: int) -> Iterator[Any]:
    """Have a cluster of so many workers, and a client of it. Raises AdvisorError."""
    try:
        import cryptography  # makes the certificate
        import dask
        import distributed
    except ImportError as error:
        raise MissingExtraError("workers.engine dask needs", "hpc-advisor[dask]") from error
    assert cryptography
    untyped: Any = distributed
    security = untyped.Security.temporary()
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(_SETTINGS))
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        folder = stack.enter_context(_closed_folder(setup))
        try:
            if setup.scheduler:
                make, options = _of_scheduler(setup), _job_options(setup, folder)
            else:
                make = untyped.LocalCluster
                options = {
                    "n_workers": 0,
                    "threads_per_worker": 1,
                    "host": "127.0.0.1",
                    "local_directory": str(folder),
                    "dashboard_address": "127.0.0.1:0",
                }
            cluster = make(
                security=security, protocol="tls://", silence_logs=logging.CRITICAL, **options
            )
            stack.callback(_remove_keys, cluster)
            stack.enter_context(cluster)
            cluster.scale(count)
            client = stack.enter_context(untyped.Client(cluster, security=security))
        except (OSError, RuntimeError, ValueError) as error:
            raise AdvisorError(
                f"workers: no Dask cluster can be made: {_line(error)}",
                hint="look at `workers` in site.yaml; nothing was changed",
            ) from None
        yield client


def _remove_keys(cluster: Any) -> None:
    """Remove the files that workers got the certificate from: else they go with the object."""
    for name in ("_job_ca_file", "_job_cert", "_job_key"):
        if (file := getattr(cluster, name, None)) is not None:
            file.close()


def _results(client: Any, tasks: Sequence[Task], setup: WorkersSetup) -> Iterator[tuple[int, Any]]:
    """Yield numbers and results as they come, until nothing came for too long."""
    ended: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    futures = [
        client.submit(perform, *task, pure=False, key=f"advisor-{number}")
        for number, task in enumerate(tasks)
    ]
    for number, future in enumerate(futures):
        future.add_done_callback(lambda f, number=number: ended.put((number, f)))
    began = last = time.monotonic()
    came = False
    for _ in tasks:
        while True:
            try:
                yield ended.get(timeout=_LOOKS_S)
                break
            except queue.Empty:
                now = time.monotonic()
                if not came and client.scheduler_info(n_workers=-1)["workers"]:
                    came, last = True, now
                if now - (last if came else began) > (setup.task_s if came else setup.waits_s):
                    with suppress(Exception):
                        client.cancel(futures, force=True)
                    return
        came, last = True, time.monotonic()


def _done(number: int, future: Any) -> Done:
    try:
        return done(number, future.result(timeout=60))
    except Exception as error:  # its worker died, again and again
        return Done(number, problem=f"its worker was lost: {_line(error)}")
    except asyncio.CancelledError:
        return Done(number, problem="it was given up")


def _why_given_up(client: Any, setup: WorkersSetup) -> str:
    with suppress(Exception):
        if client.scheduler_info(n_workers=-1)["workers"]:
            return f"no result for {setup.task_s} s (workers.task_s)"
    where = f"{setup.scheduler} started none of the jobs" if setup.scheduler else "none started"
    return f"no worker came in {setup.waits_s} s (workers.waits_s): {where}, or all were lost"


def _of_scheduler(setup: WorkersSetup) -> Any:
    """Return dask-jobqueue's cluster of a scheduler. Raises InputError for one it does not know."""
    try:
        import dask_jobqueue
    except ImportError as error:
        raise MissingExtraError("workers.scheduler needs", "hpc-advisor[dask]") from error
    known = {
        name.removesuffix("Cluster").lower(): value
        for name, value in vars(dask_jobqueue).items()
        if name.endswith("Cluster")
    }
    if (cluster := known.get(setup.scheduler.lower())) is None:
        raise InputError(
            f"workers.scheduler: dask-jobqueue knows no {setup.scheduler!r}",
            hint=f"one of {', '.join(sorted(known))}",
        )

    job: Any = cluster.job_cls

    class OwnJob(job):  # type: ignore[misc]
        """A job whose worker is started as every interpreter of ours."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, python=_PYTHON, **options)
            arguments = vars(self)["_command_template"].removeprefix(f"{_PYTHON} -m {_WORKER}")
            self._command_template = shlex.join(own_python(_WORKER)) + arguments

    return type(cluster.__name__, (cluster,), {"job_cls": OwnJob})


def _job_options(setup: WorkersSetup, folder: Path) -> dict[str, Any]:
    """Return what dask-jobqueue needs to know of a worker's job."""
    return {
        "cores": 1,
        "processes": 1,
        "nanny": False,
        "memory": f"{setup.memory_mb}MB",
        "walltime": f"{setup.minutes // 60:02d}:{setup.minutes % 60:02d}:00",
        "queue": setup.partition or None,
        "account": setup.account or None,
        "interface": setup.interface or None,
        "job_name": "advisor-workers",
        "worker_command": _WORKER,
        "job_script_prologue": [f"#ADVISOR {OFF[0]}"],  # PBS hands no variable of ours on
        "log_directory": str(folder),
        "local_directory": "/tmp",
        "shared_temp_directory": str(folder),
        "death_timeout": setup.waits_s,
        "scheduler_options": {"dashboard_address": "127.0.0.1:0"},
        "worker_extra_args": ["--no-dashboard"],
    }


@contextmanager
def _closed_folder(setup: WorkersSetup) -> Iterator[Path]:
    """Have a folder closed to others, where Dask makes its files, and leave its jobs alone."""
    if setup.scheduler and not setup.folder:
        raise InputError(
            "workers.folder: the jobs need a folder that their nodes see", hint="name one there"
        )
    above = Path(setup.folder) if setup.folder else None
    if above is not None:
        try:
            status = above.stat()
        except OSError as error:
            raise InputError(f"workers.folder: {above}: {error.strerror}") from None
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise InputError(
                f"workers.folder: {above} may be written by others",
                hint="certificates lie there: make one of your own, of mode 0700",
            )
    with tempfile.TemporaryDirectory(prefix="advisor-workers-", dir=above) as name:
        former, tempfile.tempdir = tempfile.tempdir, name  # Dask opens job scripts by their names
        advised = os.environ.get("ADVISOR")
        os.environ["ADVISOR"] = OFF[0]
        try:
            yield Path(name)
        finally:
            tempfile.tempdir = former
            os.environ.pop("ADVISOR")
            if advised is not None:
                os.environ["ADVISOR"] = advised


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text[:300] or type(error).__name__
