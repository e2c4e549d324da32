"""Every asset of the models and evaluation groups, through a real Dagster instance and a real MLflow store."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import dagster as dg
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.end_to_end.conftest import copy_of
from tests.end_to_end.tiny_market import ASSETS, BY_MODEL, KEY, SYMBOL, day, model_partition, run, tiny_profile
from uqlob_models.checkpoints import load_model
from uqlob_models.prediction import predict_regression
from uqlob_pipeline.config.profile import load_profile
from uqlob_pipeline.defs.partitions import Partitions, asset_day_key, mapping
from uqlob_pipeline.lake.atomic_files import write_parquet
from uqlob_pipeline.lake.file_hashes import file_hash
from uqlob_pipeline.lake.layout import StudyKey
from uqlob_pipeline.lake.provenance import read_provenance
from uqlob_pipeline.lake.staleness import NotReady, version_on_disk, why_stale
from uqlob_pipeline.lake.table_registry import REGISTRY
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.models.calibrated_predictions import write_calibrated_predictions
from uqlob_pipeline.models.evaluation_files import LAKE_TABLES
from uqlob_pipeline.models.gated_evaluation import read_k_star, write_threshold_multiplier
from uqlob_pipeline.models.inputs import ALL_SPLITS, gather_inputs, load_windows
from uqlob_pipeline.models.predictions import plan_predictions
from uqlob_pipeline.models.stages import plan_stage, read_record
from uqlob_pipeline.models.study.rows import write_study_row
from uqlob_pipeline.report.build import report_inputs
from uqlob_pipeline.tracking.client import Tracking

TABLES_OF_MODEL = (
    "predictions",
    "calibrated_predictions",
    "threshold_multiplier",
    "classified_predictions",
    *LAKE_TABLES.values(),
    "trades",
    "economic_evaluation",
)


def test_every_asset_materialises_with_its_files_and_provenance(trained, profile):
    lake, results = trained
    assert all(result.success for result in results.values())
    for stage in ("encoder", "uq_regression", "uq_classification"):
        record = read_record(lake.model(stage, KEY))
        assert (record.best / "weights.safetensors").exists()
        (made,) = results[stage].asset_materializations_for_node(stage)
        assert made.tags["dagster/data_version"] == record.version
    for table in TABLES_OF_MODEL:
        assert read_provenance(lake.by_model(table, KEY)) is not None, table
    for asset in (
        "predictions",
        "calibrated_predictions",
        "threshold_multiplier",
        "gated_evaluation",
        "trades",
        "economic_evaluation",
    ):
        (made,) = results[asset].asset_materializations_for_node(asset)
        assert made.tags["dagster/data_version"] == read_provenance(lake.by_model(asset, KEY)).data_version
    assert "<html" in (lake.report / "index.html").read_text()[:500]


def test_every_check_ran(trained):
    _, results = trained
    for asset, result in results.items():
        if asset == "dataset_profile":
            continue
        wanted = {
            spec.name for asset_ in ASSETS for spec in getattr(asset_, "check_specs", ()) if spec.asset_key == dg.AssetKey(asset)
        }
        assert wanted
        assert {evaluation.check_name for evaluation in result.get_asset_check_evaluations()} == wanted
    blocking = [c for r in results.values() for c in r.get_asset_check_evaluations() if c.severity == dg.AssetCheckSeverity.ERROR]
    assert blocking
    assert all(evaluation.passed for evaluation in blocking)


def test_metadata_shows_the_training_and_links_to_mlflow(trained, profile):
    lake, results = trained
    (made,) = results["uq_regression"].asset_materializations_for_node("uq_regression")
    shown = made.metadata
    assert shown["epochs"].value == 2
    assert shown["windows/s"].value > 0
    assert shown["device"].value == "cpu"
    assert shown["curves"].value.startswith("![training curves")
    assert isinstance(shown["MLflow"], dg.UrlMetadataValue)
    run_id = shown["MLflow"].value.rsplit("/", 1)[1].partition("?")[0]
    logged = Tracking(lake, profile).store().client.get_run(run_id)
    assert logged.info.run_name == "BTC-USD 5s uq_regression"
    assert logged.data.tags["dagster.run_id"] == results["uq_regression"].run_id
    (made,) = results["gated_evaluation"].asset_materializations_for_node("gated_evaluation")
    assert "regression/directional_f1_top10" in made.metadata
    assert "regression/cov68" in made.metadata


def test_predictions_hold_the_columns_described_and_each_target_once(trained, profile):
    lake, _ = trained
    table = pq.read_table(lake.predictions(KEY), partitioning=None)
    assert {f.name: str(f.type) for f in table.schema} == {c.name: c.type for c in REGISTRY["predictions"].columns}
    calibrated = pq.read_schema(lake.by_model("calibrated_predictions", KEY))
    assert {f.name: str(f.type) for f in calibrated} == {c.name: c.type for c in REGISTRY["calibrated_predictions"].columns}
    classified = pq.read_schema(lake.by_model("classified_predictions", KEY))
    assert {f.name: str(f.type) for f in classified} == {c.name: c.type for c in REGISTRY["classified_predictions"].columns}
    scores = pq.read_schema(lake.by_model("gated_evaluation", KEY))
    assert {f.name: str(f.type) for f in scores} == {c.name: c.type for c in REGISTRY["gated_evaluation"].columns}
    splits = table.group_by("split").aggregate([("t", "min"), ("t", "max"), ("t", "count")]).to_pylist()
    ranges = {row["split"]: (row["t_min"], row["t_max"]) for row in splits}
    assert ranges["selection"][1] < ranges["calibration"][0] <= ranges["calibration"][1] < ranges["test"][0]
    labels = pq.read_table(lake.window_labels(day(3)), partitioning=None)
    joined = table.filter(pa.compute.equal(table["split"], "test")).join(
        labels.rename_columns([name if name == "window" else f"label_{name}" for name in labels.column_names]), "window"
    )
    for name in ("y", "p_start", "delta"):
        assert joined[name].to_numpy() == pytest.approx(joined[f"label_{name}"].to_numpy())


def test_what_was_predicted_is_what_the_saved_model_says(trained, profile):
    lake, _ = trained
    inputs = gather_inputs(lake, profile, KEY, ALL_SPLITS, needed_by="test")
    dataset = load_windows(lake, profile, inputs)
    model = load_model(read_record(lake.model("uq_regression", KEY)).best).uq_model()
    targets = dataset.targets("test", profile.training.head.context)
    found = predict_regression(model, dataset, targets)
    table = pq.read_table(lake.predictions(KEY), partitioning=None, filters=[("split", "=", "test")])
    assert table["t"].to_numpy().tolist() == dataset.t_end[targets].tolist()
    assert table["mu"].to_numpy() == pytest.approx(found.mean, rel=1e-4, abs=1e-5)
    assert table["sigma"].to_numpy() == pytest.approx(found.std, rel=1e-4)


def test_a_maximum_age_keeps_context_within_days_and_makes_the_heads_stale(trained, profile):
    lake, _ = trained
    aged = profile.model_copy(update={"context": profile.context.model_copy(update={"max_age_s": 3600.0})})
    size, day_ns = profile.training.head.context, 86_400 * 10**9
    datasets = [
        load_windows(lake, chosen, gather_inputs(lake, chosen, KEY, ALL_SPLITS, needed_by="test")) for chosen in (profile, aged)
    ]
    crossing = []
    for dataset in datasets:
        targets = dataset.targets("test", size)
        context_days = dataset.t_end[dataset.context(size).windows(targets)] // day_ns
        crossing.append(int((context_days != dataset.t_end[targets][:, None] // day_ns).any(axis=1).sum()))
    assert crossing[0] > 0 == crossing[1]
    for name in ("uq_regression", "uq_classification", "predictions"):
        table = REGISTRY[name]
        assert table.settings_version(aged, KEY) != table.settings_version(profile, KEY)
    assert REGISTRY["encoder"].settings_version(aged, KEY) == REGISTRY["encoder"].settings_version(profile, KEY)


def test_materialising_again_trains_nothing_and_leaves_the_same_bytes(trained, profile, instance):
    lake, _ = trained
    before = {path: file_hash(path) for path in lake.root.rglob("*") if path.suffix in (".parquet", ".safetensors", ".html")}
    stamps = {stage: (lake.model(stage, KEY) / "model.json").stat().st_mtime_ns for stage in BY_MODEL[:3]}
    for asset in BY_MODEL:
        assert run(lake, profile, instance, asset, partition=model_partition()).success
    assert run(lake, profile, instance, "paper_report").success
    assert {path: file_hash(path) for path in before} == before
    assert stamps == {stage: (lake.model(stage, KEY) / "model.json").stat().st_mtime_ns for stage in BY_MODEL[:3]}
    runs = Tracking(lake, profile).store().search({"uqlob.key": str(KEY)})
    assert sorted(found.info.run_name for found in runs) == [str(KEY), *(f"{KEY} {stage}" for stage in sorted(BY_MODEL[:3]))]


def test_k_star_does_not_see_the_test_split(trained, profile, tmp_path):
    lake = copy_of(trained[0], tmp_path / "lake")
    before = read_k_star(lake, KEY)
    table = pq.read_table(lake.by_model("calibrated_predictions", KEY), partitioning=None)
    is_test = np.array(table["split"].to_pylist()) == "test"
    made = read_provenance(lake.by_model("calibrated_predictions", KEY))

    def with_mu(mu: np.ndarray) -> float:
        changed = table.set_column(table.column_names.index("mu"), "mu", pa.array(mu))
        write_parquet(changed, lake.by_model("calibrated_predictions", KEY), made.metadata())
        write_threshold_multiplier(lake, profile, KEY)
        return read_k_star(lake, KEY)

    mu = table["mu"].to_numpy()
    assert with_mu(np.where(is_test, 1000 * mu + 7, mu)) == before
    assert with_mu(np.where(is_test, mu, 3 * mu)) != before  # and the calibration half is what it sees


def test_the_recalibration_is_chosen_without_the_test_split_and_sees_only_outcomes_of_the_past(trained, profile, tmp_path):
    lake = copy_of(trained[0], tmp_path / "lake")
    before = pq.read_table(lake.by_model("calibrated_predictions", KEY), partitioning=None)
    first = write_calibrated_predictions(lake, profile, KEY)
    table = pq.read_table(lake.predictions(KEY), partitioning=None)
    is_test = np.array(table["split"].to_pylist()) == "test"
    y = np.where(is_test, 1000 * table["y"].to_numpy() + 7, table["y"].to_numpy())
    changed = table.set_column(table.column_names.index("y"), "y", pa.array(y))
    write_parquet(changed, lake.predictions(KEY), read_provenance(lake.predictions(KEY)).metadata())
    second = write_calibrated_predictions(lake, profile, KEY)
    assert second.settings == first.settings
    after = pq.read_table(lake.by_model("calibrated_predictions", KEY), partitioning=None)
    known_from = table["t"].to_numpy()[is_test][0] + KEY.horizon_s * 10**9 + 500_000
    unaware = table["t"].to_numpy() < known_from
    assert unaware[is_test].any()
    for name in ("mu", "sigma", "scale", "dof", "lower_95"):
        np.testing.assert_array_equal(before[name].to_numpy()[unaware], after[name].to_numpy()[unaware])
    assert (before["scale"].to_numpy()[~unaware] != after["scale"].to_numpy()[~unaware]).any()


def test_training_opens_no_file_of_a_test_day(lake, profile):
    for table in ("book_events", "window_prices", "event_features", "window_labels"):
        lake.by_day(table, day(3)).unlink()
    plan = plan_stage(lake, profile, KEY, "encoder")
    assert not [name for name in plan.provenance.inputs if str(day(3).date) in name]
    dataset = load_windows(lake, profile, plan.inputs)
    assert set(np.unique(dataset.split)) == {0, 1, 2}


def test_a_missing_day_is_named_with_what_to_materialise(lake, profile, instance):
    lake.event_features(day(1)).unlink()
    lake.window_labels(day(2)).unlink()
    result = run(lake, profile, instance, "encoder", partition=model_partition(), raise_on_error=False)
    assert not result.success
    failure = result.failure_data_for_node("encoder")
    output = failure.user_failure_data.description
    assert "event_features of BTC-USD 2026-01-06, which is missing" in output
    assert "window_labels of BTC-USD 2026-01-07, which is missing" in output
    assert "materialise" in output.lower()
    retried = [e for e in result.all_node_events if e.event_type == dg.DagsterEventType.STEP_UP_FOR_RETRY]
    assert not retried


def test_a_day_made_with_other_settings_or_bins_is_refused(lake, profile, tmp_path):
    other = profile.model_copy(update={"features": profile.features.model_copy(update={"flow": "ofi"})})
    with pytest.raises(NotReady, match="feature_scales of BTC-USD, which was made with other settings"):
        plan_stage(lake, other, KEY, "encoder")
    made = read_provenance(lake.event_features(day(0)))
    table = pq.read_table(lake.event_features(day(0)), partitioning=None)
    another = replace(made, inputs={**made.inputs, "token_bins": "other"})
    write_parquet(table, lake.event_features(day(0)), another.metadata())
    with pytest.raises(NotReady, match="event_features of BTC-USD 2026-01-05, which was made from another token_bins"):
        plan_stage(lake, profile, KEY, "encoder")


def test_a_head_without_its_encoder_and_predictions_without_a_head_say_what_is_first(lake, profile):
    with pytest.raises(NotReady, match=r"uq_regression of BTC-USD 5s needs encoder.*Materialise encoder"):
        plan_stage(lake, profile, KEY, "uq_regression")
    with pytest.raises(NotReady, match="neither head is trained"):
        plan_predictions(lake, profile, KEY)


def test_staleness_is_told_for_every_table(trained, profile, tmp_path):
    lake, _ = trained
    for table in BY_MODEL:
        assert why_stale(lake, profile, table, KEY) == "", table
    assert why_stale(lake, profile, "paper_report", None) == ""
    longer = tiny_profile(tmp_path, epochs=3)
    assert "other settings" in why_stale(lake, longer, "encoder", KEY)
    assert "encoder" in why_stale(lake, longer, "uq_regression", KEY)
    changed = copy_of(lake, tmp_path / "lake")
    table = pq.read_table(changed.window_labels(day(0)), partitioning=None)
    made = read_provenance(changed.window_labels(day(0)))
    write_parquet(table, changed.window_labels(day(0)), replace(made, code_version="later").metadata())
    assert "train/window_labels/2026-01-05" in why_stale(changed, profile, "encoder", KEY)
    with pytest.raises(NotReady, match="Materialise encoder"):
        plan_predictions(changed, profile, KEY)


def test_an_evaluation_whose_tables_differ_in_making_is_stale(trained, profile, tmp_path):
    lake = copy_of(trained[0], tmp_path / "lake")
    made = read_provenance(lake.by_model("gated_evaluation", KEY))
    for table in ("risk_coverage", "classified_predictions"):
        path = lake.by_model(table, KEY)
        read = pq.ParquetFile(path).read()
        write_parquet(read, path, replace(made, code_version="later").metadata())
        assert f"written in part: not made together with {table}" in why_stale(lake, profile, "gated_evaluation", KEY)
        write_parquet(read, path, made.metadata())
    assert why_stale(lake, profile, "gated_evaluation", KEY) == ""


def test_the_report_names_what_it_shows_although_it_is_stale(trained, profile, tmp_path):
    lake = copy_of(trained[0], tmp_path / "lake")
    assert not [output for output in report_inputs(lake, profile).missing() if "Stale" in output]
    path = lake.by_model("calibrated_predictions", KEY)
    made = read_provenance(path)
    write_parquet(pq.ParquetFile(path).read(), path, replace(made, code_version="earlier").metadata())
    assert "calibrated_predictions" in why_stale(lake, profile, "paper_report", None)  # its drawings are of other forecasts
    output = " ".join(report_inputs(lake, profile).missing())
    assert "Stale: `calibrated_predictions` of BTC-USD 5s (made by other code)" in output
    assert "Stale: `gated_evaluation` of BTC-USD 5s" in output
    write_parquet(pq.ParquetFile(path).read(), path, made.metadata())
    sweep = lake.by_model("threshold_multiplier", KEY)
    of_sweep = read_provenance(sweep)
    write_parquet(pq.ParquetFile(sweep).read(), sweep, replace(of_sweep, code_version="earlier").metadata())
    assert "threshold_multiplier" in why_stale(lake, profile, "paper_report", None)


@pytest.mark.usefixtures("undrawn")
def test_the_report_is_stale_once_the_study_has_another_row(trained, profile, tmp_path, instance):
    lake = copy_of(trained[0], tmp_path / "lake")
    write_study_row(lake, profile, StudyKey("ewma", 1, KEY), print)
    assert f"study_rows/{StudyKey('ewma', 1, KEY)}" in why_stale(lake, profile, "paper_report", None)
    assert run(lake, profile, instance, "paper_report").success
    assert why_stale(lake, profile, "paper_report", None) == ""
    assert "EWMA sigma, zero mean" in (lake.report / "index.html").read_text()


def test_a_dataset_profile_that_dies_on_the_way_is_not_called_there(trained, profile, tmp_path, monkeypatch):
    from uqlob_pipeline.tables import dataset_profile as dataset

    lake = copy_of(trained[0], tmp_path / "lake")
    before = read_provenance(lake.dataset_profile / "dataset.parquet")
    assert version_on_disk(lake, "dataset_profile", None) is not None
    later = profile.model_copy(update={"splits": profile.splits.model_copy(update={"test": profile.splits.validation})})

    write_csv = dataset.pa_csv.write_csv

    def dies_after_the_last_table(table: pa.Table, path: Path) -> None:
        if "drift" in path.name:
            raise KeyboardInterrupt
        write_csv(table, path)

    monkeypatch.setattr(dataset.pa_csv, "write_csv", dies_after_the_last_table)
    with pytest.raises(KeyboardInterrupt):
        dataset.write_dataset_profile(lake, Warehouse(lake), later)
    assert read_provenance(lake.dataset_profile / "dataset.parquet") == before
    assert version_on_disk(lake, "dataset_profile", None) is None
    assert list(dataset.dataset_tables(lake)) == ["dataset"]


def test_the_code_location_loads_without_torch_and_mlflow_and_quickly():
    code = (
        "import sys, json, time; from uqlob_pipeline.definitions import defs;"
        "defs.get_repository_def();"
        "heavy = [m for m in ('torch', 'mlflow', 'matplotlib', 'sklearn', 'numba') if m in sys.modules];"
        "print(json.dumps([heavy, time.process_time()]))"
    )
    found = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", code], capture_output=True, text=True, check=True)
    heavy, seconds = json.loads(found.stdout.splitlines()[-1])
    assert heavy == []
    assert seconds < 5


def test_models_depend_on_every_day_and_fit_of_their_symbol():
    from uqlob_pipeline.definitions import defs

    graph = defs.resolve_asset_graph()
    node = graph.get(dg.AssetKey("encoder"))
    assert {key.to_user_string() for key in node.parent_keys} == {
        "event_features",
        "window_labels",
        "feature_scales",
        "label_thresholds",
    }
    assert node.pools == {"gpu"}
    settings = load_profile("demo")
    partitions = Partitions.of(settings)
    asset_days, models = partitions.day, partitions.model
    one = asset_days.subset_with_partition_keys([asset_day_key(day(0))])
    days_of_model = mapping(settings, "model", "day", ("train", "validation"))
    assert days_of_model is not None
    fed = days_of_model.get_downstream_partitions_for_partitions(one, asset_days, models).get_partition_keys()
    assert {str(key) for key in fed} == {str(key) for key in models.get_partition_keys() if SYMBOL in str(key)}
