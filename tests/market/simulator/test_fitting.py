"""The fit moves each value by its own statistic, and writes nothing but the fitted values."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from uqlob_pipeline.market.simulator import SYMBOLS
from uqlob_pipeline.market.simulator.fitting import Measured, Targets, corrected, summary, write_fitted
from uqlob_pipeline.market.simulator.market_statistics import HORIZONS_S, LabelScale
from uqlob_pipeline.market.simulator.symbol_specs import SYMBOL_DIRECTORY, read_spec
from uqlob_pipeline.report.paper import paper


def market(targets: Targets, events: float = 1.0, sigma: float = 1.0, y_ref: float = 1.0) -> Measured:
    """A market that is off by these factors."""
    scales = {h: LabelScale(100, sigma * targets.sigma_lr[h], y_ref * targets.y_ref[h], 0.1, 0.3, 10.0) for h in HORIZONS_S}
    return Measured(events * targets.events_per_second, scales)


def test_the_paper_prints_what_the_fit_aims_at() -> None:
    targets = Targets.from_paper(paper(), "BTC-USD")
    assert targets.events_per_second == 156
    assert targets.ratio() == pytest.approx(2.665, abs=1e-3)
    assert targets.stationary_share == {5: 0.70, 10: 0.64, 15: 0.57}
    assert Targets.from_paper(paper(), "LTC-USD").stationary_share == {}


def test_a_market_on_target_is_left_alone() -> None:
    spec, targets = SYMBOLS["ETH-USD"], Targets.from_paper(paper(), "ETH-USD")
    found = corrected(spec, market(targets, y_ref=spec.y_ref_aim), targets)
    for name in ("action_rate", "repricing_scale", "volatility_sd"):
        assert getattr(found, name) == pytest.approx(getattr(spec, name))


def test_each_value_is_corrected_by_its_own_statistic() -> None:
    targets = Targets.from_paper(paper(), "ETH-USD")
    spec = replace(SYMBOLS["ETH-USD"], y_ref_aim=1.0, volatility_sd=0.5)
    busy = corrected(spec, market(targets, events=2.0), targets)
    assert busy.action_rate == pytest.approx(spec.action_rate / 2)
    wild = corrected(spec, market(targets, sigma=2.0, y_ref=2.0), targets)
    assert wild.repricing_scale == pytest.approx(spec.repricing_scale / 2)
    assert wild.volatility_sd == pytest.approx(spec.volatility_sd)
    thin_tailed = corrected(spec, market(targets, y_ref=1.3), targets)
    assert thin_tailed.volatility_sd > spec.volatility_sd
    assert "y_ref 1.30 1.30 1.30 1.30" in summary(market(targets, y_ref=1.3), targets)


def test_only_the_fitted_values_of_the_data_file_change(tmp_path: Path) -> None:
    shutil.copy(SYMBOL_DIRECTORY / "BTC-USD.toml", tmp_path)
    before = read_spec(tmp_path / "BTC-USD.toml")
    write_fitted(replace(before, action_rate=100.0, frozen_share=0.5), tmp_path)
    after = read_spec(tmp_path / "BTC-USD.toml")
    assert after == replace(before, action_rate=100.0, frozen_share=0.5)


def test_an_unknown_value_in_a_data_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "BTC-USD.toml"
    path.write_text((SYMBOL_DIRECTORY / "BTC-USD.toml").read_text().replace("burst =", "bursts ="))
    with pytest.raises(ValueError, match="bursts"):
        read_spec(path)
