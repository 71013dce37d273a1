"""A machine to install on: this one below an overlay in memory, which ends with the script."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

_ENTER = """\
set -e
mount -t tmpfs tmpfs "$0"
mkdir "$0/upper" "$0/work" "$0/copy"
mount -t overlay -o "lowerdir=/,upperdir=$0/upper,workdir=$0/work" overlay "$0/copy"
for folder in /dev /proc $2; do mount --bind "$folder" "$0/copy$folder"; done
exec chroot "$0/copy" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/home/admin \\
    LANG=C.UTF-8 bash -ec "trap 'kill \\$(jobs -p) 2> /dev/null || :' EXIT; mkdir -p ~; cd; $1"
"""


def run(script: str, folder: Path, shared: Sequence[Path] = ()) -> subprocess.CompletedProcess[str]:
    """Run a bash script as root on a copy of this machine, in its home; ``folder`` is an empty one.

    What it writes, anywhere but in /dev and the ``shared`` folders of this machine, is gone when it
    ends, and so are its background jobs.
    """
    folders = " ".join(map(str, shared))
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", _ENTER, str(folder), script, folders],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@functools.cache
def why_not() -> str:
    """Say why there can be no such machine here; "" if there can."""
    if os.geteuid() != 0:
        return "only root can mount an overlay"
    if not shutil.which("unshare"):
        return "there is no unshare here"
    import tempfile

    with tempfile.TemporaryDirectory(prefix="advisor-machine-") as name:
        done = run("true", Path(name))
    return f"no overlay can be mounted: {done.stderr.strip()}" if done.returncode else ""
