"""The execution hook on a posed /sys: caps on and off again whatever happens, energy of a node."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hooked import HOOKS, Outcome, run_hook
from posed_sys import HIGH, LOW, PosedSys

HOOK = "advisor_execjob.py"


@pytest.fixture
def node(tmp_path: Path) -> PosedSys:
    found = PosedSys(tmp_path)
    found.rapl({"intel-rapl:0": 1_000_000_000, "intel-rapl:0:0": 5_000_000})
    return found


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "mom_priv" / "advisor"


def event(
    kind: str,
    job: str = "7.pbs1",
    *,
    mhz: int | None = 1900,
    place: str = "scatter:excl",
    ncpus: int = 4,
    vnode: str = "node1",
    host: str = "",
) -> dict[str, Any]:
    return {
        "event": kind,
        "job": {
            "id": job,
            **({"exec_host": f"{host}.cluster:15002/0*4+node2/0*64"} if host else {}),
            "exec_vnode": f"({vnode}:ncpus={ncpus}:mem=1gb)+(node2:ncpus=64)",
            "Resource_List": {
                "ncpus": ncpus,
                "place": place,
                **({"cpu_freq_mhz": mhz} if mhz else {}),
            },
        },
    }


def periodic(*jobs: str) -> dict[str, Any]:
    return {"event": "EXECHOST_PERIODIC", "job_list": {job: {} for job in jobs}}


def accepted(outcomes: list[Outcome]) -> bool:
    return all(
        o["answer"] == ["accept", ""] and o["failure"] is None and o["exit"] == "0"
        for o in outcomes
    )


class Mom:
    """Runs the hook as pbs_mom does: a process of its own for each event."""

    def __init__(self, folder: Path, settings: dict[str, object]) -> None:
        self.folder, self.settings = folder, settings

    def __call__(self, *events: dict[str, Any]) -> list[Outcome]:
        found: list[Outcome] = []
        for one in events:
            found += run_hook(HOOK, [one], self.settings, folder=self.folder)
        assert accepted(found), found
        return found


@pytest.fixture
def mom(tmp_path: Path, node: PosedSys, state: Path) -> Mom:
    return Mom(tmp_path, node.settings(state))


def test_a_job_is_capped_metered_and_everything_comes_back(
    node: PosedSys, state: Path, mom: Mom
) -> None:
    (node.cpufreq(3) / "scaling_max_freq").write_text("2000000\n")  # an admin's own
    [begun] = mom(event("EXECJOB_BEGIN"))
    assert begun["log"] == []
    assert node.caps() == [1_900_000] * 4
    node.rapl({"intel-rapl:0": 1_500_000_000})
    mom(event("EXECJOB_PROLOGUE"))  # counts from here on
    assert node.caps() == [1_900_000] * 4
    node.rapl({"intel-rapl:0": 2_500_400_000, "intel-rapl:0:0": 15_000_000})
    [done] = mom(event("EXECJOB_EPILOGUE"))
    assert done["used"] == {"cpu_freq_mhz": "1900", "energy_j": "1010", "energy_nodes": "1"}
    assert done["log"] == []
    mom(event("EXECJOB_END"))
    assert node.caps() == [HIGH, HIGH, HIGH, 2_000_000]
    assert list(state.iterdir()) == []


def test_a_cap_never_raises_a_frequency_nor_leaves_what_the_node_can(
    node: PosedSys, mom: Mom
) -> None:
    (node.cpufreq(0) / "scaling_max_freq").write_text("1500000\n")
    mom(event("EXECJOB_PROLOGUE"))
    assert node.caps() == [1_500_000, 1_900_000, 1_900_000, 1_900_000]
    mom(event("EXECJOB_END"))
    [begun, done] = mom(event("EXECJOB_BEGIN", mhz=800), event("EXECJOB_EPILOGUE", mhz=800))
    assert begun["log"] == [
        "7.pbs1;advisor: asked for at most 800000 kHz, this node gives 1200000 kHz"
    ]
    assert node.caps() == [LOW] * 4
    assert done["used"]["cpu_freq_mhz"] == "1200"
    mom(event("EXECJOB_END", mhz=800))
    assert node.caps() == [1_500_000, HIGH, HIGH, HIGH]


def test_without_a_cap_only_energy_is_told(node: PosedSys, mom: Mom) -> None:
    mom(event("EXECJOB_BEGIN", mhz=None), event("EXECJOB_PROLOGUE", mhz=None))
    assert node.caps() == [HIGH] * 4
    node.rapl({"intel-rapl:0": 1_600_000_000})
    [done] = mom(event("EXECJOB_EPILOGUE", mhz=None))
    assert done["used"] == {"energy_j": "600", "energy_nodes": "1"}


def test_a_state_is_drafted_in_a_file_that_nobody_else_has(
    node: PosedSys, state: Path, mom: Mom, tmp_path: Path
) -> None:
    """Hooks of one job may run at once, and a killed one leaves its draft."""
    state.mkdir(parents=True)
    other = tmp_path / "other"
    other.write_text("of somebody else\n")
    (state / "7.pbs1.json.new").symlink_to(other)
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = state / f".7.pbs1.json.{gone.pid}.0123abcd.draft"
    alive = state / f".7.pbs1.json.{os.getpid()}.0123abcd.draft"
    other_kind = state / f"{left.name}s"
    for draft in (left, alive, other_kind):
        draft.write_text("{")
    mom(event("EXECJOB_BEGIN"))
    assert other.read_text() == "of somebody else\n"
    assert not left.exists() and alive.exists()
    written = state / "7.pbs1.json"
    assert not written.is_symlink() and written.stat().st_mode & 0o777 == 0o600
    assert sorted(p.name for p in state.iterdir()) == sorted(
        [alive.name, other_kind.name, written.name, "7.pbs1.json.new"]
    )
    mom(event("EXECJOB_END"))
    assert node.caps() == [HIGH] * 4


def test_a_crash_of_pbs_mom_leaves_no_cap(node: PosedSys, state: Path, mom: Mom) -> None:
    mom(event("EXECJOB_BEGIN"))
    mom({"event": "EXECHOST_STARTUP"})
    assert node.caps() == [1_900_000] * 4  # the job may have lived on
    mom(periodic("7.pbs1"))
    assert node.caps() == [1_900_000] * 4
    mom(periodic("8.pbs1"))
    assert node.caps() == [HIGH] * 4
    assert list(state.iterdir()) == []


def test_a_job_that_is_run_again_after_a_crash(node: PosedSys, mom: Mom) -> None:
    mom(event("EXECJOB_BEGIN"))
    node.rapl({"intel-rapl:0": 1_500_000_000})
    mom(event("EXECJOB_BEGIN", mhz=1500), event("EXECJOB_PROLOGUE", mhz=1500))
    assert node.caps() == [1_500_000] * 4
    node.rapl({"intel-rapl:0": 1_700_000_000})
    done = mom(event("EXECJOB_EPILOGUE", mhz=1500), event("EXECJOB_END", mhz=1500))
    assert done[0]["used"]["energy_j"] == "200"
    assert node.caps() == [HIGH] * 4


def test_a_job_alone_on_its_node_ends_what_was_left_there(
    node: PosedSys, state: Path, mom: Mom
) -> None:
    mom(event("EXECJOB_BEGIN", "6.pbs1", mhz=1200))
    mom(event("EXECJOB_BEGIN", "7.pbs1"))
    assert node.caps() == [1_900_000] * 4
    mom(periodic("7.pbs1"))  # the other was not suspended, it is gone
    assert [p.name for p in state.iterdir()] == ["7.pbs1.json"]
    assert node.caps() == [1_900_000] * 4
    mom(event("EXECJOB_END", "7.pbs1"))
    assert node.caps() == [HIGH] * 4


def stick(limit: Path) -> None:
    """Let a limit be read, but take no other, whoever writes it."""
    limit.unlink()
    limit.symlink_to("/proc/sys/kernel/cap_last_cap")


def mend(limit: Path, khz: int = 1_900_000) -> None:
    limit.unlink()
    limit.write_text(f"{khz}\n")


def test_a_cap_that_stays_is_not_taken_for_what_stood_there(
    node: PosedSys, state: Path, mom: Mom
) -> None:
    """Of this job's former run, or of another: what stood there before them is what comes back."""
    limit = node.cpufreq(2) / "scaling_max_freq"
    for job in ("7.pbs1", "8.pbs1"):
        mom(event("EXECJOB_BEGIN"))
        stick(limit)
        [done] = mom(event("EXECJOB_BEGIN", job, mhz=1500))
        assert done["log"][-1] == (
            f"{job};advisor: runs without its cap: a former cap could not be lifted"
        )
        mend(limit)
        mom(event("EXECJOB_END"), event("EXECJOB_END", job))
        assert node.caps() == [HIGH] * 4
        assert list(state.iterdir()) == []


