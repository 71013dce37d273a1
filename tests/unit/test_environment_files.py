"""Files that scripts source and of which site.yaml says that they only set variables."""

from __future__ import annotations

import pytest

from advisor.core.request import JobRequest
from advisor.core.script import without_sourced
from advisor.core.script_use import use_of_script
from advisor.policy.render import to_yaml
from tests.unit.test_site_load import check, good

PATTERNS = ("/proj/env/*.sh", "$SITE_HOME/setup", "config_env_[a-z]*.sh")


@pytest.mark.parametrize(
    ("line", "is_trusted"),
    [
        ("source /proj/env/gcc.sh", True),
        ("  . /proj/env/a/b.sh", True),
        ('source "$SITE_HOME/setup"', True),
        ("source '/proj/env/gcc.sh' intel64 -v # the compilers", True),
        ("source config_env_gnu.sh;", True),
        ("source /proj/env/gcc.sh\r", True),
        ("source /home/me/gcc.sh", False),
        ("source /proj/env/gcc.sh.mine", False),
        ("source $MY_HOME/setup", False),
        ("source SITE_HOME/setup", False),
        ("source config_env_.sh", False),
        ("source /proj/env/gcc.sh && ./other", False),
        ("source /proj/env/gcc.sh; ./other", False),
        ("source /proj/env/gcc.sh | ./other", False),
        ("source /proj/env/gcc.sh $(./other)", False),
        ("source /proj/env/`./other`.sh", False),
        ("bash /proj/env/gcc.sh", False),
    ],
)
def test_a_file_of_the_sites_own_may_be_sourced(line: str, is_trusted: bool) -> None:
    script = f"#!/bin/bash\n{line}\nmpirun ./app\n"
    request = JobRequest("pbs", "queuejob", "u", 1, script=script)
    read = request.with_environment_files(PATTERNS).script or ""
    assert (use_of_script(read).obstacle == ("", "")) == is_trusted
    assert (read != script) == is_trusted
    assert request.with_environment_files(()) is request


def test_a_long_script_takes_no_longer() -> None:
    line = "source " + "a" * 5000 + " b" * 5000 + " (\n"
    assert without_sourced(line * 3, PATTERNS) == line * 3


def test_what_names_any_file_is_refused() -> None:
    compiled = good("version: 1\nenvironment_files: [/proj/env/*.sh, $SITE_HOME/setup]\n")
    assert compiled["environment_files"] == ["/proj/env/*.sh", "$SITE_HOME/setup"]
    assert good(to_yaml("site", compiled)) == compiled
    for text, said in (
        ("'*'", "is any file"),
        ("'**/[a-z]*'", "is any file"),
        ("a b", "no blanks"),
    ):
        _, [problem] = check(f"version: 1\nenvironment_files: [{text}]\n")
        assert problem.key == "environment_files[0]" and said in str(problem)
