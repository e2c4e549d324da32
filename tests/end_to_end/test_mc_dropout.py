"""MC dropout is a setting of the predictions: the trained models stay unchanged."""

from dataclasses import replace

import numpy as np

from tests.end_to_end.tiny_market import KEY
from uqlob_models.checkpoints import load_model
from uqlob_models.prediction import predict_regression
from uqlob_pipeline.models.inputs import load_windows
from uqlob_pipeline.models.predictions import plan_predictions, predict


def test_predictions_use_mc_dropout_without_training_again(trained, profile):
    lake, _ = trained
    dropping = profile.model_copy(update={"training": replace(profile.training, mc_dropout_passes=6)})
    plain, mixed = (plan_predictions(lake, chosen, KEY) for chosen in (profile, dropping))
    assert plain.provenance.inputs == mixed.provenance.inputs  # the same models, still current
    assert plain.provenance.settings_version != mixed.provenance.settings_version
    once = predict(lake, profile, plain, log=print)
    first, second = (predict(lake, dropping, mixed, log=print) for _ in range(2))
    assert first.equals(second)
    for name in ("mu", "sigma", "p_up"):
        assert not np.allclose(once[name].to_numpy(), first[name].to_numpy())
    dataset = load_windows(lake, profile, mixed.inputs)
    targets = np.flatnonzero(np.isin(dataset.t_end, first["t"].to_numpy()))
    model = load_model(mixed.heads["uq_regression"].best).uq_model()
    passes = predict_regression(model, dataset, targets, mc_dropout_passes=6)
    assert np.array_equal(first["sigma"].to_numpy(), passes.std)
    assert (passes.epistemic_std > 0).all()  # the passes differ, and sigma includes that
    assert (passes.std > passes.epistemic_std).all()
    probabilities = np.stack([first[name].to_numpy() for name in ("p_down", "p_up", "p_stationary")])
    np.testing.assert_allclose(probabilities.sum(axis=0), 1)