def test_a_cap_that_stays_counts_whoever_else_is_there(node: PosedSys, mom: Mom) -> None:
    limit = node.cpufreq(2) / "scaling_max_freq"
    mom(event("EXECJOB_BEGIN"))
    stick(limit)
    mom(event("EXECJOB_BEGIN", "8.pbs1", mhz=None))
    [done] = mom(event("EXECJOB_BEGIN", "9.pbs1", mhz=1500))
    assert "a former cap could not be lifted" in done["log"][-1]
    mend(limit)
    mom(event("EXECJOB_END"), event("EXECJOB_END", "9.pbs1"))
    assert node.caps() == [HIGH] * 4


def test_a_job_alone_that_cannot_be_capped_is_not_slowed_by_what_was_left(
    node: PosedSys, mom: Mom
) -> None:
    node.cpuset("7.pbs1", "0-1")
    mom(event("EXECJOB_BEGIN", place="free", ncpus=2))
    (node.cpufreq(3) / "affected_cpus").write_text("3 9\n")
    mom(event("EXECJOB_BEGIN", "8.pbs1"))
    assert node.caps() == [HIGH] * 4


def test_a_job_on_cpus_of_one_that_is_gone_gives_back_what_was_before_both(
    node: PosedSys, state: Path, mom: Mom
) -> None:
    """pbs_mom came back, and nothing has looked after what was left yet."""
    part: dict[str, Any] = {"place": "free", "ncpus": 2}
    for job in ("7.pbs1", "8.pbs1"):
        node.cpuset(job, "0-1")
    mom(event("EXECJOB_BEGIN", mhz=1500, **part), {"event": "EXECHOST_STARTUP"})
    mom(event("EXECJOB_BEGIN", "8.pbs1", **part))
    assert node.caps() == [1_900_000] * 2 + [HIGH] * 2
    mom(periodic("8.pbs1"))
    assert node.caps() == [1_900_000] * 2 + [HIGH] * 2
    mom(event("EXECJOB_END", "8.pbs1", **part))
    assert node.caps() == [HIGH] * 4
    assert list(state.iterdir()) == []


# -- suspended and resumed -----------------------------------------------------------------------


def test_a_resumed_job_is_capped_and_metered_again(node: PosedSys, state: Path, mom: Mom) -> None:
    mom(event("EXECJOB_BEGIN"), event("EXECJOB_PROLOGUE"))
    node.rapl({"intel-rapl:0": 1_100_000_000})
    mom(event("EXECJOB_POSTSUSPEND"))
    assert node.caps() == [HIGH] * 4
    node.rapl({"intel-rapl:0": 1_500_000_000})  # nobody's, or another job's
    mom(periodic("7.pbs1"), event("EXECJOB_BEGIN", "8.pbs1", mhz=1500))
    assert node.caps() == [1_500_000] * 4
    node.rapl({"intel-rapl:0": 1_700_000_000})
    other = mom(event("EXECJOB_EPILOGUE", "8.pbs1", mhz=1500), event("EXECJOB_END", "8.pbs1"))
    assert other[0]["used"] == {"cpu_freq_mhz": "1500", "energy_j": "200", "energy_nodes": "1"}
    assert node.caps() == [HIGH] * 4
    mom(event("EXECJOB_PRERESUME"))
    assert node.caps() == [1_900_000] * 4
    node.rapl({"intel-rapl:0": 1_950_000_000})
    [done] = mom(event("EXECJOB_EPILOGUE"))
    assert done["used"] == {"cpu_freq_mhz": "1900", "energy_j": "350", "energy_nodes": "1"}
    mom(event("EXECJOB_END"))
    assert node.caps() == [HIGH] * 4
    assert list(state.iterdir()) == []


@pytest.mark.parametrize("second", [{}, {"place": "free", "ncpus": 2}])
def test_where_nothing_tells_of_a_suspension_the_record_does(
    node: PosedSys, mom: Mom, second: dict[str, Any]
) -> None:
    """No job can begin on whole nodes of another: that is suspended, and will be resumed."""
    mom(event("EXECJOB_BEGIN"), event("EXECJOB_PROLOGUE"))
    mom(event("EXECJOB_BEGIN", "8.pbs1", mhz=None, **second))
    assert node.caps() == [HIGH] * 4  # nobody else is slowed
    node.rapl({"intel-rapl:0": 1_500_000_000})
    mom(periodic("7.pbs1", "8.pbs1"), event("EXECJOB_END", "8.pbs1"))
    [done] = mom(event("EXECJOB_EPILOGUE"))
    assert done["used"] == {"cpu_freq_mhz": "0"}  # neither capped nor metered: no verdict
    assert "another job ran on its node while it was suspended" in done["log"][0]
    mom(event("EXECJOB_END"))
    assert node.caps() == [HIGH] * 4


