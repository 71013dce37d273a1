"""The prolog that caps whole nodes, in a mount namespace with a posed /sys and Slurm's answers.

These are as Slurm 22.05 gives them; ``tests/slurm/test_node_cap.py`` has a whole cluster.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.posed_gpus import needs_compiler, nvml_library, pose

PROGRAM = Path(__file__).resolve().parents[2] / "hooks/slurm/advisor-node-cap"
LOWEST, CAP, HIGHEST = 1_200_000, 1_800_000, 2_400_000
CPUS = "/sys/devices/system/cpu"
ENTER = """\
set -e
mount --make-rprivate /
mount --bind "$1/cpu" /sys/devices/system/cpu
mount --bind "$1/run" /run
mount --bind "$1/commands" /usr/sbin
for file in $3; do mount --bind "$file" "$file"; mount -o remount,ro,bind "$file"; done
exec "$2"
"""
COMMANDS = {
    "scontrol": '[ "$*" = "--details show job 7" ] && cat "$POSED/job"',
    "squeue": '[ "$*" = "--noheader --nodelist=n1 --states=running,suspended,configuring'
    ' --format=%A %h" ] && cat "$POSED/queue"',
    "logger": '[ "$1 $2 $3" = "-t advisor-node-cap --" ] && echo "$4" >> "$POSED/log"',
    "sacct": '[ "$*" = "--noheader --parsable2 --allocations --format=SystemComment --jobs=7" ]'
    ' && cat "$POSED/comment" && echo "of its step"',
    "sacctmgr": '[ "$1 $2 $3 $4 $5 $6" = "--immediate modify job where JobID=7 set" ] || exit 1;'
    ' echo "$7" >> "$POSED/told"; if [ -e "$POSED/lost" ]; then rm "$POSED/lost"; else'
    ' echo "${7#SystemComment=}" > "$POSED/comment"; fi',
}


def obstacle() -> str:
    """Return why no program can be run in a mount namespace of its own, "" where it can."""
    words = ["unshare", "-m", "mount", "--make-rprivate", "/"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=False).stderr
    except OSError as error:
        return str(error)


pytestmark = pytest.mark.skipif(bool(obstacle()), reason="needs root and mount namespaces")


class Node:
    """A node with two clocks of its cores, of which the second has no policy of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.program = folder, PROGRAM
        for name in ("cpu/cpufreq", "cpu/cpu0", "run", "commands"):
            (folder / name).mkdir(parents=True)
        for name in ("cpufreq/policy0", "cpu1/cpufreq"):
            self.clock(name)
        (folder / "cpu/cpu0/cpufreq").symlink_to("../cpufreq/policy0")
        for name, text in COMMANDS.items():
            (folder / "commands" / name).write_text(f"#!/bin/sh\n{text}\n")
            (folder / "commands" / name).chmod(0o755)
        self.job()
        self.queue("7 NO")
        self.comment("")

    def clock(self, name: str, highest: object = HIGHEST, lowest: object = LOWEST) -> None:
        folder = self.folder / "cpu" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "scaling_max_freq").write_text(f"{highest}\n")
        (folder / "cpuinfo_min_freq").write_text(f"{lowest}\n")

    def job(self, stamp: str = f'advisor:{{"v":1,"cap":{CAP},"t":[1,2]}}', more: str = "") -> None:
        lines = f"JobId=7 JobName=x\n   UserId=u(1)\n{more}   AdminComment={stamp} \n   Power=\n"
        (self.folder / "job").write_text(lines)

    def queue(self, text: str) -> None:
        (self.folder / "queue").write_text(text + "\n")

    def comment(self, text: str) -> None:
        (self.folder / "comment").write_text(text + "\n")

    def run(self, when: str, *read_only: str, **variables: str) -> list[str]:
        """Run the program as slurmd does; return what it logged. It never fails."""
        env = {
            "PATH": os.environ["PATH"],
            "SLURMD_NODENAME": "n1",
            "SLURM_JOB_ID": "7",
            "SLURM_SCRIPT_CONTEXT": f"{when}_slurmd",
            "POSED": str(self.folder),
            **variables,
        }
        words = [
            str(self.folder),
            str(self.program),
            " ".join(f"{CPUS}/{name}" for name in read_only),
        ]
        command = ["unshare", "-m", "sh", "-c", ENTER, "sh", *words]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        log = self.folder / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines

    @property
    def clocks(self) -> list[int]:
        names = ("cpufreq/policy0", "cpu1/cpufreq")
        files = (self.folder / "cpu" / name / "scaling_max_freq" for name in names)
        return [int(file.read_text()) for file in files]

    @property
    def states(self) -> dict[str, str]:
        """What is kept of each capped job."""
        folder = self.folder / "run/advisor-caps/n1"
        return {path.name: path.read_text() for path in folder.glob("*")}

    def keep(self, job: str, text: str) -> None:
        folder = self.folder / "run/advisor-caps/n1"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / job).write_text(text)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


