"""What another user sees and may do: tasks in a child process of that user."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable

NOBODY = "nobody"


def as_user(task: Callable[[], object], name: str = NOBODY) -> str:
    """Run ``task`` as a user; return the text it returned, "" for none, or the error it ended with.

    Who is not root runs it as oneself.
    """
    if os.geteuid():
        return _text(task())
    entry = pwd.getpwnam(name)
    end, start = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgid(entry.pw_gid)
            os.setuid(entry.pw_uid)
            text = _text(task())
        except BaseException as error:
            text = f"failed: {type(error).__name__}: {error}"
        os.write(start, text.encode())
        os._exit(0)
    os.close(start)
    with os.fdopen(end, encoding="utf-8") as file:
        text = file.read()
    os.waitpid(child, 0)
    return text


def _text(returned: object) -> str:
    return returned if isinstance(returned, str) else ""
