"""Which machine this is: what a node type's profiles must have in common."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any

from advisor.core.inventory import NodeType
from advisor.instruments.characterise import cache_bytes
from advisor.instruments.native import compiler


def fingerprint(
    node: NodeType, root: Path = Path("/sys"), cpuinfo: Path = Path("/proc/cpuinfo")
) -> dict[str, Any]:
    """Return what distinguishes kinds of machines: processor, cores, caches (bytes), memory (MB).

    ``node`` is this machine as it is now.
    """
    caches = {f"l{level}_b": cache_bytes(level, root) or 0 for level in (1, 2, 3)}
    return {
        "processor": processor(cpuinfo),
        "architecture": platform.machine(),
        "sockets": node.sockets,
        "cores": node.cores,
        "threads_per_core": node.threads_per_core,
        **caches,
        "memory_mb": node.memory_mb,
    }


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return family, model and name of the processor, as far as the kernel knows them."""
    try:
        text = cpuinfo.read_text(errors="replace").split("\n\n")[0]
    except OSError:
        return platform.processor()
    fields = dict(re.findall(r"^([^\t:]+?)\s*:\s*(.*)$", text, re.MULTILINE))
    names = ("model name", "vendor_id", "cpu family", "model", "CPU implementer", "CPU part")
    return " ".join(fields[n] for n in names if fields.get(n))


def circumstances() -> dict[str, str]:
    """Return what may change on one machine and is kept with profiles: host, kernel, compiler."""
    return {
        "host": platform.node().split(".")[0],
        "kernel": platform.release(),
        "compiler": _version(compiler()),
    }


def _version(cc: str) -> str:
    import subprocess

    try:
        process = subprocess.run([cc, "--version"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return cc
    lines = process.stdout.splitlines()
    return lines[0].strip() if lines else cc


def memory_b() -> int:
    """Return the bytes of memory that are free to use here."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (OSError, ValueError):
        return 2**30
