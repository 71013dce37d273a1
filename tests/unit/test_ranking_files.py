"""Phase files: what is written is read again, and mistakes name file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.errors import InputError
from advisor.ranking.files import read_phases, write_phases
from advisor.ranking.streams import Characterisation, Phase, Stream

GIVEN = """\
application: MM
phases:
  - name: product
    weight: 0.9813
    time_s: 212.0254
    iterations: 16.0e+9
    streams:
      - {size_kb: 15624, stride_b: 32000, dtype_b: 8, access: C}
      - {size_kb: 3906, stride_b: 8, dtype_b: 8, access: P}
"""


def test_what_is_not_given_follows(tmp_path: Path) -> None:
    file = tmp_path / "mm.yaml"
    file.write_text(GIVEN)
    found = read_phases(file)
    (phase,) = found.phases
    assert (found.application, found.workload) == ("MM", "default")
    assert phase.time_per_iter_us == pytest.approx(0.0132516, rel=1e-5)
    assert found.time_s == pytest.approx(216.06, rel=1e-4)
    assert found.remainder_s == pytest.approx(found.time_s - 212.0254)
    assert phase.streams == (Stream(15624, 32000, 8, "C"), Stream(3906, 8, 8, "P"))


def test_a_weight_that_is_not_given_is_the_phases_share_of_the_run(tmp_path: Path) -> None:
    file = tmp_path / "mm.yaml"
    file.write_text(GIVEN.replace("    weight: 0.9813\n", "") + "time_s: 424.0508\n")
    (phase,) = read_phases(file).phases
    assert phase.weight == pytest.approx(0.5)
    file.write_text(GIVEN.replace("    weight: 0.9813\n", ""))
    assert read_phases(file).phases[0].weight == 1


def test_written_and_read_again(tmp_path: Path) -> None:
    streams = (Stream(12.5, 0, 8, "C", False, 0.5, 0.01), Stream(781.25, 32, 4, "P", True))
    phase = Phase("forces (n.c:3)", 0.9, 9.0, 1e9, 0.009, streams, 3, 2, 16.5, 18.0)
    given = Characterisation("nbody", (phase,), "8000", "hsw", 2, 10.0, "valgrind")
    write_phases(tmp_path / "n.yaml", given)
    assert read_phases(tmp_path / "n.yaml") == given
    assert [f.name for f in tmp_path.iterdir()] == ["n.yaml"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "size_kb: 3906",
            "size_kb: much",
            r":9: phases\[0\]\.streams\[1\]\.size_kb: must be a num",
        ),
        ("size_kb: 3906, ", "", r":9: phases\[0\]\.streams\[1\]\.size_kb: is missing"),
        ("size_kb: 3906", "size_kb: 0", r":9: phases\[0\]\.streams\[1\]\.size_kb: must be above 0"),
        ("stride_b: 8", "stride_b: 8.5", r":9: .*stride_b: must be a whole number, not 8\.5"),
        ("access: P", "access: X", r":9: .*access: must be one of C, P"),
        ("weight: 0.9813", "weight: 98.13", r":4: phases\[0\]\.weight: must be between 0 and 1"),
        ("time_s: 212.0254", "time_s: -1", r":5: phases\[0\]\.time_s: must be at least 0"),
        ("name: product", "name:", r":3: phases\[0\]\.name: is missing"),
        ("application: MM\n", "", r":1: application: is missing"),
        ("phases:", "fases:", r":1: phases: there are none"),
        ("phases:\n", "phases: []\nrest:\n", r":2: phases: there are none"),
        ("{size_kb: 3906", "[size_kb: 3906", r":9: "),
        (GIVEN, "- 1\n", "is not a phase file"),
    ],
)
def test_mistakes_name_file_line_and_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "mm.yaml"
    file.write_text(GIVEN.replace(old, new))
    with pytest.raises(InputError, match=message) as error:
        read_phases(file)
    assert str(error.value).startswith(str(file)) and "\n" not in str(error.value)


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_phases(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not text"):
        read_phases(tmp_path / "bytes.yaml")
    with pytest.raises(InputError, match="cannot be written"):
        write_phases(tmp_path / "none" / "x.yaml", Characterisation("a"))
