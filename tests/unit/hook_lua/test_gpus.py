"""Clocks and power limits of GPUs in the hooks: what is written, and what is not let through."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.core.axes import AxisWriting
from tests.unit.hook_lua.installed import Installed, answer
from tests.unit.hook_lua.test_submit import desc

STEPS = {
    "gpu_freq_khz": {"old": (800_000, 1_100_000, 1_400_000)},
    "gpu_power_w": {"old": (100, 200, 300)},
}
GPUS = {"gres": "gpu:2", "constraint": "old"}


@pytest.fixture
def gpus(home: Path, path: Path) -> Installed:
    """The hooks of a site that has power limits written by a SPANK plugin's option."""
    axes = {"gpu_power_w": AxisWriting("gpu-power", "watts={}")}
    understood = {"gpu-power": ("gpu_power_w",)}
    return Installed(home, path.parent, axes=axes, axis_steps=STEPS, understood=understood)


def test_a_clock_becomes_slurms_option_and_is_told_to_children(gpus: Installed) -> None:
    gpus.reply = lambda _: answer({"gpu-freq": "1100"})
    job = gpus.filter(GPUS)
    assert job.values["gpu-freq"] == "1100" and job.values["gres"] == "gpu:2"
    assert job.env["ADVISOR_SET"] == "SLURM_GPU_FREQ=1100"
    inner = gpus.filter({"job-name": "x"}, ADVISOR_SET="SLURM_GPU_FREQ=1100", SLURM_GPU_FREQ="1100")
    assert "SLURM_GPU_FREQ" not in inner.env


def test_slurms_own_options_are_never_a_plugins(gpus: Installed) -> None:
    gpus.reply = lambda _: answer({"gpu-freq": "1100"})
    job = gpus.filter(GPUS, more={"spank": {"gpu-caps": {}}})  # type: ignore[dict-item]
    assert job.values["gpu-freq"] == "1100"
    assert not [name for name in job.env if "SPANK" in name]


@pytest.mark.parametrize(
    ("rewrite", "asked", "env"),
    [
        ({"gpu-freq": "1000"}, {}, {}),
        ({"gpu-freq": "1"}, {}, {}),
        ({"gpu-freq": "1100"}, {"constraint": "new"}, {}),
        ({"gpu-freq": "low"}, {}, {}),
        ({"gpu-freq": "1100,memory=low"}, {}, {}),
        ({"gpu-freq": "1100"}, {"gpu-freq": "900"}, {}),
        ({"gpu-freq": "1100"}, {}, {"SLURM_GPU_FREQ": "900"}),
        ({"gpu-freq": "1100"}, {}, {"SBATCH_GPU_FREQ": "900"}),
        ({"gpu-power": "watts=99"}, {}, {}),
        ({"gpu-power": "watts=301"}, {}, {}),
        ({"gpu-power": "watts=200;x"}, {}, {}),
        ({"gpu-power": "200"}, {}, {}),
        ({"gpu-power": "watts=200"}, {"spank:gpu-power": "250"}, {}),
        ({"gpu-speed": "1"}, {}, {}),
    ],
)
def test_what_a_daemon_gone_mad_would_do_to_gpus(
    gpus: Installed, rewrite: dict[str, str], asked: dict[str, str], env: dict[str, str]
) -> None:
    gpus.reply = lambda _: answer(rewrite)
    given = {**GPUS, **asked}
    job = gpus.filter(given, **env)  # type: ignore[arg-type]
    assert "ADVISOR_SET" not in job.env and "ADVISOR_STAMP" not in job.env
    assert {n: job.values.get(n) for n in rewrite} == {n: given.get(n) for n in rewrite}


def test_an_option_of_a_plugin_goes_by_the_variables_that_plugins_read(gpus: Installed) -> None:
    gpus.reply = lambda _: answer({"gpu-power": "watts=200"})
    names = [f"{form}_SLURM_SPANK_OPTION_gpu_caps_gpu_power" for form in ("", "SLURM_SPANK_")]
    job = gpus.filter(GPUS, more={"spank": {"gpu-caps": {}}})  # type: ignore[dict-item]
    assert "gpu-power" not in job.values
    assert [job.env.get(name) for name in names] == ["watts=200"] * 2
    env = {"ADVISOR_SET": job.env["ADVISOR_SET"], **dict.fromkeys(names, "watts=200")}
    inner = gpus.filter({"job-name": "x"}, **env)  # type: ignore[arg-type]
    assert not set(names) & set(inner.env)


def test_the_controller_writes_clocks_alone(gpus: Installed) -> None:
    Path(f"{gpus.socket}.enforce").touch()
    fields = desc(features="old", tres_per_node="gres:gpu:2")
    gpus.reply = lambda _: answer({"gpu-freq": "1100"})
    job = gpus.submit(fields)
    assert job.env["SLURM_GPU_FREQ"] == "1100" and job.requests[0]["options"]["gres"]
    own = gpus.submit({**fields, "tres_freq": "gpu:900"})
    assert "SLURM_GPU_FREQ" not in own.env
    gpus.reply = lambda _: answer({"gpu-power": "watts=200"})
    assert "is not written in here" in gpus.submit(fields).said
