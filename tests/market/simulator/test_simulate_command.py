"""`uqlob simulate` from the outside."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from uqlob_pipeline.cli.simulate import parse_symbols, simulate


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    app.command()(simulate)
    return app


def test_two_symbols_and_two_days_are_written_and_then_skipped(app: typer.Typer, tmp_path: Path) -> None:
    words = [
        "--symbols",
        "ltc-usd,SUI-USD",
        "--start",
        "2026-01-05",
        "--days",
        "2",
        "--max-events",
        "2000",
        "--lake",
        str(tmp_path),
    ]
    first = CliRunner().invoke(app, words)
    assert first.exit_code == 0, first.output
    written = {str(path.parent.relative_to(tmp_path / "raw")) for path in tmp_path.glob("raw/level3/*/*/*")}
    assert written == {f"level3/{symbol}/2026-01-0{day}" for symbol in ("LTC-USD", "SUI-USD") for day in (5, 6)}
    assert "LTC-USD" in first.output
    again = CliRunner().invoke(app, words)
    assert again.exit_code == 0
    assert "0 events in" in again.output


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--symbols", "../../etc"], "unknown symbols"),
        (["--symbols", ""], "unknown symbols"),
        (["--start", "tomorrow"], "tomorrow"),
        (["--hours", "30"], "hours"),
        (["--depth", "12"], "depth"),
    ],
)
def test_wrong_words_are_refused_before_a_write(app: typer.Typer, tmp_path: Path, words: list[str], text: str) -> None:
    result = CliRunner().invoke(app, [*words, "--lake", str(tmp_path)])
    assert result.exit_code == 2
    assert text in result.output
    assert not list(tmp_path.iterdir())


def test_a_store_is_named_and_not_the_scratch_directory(
    app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UQLOB_SCRATCH", str(tmp_path / "scratch"))
    url = f"file://{tmp_path / 'shared'}"
    result = CliRunner().invoke(app, ["--symbols", "BTC-USD", "--max-events", "2000", "--lake", url])
    assert result.exit_code == 0, result.output
    shown = result.output.replace("\n", "")
    assert f"in {url}" in shown
    assert str(tmp_path / "scratch") not in shown


def test_all_names_every_symbol() -> None:
    assert len(parse_symbols("all")) == 7
    assert parse_symbols("btc-usd, BTC-USD") == ["BTC-USD"]
