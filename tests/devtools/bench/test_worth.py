"""`uqlob bench worth`: lakes are pooled order by order, and each judges what it chose itself."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.economics.made_orders import order, trades
from uqlob_models.bootstrap import Bootstrap
from uqlob_pipeline.config.profile import PROFILES, load_profile
from uqlob_pipeline.devtools.bench.interval_lakes import DONE, IntervalLake, profile_text
from uqlob_pipeline.devtools.commands import app
from uqlob_pipeline.economics.economic_evaluation import evaluate_trades
from uqlob_pipeline.economics.names import MAKER_CROSS, MUST_TRADE, TAKER
from uqlob_pipeline.lake.atomic_files import write_parquet
from uqlob_pipeline.lake.layout import Lake, ModelKey

KEY = ModelKey("BTC-USD", 5)
MINUTES = 150  # orders of each policy and split, one a minute: fifteen blocks of ten minutes


def _lake(workdir: Path, seed: int, results: dict[str, tuple[float, float]]) -> None:
    """A finished lake of one model whose policies earn the given bps on the calibration half and on the test days."""
    one = IntervalLake(workdir, seed, "market")
    one.directory.mkdir(parents=True)
    one.profile.write_text(profile_text((PROFILES / "demo.toml").read_text(), seed, "null", "2026-01-13"))
    profile, rows = load_profile(str(one.profile)), []
    for policy, by_split in results.items():
        named = {"policy": policy, "entry_maker": policy == MAKER_CROSS}
        for place, (split, value) in enumerate(zip(("calibration", "test"), by_split, strict=True)):
            for number in range(MINUTES):
                gross = value + 0.01 * (number % 5)
                rows.append(
                    order(2 * MINUTES * place + number, split=split, gross_bps=gross, other_gross_bps=-value - 1, **named)
                )
                rows.append(order(2 * MINUTES * place + number, split=split, gross_bps=-0.5, stale=True, **named))
    orders = trades(rows)
    write_parquet(orders, Lake(one.lake).by_model("trades", KEY))
    evaluated = evaluate_trades([orders], KEY, profile.economics, Bootstrap(600, 50))
    write_parquet(evaluated, Lake(one.lake).by_model("economic_evaluation", KEY))
    (one.directory / DONE).touch()


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    # At 10M a taker pays 20 bps and this maker 10: the first lake chooses the taker, the second the maker.
    _lake(tmp_path, 1, {TAKER: (30.0, 24.0), MAKER_CROSS: (1.0, 5.0), MUST_TRADE: (0.3, 0.2)})
    _lake(tmp_path, 2, {TAKER: (10.0, 28.0), MAKER_CROSS: (9.0, 7.0), MUST_TRADE: (0.3, 0.4)})
    return tmp_path


def _worth(*words: str) -> str:
    ran = CliRunner().invoke(app, ["bench", "worth", *words], env={"COLUMNS": "200"})
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def test_orders_of_all_lakes_are_pooled_with_bounds_and_controls(workdir: Path) -> None:
    report = json.loads(_worth("--json", "--seeds", "1,2", "--workdir", str(workdir)))
    assert report["seeds"] == [1, 2]
    ways = {row["policy"]: row for row in report["market"]["ways"]}
    assert set(ways) == {TAKER, MAKER_CROSS, MUST_TRADE}
    assert {row["split"] for row in ways.values()} == {"test"}
    for policy, gross in ((TAKER, 26.02), (MAKER_CROSS, 6.02), (MUST_TRADE, 0.32)):
        row = ways[policy]
        assert (row["orders"], row["null_orders"]) == (2 * MINUTES, 2 * MINUTES)
        assert row["gross_bps"] == pytest.approx(gross)
        assert row["gross_lower"] < row["gross_bps"] < row["gross_upper"]  # thirty blocks, fifteen of each lake
        assert row["null_bps"] == pytest.approx(-0.5)
    assert ways[TAKER]["break_even_bps"] == pytest.approx(13.01)


def test_each_lake_is_judged_by_what_its_own_calibration_half_chose(workdir: Path) -> None:
    report = json.loads(_worth("--json", "--seeds", "1,2", "--workdir", str(workdir)))
    tiers = {row["tier"]: row for row in report["market"]["tiers"]}
    assert list(tiers) == [tier.name for tier in load_profile("demo").economics.tiers]
    row = tiers["10M"]
    assert row["chosen_ways"] == [f"regression 0 {TAKER}", f"regression 0 {MAKER_CROSS}"]
    assert row["orders"] == 2 * MINUTES
    assert row["net_bps"] == pytest.approx(((24.02 - 20) + (7.02 - 10)) / 2)


def test_the_tables_are_printed_as_markdown(workdir: Path) -> None:
    printed = _worth("--seeds", "1,2", "--workdir", str(workdir))
    assert "market, seeds 1,2" in printed
    (taker,) = [line for line in printed.splitlines() if f"| {TAKER} |" in line]
    assert taker.startswith("| BTC-USD 5 s | regression | 0 | taker | 300 | 100% | +26.02 (")
    (tier,) = [line for line in printed.splitlines() if line.startswith("| BTC-USD 5 s | 10M |")]
    assert "| 10 / 0 | 300 |" in tier
    assert tier.endswith(f"| regression 0 {TAKER}; regression 0 {MAKER_CROSS} |")