def test_what_cannot_be_capped_again_is_said(node: PosedSys, mom: Mom) -> None:
    mom(event("EXECJOB_BEGIN"), event("EXECJOB_POSTSUSPEND"), event("EXECJOB_POSTSUSPEND"))
    node.share_policy([0, 1, 2, 3])
    (node.cpufreq(0) / "affected_cpus").write_text("0 1 2 3 4\n")
    mom(event("EXECJOB_PRERESUME"), event("EXECJOB_PRERESUME"))
    [done] = mom(event("EXECJOB_EPILOGUE"))
    assert done["used"]["cpu_freq_mhz"] == "0"


@pytest.mark.parametrize(
    ("was_khz", "is_khz", "told"), [(1_500_000, HIGH, "1900"), (HIGH, 1_500_000, "1900")]
)
def test_of_two_caps_before_and_after_a_suspension_the_higher_held(
    node: PosedSys, mom: Mom, was_khz: int, is_khz: int, told: str
) -> None:
    """An admin changes the node meanwhile."""
    for khz, kind in ((was_khz, "EXECJOB_BEGIN"), (is_khz, "EXECJOB_PRERESUME")):
        for cpu in range(4):
            (node.cpufreq(cpu) / "scaling_max_freq").write_text(f"{khz}\n")
        mom(event(kind), *([event("EXECJOB_POSTSUSPEND")] if kind == "EXECJOB_BEGIN" else []))
    [done] = mom(event("EXECJOB_EPILOGUE"))
    assert done["used"]["cpu_freq_mhz"] == told


def test_a_job_whose_meter_began_again_is_suspended_as_any(node: PosedSys, mom: Mom) -> None:
    node.pm_counters(5000)
    mom(event("EXECJOB_BEGIN"))
    node.pm_counters(100, "2")
    mom(event("EXECJOB_POSTSUSPEND"))
    assert node.caps() == [HIGH] * 4
    mom(event("EXECJOB_PRERESUME"))
    assert node.caps() == [1_900_000] * 4


@pytest.mark.parametrize("when", ["begin", "resume", "meanwhile"])
def test_a_cap_that_once_did_not_hold_is_told_of_no_run_that_is_resumed(
    node: PosedSys, mom: Mom, when: str
) -> None:
    """Not capped at first, after the first suspension, or beside another job; then capped."""
    alone, shared = (" ".join(map(str, range(count))) + "\n" for count in (4, 5))
    affected = node.cpufreq(0) / "affected_cpus"
    suspended = [event("EXECJOB_POSTSUSPEND"), event("EXECJOB_PRERESUME")]
    affected.write_text(shared if when == "begin" else alone)
    mom(event("EXECJOB_BEGIN"))
    if when == "meanwhile":
        mom(event("EXECJOB_BEGIN", "8.pbs1", mhz=None), event("EXECJOB_END", "8.pbs1"))
    affected.write_text(shared if when == "resume" else alone)
    mom(*suspended)
    affected.write_text(alone)
    mom(*suspended)
    assert node.caps() == [1_900_000] * 4
    [done] = mom(event("EXECJOB_EPILOGUE"))
    assert done["used"]["cpu_freq_mhz"] == "0"


def test_a_suspended_job_that_ends_leaves_nothing(node: PosedSys, state: Path, mom: Mom) -> None:
    mom(event("EXECJOB_BEGIN"), event("EXECJOB_PROLOGUE"))
    node.rapl({"intel-rapl:0": 1_100_000_000})
    mom(event("EXECJOB_POSTSUSPEND"))
    node.rapl({"intel-rapl:0": 1_900_000_000})
    [done, _] = mom(event("EXECJOB_EPILOGUE"), event("EXECJOB_END"))
    assert done["used"]["energy_j"] == "100"
    assert list(state.iterdir()) == []


def test_a_meter_that_began_again_meanwhile_is_not_believed(node: PosedSys, mom: Mom) -> None:
    node.pm_counters(5000)
    mom(event("EXECJOB_BEGIN"), event("EXECJOB_POSTSUSPEND"))
    node.pm_counters(100, "2")
    mom(event("EXECJOB_PRERESUME"))
    [done] = mom(event("EXECJOB_EPILOGUE"))
    assert "energy_j" not in done["used"] and "began again" in done["log"][0]


def test_what_another_used_meanwhile_is_not_billed_where_the_meter_could_not_be_read(
    node: PosedSys, mom: Mom
) -> None:
    counter = node.root / "class/powercap/intel-rapl:0/energy_uj"
    mom(event("EXECJOB_BEGIN"), event("EXECJOB_POSTSUSPEND"))
    counter.unlink()
    mom(event("EXECJOB_PRERESUME"))
    counter.write_text("1900000000\n")
    [done] = mom(event("EXECJOB_EPILOGUE"))
    assert "energy_j" not in done["used"] and "No such file" in done["log"][0]


@pytest.mark.parametrize("first", ["EXECHOST_STARTUP", "EXECHOST_PERIODIC", "EXECJOB_END"])
def test_after_a_reboot_the_kernel_s_own_limits_hold(
    node: PosedSys, state: Path, mom: Mom, first: str
) -> None:
    mom(event("EXECJOB_BEGIN"))
    node.reboot("second")
    for cpu in range(4):  # what the kernel begins with: not what was there before
        (node.cpufreq(cpu) / "scaling_max_freq").write_text("2100000\n")
    job = {**event(first), "job_list": {}}
    mom(job)
    assert node.caps() == [2_100_000] * 4
    assert list(state.iterdir()) == []


def test_after_a_reboot_nothing_is_counted_on(node: PosedSys, state: Path, mom: Mom) -> None:
    mom(event("EXECJOB_BEGIN"))
    node.reboot("second")
    mom(periodic("7.pbs1"))
    assert list(state.iterdir()) == []


def test_where_the_kernel_tells_no_boot_a_job_is_capped_and_metered(
    node: PosedSys, state: Path, mom: Mom
) -> None:
    node.boot.unlink()
    mom(event("EXECJOB_BEGIN"))
    assert node.caps() == [1_900_000] * 4
    node.rapl({"intel-rapl:0": 1_500_000_000})
    [done, _] = mom(event("EXECJOB_EPILOGUE"), event("EXECJOB_END"))
    assert done["used"]["energy_j"] == "500"
    assert node.caps() == [HIGH] * 4


def test_what_cannot_be_put_back_is_tried_again(
    node: PosedSys, state: Path, mom: Mom, tmp_path: Path
) -> None:
    mom(event("EXECJOB_BEGIN"))
    stuck = node.cpufreq(2) / "scaling_max_freq"
    stuck.unlink()
    stuck.mkdir()
    [done] = mom(event("EXECJOB_END"))
    assert "could not be lifted, and will be tried again" in done["log"][0]
    assert len(list(state.iterdir())) == 1
    stuck.rmdir()
    stuck.write_text("1900000\n")
    mom(periodic())
    assert node.caps() == [HIGH] * 4
    assert list(state.iterdir()) == []


