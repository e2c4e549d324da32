"""`uqlob bench features` on a small day: what it prints, and that the figures hang together."""

import json

import pytest
import typer
from typer.testing import CliRunner

from uqlob_pipeline.benchmarks.features import features

app = typer.Typer()
app.command()(features)


@pytest.mark.slow
def test_the_benchmark_prints_one_json_object_with_its_figures():
    result = CliRunner().invoke(app, ["--events", "150000", "--repeats", "1", "--json"])
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert {"events", "seconds", "bare_scan_seconds", "ratio", "peak_rss_mb", "bytes_per_event"} <= set(said)
    assert said["events"] == 150_000
    assert 0 < said["kept_events"] <= 150_000
    assert said["ratio"] == pytest.approx(said["seconds"] / said["bare_scan_seconds"], rel=0.01)
    tables = ("book_events", "event_features", "window_prices", "window_labels")
    assert sum(said[f"{table}_seconds"] for table in tables) == pytest.approx(said["seconds"], rel=0.05, abs=0.05)
    assert 8 < said["bytes_per_event"] <= 24
    assert said["peak_rss_mb"] < 4096
