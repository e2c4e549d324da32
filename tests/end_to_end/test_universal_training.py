"""`training.joint = "universal"` on a real Dagster instance: one training for two symbols and two horizons."""

import datetime as dt
from pathlib import Path

import dagster as dg
import pytest
import torch

from tests.end_to_end import tiny_market
from tests.end_to_end.conftest import copy_of
from tests.undrawn_figures import undrawn_figures
from uqlob_models.checkpoints import load_model
from uqlob_models.universal_training import load_universal
from uqlob_pipeline.cli.execution import materialize_choice
from uqlob_pipeline.cli.planning import Choice, planned_runs, table_groups
from uqlob_pipeline.config.profile import Profile, load_profile
from uqlob_pipeline.defs.build_defs import build_defs
from uqlob_pipeline.defs.partitions import model_partition_key
from uqlob_pipeline.lake.layout import AssetDay, Lake, ModelKey
from uqlob_pipeline.lake.staleness import why_stale
from uqlob_pipeline.market.simulator import MarketSettings, simulate_day
from uqlob_pipeline.models.joint_stages import plan_joint
from uqlob_pipeline.models.stages import STAGES, StageRecord, read_record
from uqlob_pipeline.tracking.client import Tracking

BTC, ETH = "BTC-USD", "ETH-USD"
KEYS = [ModelKey(symbol, horizon) for symbol in (BTC, ETH) for horizon in (5, 10)]
HEADS = ("uq_regression", "uq_classification")


