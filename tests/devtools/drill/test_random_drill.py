"""Random faults: the same seed plays the same ones, and none of them makes a difference."""

import random
import signal
import sys
import time
from collections import Counter
from functools import partial
from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from uqlob_pipeline.devtools.commands import app
from uqlob_pipeline.devtools.drill.child import Child, import_listed, run_and_list_imports
from uqlob_pipeline.devtools.drill.damage import Events, damage_capture, damage_file, outcome_of
from uqlob_pipeline.devtools.drill.outputs import compared, partial_files
from uqlob_pipeline.devtools.drill.random_drill import RandomDrill
from uqlob_pipeline.devtools.drill.tally import Tally
from uqlob_pipeline.market.kraken.ingest_report import IngestError

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


def test_a_damaged_file_differs_and_the_same_seed_damages_it_alike(tmp_path: Path) -> None:
    path, content, done = tmp_path / "a" / "b" / "c" / "dump.zst", bytes(range(256)) * 8, set()
    path.parent.mkdir(parents=True)
    for number in range(30):
        damaged = []
        for _ in range(2):
            path.write_bytes(content)
            done.add(damage_file(path, random.Random(number)).partition(" ")[0])
            damaged.append(path.read_bytes())
        assert damaged[0] == damaged[1] != content
    assert done == {"flip", "block", "truncate"}


def test_a_process_is_killed_at_its_share_of_cpu_time_whatever_the_parent_does(tmp_path: Path) -> None:
    def compute() -> None:
        while time.process_time() < 60:
            pass

    child = Child(compute, tmp_path / "error", killed_after_cpu_s=0.05)
    assert child.wait(300) == -signal.SIGPROF
    assert child.killed
    assert 0.04 < child.used_cpu < 1
    ended = Child(lambda: None, tmp_path / "error", killed_after_cpu_s=60)
    assert ended.wait() == 0
    assert not ended.killed


def test_what_a_process_imported_is_imported_before_the_next_one(tmp_path: Path) -> None:
    sys.modules.pop("this_is_imported_late", None)
    (tmp_path / "this_is_imported_late.py").write_text("")
    sys.path.insert(0, str(tmp_path))
    try:
        listed = tmp_path / "imported"
        work = partial(run_and_list_imports, partial(import_module, "this_is_imported_late"), listed)
        assert Child(work, tmp_path / "error").wait() == 0
        assert "this_is_imported_late" not in sys.modules
        listed.write_text(listed.read_text() + "\nno_such_module")
        import_listed(listed)
        assert "this_is_imported_late" in sys.modules
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("this_is_imported_late", None)


def test_the_table_has_a_row_per_step_and_their_sum() -> None:
    tally = Tally()
    tally.add("import", "kills", 2)
    tally.add("import", "damaged inputs", 1_500)
    tally.add("replay", "kills")
    _, *rows = (dict(zip(tally.rows()[0], row, strict=True)) for row in tally.rows())
    assert [(row["step"], row["kills"], row["damaged inputs"]) for row in rows] == [
        ("import", "2", "1,500"),
        ("replay", "1", "0"),
        ("all", "3", "1,500"),
    ]
    assert len({len(line) for line in tally.lines()}) == 1
    assert tally.as_json()["import"] == {"kills": 2, "damaged inputs": 1_500}
    tally.drawn["kill in import"] += 1
    merged = Tally()
    for _ in range(2):
        merged.merge(tally.as_json())
    assert merged.as_json() == {
        "import": {"kills": 4, "damaged inputs": 3_000},
        "replay": {"kills": 2},
        "drawn": {"kill in import": 2},
    }


def test_damage_that_is_not_reported_beyond_the_undamaged_input_has_failed() -> None:
    table = pa.table({"ts": [1, 2], "lots": [3, 4]})
    expected = Events([("day", table)], Counter(republished=2))

    def outcome(changed: pa.Table, **incidents: int) -> str:
        return outcome_of(lambda: Events([("day", changed)], Counter(incidents)), expected)

    other = pa.table({"ts": [1, 2], "lots": [3, 5]})
    assert outcome(table, republished=2) == "identical"
    assert outcome(other, republished=2) == "failed"
    assert outcome(other, republished=3) == "reported"
    assert outcome(pa.table({"ts": [1, 3], "lots": [3, 4]}), republished=2) == "time only"

    def refused() -> Events:
        raise IngestError("BTC-USD 2026-01-05: no")

    assert outcome_of(refused, expected) == "refused"


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
    assert drill.tally.total("kills") >= 1