AS_BEFORE = [HIGHEST, HIGHEST]
FIRST = f"{CPUS}/cpufreq/policy0/scaling_max_freq"
SECOND = f"{CPUS}/cpu1/cpufreq/scaling_max_freq"


def test_a_whole_node_is_capped_and_as_before_behind_its_job(node: Node) -> None:
    assert node.run("prolog") == []
    assert node.clocks == [CAP, CAP]
    assert node.states == {"7": f"{FIRST} {HIGHEST}\n{SECOND} {HIGHEST}\n"}
    kept = node.folder / "run/advisor-caps/n1"
    assert (kept.stat().st_mode & 0o777, (kept / "7").stat().st_mode & 0o777) == (0o700, 0o600)
    assert node.run("epilog") == []
    assert (node.clocks, node.states) == (AS_BEFORE, {})


@pytest.mark.parametrize(
    "stamp",
    [
        "",
        "advisor:",
        '{"cap":1800000}',
        'advisor:{"cap":99999}',
        'advisor:{"cap":10000001}',
        'advisor:{"cap":099999}',
        'advisor:{"cap":180000000}',
        'advisor:{"cap":"1800000"}',
        'advisor:{"cap":1800000;x}',
        'advisor:{"v":1} "cap":1800000',
        'myadvisor:{"cap":1800000}',
        f'advisor:{{"cap":{HIGHEST}}}',
    ],
)
def test_what_is_no_cap_of_the_advisors_changes_nothing(node: Node, stamp: str) -> None:
    node.job(stamp, '   Comment=advisor:{"cap":1800000}\n')
    node.run("prolog")
    assert (node.clocks, node.states) == (AS_BEFORE, {})


@pytest.mark.parametrize(
    ("stamp", "caps"),
    [
        ('advisor:{"cap":100000}', [LOWEST, LOWEST]),
        ('advisor:{"cap":01800000}', [CAP, CAP]),
        ('advisor:{"cap":1200000}', [LOWEST, LOWEST]),
        ('a word advisor:{"chg":1,"cap":1800000}', [CAP, CAP]),
    ],
)
def test_a_cap_is_kept_above_the_lowest_clock(node: Node, stamp: str, caps: list[int]) -> None:
    node.job(stamp)
    assert node.run("prolog") == []
    assert node.clocks == caps


@pytest.mark.parametrize(("cap", "then"), [(10_000_000, 10_000_000), (10_000_001, 20_000_000)])
def test_the_highest_cap_of_all_is_one(node: Node, cap: int, then: int) -> None:
    node.job(f'advisor:{{"cap":{cap}}}')
    node.clock("cpufreq/policy0", 20_000_000)
    assert node.run("prolog") == []
    assert node.clocks == [then, HIGHEST]


@pytest.mark.parametrize(
    "queue", ["", "7 OK", "7 USER", "8 NO", "7 NO\n8 NO", "8 OK\n7 NO", "7 NO\n7 NO", "77 NO"]
)
def test_a_job_that_has_not_its_node_for_itself_is_not_capped(node: Node, queue: str) -> None:
    node.queue(queue)
    assert node.run("prolog") == []
    assert (node.clocks, node.states) == (AS_BEFORE, {})


