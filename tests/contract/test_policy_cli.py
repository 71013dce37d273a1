"""``advisor policy``: check, apply, diff, show, rollback."""

from __future__ import annotations

import io
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.core.policy import Policy
from advisor.paths import share
from advisor.store.reader import Reader

Advisor = Callable[..., Any]

ONE = "version: 1\nmode: advise\n"
TWO = "version: 1\nmode: apply\nmax_slowdown: 2%\nrules:\n  - {match: {user: a}, mode: off}\n"
BROKEN = "version: 1\nmod: apply\nmax_slowdown: 2\n"


@pytest.fixture
def policy_file(tmp_path: Path) -> Path:
    """The default place of the file: policy.yaml in the configuration folder."""
    (tmp_path / "config").mkdir()
    return tmp_path / "config" / "policy.yaml"


def active(store: Path) -> tuple[int, Policy]:
    with Reader(store) as reader:
        found = reader.policy()
    return found.version, found.base


def test_check(advisor: Advisor, policy_file: Path, tmp_path: Path, store_path: Path) -> None:
    policy_file.write_text(ONE)
    done = advisor("policy", "check")
    assert (done.code, done.err) == (0, "")
    assert str(policy_file) in done.out
    other = tmp_path / "other.yaml"
    other.write_text(BROKEN)
    done = advisor("policy", "check", other)
    assert done.code == 1
    lines = done.out.splitlines()
    assert lines[0].startswith(f"{other}:2: mod: unknown key (did you mean 'mode'?")
    assert lines[1].startswith(f"{other}:3: max_slowdown: 2 is ambiguous")
    assert lines[2] == f"{other}: 2 mistakes"
    assert not store_path.exists()


def test_check_for_programs(advisor: Advisor, policy_file: Path) -> None:
    policy_file.write_text(BROKEN)
    done = advisor("policy", "check", "--json")
    assert done.code == 1 and done.err == ""
    data = done.json()
    assert data["schema"] == "advisor/policy/1" and data["action"] == "check"
    assert data["ok"] is False and data["file"] == str(policy_file)
    first = data["problems"][0]
    assert (first["file"], first["line"], first["key"]) == (str(policy_file), 2, "mod")
    assert first["level"] == "error" and "mode" in first["hint"] and "goal" in first["allowed"]
    assert advisor("policy", "--json", "check").json() == data
    policy_file.write_text(ONE)
    assert advisor("policy", "check", "--json").json()["ok"] is True


def test_warnings_do_not_fail(advisor: Advisor, policy_file: Path) -> None:
    policy_file.write_text("version: 1\ntraining: {confirm: 0}\n")
    done = advisor("policy", "check")
    assert done.code == 0 and "warning: training.confirm" in done.out
    assert advisor("policy", "check", "--json").json()["problems"][0]["level"] == "warning"
    done = advisor("policy", "apply")
    assert done.code == 0 and "warning: training.confirm" in done.err


def test_a_file_that_cannot_be_read(advisor: Advisor, policy_file: Path, tmp_path: Path) -> None:
    for action in ("check", "apply", "diff"):
        done = advisor("policy", action)
        assert done.code == 1 and done.out == ""
        assert done.err.startswith(f"advisor: {policy_file} does not exist (")
        done = advisor("policy", action, tmp_path)
        assert done.code == 1 and "cannot be read" in done.err
    policy_file.write_bytes(b"version: 1\nmode: \xff\n")
    done = advisor("policy", "check")
    assert done.code == 1 and f"{policy_file}:2: byte 0xff" in done.out


def test_standard_input(advisor: Advisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BROKEN.encode())))
    done = advisor("policy", "check", "-")
    assert done.code == 1 and done.out.startswith("<stdin>:2: mod")