def test_a_cap_that_is_refused_halfway_is_taken_back(node: PosedSys, mom: Mom) -> None:
    stuck = node.cpufreq(2) / "cpuinfo_min_freq"
    stuck.write_text("x")
    (node.cpufreq(3) / "scaling_max_freq").write_text("not a number\n")
    done = mom(event("EXECJOB_BEGIN"), event("EXECJOB_EPILOGUE"))
    assert "runs without its cap" in done[0]["log"][0]
    assert done[1]["used"]["cpu_freq_mhz"] == "0"
    texts = [(node.cpufreq(c) / "scaling_max_freq").read_text() for c in range(4)]
    assert texts == ["2200000\n"] * 3 + ["not a number\n"]


# -- nodes shared with other jobs ----------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_a_job_with_a_cpuset_has_its_own_cpus_capped(
    node: PosedSys, mom: Mom, version: int
) -> None:
    node.cpuset("7.pbs1", "1-2", version=version)
    done = mom(
        event("EXECJOB_BEGIN", place="free", ncpus=2),
        event("EXECJOB_EPILOGUE", place="free", ncpus=2),
    )
    assert node.caps() == [HIGH, 1_900_000, 1_900_000, HIGH]
    assert done[1]["used"] == {"cpu_freq_mhz": "1900"}
    assert done[1]["log"] == [
        "7.pbs1;advisor: its energy is not reported: other jobs may share this node"
    ]
    mom(event("EXECJOB_END"))
    assert node.caps() == [HIGH] * 4


def test_two_jobs_on_one_node_do_not_touch_each_other(node: PosedSys, mom: Mom) -> None:
    node.cpuset("7.pbs1", "0-1")
    node.cpuset("8.pbs1", "2-3")
    mom(event("EXECJOB_BEGIN", "7.pbs1", place="free", ncpus=2))
    mom(event("EXECJOB_BEGIN", "8.pbs1", place="free", ncpus=2, mhz=1500))
    assert node.caps() == [1_900_000, 1_900_000, 1_500_000, 1_500_000]
    mom(event("EXECJOB_END", "7.pbs1"))
    assert node.caps() == [HIGH, HIGH, 1_500_000, 1_500_000]
    mom(periodic("8.pbs1"), event("EXECJOB_ABORT", "8.pbs1"))
    assert node.caps() == [HIGH] * 4


def test_cpus_that_share_their_frequency_with_another_job_s_stay(node: PosedSys, mom: Mom) -> None:
    node.share_policy([0, 1, 2, 3])
    node.cpuset("7.pbs1", "0-1")
    [done] = mom(event("EXECJOB_BEGIN", place="free", ncpus=2))
    assert node.caps() == [HIGH] * 4
    assert "its CPUs share their frequency with others" in done["log"][0]
    mom(event("EXECJOB_BEGIN", "8.pbs1"))  # alone on the node: the one policy is capped once
    assert node.caps() == [1_900_000] * 4
    mom(event("EXECJOB_END", "8.pbs1"))
    assert node.caps() == [HIGH] * 4


def test_without_a_cpuset_a_shared_node_is_left_alone_and_that_is_said(
    node: PosedSys, mom: Mom
) -> None:
    done = mom(
        event("EXECJOB_BEGIN", place="free", ncpus=2),
        event("EXECJOB_EPILOGUE", place="free", ncpus=2),
    )
    assert node.caps() == [HIGH] * 4
    assert "runs without its cap: other jobs may share this node" in done[0]["log"][0]
    assert done[1]["used"] == {"cpu_freq_mhz": "0"}


def test_all_cores_of_a_node_are_the_whole_node(tmp_path: Path, state: Path) -> None:
    node = PosedSys(tmp_path, cpus=8, threads=2)
    node.rapl({"intel-rapl:0": 0})
    mom = Mom(tmp_path, node.settings(state))
    mom(event("EXECJOB_BEGIN", place="free", ncpus=4))
    assert node.caps() == [1_900_000] * 8
    mom(event("EXECJOB_END"), event("EXECJOB_BEGIN", place="free", ncpus=3))
    assert node.caps() == [HIGH] * 8
    mom(event("EXECJOB_BEGIN", place="free", ncpus=4, vnode="node10"))
    assert node.caps() == [HIGH] * 8
    # a node of several vnodes: a vnode for itself is not the node for itself
    mom(event("EXECJOB_BEGIN", place="excl", ncpus=2, vnode="node1[0]"))
    assert node.caps() == [HIGH] * 8
    for vnode in ("node1[0]", "socket0"):  # whatever PBS calls it
        mom(event("EXECJOB_BEGIN", place="excl", ncpus=2, vnode=vnode, host="node1"))
        assert node.caps() == [HIGH] * 8
    mom(event("EXECJOB_BEGIN", place="exclhost", ncpus=2, vnode="node1[0]"))
    assert node.caps() == [1_900_000] * 8


SHARINGS = {
    "default_shared": "-x-x",
    "default_excl": "xx-x",
    "default_exclhost": "hx-x",
    "ignore_excl": "----",
    "force_excl": "xxxx",
    "force_exclhost": "hhhh",
}
"""x: the vnode alone (of exclhost its host), h: the host, for each of PLACES; -: neither."""
PLACES = ("free", "excl", "free:shared", "exclhost")


@pytest.mark.parametrize("sharing", SHARINGS)
def test_a_node_is_the_job_s_by_place_and_sharing(
    tmp_path: Path, node: PosedSys, state: Path, sharing: str
) -> None:
    """On others no stranger is slowed, and nobody is billed for the whole node."""
    mom = Mom(tmp_path, node.settings(state, sharings={"node1": [sharing]}))
    for place, word in zip(PLACES, SHARINGS[sharing], strict=True):
        begun = event("EXECJOB_BEGIN", place=place, ncpus=2)
        [_, done, _] = mom(
            begun, {**begun, "event": "EXECJOB_EPILOGUE"}, {**begun, "event": "EXECJOB_END"}
        )
        alone = word != "-"
        assert done["used"]["cpu_freq_mhz"] == ("1900" if alone else "0"), place
        assert ("energy_nodes" in done["used"]) == alone, place
        part = event("EXECJOB_BEGIN", place=place, ncpus=2, vnode="socket0", host="node1")
        mom(part)
        whole_host = word == "h" or (word == "x" and place == "exclhost")
        assert node.caps() == [1_900_000 if whole_host else HIGH] * 4, place
        mom({**part, "event": "EXECJOB_END"})