def test_blank_lines_are_no_jobs(node: Node) -> None:
    node.queue("\n7 NO\n")
    node.run("prolog")
    assert node.clocks == [CAP, CAP]


@pytest.mark.parametrize(
    ("highest", "lowest", "then"),
    [
        (CAP, LOWEST, CAP),  # the site's own
        (CAP - 1, LOWEST, CAP - 1),
        (HIGHEST, HIGHEST - 1, HIGHEST - 1),
        (HIGHEST, HIGHEST + 1, HIGHEST),
        (HIGHEST, "<unknown>", HIGHEST),
    ],
)
def test_no_clock_rises_or_falls_below_its_least(
    node: Node, highest: int, lowest: object, then: int
) -> None:
    node.clock("cpufreq/policy0", highest, lowest)
    assert node.run("prolog") == []
    assert node.clocks == [then, CAP]
    node.run("epilog")
    assert node.clocks == [highest, HIGHEST]


@pytest.mark.parametrize("missing", ["scaling_max_freq", "cpuinfo_min_freq"])
def test_a_clock_that_cannot_be_read_is_left_alone(node: Node, missing: str) -> None:
    (node.folder / "cpu/cpufreq/policy0" / missing).unlink()
    assert node.run("prolog") == []
    assert node.states == {"7": f"{SECOND} {HIGHEST}\n"}


@pytest.mark.parametrize(("highest", "lowest"), [("2400000 kHz", LOWEST), (HIGHEST, "1200000 kHz")])
def test_a_clock_that_is_no_number_is_left_alone(
    node: Node, highest: object, lowest: object
) -> None:
    node.clock("cpufreq/policy0", highest, lowest)
    assert node.run("prolog") == []
    assert node.states == {"7": f"{SECOND} {HIGHEST}\n"}


def test_a_node_without_clocks_says_so(node: Node) -> None:
    for name in ("cpufreq/policy0", "cpu1/cpufreq"):
        (node.folder / "cpu" / name / "scaling_max_freq").write_text("<unsupported>\n")
    said = "job 7: no frequency can be set here: it runs without its cap"
    assert (node.run("prolog"), node.states) == ([said], {})


def test_a_clock_that_takes_no_cap_is_named_and_the_others_are_put_back(node: Node) -> None:
    read_only = "cpufreq/policy0/scaling_max_freq"
    assert node.run("prolog", read_only) == [f"job 7: {FIRST} takes no cap"]
    assert node.clocks == [HIGHEST, CAP]
    assert node.run("epilog", read_only) == [f"job 7: its cap could not be lifted: {FIRST}"]
    assert node.clocks == AS_BEFORE and list(node.states) == ["7"], "the next one tries again"
    assert node.run("prolog", SLURM_JOB_ID="8") == [] and node.states == {}


def test_nothing_is_capped_where_what_stood_there_cannot_be_kept(node: Node) -> None:
    kept = node.folder / "run/advisor-caps/n1"
    (kept / ".7").mkdir(parents=True)
    node.run("prolog")
    assert node.clocks == AS_BEFORE and not (kept / "7").exists()


@pytest.mark.parametrize("name", ["advisor-caps", "advisor-gpus"])
def test_nothing_is_capped_where_there_is_no_folder_for_it(node: Node, name: str) -> None:
    (node.folder / "run" / name).touch()
    assert node.run("prolog") == [] and node.clocks == AS_BEFORE


def test_the_next_job_lifts_what_was_left_and_only_clocks(node: Node) -> None:
    (node.folder / "cpu/other").write_text("kept\n")
    node.clock("cpufreq/policy0", CAP)
    node.keep(
        "6",
        f"{FIRST} {HIGHEST}\n{CPUS}/other 5\n{SECOND} x\n{SECOND} 5 6\n/run/x/scaling_max_freq 5\n",
    )
    node.keep(".5", f"{SECOND} 5\n")
    node.job("")
    assert node.run("prolog") == []
    assert (node.clocks, list(node.states)) == (AS_BEFORE, [".5"])
    assert (node.folder / "cpu/other").read_text() == "kept\n"