def test_apply_says_version_and_changes(
    advisor: Advisor, policy_file: Path, store_path: Path
) -> None:
    policy_file.write_text(TWO)
    done = advisor("policy", "apply")
    assert done.code == 0
    assert done.out.splitlines() == [
        f"policy version 1 applied from {policy_file}: 4 settings changed",
        "  mode: advise -> apply",
        "  max_slowdown: 5% -> 2%",
        "  rules[0].match.user: (not set) -> a",
        "  rules[0].mode: (not set) -> off",
    ]
    version, base = active(store_path)
    assert version == 1 and base.mode == "apply" and base.max_slowdown == pytest.approx(0.02)
    done = advisor("policy", "apply")
    assert (done.code, done.out) == (0, "already applied: policy version 1\n")
    policy_file.write_text(TWO + "# a remark\n")
    done = advisor("policy", "apply", "--json")
    data = done.json()
    assert (data["action"], data["version"], data["applied"]) == ("apply", 2, True)
    assert data["changes"] == [] and data["ok"] is True
    assert advisor("policy", "apply", "--json").json()["applied"] is False


def test_a_broken_file_never_replaces_the_applied_one(
    advisor: Advisor, policy_file: Path, store_path: Path
) -> None:
    policy_file.write_text(BROKEN)
    done = advisor("policy", "apply")
    assert done.code == 1 and done.out == ""
    assert f"{policy_file}:2: mod" in done.err and f"{policy_file}:3: max_slowdown" in done.err
    assert "the built-in default stays in effect" in done.err
    assert not store_path.exists()
    policy_file.write_text(TWO)
    assert advisor("policy", "apply").code == 0
    before = active(store_path)
    for text in (b"", b"- x\n", b"\xff", b"mode: [\n", BROKEN.encode(), b"version: 2\n"):
        policy_file.write_bytes(text)
        done = advisor("policy", "apply")
        assert done.code == 1 and "policy version 1 stays in effect" in done.err
        data = advisor("policy", "apply", "--json").json()
        assert (data["applied"], data["ok"], data["version"]) == (False, False, 1)
        assert data["problems"]
        assert active(store_path) == before


def test_diff(advisor: Advisor, policy_file: Path) -> None:
    policy_file.write_text(ONE)
    done = advisor("policy", "diff")
    assert done.code == 0 and "+mode: advise" in done.out
    assert "No setting would change." in done.out
    advisor("policy", "apply")
    done = advisor("policy", "diff")
    assert (done.code, done.out) == (0, f"{policy_file} is the file in effect: policy version 1\n")
    policy_file.write_text(TWO)
    done = advisor("policy", "diff")
    assert done.code == 0
    assert "--- policy version 1" in done.out and f"+++ {policy_file}" in done.out
    assert "-mode: advise\n+mode: apply" in done.out
    assert "  max_slowdown: 5% -> 2%" in done.out
    data = advisor("policy", "diff", "--json").json()
    assert data["same"] is False and data["version"] == 1
    assert {"key": "mode", "from": "advise", "to": "apply"} in data["changes"]
    policy_file.write_text(BROKEN)
    done = advisor("policy", "diff")
    assert done.code == 1
    assert "+mod: apply" in done.out and "cannot be applied" in done.err
    assert advisor("policy", "diff", "--json").json()["changes"] is None


def test_show_the_built_in_default(advisor: Advisor, store_path: Path, tmp_path: Path) -> None:
    done = advisor("policy", "show")
    assert done.code == 0 and "built-in" in done.out.splitlines()[0]
    kept = tmp_path / "kept.yaml"
    kept.write_text(done.out)
    assert advisor("policy", "check", kept).code == 0
    assert advisor("policy", "diff", kept, "--json").json()["changes"] == []
    data = advisor("policy", "show", "--json").json()
    assert data["version"] == 0 and data["settings"]["max_slowdown"] == 0.05
    assert data["settings"]["axes"]["frequency"] == "cap" and data["settings"]["rules"] == []
    assert not store_path.exists()
    assert "ever applied" in advisor("policy", "show", "--history").out


def test_show_versions_and_history(advisor: Advisor, policy_file: Path) -> None:
    policy_file.write_text(ONE)
    advisor("policy", "apply")
    policy_file.write_text(TWO)
    advisor("policy", "apply")
    assert "max_slowdown: 2%" in advisor("policy", "show").out
    first = advisor("policy", "show", "--version", "1").out
    assert "# policy version 1 (not active)" in first and "max_slowdown: 5%" in first
    data = advisor("policy", "show", "--json").json()
    assert data["version"] == 2 and data["path"] == str(policy_file)
    assert data["settings"]["rules"] == [{"match": {"user": ["a"]}, "set": {"mode": "off"}}]
    history = advisor("policy", "show", "--history", "--json").json()["versions"]
    assert [(v["version"], v["active"]) for v in history] == [(1, False), (2, True)]
    assert len(advisor("policy", "show", "--history").out.splitlines()) == 3
    done = advisor("policy", "show", "--version", "7")
    assert done.code == 2 and "no policy version 7" in done.err


