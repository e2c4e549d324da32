"""`uqlob bench features` on a small day: what it prints, and that the figures hang together."""

import json

import pytest
import typer
from typer.testing import CliRunner

from uqlob_pipeline.devtools.bench.feature_speed import features

app = typer.Typer()
app.command()(features)


@pytest.mark.slow
def test_the_benchmark_prints_one_json_object_with_its_figures():
    result = CliRunner().invoke(app, ["--events", "150000", "--repeats", "1", "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert {"events", "seconds", "bare_scan_seconds", "ratio", "peak_rss_mb", "bytes_per_event"} <= set(report)
    assert report["events"] == 150_000
    assert 0 < report["kept_events"] <= 150_000
    assert report["ratio"] == pytest.approx(report["seconds"] / report["bare_scan_seconds"], rel=0.01)
    tables = ("book_events", "event_features", "window_prices", "window_labels")
    assert sum(report[f"{table}_seconds"] for table in tables) == pytest.approx(report["seconds"], rel=0.05, abs=0.05)
    assert 8 < report["bytes_per_event"] <= 24
    assert report["peak_rss_mb"] < 4096
