"""The Gaussian head of the interval benchmark, trained beside a finished lake."""

from pathlib import Path

import numpy as np
import pytest

from tests.end_to_end.tiny_market import KEY
from uqlob_models.config import RegressionLoss
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.devtools.bench.interval_gaussian import gaussian_config, gaussian_forecasts
from uqlob_pipeline.lake.file_hashes import read_table
from uqlob_pipeline.lake.layout import Lake


def test_it_forecasts_the_windows_of_the_predictions_and_is_trained_once(
    trained: tuple[Lake, object], profile: Profile, tmp_path: Path
) -> None:
    lake, _ = trained
    table = read_table(lake.predictions(KEY))
    t = table["t"].to_numpy()
    found = gaussian_forecasts(lake, profile, KEY, tmp_path, t)
    assert len(found.location) == len(t)
    assert (found.zero == 0).all()
    assert np.isinf(found.dof).all()
    assert (found.scale > 0).all()
    assert np.isfinite(found.log_score(table["y"].to_numpy())).all()
    weights = tmp_path / "best" / "weights.safetensors"
    written = weights.stat().st_mtime_ns
    again = gaussian_forecasts(lake, profile, KEY, tmp_path, t)
    assert weights.stat().st_mtime_ns == written
    np.testing.assert_array_equal(again.location, found.location)
    with pytest.raises(RuntimeError, match="materialise predictions"):
        gaussian_forecasts(lake, profile, KEY, tmp_path, t[:-1])


def test_only_likelihood_and_losses_differ_from_the_lakes_head(profile: Profile) -> None:
    own, config = profile.training, gaussian_config(profile.training)
    assert (config.head.likelihood, config.loss) == ("gaussian", RegressionLoss())
    assert config.regression.freeze_encoder
    assert config.encoder == own.encoder
    assert config.seed == own.seed
    assert config.regression.epochs == own.regression.epochs