def universal_profile(directory: Path, joint: str = "universal", symbols: tuple[str, ...] = (BTC, ETH)) -> Profile:
    text = tiny_market.write_profile(directory).read_text().replace("horizons_s = [5]", "horizons_s = [5, 10]")
    text = text.replace('[training]\ndevice = "cpu"', f'[training]\ndevice = "cpu"\njoint = "{joint}"')
    if ETH in symbols:
        other = f'[instruments.{ETH}]\ntick = "0.01"\nprice_precision = 2\nqty_precision = 8\n\n[splits]'
        text = text.replace("[splits]", other)
    path = directory / f"{joint}-{len(symbols)}.toml"
    path.write_text(text)
    return load_profile(str(path))


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    return universal_profile(tmp_path_factory.mktemp("profile"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, profile: Profile) -> tuple[Lake, dg.DagsterInstance, list[str]]:
    """Everything from dumps to report, from the terminal."""
    lake, lines = Lake(tmp_path_factory.mktemp("universal")), []
    for symbol in (BTC, ETH):
        for number in range(tiny_market.DAYS):
            date = tiny_market.FIRST + dt.timedelta(days=number)
            simulate_day(lake.root, symbol, date, MarketSettings(seed=3, hours=tiny_market.HOURS))
    with dg.DagsterInstance.ephemeral() as instance:
        with undrawn_figures():
            materialize_choice(build_defs(profile, lake), lake, profile, Choice(), lines.append, instance)
        yield lake, instance, lines


def records(lake: Lake) -> dict[tuple[str, ModelKey], StageRecord]:
    found = {(stage, key): read_record(lake.model(stage, key)) for stage in STAGES for key in KEYS}
    return {name: record for name, record in found.items() if record is not None}


def test_one_run_makes_every_symbol_and_horizon_each_with_its_own_metadata_and_version(made):
    lake, instance, lines = made
    trainings = [found for found in instance.get_runs() if dg.AssetKey("encoder") in (found.asset_selection or ())]
    assert len(trainings) == 1
    found = records(lake)
    assert set(found) == {(stage, key) for stage in STAGES for key in KEYS}
    assert len({record.version for record in found.values()}) == len(found)
    for (stage, key), record in found.items():
        event = instance.get_latest_data_version_record(dg.AssetKey(stage), partition_key=model_partition_key(key))
        shown = event.asset_materialization
        assert event.run_id == trainings[0].run_id
        assert shown.tags["dagster/data_version"] == record.version
        assert shown.metadata["trained together"].value == "BTC-USD 5s, BTC-USD 10s, ETH-USD 5s, ETH-USD 10s"
    assert any("(with BTC-USD 10s, ETH-USD 5s, ETH-USD 10s, which are trained together with it)" in line for line in lines)
    logged = [entry.user_message for entry in instance.all_logs(trainings[0].run_id)]
    assert any("is trained together with encoder BTC-USD 10s, encoder ETH-USD 5s" in line for line in logged)


def test_each_model_is_the_universal_one_with_the_statistics_of_its_symbol(made, profile):
    lake, _, _ = made
    plan = plan_joint(lake, profile, ETH, "uq_regression")
    assert plan_joint(lake, profile, BTC, "uq_regression") == plan
    shared = load_universal(plan.directory_of(1) / "best")
    models = {key: load_model(record.best).uq_model() for (stage, key), record in records(lake).items() if stage == HEADS[0]}
    for model in models.values():
        assert torch.equal(model.head.trunk.query.weight, shared.head.trunk.query.weight)
    btc, eth = models[ModelKey(BTC, 5)], models[ModelKey(ETH, 5)]
    assert not torch.equal(btc.encoder.input.mean, eth.encoder.input.mean)
    assert btc.y_ref != eth.y_ref


def test_everything_after_the_models_is_made_and_then_current(made, profile):
    lake, instance, lines = made
    assert (lake.report / "index.html").exists()
    for key in KEYS:
        assert not any(why_stale(lake, profile, table, key) for table in tiny_market.BY_MODEL)
    assert materialize_choice(build_defs(profile, lake), lake, profile, Choice(), lines.append, instance) == 0
    (found,) = Tracking(lake, profile).store().search({"uqlob.kind": "joint_heads"})
    assert found.info.run_name == "universal joint heads"
    assert {"BTC-USD/5s/regression/test/nlpd", "ETH-USD/10s/classification/test/macro_f1"} <= set(found.data.metrics)
    registered = {name for name in found.data.tags if name.startswith("uqlob.registered_model")}
    kinds = ("regression", "classification")
    assert registered == {
        *(f"uqlob.registered_model.{key.symbol}.{key.horizon_s}s.{kind}" for key in KEYS for kind in kinds),
        *(f"uqlob.registered_model.{key.symbol}.{kind}" for key in KEYS for kind in kinds),  # of all horizons of a symbol
    }


def stale(lake: Lake, profile: Profile) -> set[tuple[str, ModelKey]]:
    return {(stage, key) for stage in STAGES for key in KEYS if why_stale(lake, profile, stage, key)}


def test_a_change_of_one_symbol_makes_the_models_of_all_stale(made, profile, tmp_path):
    lake = copy_of(made[0], tmp_path / "lake")
    every = {(stage, key) for stage in STAGES for key in KEYS}
    assert stale(lake, profile) == set()
    assert stale(lake, universal_profile(tmp_path, "horizons")) == every
    alone = universal_profile(tmp_path, symbols=(BTC,))
    assert {(stage, key) for stage in STAGES for key in KEYS[:2] if why_stale(lake, alone, stage, key)} == {
        (stage, key) for stage in STAGES for key in KEYS[:2]
    }
    lake.window_labels(AssetDay(ETH, tiny_market.FIRST)).unlink()
    assert stale(lake, profile) == every


def test_one_partition_alone_is_planned_with_the_others(made, profile, tmp_path):
    lake = copy_of(made[0], tmp_path / "lake")
    (lake.model("encoder", ModelKey(ETH, 10)) / "model.json").unlink()
    choice = Choice(symbols=(ETH,), horizons=(10,))
    (group,) = [group for group in table_groups(choice) if group[0].name == "encoder"]
    first, _, of = next(planned_runs(group, lake, profile, choice))
    assert of == 1
    assert first.tables == list(STAGES)
    assert first.title.endswith("ETH-USD 10s (with BTC-USD 5s, BTC-USD 10s, ETH-USD 5s, which are trained together with it)")
