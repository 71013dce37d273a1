"""Jobs whose steps run at a frequency of their own: that one is the baseline's, or there is none.

A job that its script capped to 1.5 GHz was compared with 2.2 GHz; fewer threads, as fast there,
then took it beyond its time limit.
"""

from __future__ import annotations

import pytest

from advisor.core.cpu_freq import is_unclear
from advisor.core.requested_configuration import configuration_of
from advisor.schedulers.slurm.translator import parse_request, read_arguments
from advisor.store.writer import Writer
from tests.unit.decide.site import BDW, SCRIPT, ask, codes

NAME = "SLURM_CPU_FREQ_REQ"


@pytest.mark.parametrize(
    "script",
    [
        f"export {NAME}=1500000\nsrun ./stencil\n",
        f"{NAME}=1500000 srun ./stencil\n",
        f"[ -e slow ] && export {NAME}=1500000\nsrun ./stencil\n",
        f"export {NAME}=$KHZ\nsrun ./stencil\n",
        "srun --cpu-freq=low ./stencil\n",
        "srun --cpu-freq=1200000-1500000:PowerSave ./stencil\n",
    ],
)
def test_a_script_s_own_frequency_that_is_not_known_leaves_no_baseline(
    store: Writer, script: str
) -> None:
    decision = ask(store, script=f"#!/bin/bash\n{script}")
    assert (decision.rewrite, decision.environment) == ({}, {}), decision.reasons
    (why,) = (r for r in decision.reasons if r.code == "no-baseline")
    assert "at which frequency it runs" in why.text
    assert NAME in why.text or "srun --cpu-freq" in why.text


def test_an_option_that_a_variable_holds_leaves_the_job_alone(store: Writer) -> None:
    decision = ask(store, script="#!/bin/bash\nsrun --cpu-freq=$KHZ ./stencil\n")
    assert (decision.rewrite, decision.environment) == ({}, {})
    assert codes(decision) & {"no-baseline", "script-not-understood"}


@pytest.mark.parametrize("kind", ["launcher", "variable", "both", "option"])
def test_a_frequency_that_is_stated_is_the_baseline_s_and_kept(store: Writer, kind: str) -> None:
    script, environment, arguments = SCRIPT, {}, "-N1 --exclusive"
    if kind in ("launcher", "both"):  # what srun is given itself goes before its variable
        script = SCRIPT.replace("srun", "srun --cpu-freq=1200000-1500000")
    if kind in ("variable", "both"):
        environment = {NAME: "1500000" if kind == "variable" else "1800000"}
    if kind == "option":
        arguments += " --cpu-freq=1500000"
    decision = ask(store, arguments, script, env=environment)
    assert decision.baseline is not None and decision.baseline.freq_khz == 1_500_000
    assert decision.environment == {"OMP_NUM_THREADS": "20"}
    assert "cpu-freq" not in decision.rewrite
    assert decision.chosen is not None and decision.chosen.configuration.freq_khz == 1_500_000


@pytest.mark.parametrize(
    ("environment", "unclear"),
    [
        ({NAME: "1500000"}, ""),
        ({NAME: "1200000-1500000"}, ""),
        ({NAME: "high"}, ""),
        ({NAME: "low"}, NAME),
        ({NAME: "PowerSave"}, NAME),
        ({NAME: "1500000", "SBATCH_CPU_FREQ_REQ": "1800000"}, NAME),
        ({NAME: "1500000", "SBATCH_CPU_FREQ_REQ": "1500000"}, ""),
    ],
)
def test_variables_that_agree_on_a_number_are_known(
    environment: dict[str, str], unclear: str
) -> None:
    request = parse_request(
        {"type": "sbatch", "options": {"nodes": "1", "exclusive": ""}, "env": environment},
        user="ada",
        uid=1000,
        choices={},
    )
    assert request.freq_unclear.partition(" ")[0] == unclear
    stated = parse_request(
        {
            "type": "sbatch",
            "options": read_arguments(["-N1", "--exclusive", "--cpu-freq=2000000"]),
            "env": environment,
        },
        user="ada",
        uid=1000,
        choices={},
    )
    assert stated.freq_unclear == ""
    assert configuration_of(stated, BDW).freq_khz == 2_000_000


def test_where_no_cap_reaches_the_program_its_variable_says_nothing(store: Writer) -> None:
    """mpirun's ranks run at the node's own frequency, whatever srun's variable says."""
    decision = ask(
        store, "-N1 -n1 --exclusive", SCRIPT.replace("srun", "mpirun"), env={NAME: "low"}
    )
    assert decision.baseline is not None and decision.baseline.freq_khz == 2_200_000
    assert "no-baseline" not in codes(decision)


@pytest.mark.parametrize(
    ("text", "unclear"),
    [
        ("", False),
        ("1500000", False),
        ("1500000-high:OnDemand", False),
        ("Performance", False),
        (":OnDemand", False),
        ("High:userspace", False),
        ("highm1", True),
        ("1200000-medium", True),
        ("1200000-1500000:UserSpace", True),
        ("$KHZ", True),
        ("fast", True),
    ],
)
def test_what_of_a_frequency_only_the_node_knows(text: str, unclear: bool) -> None:
    assert is_unclear(text) is unclear