def test_each_vnode_of_a_node_must_be_the_job_s(
    tmp_path: Path, node: PosedSys, state: Path
) -> None:
    mixed = {"node1": ["force_exclhost", "default_shared"]}
    mom = Mom(tmp_path, node.settings(state, sharings=mixed))
    begun = {**event("EXECJOB_BEGIN", place="free", ncpus=2), "node": "node1.cluster"}
    [_, done] = mom(begun, {**begun, "event": "EXECJOB_EPILOGUE"})
    assert node.caps() == [HIGH] * 4
    assert done["used"] == {"cpu_freq_mhz": "0"}


def test_a_suspended_job_that_ends_leaves_the_cap_of_the_one_that_runs(
    node: PosedSys, mom: Mom
) -> None:
    """Told of the suspension or not: what the first one had is no longer its own to put back."""
    for told in ([event("EXECJOB_POSTSUSPEND")], []):
        mom(event("EXECJOB_BEGIN"), *told, event("EXECJOB_BEGIN", "8.pbs1", mhz=1500))
        assert node.caps() == [1_500_000] * 4
        mom(event("EXECJOB_END"))
        assert node.caps() == [1_500_000] * 4
        mom(event("EXECJOB_END", "8.pbs1"))
        assert node.caps() == [HIGH] * 4


def test_a_job_that_is_resumed_lifts_the_cap_of_the_one_before(node: PosedSys, mom: Mom) -> None:
    mom(event("EXECJOB_BEGIN"), event("EXECJOB_POSTSUSPEND"))
    mom(event("EXECJOB_BEGIN", "8.pbs1", mhz=1500), event("EXECJOB_PRERESUME"))
    assert node.caps() == [1_900_000] * 4
    [_, done] = mom(event("EXECJOB_END", "8.pbs1"), event("EXECJOB_EPILOGUE"))
    assert done["used"]["cpu_freq_mhz"] == "1900"
    mom(event("EXECJOB_END"))
    assert node.caps() == [HIGH] * 4


@pytest.mark.parametrize("mended", [True, False], ids=["before", "after"])
def test_a_cap_that_stayed_in_a_suspension_is_not_taken_for_the_node_s(
    node: PosedSys, state: Path, mom: Mom, mended: bool
) -> None:
    mom(event("EXECJOB_BEGIN"))
    stuck = node.cpufreq(2) / "scaling_max_freq"
    stuck.unlink()
    stuck.mkdir()
    [done] = mom(event("EXECJOB_POSTSUSPEND"))
    assert "its cap could not be lifted" in done["log"][0]

    def mend() -> None:
        stuck.rmdir()
        stuck.write_text("1900000\n")

    if mended:
        mend()
    [done] = mom(event("EXECJOB_PRERESUME"))
    if not mended:
        assert done["log"] == [
            "7.pbs1;advisor: runs without its cap: a former cap could not be lifted"
        ]
        mend()
    [done] = mom(event("EXECJOB_EPILOGUE"))
    assert done["used"]["cpu_freq_mhz"] == ("1900" if mended else "0")
    mom(event("EXECJOB_END"))
    assert node.caps() == [HIGH] * 4
    assert list(state.iterdir()) == []


def test_what_cannot_be_set_aside_is_put_back_later(node: PosedSys, state: Path, mom: Mom) -> None:
    mom(event("EXECJOB_BEGIN"))
    stuck = node.cpufreq(2) / "scaling_max_freq"
    stuck.unlink()
    stuck.mkdir()
    [done] = mom(event("EXECJOB_BEGIN", "8.pbs1", mhz=None))
    assert "its cap could not be lifted, and will be tried again" in done["log"][0]
    stuck.rmdir()
    stuck.write_text("1900000\n")
    mom(event("EXECJOB_END", "8.pbs1"), event("EXECJOB_END"))
    assert node.caps() == [HIGH] * 4
    assert list(state.iterdir()) == []


def test_a_job_not_capped_once_is_not_told_as_capped_after_a_resume(
    node: PosedSys, mom: Mom
) -> None:
    """What PBS is told is what held all the time, so that no gain is made up."""
    limit = node.cpufreq(3) / "scaling_max_freq"
    limit.write_text("not a number\n")
    mom(event("EXECJOB_BEGIN"), event("EXECJOB_POSTSUSPEND"))
    limit.write_text(f"{HIGH}\n")
    mom(event("EXECJOB_PRERESUME"))
    assert node.caps() == [1_900_000] * 4
    [done] = mom(event("EXECJOB_EPILOGUE"))
    assert done["used"]["cpu_freq_mhz"] == "0"
    mom(event("EXECJOB_END"))
    assert node.caps() == [HIGH] * 4


@pytest.mark.parametrize(
    ("first", "job"),
    [
        ("EXECJOB_POSTSUSPEND", "7.pbs1"),
        ("EXECJOB_PROLOGUE", "7.pbs1"),
        ("EXECJOB_BEGIN", "7.pbs1"),
        ("EXECJOB_BEGIN", "8.pbs1"),
    ],
)
def test_what_stood_there_in_another_boot_is_never_put_back(
    node: PosedSys, state: Path, mom: Mom, first: str, job: str
) -> None:
    mom(event("EXECJOB_BEGIN"))
    node.reboot("second")
    for cpu in range(4):
        (node.cpufreq(cpu) / "scaling_max_freq").write_text("2100000\n")
    mom(event(first, job))
    assert node.caps() == [2_100_000 if first == "EXECJOB_POSTSUSPEND" else 1_900_000] * 4
    mom(event("EXECJOB_END", job), event("EXECJOB_END"))
    assert node.caps() == [2_100_000] * 4
    assert list(state.iterdir()) == []


def test_a_job_on_a_part_of_its_node_is_suspended_and_resumed(node: PosedSys, mom: Mom) -> None:
    node.cpuset("7.pbs1", "0-1")
    part: dict[str, Any] = {"place": "free", "ncpus": 2}
    mom(event("EXECJOB_BEGIN", **part), event("EXECJOB_PROLOGUE", **part))
    mom(event("EXECJOB_POSTSUSPEND", **part))
    assert node.caps() == [HIGH] * 4
    mom(periodic("7.pbs1"), event("EXECJOB_PRERESUME", **part))
    assert node.caps() == [1_900_000] * 2 + [HIGH] * 2
    [looked] = mom(periodic("7.pbs1"))
    assert looked["log"] == []
    [done] = mom(event("EXECJOB_EPILOGUE", **part))
    assert done["used"] == {"cpu_freq_mhz": "1900"}
    mom(event("EXECJOB_END", **part))
    assert node.caps() == [HIGH] * 4


