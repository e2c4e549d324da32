"""Random faults: the same seed plays the same ones, and none of them makes a difference."""

import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from uqlob_pipeline.devtools.commands import app
from uqlob_pipeline.devtools.drill.damage import damage_capture
from uqlob_pipeline.devtools.drill.random_drill import RandomDrill, compared, partial_files

LINES = [b'{"number":%d}' % number for number in range(300)]


def test_the_same_seed_gives_the_same_damage() -> None:
    first, again, other = ([damage_capture(LINES, random.Random(f"{seed}/{n}")) for n in range(50)] for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert all(lines != LINES for lines, _ in first)
    assert {what.partition(" ")[0] for _, what in first} == {"bits", "bytes", "cut", "delete", "hostile", "repeat", "swap"}


def test_missing_changed_and_unexpected_outputs_are_problems_and_an_absent_one_is_not_partial() -> None:
    expected = {"a": "1", "b": "2"}
    assert compared(expected, {"a": "1", "b": "2"}) == []
    assert len(compared(expected, {"a": "9", "c": "3"})) == 3
    assert partial_files(expected, {"a": "1"}) == []
    assert partial_files(expected, {"a": "9"}) == ["a is partially written"]


def test_a_step_that_does_not_exist_is_refused() -> None:
    shown = CliRunner().invoke(app, ["drill", "--random", "1", "--steps", "cooking"])
    assert shown.exit_code == 2
    assert "import, replay, features, training, evaluation" in " ".join(shown.output.replace("│", " ").split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "faults"), [(("import", "recorder"), 10), (("replay", "features", "training", "evaluation"), 6)]
)
def test_no_random_fault_makes_a_difference(tmp_path: Path, steps: tuple[str, ...], faults: int) -> None:
    drill = RandomDrill(tmp_path, 7, print, steps)
    drill.prepare()
    for number in range(faults):
        drill.play(number)
    assert drill.problems == []
    assert drill.counts["kills"] >= 1
