"""On a real Slurm that binds no step to cores: no cap lands there, and none is promised."""

from __future__ import annotations

import shlex

import pytest
from testbed import NODE_TYPES, Testbed, requirements

from advisor.core.script_use import use_of_script
from advisor.schedulers.slurm import availability
from advisor.schedulers.slurm.translator import cap_obstacle, parse_request, read_arguments

BDW = NODE_TYPES["bdw"]
CAP = 1_800_000
OPTIONS = f"-N1 --exclusive -p broadwell --cpu-freq={BDW.frequencies_khz[0]}-{CAP}"
SHOW = "srun cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq\n"
PREFIXES = (
    "",
    "export SLURM_CPU_BIND=none\n",
    "export SLURM_CPU_BIND=cores\n",
    "export SLURM_CPU_BIND_TYPE=none SLURM_CPU_BIND_LIST= SLURM_MEM_BIND=none\n",
)


@pytest.mark.parametrize(
    ("configuration", "capped"),
    [
        ("", (True, False, True, True)),
        ("TaskPluginParam=none\n", (False, False, True, False)),
        ("TaskPlugin=task/none\n", (False, False, False, False)),
    ],
)
def test_a_cap_lands_where_the_advisor_says_so(
    monkeypatch: pytest.MonkeyPatch, configuration: str, capped: tuple[bool, ...]
) -> None:
    if reason := requirements():
        pytest.skip(reason)
    seen, promised = [], []
    with Testbed(lua_hooks=False, more_configuration=configuration) as cluster:
        for name in ("SLURM_CONF", "PATH"):
            monkeypatch.setenv(name, cluster.env()[name])
        settings = availability.read().settings
        for prefix in PREFIXES:
            script = prefix + SHOW
            job = cluster.sbatch(*shlex.split(OPTIONS), script=script).job_id
            assert cluster.wait(job) == "COMPLETED"
            seen.append(int(cluster.output(job).split()[-1]) == CAP)
            options = read_arguments(OPTIONS.split())
            request = parse_request(
                {"options": options, "script": script}, user="ada", uid=1, choices={}
            )
            promised.append(not cap_obstacle(request, use_of_script(script), settings))
    assert (tuple(seen), tuple(promised)) == (capped, capped)
