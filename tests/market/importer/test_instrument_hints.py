"""An import says which tick and precisions the dumps have, where the profile does not."""

from pathlib import Path

from typer.testing import CliRunner

from tests.market.importer.tardis_files import book_rows
from tests.market.importer.v1_capture import v1_lines
from tests.market.kraken.cut_streams import stream_from, write_lines
from tests.market.kraken.market_streams import MIDNIGHT
from tests.market.kraken.one_day import stream_of
from uqlob_pipeline.cli.app import app


def output(tmp_path: Path, lines: list[bytes]) -> str:
    dump = write_lines(tmp_path / "dump", lines)
    result = CliRunner().invoke(app, ["import", str(dump), "--lake", str(tmp_path / "lake"), "--profile", "demo"])
    assert result.exit_code == 0, result.output
    return result.output


def test_decimals_that_would_fail_every_checksum_are_named(tmp_path: Path) -> None:
    shown = output(tmp_path, v1_lines(stream_of(20, "book")))
    assert "BTC-USD has prices with 5 decimals and quantities with 8; profile 'demo' has price_precision = 1" in shown
    assert '[instruments.BTC-USD]\ntick = "0.1"\nprice_precision = 5\nqty_precision = 8' in shown


def test_a_symbol_that_the_profile_lacks_gets_a_section(tmp_path: Path) -> None:
    shown = output(tmp_path, [line.replace(b"BTC/USD", b"WAVES/EUR") for line in stream_from("level3", MIDNIGHT)])
    assert "The first numbers of WAVES-EUR suggest this section" in shown
    assert '[instruments.WAVES-EUR]\ntick = "0.1"\nprice_precision = 1\nqty_precision = 8' in shown


def test_dumps_that_agree_or_have_no_checksums_get_no_hint(tmp_path: Path) -> None:
    for name, lines in (("v2", stream_from("level3", MIDNIGHT)), ("tardis", book_rows(stream_of(20, "book")))):
        (tmp_path / name).mkdir()
        assert "price_precision" not in output(tmp_path / name, lines)