def test_rollback(advisor: Advisor, policy_file: Path, store_path: Path) -> None:
    done = advisor("policy", "rollback")
    assert done.code == 3 and "ever applied" in done.err
    for text in (ONE, TWO, ONE + "# again\n"):
        policy_file.write_text(text)
        advisor("policy", "apply")
    done = advisor("policy", "rollback")
    assert done.code == 0
    assert "policy version 2 is in effect again instead of version 3" in done.out
    assert "mode: advise -> apply" in done.out and "differs" in done.out
    assert active(store_path)[0] == 2
    data = advisor("policy", "rollback", "--to", "3", "--json").json()
    assert (data["version"], data["from"], data["applied"]) == (3, 2, True)
    done = advisor("policy", "rollback", "--to", "3")
    assert done.code == 0 and "is already in effect" in done.out
    done = advisor("policy", "rollback", "--to", "9")
    assert done.code == 2 and "no policy version 9" in done.err
    assert active(store_path)[0] == 3
    advisor("policy", "rollback", "--to", "1")
    assert advisor("policy", "rollback").code == 3
    assert active(store_path)[0] == 1


def test_a_version_this_release_cannot_read_is_not_rolled_back_to(
    advisor: Advisor, policy_file: Path, store_path: Path
) -> None:
    for text in (ONE, TWO):
        policy_file.write_text(text)
        advisor("policy", "apply")
    with sqlite3.connect(store_path) as db:
        db.execute("UPDATE config_versions SET text = 'mode: gone' WHERE version = 1")
    db.close()
    done = advisor("policy", "rollback")
    assert done.code == 1 and "is not valid for this release" in done.err
    assert active(store_path)[0] == 2


def test_usage(advisor: Advisor) -> None:
    assert advisor("policy").code == 2
    assert advisor("policy", "frobnicate").code == 2
    assert advisor("policy", "rollback", "--to", "x").code == 2


def test_a_store_that_cannot_be_made(advisor: Advisor, policy_file: Path) -> None:
    policy_file.write_text(ONE)
    done = advisor("policy", "apply", "--db", policy_file / "advisor.db")
    assert done.code == 1
    assert done.err.startswith("advisor: ") and len(done.err.splitlines()) == 1


def test_a_corrupt_store_is_one_line(advisor: Advisor, policy_file: Path, store_path: Path) -> None:
    policy_file.write_text(ONE)
    store_path.write_bytes(b"this is no store" * 100)
    for arguments in (["apply"], ["diff"], ["show"], ["show", "--history"], ["rollback"]):
        done = advisor("policy", *arguments)
        assert done.code == 1
        assert done.err.startswith("advisor: ") and len(done.err.splitlines()) == 1
    assert store_path.read_bytes() == b"this is no store" * 100


def test_the_shipped_example_can_be_applied(advisor: Advisor, store_path: Path) -> None:
    done = advisor("policy", "apply", share("config/policy.yaml"))
    assert done.code == 0
    assert active(store_path) == (1, Policy())


def test_two_at_once_leave_one_active(policy_file: Path, tmp_path: Path, store_path: Path) -> None:
    files = []
    for number in range(4):
        files.append(tmp_path / f"{number}.yaml")
        files[-1].write_text(f"version: 1\nholdout: {number}%\n")
    running = [
        subprocess.Popen([sys.executable, "-m", "advisor", "policy", "apply", str(f)])
        for f in files
    ]
    assert [p.wait(timeout=60) for p in running] == [0, 0, 0, 0]
    with Reader(store_path) as reader:
        versions = reader.config_history("policy")
    assert [v.version for v in versions] == [1, 2, 3, 4]
    assert sum(v.active for v in versions) == 1