def test_the_end_of_another_job_lifts_nothing(node: Node) -> None:
    node.run("prolog")
    assert node.run("epilog", SLURM_JOB_ID="8") == []
    assert node.clocks == [CAP, CAP] and list(node.states) == ["7"]


@pytest.mark.parametrize(
    "variables",
    [
        {"SLURM_JOB_ID": "7;x"},
        {"SLURM_JOB_ID": "../7"},
        {"SLURM_JOB_ID": ""},
        {"SLURMD_NODENAME": "../n1"},
        {"SLURMD_NODENAME": "n1 "},
        {"SLURMD_NODENAME": " n1"},
    ],
)
def test_strange_names_of_jobs_and_nodes_end_it(node: Node, variables: dict[str, str]) -> None:
    assert node.run("prolog", **variables) == []
    assert node.clocks == AS_BEFORE and not list((node.folder / "run").glob("advisor-*"))


def test_other_contexts_do_nothing(node: Node) -> None:
    node.run("task")
    assert node.clocks == AS_BEFORE
    node.run("prolog")
    node.run("task")
    assert node.clocks == [CAP, CAP]


def test_a_node_without_a_name_keeps_its_states_all_the_same(node: Node) -> None:
    node.run("prolog", SLURMD_NODENAME="")
    assert (node.folder / "run/advisor-caps/node").is_dir()


def test_the_environment_of_a_job_runs_nothing(node: Node) -> None:
    own = node.folder / "own"
    own.mkdir()
    for name in ("timeout", "scontrol", "mkdir"):
        (own / name).write_text(f"#!/bin/sh\ntouch {node.folder}/ran\n")
        (own / name).chmod(0o755)
    (own / "begin").write_text(f"touch {node.folder}/ran\n")
    function = f"() {{ touch {node.folder}/ran; }}"
    environment = {
        "PATH": f"{own}:{os.environ['PATH']}",
        "BASH_ENV": str(own / "begin"),
        "BASH_FUNC_read%%": function,
        "IFS": "0123456789",
    }
    node.run("prolog", **environment)
    assert node.clocks == [CAP, CAP] and not (node.folder / "ran").exists()


DEVICE: dict[str, object] = {"energy": 1_000_000, "least": 100_000, "most": 300_000}
LIMITED = 'advisor:{"v":1,"gpus":{"gpu_power_w":150,"gpu_freq_khz":900000}}'


