"""A program as a fork of the test's process: it need load no interpreter, and no modules."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

NO_TASK = 70
"""The exit code of a task that ended with an exception."""


def forked(
    task: Callable[[], int], environment: Mapping[str, str], folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a task with this environment, in a folder; return its exit code and what it printed.

    What it imports and changes is gone at its end.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            code = NO_TASK
            try:
                gc.disable()
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
                os.environ.clear()
                os.environ.update(environment)
                time.tzset()
                os.chdir(folder or ".")
                logging.getLogger().handlers.clear()  # pytest's
                code = task()
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = []
        for output in (out, err):
            output.seek(0)
            texts.append(output.read().decode())
    return subprocess.CompletedProcess((), code, *texts)
