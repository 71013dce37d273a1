"""A real Slurm cluster on one machine, with posed nodes, meters and frequencies.

`Testbed` starts munged, mariadbd, slurmdbd, slurmctld and one slurmd per posed node in a private
directory and on free ports. Everything about Slurm is real; only the silicon is posed: cores,
`/sys/devices/system/cpu/*/cpufreq`, `/sys/cray/pm_counters` and the application's response
(`law`).
"""

from .client import CommandResult, Submitted
from .cluster import Testbed
from .daemons import TestbedError
from .law import KERNELS, NODE_TYPES, predict
from .requirements import requirements

__all__ = [
    "KERNELS",
    "NODE_TYPES",
    "CommandResult",
    "Submitted",
    "Testbed",
    "TestbedError",
    "predict",
    "requirements",
]
