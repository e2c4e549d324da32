"""Windows of 1,024 and 2,048 events: from the feature table through the window store, training and prediction."""

from pathlib import Path

import dagster as dg
import pyarrow.parquet as pq
import pytest

from tests.end_to_end import tiny_market
from tests.end_to_end.conftest import copy_of
from tests.end_to_end.tiny_market import KEY
from uqlob_models.checkpoints import load_model
from uqlob_models.parameter_table import parameter_table
from uqlob_pipeline.cli.execution import materialize_choice
from uqlob_pipeline.cli.planning import Choice
from uqlob_pipeline.config.profile import Profile, load_profile
from uqlob_pipeline.defs.build_defs import build_defs
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.staleness import why_stale
from uqlob_pipeline.models.inputs import gather_inputs, load_windows
from uqlob_pipeline.models.stages import STAGES, read_record

TABLES = ("token_bins", "window_prices", "label_thresholds", "event_features", "window_labels", "feature_scales")


def profile_of(directory: Path, length: int) -> Profile:
    """The tiny profile with wider windows; D-TABL's widths after its first layer stay as they are."""
    text = tiny_market.write_profile(directory).read_text()
    text = text.replace("window = 64", f"window = {length}").replace("window_length = 64", f"window_length = {length}")
    path = directory / f"windows-{length}.toml"
    path.write_text(text.replace("context = 4", "context = 2"))
    return load_profile(str(path))


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("length", [1024, 2048])
def test_a_wider_window_works_from_the_features_to_the_predictions(tmp_path: Path, ingested: Lake, length: int) -> None:
    lake, profile = copy_of(ingested, tmp_path / "lake"), profile_of(tmp_path, length)
    choice = Choice(assets=(*TABLES, *STAGES, "predictions"))
    with dg.DagsterInstance.ephemeral() as instance:
        materialize_choice(build_defs(profile, lake), lake, profile, choice, lambda line: None, instance)
    assert not any(why_stale(lake, profile, table, KEY) for table in (*STAGES, "predictions"))

    windows = load_windows(lake, profile, gather_inputs(lake, profile, KEY, needed_by="the test"))
    tokens, continuous = windows.read(windows.targets("train", 0)[:3])
    assert tokens.shape == (3, length)
    assert continuous.shape == (3, 7, length)
    record = read_record(lake.model("uq_regression", KEY))
    assert record is not None
    saved = load_model(record.best)
    counts = {row.part: row.parameters for row in parameter_table(saved.config)}
    assert saved.config.encoder.window_length == length
    assert sum(parameter.numel() for parameter in saved.model.parameters()) == counts["total, regression"]
    assert pq.read_table(lake.predictions(KEY)).num_rows > 0