def test_a_second_word_of_a_suspension_or_its_end_changes_nothing(node: PosedSys, mom: Mom) -> None:
    mom(event("EXECJOB_BEGIN"), event("EXECJOB_PROLOGUE"), event("EXECJOB_POSTSUSPEND"))
    node.rapl({"intel-rapl:0": 1_100_000_000})  # another's
    mom(event("EXECJOB_POSTSUSPEND"), event("EXECJOB_PRERESUME"))
    node.rapl({"intel-rapl:0": 1_300_000_000})
    mom(event("EXECJOB_PRERESUME"))
    [done] = mom(event("EXECJOB_EPILOGUE"))
    assert done["used"]["energy_j"] == "200"
    for kind in ("EXECJOB_POSTSUSPEND", "EXECJOB_PRERESUME"):  # of a job that was not seen to begin
        [done] = mom(event(kind, "9.pbs1"))
        assert done["log"] == []


def test_a_cpu_that_is_gone_or_stuck_keeps_no_other_from_its_own(
    node: PosedSys, state: Path, mom: Mom
) -> None:
    mom(event("EXECJOB_BEGIN"))
    stuck, gone = (node.cpufreq(cpu) / "scaling_max_freq" for cpu in (1, 2))
    shutil.rmtree(gone.parent)  # taken offline: it comes back as the kernel likes
    stuck.unlink()
    stuck.mkdir()
    mom(event("EXECJOB_END"))
    assert [(node.cpufreq(c) / "scaling_max_freq").read_text() for c in (0, 3)] == [f"{HIGH}\n"] * 2
    stuck.rmdir()
    mom(periodic())
    assert list(state.iterdir()) == []


@pytest.mark.parametrize("job", ["7.pbs1", "9[3].pbs1"])
@pytest.mark.parametrize(
    "folder",
    [
        "cpuset/pbs_jobs.service/jobid/{}",
        "pbs_jobs.service/jobid/{}",
        "cpuset/pbspro.slice/pbspro-{}.slice",
    ],
)
def test_a_cpuset_is_looked_for_wherever_pbs_makes_it(
    node: PosedSys, mom: Mom, folder: str, job: str
) -> None:
    for name, cpus in ((job, "0,2-3"), ("9" + job, "1"), ("93.pbs1", "1")):
        place = node.root / "fs/cgroup" / folder.format(name)
        place.mkdir(parents=True, exist_ok=True)
        (place / "cpuset.cpus").write_text(cpus + "\n")
    mom(event("EXECJOB_BEGIN", job, place="free", ncpus=3))
    assert node.caps() == [1_900_000, HIGH, 1_900_000, 1_900_000]
    mom(event("EXECJOB_END", job))
    assert node.caps() == [HIGH] * 4


def test_an_empty_cpuset_is_not_the_node(node: PosedSys, mom: Mom) -> None:
    node.cpuset("7.pbs1", "")
    [done] = mom(event("EXECJOB_BEGIN", place="free", ncpus=2))
    assert node.caps() == [HIGH] * 4
    assert "it has no cpuset of its own" in done["log"][0]


@pytest.mark.parametrize(
    ("vnodes", "hosts", "whole"),
    [
        ("(node1:ncpus=2)+(node1:ncpus=2)", "", True),
        ("(node1:ncpus=2+node2:ncpus=2)", "", False),
        ("(node1:ncpus=2)+(node2:ncpus=2)", "", False),
        ("(node1:mem=1gb:ncpus=4)", "", True),
        ("(node1:xncpus=4)", "", False),
        ("(node1[0]:ncpus=2)+(node1[1]:ncpus=2)", "", True),
        ("(a:ncpus=2)+(b:ncpus=2)", "node1/0*2+node1/1*2", True),
        ("(a:ncpus=2)+(b:ncpus=2)", "node1.x:15002/0*2+node2/1*2", False),
        ("(node1:ncpus=2)+(b:ncpus=2)", "node1/0*2", False),
        ("(node1.x:ncpus=4)", "", True),
        ("(node1[0]:ncpus=2+node1[1]:ncpus=2)", "", True),
        ("(node1:mem=1gb+node1:ncpus=4)", "", True),
        ("(node2:ncpus=4+node1:mem=1gb)", "", False),
    ],
)
def test_a_job_s_part_of_a_node_is_counted_over_its_chunks(
    node: PosedSys, mom: Mom, vnodes: str, hosts: str, whole: bool
) -> None:
    begun = event("EXECJOB_BEGIN", place="free")
    begun["job"]["exec_vnode"] = vnodes
    begun["job"].update({"exec_host": hosts} if hosts else {})
    for name in ("node1", "node1.cluster"):  # as pbs_mom calls its host
        mom({**begun, "node": name})
        assert node.caps() == [1_900_000 if whole else HIGH] * 4
        mom(event("EXECJOB_END"))


def test_a_node_whose_name_has_a_domain_is_judged_by_its_sharing(
    tmp_path: Path, node: PosedSys, state: Path
) -> None:
    mom = Mom(tmp_path, node.settings(state, sharings={"node1": ["ignore_excl"]}))
    mom({**event("EXECJOB_BEGIN", ncpus=2), "node": "node1.cluster"})
    assert node.caps() == [HIGH] * 4


def test_a_node_of_parts_is_not_alone_by_its_vnode(
    tmp_path: Path, node: PosedSys, state: Path
) -> None:
    mom = Mom(tmp_path, node.settings(state, parted=["node1"]))
    mom(event("EXECJOB_BEGIN", place="excl", ncpus=2))
    assert node.caps() == [HIGH] * 4


def test_cpus_that_say_less_of_themselves_are_capped_as_others(node: PosedSys, mom: Mom) -> None:
    shutil.rmtree(node.cpufreq(0).parent / "topology")  # a core of its own
    (node.cpufreq(1) / "cpuinfo_min_freq").unlink()
    shutil.rmtree(node.cpufreq(3))  # offline
    mom(event("EXECJOB_BEGIN", place="free"))
    caps = [(node.cpufreq(cpu) / "scaling_max_freq").read_text() for cpu in range(3)]
    assert caps == ["1900000\n"] * 3


def test_one_core_is_a_node_and_none_is_not(tmp_path: Path, state: Path) -> None:
    node = PosedSys(tmp_path, cpus=1)
    node.rapl({"intel-rapl:0": 0})
    mom = Mom(tmp_path, node.settings(state))
    mom(event("EXECJOB_BEGIN", place="free", ncpus=1))
    assert node.caps() == [1_900_000]
    mom(event("EXECJOB_END"))
    shutil.rmtree(node.root / "devices")
    elsewhere: dict[str, Any] = {"place": "free", "ncpus": 1, "vnode": "node3"}
    [_, done] = mom(event("EXECJOB_BEGIN", **elsewhere), event("EXECJOB_EPILOGUE", **elsewhere))
    assert done["used"] == {"cpu_freq_mhz": "0"}  # others may use what the meter tells


