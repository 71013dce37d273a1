"""The environment variables a hook sends to the daemon: the one list of them.

``advisor hook install`` writes it into the hooks. What stands here by its name is sent whole or,
beyond ``WHOLE`` bytes, not at all; of what only begins like one of ``PREFIXES`` the first
``CUT`` bytes are sent. Standard library only.
"""

from __future__ import annotations

import re

SETTINGS = (
    "ADVISOR", "ADVISOR_MODE", "ADVISOR_GOAL", "ADVISOR_MAX_SLOWDOWN",
    "ADVISOR_ESTIMATED_NODE_TYPES", "ADVISOR_APPLICATION", "ADVISOR_WORKLOAD",
)  # fmt: skip
"""What a user may say of a job, as docs/user.md has it."""

THREADS = (
    "OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "OMP_DYNAMIC", "OMP_PLACES", "OMP_PROC_BIND",
    "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "KMP_HW_SUBSET", "MKL_NUM_THREADS",
    "MKL_DOMAIN_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMEXPR_MAX_THREADS", "JULIA_NUM_THREADS",
    "RAYON_NUM_THREADS", "NUMBA_NUM_THREADS", "TBB_NUM_THREADS", "ACC_NUM_CORES", "GOMAXPROCS",
    "POLARS_MAX_THREADS", "I_MPI_PIN", "I_MPI_PIN_DOMAIN", "I_MPI_PIN_PROCESSOR_LIST",
)  # fmt: skip
"""How many threads there are and where: for hooks that can ask for a variable only by its name."""

PREFIXES = (
    "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "GOTO_", "BLIS_", "VECLIB_", "NUMEXPR_",
    "I_MPI_PIN",
)  # fmt: skip
"""How such variables begin, for hooks that see the whole environment; they also send every
``..._NUM_THREADS``."""

WHOLE, CUT = 4096, 256
"""Bytes of a value."""

COUNTS = (
    "VECLIB_MAXIMUM_THREADS", "NUMEXPR_MAX_THREADS", "POLARS_MAX_THREADS", "ACC_NUM_CORES",
    "GOMAXPROCS",
)  # fmt: skip
"""Numbers of threads that are not named ``..._NUM_THREADS``."""

_COUNT = re.compile(r"[A-Z][A-Z0-9_]*_NUM_THREADS")


def is_thread_count(name: str) -> bool:
    """Tell whether a variable of this name may be set by the advisor: a number of threads."""
    return name in COUNTS or _COUNT.fullmatch(name) is not None


def sent_by_name() -> tuple[str, ...]:
    """Return what has to be named besides PREFIXES, for hooks that see the whole environment."""
    by_form = (*SETTINGS, *THREADS)
    return tuple(n for n in by_form if not (n.startswith(PREFIXES) or _COUNT.fullmatch(n)))
