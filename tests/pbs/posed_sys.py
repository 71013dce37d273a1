"""A posed /sys of one node: cpufreq of every CPU, RAPL or pm_counters, cpusets of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

HIGH, LOW = 2_200_000, 1_200_000


class PosedSys:
    """A tree as the kernel shows it; counters are moved by hand."""

    def __init__(self, root: Path, *, cpus: int = 4, threads: int = 1) -> None:
        self.root = root / "sys"
        self.boot = root / "boot_id"
        self.reboot("first")
        for cpu in range(cpus):
            folder = self.cpufreq(cpu)
            folder.mkdir(parents=True)
            for name, value in {
                "scaling_max_freq": HIGH,
                "scaling_min_freq": LOW,
                "cpuinfo_max_freq": HIGH,
                "cpuinfo_min_freq": LOW,
                "affected_cpus": cpu,
            }.items():
                (folder / name).write_text(f"{value}\n")
            topology = folder.parent / "topology"
            topology.mkdir()
            core = cpu % (cpus // threads)
            siblings = ",".join(str(core + i * cpus // threads) for i in range(threads))
            (topology / "thread_siblings_list").write_text(siblings + "\n")
        self.cpus = cpus

    def cpufreq(self, cpu: int) -> Path:
        return self.root / f"devices/system/cpu/cpu{cpu}/cpufreq"

    def caps(self) -> list[int]:
        return [int((self.cpufreq(c) / "scaling_max_freq").read_text()) for c in range(self.cpus)]

    def reboot(self, boot: str) -> None:
        self.boot.write_text(boot + "\n")

    def rapl(self, values_uj: dict[str, int], limit_uj: int = 262_143_328_850) -> None:
        """Set counters by zone: ``intel-rapl:0`` is package-0, ``intel-rapl:0:0`` its dram."""
        for zone, value in values_uj.items():
            folder = self.root / "class/powercap" / zone
            folder.mkdir(parents=True, exist_ok=True)
            inside = zone.count(":") > 1
            (folder / "name").write_text("dram\n" if inside else f"package-{zone[-1]}\n")
            (folder / "max_energy_range_uj").write_text(f"{limit_uj}\n")
            (folder / "energy_uj").write_text(f"{value}\n")

    def pm_counters(self, joules: float, startup: str = "1") -> None:
        folder = self.root / "cray/pm_counters"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "energy").write_text(f"{joules:.0f} J 1234 us\n")
        (folder / "startup").write_text(startup + "\n")

    def cpuset(self, job: str, cpus: str, *, version: int = 2) -> None:
        middle = "cpuset/" if version == 1 else ""
        folder = self.root / f"fs/cgroup/{middle}pbs_jobs.service/jobid/{job}"
        folder.mkdir(parents=True)
        (folder / "cpuset.cpus").write_text(cpus + "\n")

    def settings(self, folder: Path, **other: object) -> dict[str, object]:
        return {
            "sys_root": str(self.root),
            "boot_id": str(self.boot),
            "state_dir": str(folder),
            **other,
        }

    def share_policy(self, cpus: Sequence[int]) -> None:
        """Let CPUs share one policy, as with one frequency a socket."""
        first = self.cpufreq(cpus[0])
        (first / "affected_cpus").write_text(" ".join(map(str, cpus)) + "\n")
        for cpu in cpus[1:]:
            folder = self.cpufreq(cpu)
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
            folder.symlink_to(first)