def test_a_policy_that_does_not_say_its_cpus_is_the_cpu_s_own(node: PosedSys, mom: Mom) -> None:
    for cpu in (0, 1):
        (node.cpufreq(cpu) / "affected_cpus").unlink()
    (node.cpufreq(2) / "affected_cpus").write_text("x\n")
    mom(event("EXECJOB_BEGIN"))
    assert node.caps() == [1_900_000] * 4


# -- meters --------------------------------------------------------------------------------------


def test_a_wrap_is_counted(tmp_path: Path, node: PosedSys, mom: Mom) -> None:
    limit = 262_143_328_850
    node.rapl({"intel-rapl:0": limit - 1_000_000_000})
    mom(event("EXECJOB_BEGIN"), event("EXECJOB_PROLOGUE"))
    node.rapl({"intel-rapl:0": 500_000_000})
    mom(periodic("7.pbs1"))
    node.rapl({"intel-rapl:0": 600_000_000})
    [done] = mom(event("EXECJOB_EPILOGUE"))
    assert done["used"]["energy_j"] == "1600"


def test_a_counter_that_wraps_often_is_read_in_between(node: PosedSys, mom: Mom) -> None:
    limit = 262_143_328_850
    node.rapl({"intel-rapl:0": limit - 1_000_000_000})
    mom(event("EXECJOB_BEGIN"), event("EXECJOB_PROLOGUE"))
    for joules in (0, limit // 2_000_000, 262_143):
        node.rapl({"intel-rapl:0": joules * 1_000_000})
        mom(periodic("7.pbs1"))
    node.rapl({"intel-rapl:0": 0})
    [done] = mom(event("EXECJOB_EPILOGUE"))
    assert done["used"]["energy_j"] == "263143"


def test_only_whole_packages_and_their_memory_are_counted(node: PosedSys, mom: Mom) -> None:
    """The other zones are parts of them, hold them, or tell the same once more."""
    zones = {
        "intel-rapl:0:1": "core",
        "intel-rapl:1": "psys",
        "intel-rapl-mmio:0": "package-0",
        "intel-rapl:2": "package-1-die-1",
        "intel-rapl:3:0:0": "package-3",
        "intel-rapl:4": "package-4-uncore",
        "intel-rapl:5": "package-5",  # which does not say where it wraps
    }
    for kind, begin in (("EXECJOB_BEGIN", True), ("EXECJOB_EPILOGUE", False)):
        for zone, name in zones.items():
            node.rapl({zone: 0 if begin else 7_000_000})
            (node.root / "class/powercap" / zone / "name").write_text(name + "\n")
        (node.root / "class/powercap/intel-rapl:5/max_energy_range_uj").unlink()
        [done] = mom(event(kind))
    assert done["used"]["energy_j"] == "7"


@pytest.mark.parametrize("text", ["", "5000", "5000 W 1 us", "0 J 1 us", "-5 J 1 us"])
def test_pm_counters_of_another_form_are_not_believed(node: PosedSys, mom: Mom, text: str) -> None:
    node.pm_counters(5000)
    energy = node.root / "cray/pm_counters/energy"
    energy.write_text(text)
    mom(event("EXECJOB_BEGIN"))
    assert node.caps() == [1_900_000] * 4
    energy.write_text("7000 J 1 us\n")  # how it began is not known any more
    [done] = mom(event("EXECJOB_EPILOGUE"))
    assert "energy_j" not in done["used"]
    assert "energy is not like '1000 J'" in done["log"][0]


def test_pm_counters_without_a_time_of_start_are_counted(node: PosedSys, mom: Mom) -> None:
    node.pm_counters(5000)
    (node.root / "cray/pm_counters/startup").unlink()
    (node.root / "cray/pm_counters/energy").write_text("1 J\n")
    mom(event("EXECJOB_BEGIN"))
    (node.root / "cray/pm_counters/energy").write_text("101 J\n")
    [done] = mom(event("EXECJOB_EPILOGUE"))
    assert done["used"]["energy_j"] == "100"


@pytest.mark.parametrize("cray", [True, False])
def test_a_counter_that_hardly_moves_has_not_wrapped(node: PosedSys, mom: Mom, cray: bool) -> None:
    if cray:
        node.pm_counters(5000)
    for more_uj, kind in ((0, "EXECJOB_BEGIN"), (0, "EXECHOST_PERIODIC"), (1, "EXECJOB_EPILOGUE")):
        node.rapl({"intel-rapl:0": 1_000_000_000 + more_uj})
        [done] = mom({**event(kind), "job_list": {"7.pbs1": {}}})
    assert (done["used"]["energy_j"], done["log"]) == ("0", [])


def test_of_several_problems_of_a_meter_the_first_is_told(
    node: PosedSys, state: Path, mom: Mom
) -> None:
    shutil.rmtree(node.root / "class")
    mom(event("EXECJOB_BEGIN"))
    node.rapl({"intel-rapl:0": 0})
    mom(periodic("7.pbs1"), event("EXECJOB_POSTSUSPEND"), event("EXECJOB_PRERESUME"))
    [done] = mom(event("EXECJOB_EPILOGUE"))
    assert done["log"] == [
        "7.pbs1;advisor: its energy is not known: this node has neither pm_counters nor RAPL"
    ]


def test_a_counter_that_may_have_wrapped_unseen_is_not_believed(
    tmp_path: Path, node: PosedSys, state: Path
) -> None:
    mom = Mom(tmp_path, node.settings(state, max_power_w=1e9))
    mom(event("EXECJOB_BEGIN"))
    [done] = mom(event("EXECJOB_EPILOGUE"))
    assert "energy_j" not in done["used"]
    assert "may have wrapped" in done["log"][0]


def test_a_counter_may_go_unread_for_so_long_since_it_was_read_last(
    node: PosedSys, state: Path, mom: Mom
) -> None:
    """At 500 W it wraps after 524 s; while its job is suspended nobody counts."""

    def pass_by(seconds: int) -> None:
        file = state / "7.pbs1.json"
        content = json.loads(file.read_text())
        content["energy"]["at"] -= seconds
        file.write_text(json.dumps(content))

    mom(event("EXECJOB_BEGIN"))
    for seconds, kind in (
        (400, "EXECHOST_PERIODIC"),
        (400, "EXECJOB_POSTSUSPEND"),
        (4000, "EXECJOB_PRERESUME"),
        (400, "EXECJOB_EPILOGUE"),
    ):
        pass_by(seconds)
        [done] = mom({**event(kind), "job_list": {"7.pbs1": {}}})
    assert (done["used"]["energy_j"], done["log"]) == ("0", [])


def test_pm_counters_go_before_rapl(tmp_path: Path, node: PosedSys, mom: Mom) -> None:
    node.pm_counters(5000)
    mom(event("EXECJOB_BEGIN"))
    node.pm_counters(7345)
    [done] = mom(event("EXECJOB_EPILOGUE"))
    assert done["used"]["energy_j"] == "2345"


@pytest.mark.parametrize(("joules", "startup"), [(100, "1"), (9000, "2")])
def test_pm_counters_that_began_anew(
    tmp_path: Path, node: PosedSys, mom: Mom, joules: float, startup: str
) -> None:
    node.pm_counters(5000)
    mom(event("EXECJOB_BEGIN"))
    node.pm_counters(joules, startup)
    [done] = mom(event("EXECJOB_EPILOGUE"))
    assert "energy_nodes" not in done["used"]
    assert "began again" in done["log"][0]


def test_a_node_without_meter_or_cpufreq_says_so(tmp_path: Path, state: Path) -> None:
    (tmp_path / "empty").mkdir()
    mom = Mom(tmp_path, {"sys_root": str(tmp_path / "empty"), "state_dir": str(state)})
    done = mom(event("EXECJOB_BEGIN"), event("EXECJOB_EPILOGUE"), event("EXECJOB_END"))
    assert done[0]["log"] == [
        "7.pbs1;advisor: runs without its cap: this node has no cpufreq in /sys"
    ]
    assert done[1]["used"] == {"cpu_freq_mhz": "0"}
    assert done[1]["log"] == [
        "7.pbs1;advisor: its energy is not known: this node has neither pm_counters nor RAPL"
    ]


def test_an_epilogue_without_a_beginning(mom: Mom) -> None:
    [done] = mom(event("EXECJOB_EPILOGUE"))
    assert done["used"] == {}
    assert "did not see it begin" in done["log"][0]
    [done] = mom(event("EXECJOB_END"))
    assert done["log"] == []


# -- whatever happens ----------------------------------------------------------------------------


@pytest.mark.parametrize("first", [periodic(), {"event": "EXECHOST_STARTUP"}])
def test_damaged_states_go(node: PosedSys, state: Path, mom: Mom, first: dict[str, Any]) -> None:
    state.mkdir(parents=True)
    for name, text in (("a", "{"), ("b", "[]"), ("c", "{}"), ("d", "")):
        (state / f"{name}.json").write_text(text)
    mom(first)
    assert list(state.iterdir()) == []


def test_what_went_wrong_is_one_plain_line_in_the_log(
    tmp_path: Path, node: PosedSys, state: Path
) -> None:
    mom = Mom(tmp_path, node.settings(state, max_power_w="\u00e9~ " * 200))
    [done] = mom(event("EXECJOB_BEGIN"))
    words = "ValueError(\"could not convert string to float: '" + " ~ " * 200
    assert done["log"] == ["advisor: the execution hook failed: " + words[:400]]


def test_a_full_disk_is_a_line_in_the_log(tmp_path: Path, node: PosedSys) -> None:
    (tmp_path / "file").write_text("")
    mom = Mom(tmp_path, node.settings(tmp_path / "file"))
    [done] = mom(event("EXECJOB_BEGIN"))
    assert "the execution hook failed" in done["log"][-1]
    assert node.caps() == [HIGH] * 4  # nothing is capped that could not be put back


def test_a_state_that_cannot_be_written_leaves_no_draft_and_no_cap(
    node: PosedSys, state: Path, mom: Mom
) -> None:
    (state / "7.pbs1.json").mkdir(parents=True)
    [done] = mom(event("EXECJOB_BEGIN"))
    assert "the execution hook failed" in done["log"][-1]
    assert [p.name for p in state.iterdir()] == ["7.pbs1.json"]
    assert node.caps() == [HIGH] * 4


def test_a_draft_that_cannot_be_cleared_keeps_no_cap_away(
    node: PosedSys, state: Path, mom: Mom
) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    (state / f".7.pbs1.json.{gone.pid}.0123abcd.draft").mkdir(parents=True)
    mom(event("EXECJOB_BEGIN"))
    assert node.caps() == [1_900_000] * 4


def test_a_job_s_name_is_no_path(node: PosedSys, state: Path, mom: Mom) -> None:
    mom(event("EXECJOB_BEGIN", "9[3].pbs1"), event("EXECJOB_BEGIN", "../../x"))
    assert sorted(p.name for p in state.iterdir()) == [".._.._x.json", "9[3].pbs1.json"]
    assert json.loads((state / ".._.._x.json").read_text())["job"] == "../../x"


@pytest.mark.parametrize("conf", [{"PBS_HOME": "pbs"}, {"PBS_HOME": "x", "PBS_MOM_HOME": "pbs"}])
def test_the_state_is_in_pbs_mom_s_own_folder(
    tmp_path: Path, node: PosedSys, conf: dict[str, str]
) -> None:
    settings = {"sys_root": str(node.root), "boot_id": str(node.boot)}
    folders = {name: str(tmp_path / folder) for name, folder in conf.items()}
    given = {**event("EXECJOB_BEGIN"), "conf": folders}
    assert accepted(run_hook(HOOK, [given], settings, folder=tmp_path))
    assert (tmp_path / "pbs/mom_priv/advisor/7.pbs1.json").is_file()
    assert (tmp_path / "pbs/mom_priv/advisor").stat().st_mode & 0o77 == 0


def test_settings_may_be_where_pbs_s_module_says(
    tmp_path: Path, node: PosedSys, state: Path
) -> None:
    config, hook = tmp_path / "c.json", tmp_path / "hook.py"
    config.write_text(json.dumps(node.settings(state)))
    named = f"import pbs; pbs.hook_config_filename = {str(config)!r}\n"
    hook.write_text((HOOKS / HOOK).read_text().replace("import pbs\n", named, 1))
    assert accepted(run_hook(str(hook), [event("EXECJOB_BEGIN")], folder=tmp_path))
    assert node.caps() == [1_900_000] * 4


def test_without_settings_the_node_s_own_files_are_read(tmp_path: Path) -> None:
    given = {
        **event("EXECJOB_BEGIN", mhz=None, place="free", ncpus=1),
        "conf": {"PBS_HOME": str(tmp_path)},
    }
    assert accepted(run_hook(HOOK, [given], folder=tmp_path))
    state = json.loads((tmp_path / "mom_priv/advisor/7.pbs1.json").read_text())
    assert state["boot"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    siblings = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology/thread_siblings_list")
    assert state["whole"] == (len({path.read_text() for path in siblings}) <= 1)


def test_it_is_python_3_6_and_standard_library() -> None:
    tree = ast.parse((HOOKS / HOOK).read_text(encoding="ascii"), feature_version=(3, 6))
    imported = {
        name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
    }
    assert imported == {"glob", "json", "os", "pbs", "re", "subprocess", "time"}
    assert not any(isinstance(node, ast.Assert | ast.NamedExpr) for node in ast.walk(tree))
