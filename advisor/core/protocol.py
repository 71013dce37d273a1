"""Protocol version 1: one JSON line each way over a UNIX socket, and all that both sides know.

Requests carry ``{"v": 1, "op": ...}``; answers carry ``"v": 1`` and either the operation's keys
or ``"error"``. Operations: ``decide``, ``explain`` (the full decision), ``submitted`` (a job id
for a decision), ``observe`` (measured runs of the peer's own), ``characterise`` (an application's
phases, as the peer measured them), ``profile`` (what kernels of the peer's own took), ``status``,
``ping``. :mod:`advisor.core.operations` has the form of each.

``advisor hook install`` writes the variables, the limits and the words for off into the hooks.
Of variables a hook sends what stands here by its name whole, or, beyond ``MAX_VARIABLE`` bytes,
not at all; of what only begins like one of ``PREFIXES`` the first ``CUT`` bytes.
Standard library only.
"""

from __future__ import annotations

import json
import re
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from advisor.errors import AdvisorError

VERSION = 1
"""Version of the socket protocol; every request carries it as ``v``."""
MAX_REQUEST = 1 << 20
"""Bytes of one request line; longer ones are answered with an error and the line closed."""

MAX_PARTS = 20_000
"""Opening brackets and braces of a request line, those in texts included: reading as many lists as
a line has room for would keep everybody waiting for tens of milliseconds."""

MAX_ANSWER = 16384
"""Bytes of an answer that Slurm's hooks read: a rewrite, a message and a stamp."""

TOO_MANY = "too many requests"
"""How the error begins that a user gets who takes too much of a daemon, and may ask again."""

MAX_SOCKET = 107
"""Bytes of a socket's path, as the kernel has it."""

MAX_STAMP = 2000
"""Bytes of a stamp; longer ones lose the program and the ends of names."""

MAX_SCRIPT = 131072
"""Bytes of a job script that a hook sends; the rest is cut and the request says so."""

MAX_CHOICES = 65536
"""Bytes of a choices file; a longer one is not sent."""

MAX_VARIABLE, CUT = 4096, 256
"""Bytes of a variable's value."""

OFF = ("off", "0", "no", "false", "never")
"""The words for off, in ``ADVISOR`` and on ``#ADVISOR`` lines; case does not matter."""

SETTINGS = (
    "ADVISOR",
    "ADVISOR_MODE",
    "ADVISOR_GOAL",
    "ADVISOR_MAX_SLOWDOWN",
    "ADVISOR_ESTIMATED_NODE_TYPES",
    "ADVISOR_COLD_START",
    "ADVISOR_APPLICATION",
    "ADVISOR_WORKLOAD",
    "ADVISOR_EXTRAPOLATED",
    "ADVISOR_MAX_EXTRAPOLATION",
)
"""What a user may say of a job, as docs/user.md has it."""

THREADS = (
    "OMP_NUM_THREADS",
    "OMP_THREAD_LIMIT",
    "OMP_DYNAMIC",
    "OMP_PLACES",
    "OMP_PROC_BIND",
    "GOMP_CPU_AFFINITY",
    "KMP_AFFINITY",
    "KMP_HW_SUBSET",
    "MKL_NUM_THREADS",
    "MKL_DOMAIN_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "JULIA_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "TBB_NUM_THREADS",
    "ACC_NUM_CORES",
    "GOMAXPROCS",
    "POLARS_MAX_THREADS",
    "I_MPI_PIN",
    "I_MPI_PIN_DOMAIN",
    "I_MPI_PIN_PROCESSOR_LIST",
)
"""How many threads there are and where: for hooks that can ask for a variable only by its name."""

PREFIXES = (
    "OMP_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "OPENBLAS_",
    "GOTO_",
    "BLIS_",
    "VECLIB_",
    "NUMEXPR_",
    "I_MPI_PIN",
    "I_MPI_PERHOST",
    "I_MPI_HYDRA_",
    "HYDRA_",
    "MPIEXEC_",
    "OMPI_MCA_rmaps",
    "OMPI_MCA_hwloc",
    "OMPI_MCA_orte_",
    "PRTE_MCA_",
    "ADVISOR_SIZE_",
)
"""How such variables begin, and those that place an MPI library's ranks, for hooks that see the
whole environment; they also send every
``..._NUM_THREADS``."""

COUNTS = (
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "POLARS_MAX_THREADS",
    "ACC_NUM_CORES",
    "GOMAXPROCS",
)
"""Numbers of threads that are not named ``..._NUM_THREADS``."""

_COUNT = re.compile(r"[A-Z][A-Z0-9_]*_NUM_THREADS")
_encode = json.JSONEncoder(separators=(",", ":")).encode


def is_thread_count(name: str) -> bool:
    """Tell whether a variable of this name may be set by the advisor: a number of threads."""
    return name in COUNTS or _COUNT.fullmatch(name) is not None


def sent_by_name() -> tuple[str, ...]:
    """Return what has to be named besides PREFIXES, for hooks that see the whole environment."""
    by_form = (*SETTINGS, *THREADS)
    return tuple(n for n in by_form if not (n.startswith(PREFIXES) or _COUNT.fullmatch(n)))


class ProtocolError(AdvisorError):
    """A request that is not a line of protocol version 1."""


def parse_request_line(line: bytes) -> dict[str, object]:
    """Return a request. Raises ProtocolError; bytes that are not UTF-8 are replaced."""
    if line.count(b"[") + line.count(b"{") > MAX_PARTS:
        raise ProtocolError(f"not JSON of a request: more than {MAX_PARTS} lists and objects")
    try:
        data = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not JSON: {error}") from None
    if not isinstance(data, dict):
        raise ProtocolError("not a JSON object")
    if data.get("v") != VERSION:
        raise ProtocolError(f"protocol version {data.get('v')!r} is not {VERSION}")
    if not isinstance(data.get("op"), str):
        raise ProtocolError("no op")
    return data


def answer_line(answer: Mapping[str, object]) -> bytes:
    """Return an answer as one line."""
    return _encode({"v": VERSION, **answer}).encode() + b"\n"


def _connect(connection: socket.socket, path: Path, timeout_s: float) -> None:
    """Connect; where many others wait to be accepted, the kernel lets it wait, too.

    Raises OSError.
    """
    # A time of 0 would let the kernel wait without end.
    room = struct.pack("ll", int(timeout_s), int(timeout_s % 1 * 1e6) or 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, room)
    try:
        connection.connect(str(path))
    except BlockingIOError:
        # What connect says (EAGAIN) when that time is over.
        raise TimeoutError("too many wait there") from None
    connection.settimeout(timeout_s)


def call(path: Path, request: dict[str, object], timeout_s: float = 5.0) -> dict[str, object]:
    """Send one request to a daemon and return its answer.

    Raises AdvisorError when no daemon answers in time or the answer is an error.
    """
    hint = "is `advisor serve` running?"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            _connect(connection, path, timeout_s)
            with suppress(ConnectionError):  # the daemon says why it hangs up on what is too long
                connection.sendall(answer_line(request))
            chunks: list[bytes] = []
            while not chunks or not chunks[-1].endswith(b"\n"):
                chunk = connection.recv(65536)
                if not chunk:
                    break
                chunks.append(chunk)
        data = json.loads(b"".join(chunks))
    except (OSError, ValueError) as error:
        raise AdvisorError(f"no answer from {path}: {error}", hint=hint) from None
    if not isinstance(data, dict):
        raise AdvisorError(f"{path} answered something else than an object", hint=hint)
    if "error" in data:
        raise AdvisorError(f"the daemon at {path} says: {data['error']}")
    return data
