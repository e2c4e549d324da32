"""The command line: help, refused options, status, and the packages that it imports."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import typer
from typer.testing import CliRunner

from uqlob_pipeline.devtools.practice_server.server import PracticeServer
from uqlob_pipeline.market.recorder.command import record
from uqlob_pipeline.market.recorder.event_log import EventLog
from uqlob_pipeline.market.recorder.prometheus import RecordingCollector
from uqlob_pipeline.market.recorder.status_display import StatusBoard, status_line, status_table

from .practice_lake import quick, record_to_the_end

DEPLOY = Path(__file__).parents[3] / "docs" / "deploy"


def run(*arguments: str):
    app = typer.Typer()
    app.command()(record)
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})


def test_help_explains_every_option():
    output = run("--help").output
    for word in ("--symbols", "--depth", "--level2", "--out", "--log", "--metrics-port", "KRAKEN_API_KEY", "midnight"):
        assert word in output


def test_invalid_options_are_refused_without_a_traceback(monkeypatch, tmp_path):
    refused = run("--symbols", "BTC/USD", "--depth", "17", "--out", str(tmp_path))
    assert refused.exit_code == 1
    assert "--depth 17: Kraken's level3 channel offers 10, 100, 1000" in refused.output
    monkeypatch.delenv("KRAKEN_API_KEY")
    refused = run("--symbols", "BTC/USD", "--out", str(tmp_path))
    assert refused.exit_code == 1
    assert "set KRAKEN_API_KEY" in refused.output
    assert "Traceback" not in refused.output


def test_the_recorder_imports_only_the_packages_of_its_container():
    """No libraries of the models or the pipeline: the recorder runs on a small machine."""
    program = (
        "import sys, json, uqlob_pipeline.market.recorder.command, uqlob_pipeline.market.recorder.recording, "
        "uqlob_pipeline.market.recorder.prometheus, uqlob_pipeline.market.recorder.status_display, rich.live; "
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    loaded = set(json.loads(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout))
    assert loaded.isdisjoint({"torch", "numba", "duckdb", "dagster", "mlflow", "matplotlib", "sklearn", "scipy", "polars"})
    listed = re.findall(r"^([a-z-]+)[=>]", (DEPLOY / "recorder-requirements.txt").read_text(), re.M)
    assert {name.replace("-", "_") for name in listed} <= loaded


def test_publishing_imports_few_packages_more():
    program = (
        "import sys, uqlob_pipeline.market.recorder.recording; before = set(sys.modules); "
        "import uqlob_pipeline.market.recorder.publishing; print(*sorted(set(sys.modules) - before))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert {name.split(".")[0] for name in loaded} - sys.stdlib_module_names <= {"psutil", "obstore", "uqlob_pipeline"}


def test_a_lake_in_a_store_is_refused_as_the_place_to_record_into():
    refused = run("--symbols", "BTC/USD", "--level2", "--out", "s3://bucket/prefix")
    assert refused.exit_code == 1
    assert "name a path" in refused.output
    assert "--publish" in refused.output


def test_the_status_agrees_with_the_counters(level2_market, practice_lake):
    lake = practice_lake(level2_market)

    async def watch():
        async with PracticeServer(level2_market) as server:
            recording = await record_to_the_end(server, quick(server, lake), EventLog("json"))
            board = StatusBoard(recording)
            return recording, board.read(), board.read()

    recording, (first,), (second,) = asyncio.run(watch())
    book, trade = recording.books[0].statistics, recording.trades[0].statistics
    assert first.messages == book.messages + trade.messages == len(level2_market.stream)
    assert first.messages_per_second > 0
    assert second.messages_per_second == 0
    on_disk = sum(file.stat().st_size for file in lake.lake.root.rglob("*.zst"))
    assert first.written_bytes == book.written_bytes + trade.written_bytes == on_disk
    line = status_line([first], 12.0)
    assert "gaps 0" in line
    assert "checksum failures 0" in line
    assert "SOL-USD" in line
    assert status_table([first], 12.0).row_count == 1
    families = {family.name: family for family in RecordingCollector(recording).collect()}
    assert families["uqlob_recorder_messages"].samples[0].value == book.messages
    assert families["uqlob_recorder_free_bytes"].samples[0].value > 0