class GpuNode(Node):
    """A node with two GPUs, whose driver is tests/unit/nvml.c."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.nvml = folder / "nvml"
        pose(self.nvml, *[{**DEVICE, "clocks": "1400 500 100"}] * 2)
        self.job(LIMITED)

    def run(self, when: str, *read_only: str, **variables: str) -> list[str]:
        env = {
            "LD_LIBRARY_PATH": str(nvml_library()),
            "POSED_NVML": str(self.nvml),
            "SLURM_JOB_GPUS": "1",
        }
        return super().run(when, *read_only, **{**env, **variables})

    def calls(self) -> list[str]:
        """What was set since the last call: DEVICE CALL VALUE."""
        file = Path(f"{self.nvml}.set")
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return lines

    @property
    def told(self) -> list[str]:
        """What SystemComment was set to, one after the other."""
        file = self.folder / "told"
        words = file.read_text().splitlines() if file.exists() else []
        return [word.removeprefix("SystemComment=") for word in words]


@pytest.fixture
def gpu_node(tmp_path: Path) -> GpuNode:
    return GpuNode(tmp_path)


SET = ["1 clocks 900", "1 limit 150000"]
FREED = ["1 limit 300000", "1 clocks 0"]
TOOK = "advisor-gpus:n1:1/150/900/0.0"


@needs_compiler
def test_a_jobs_gpus_are_limited_and_as_before_behind_it(gpu_node: GpuNode) -> None:
    gpu_node.queue("7 OK\n8 OK")  # they are the job's alone, whoever is on the node
    assert gpu_node.run("prolog") == [] and gpu_node.calls() == SET
    assert gpu_node.run("epilog") == [] and gpu_node.calls() == FREED
    assert gpu_node.told == [f" {TOOK}"]
    assert gpu_node.run("epilog") == [] and gpu_node.calls() == []


@needs_compiler
@pytest.mark.parametrize(
    ("stamp", "more", "variables"),
    [
        ("", "", {}),
        ('advisor:{"v":1}', "", {}),
        ('advisor:{"gpus":{"gpu_power_w":150;x}}', "", {}),
        ('advisor:{"gpus":{}}', "", {}),
        ("my" + LIMITED, "", {}),
        (LIMITED, "   TRES=cpu=1,gres/shard=1\n", {}),
        (LIMITED, "   TresPerNode=gres:mps:50\n", {}),
        (LIMITED, "", {"SLURM_JOB_GPUS": ""}),
    ],
)
def test_nothing_is_set_on_gpus_that_are_not_the_jobs(
    gpu_node: GpuNode, stamp: str, more: str, variables: dict[str, str]
) -> None:
    gpu_node.job(stamp, more)
    assert gpu_node.run("prolog", **variables) == [] and gpu_node.calls() == []
    assert gpu_node.run("epilog", **variables) == [] and gpu_node.told == []


@needs_compiler
def test_what_cannot_be_set_is_logged(gpu_node: GpuNode) -> None:
    said = ["job 7: runs without its GPU limits: GPU 5: the driver has no such device"]
    assert gpu_node.run("prolog", SLURM_JOB_GPUS="5") == said


@needs_compiler
def test_the_next_job_lifts_what_was_left_on_its_gpus(gpu_node: GpuNode) -> None:
    gpu_node.run("prolog")
    assert gpu_node.calls() == SET
    gpu_node.job("")
    gpu_node.run("prolog", SLURM_JOB_GPUS="0")
    assert gpu_node.calls() == FREED, "of the job itself, which was requeued"


@needs_compiler
def test_what_a_driver_says_at_the_end_is_logged(gpu_node: GpuNode) -> None:
    gpu_node.run("prolog")
    gpu_node.nvml.write_text("-1 error.init 9\n")
    (line,) = gpu_node.run("epilog")
    assert line.startswith("job 7: runs without its GPU limits: nvmlInit"), line
    assert gpu_node.told == []


def test_what_is_no_number_of_a_device_is_not_told(node: Node) -> None:
    node.program = node.folder / PROGRAM.name
    shutil.copy(PROGRAM, node.program)
    other = node.folder / "advisor-node-gpus"
    other.write_text('#!/bin/sh\n[ "$1" = set ] && touch "$2/$3" || echo "1/150/900/0.0 more"\n')
    other.chmod(0o755)
    node.job(LIMITED)
    node.run("prolog", SLURM_JOB_GPUS="1")
    node.run("epilog", SLURM_JOB_GPUS="1")
    assert (node.folder / "run/advisor-gpus/n1/7").exists() and not (node.folder / "told").exists()


@needs_compiler
@pytest.mark.parametrize(
    ("before", "told"),
    [
        ("advisor-gpus:n2:0/150/900/1.0", [f"advisor-gpus:n2:0/150/900/1.0 {TOOK}"]),
        (f"x {TOOK}", []),
        ("Another's", []),
        ("it's", []),
        ("a `b`", []),
        ('a "b"', []),
    ],
)
def test_what_others_said_of_a_job_stays(gpu_node: GpuNode, before: str, told: list[str]) -> None:
    gpu_node.comment(before)
    gpu_node.run("prolog")
    gpu_node.run("epilog")
    assert gpu_node.told == told


@needs_compiler
def test_words_that_another_node_overwrote_are_written_once_more(gpu_node: GpuNode) -> None:
    (gpu_node.folder / "lost").touch()
    gpu_node.run("prolog", SLURMD_NODENAME="N1")
    gpu_node.run("epilog", SLURMD_NODENAME="N1")
    assert gpu_node.told == [f" {TOOK}"] * 2, "in small letters, as sacctmgr writes them"
