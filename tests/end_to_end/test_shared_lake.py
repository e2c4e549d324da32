"""The whole DAG on a lake in an object store: every table equals that of a lake of files, byte for byte."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from typer.testing import CliRunner

from tests.end_to_end import tiny_market
from tests.end_to_end.tiny_market import KEY
from uqlob_models.content_hash import weights_hash
from uqlob_pipeline.cli.app import app
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.config.study import StudySettings
from uqlob_pipeline.devtools.loopback_cluster.object_server import ObjectServer
from uqlob_pipeline.lake import shared_files
from uqlob_pipeline.lake.layout import Lake, StudyKey
from uqlob_pipeline.lake.shared_lake import SharedLake, open_lake, working_copy
from uqlob_pipeline.lake.staleness import staleness_by_table
from uqlob_pipeline.lake.table_registry import ON_REQUEST
from uqlob_pipeline.models.stages import plan_stage, read_record

DAILY = ("book_events", "data_quality", "window_prices", "event_features", "window_labels")


@pytest.fixture(scope="module")
def url(running_server: ObjectServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UQLOB_SCRATCH", str(tmp_path_factory.mktemp("scratch")))
        for name, value in running_server.environment().items():
            patch.setenv(name, value)
        yield running_server.new_bucket()


@pytest.fixture(scope="module")
def shared(url: str, ingested: Lake, profile: Profile, instance: dg.DagsterInstance) -> SharedLake:
    """The same dumps in a store, and everything in front of the models made from them."""
    lake = open_lake(url)
    assert isinstance(lake, SharedLake)
    with working_copy(lake) as copy:
        shutil.copytree(ingested.root / "raw", copy.root / "raw")
    lake.refresh()
    tiny_market.ingest(lake, profile, instance)
    return lake


def objects(lake: SharedLake, suffix: str = ".parquet") -> dict[str, bytes]:
    store = lake.local.store
    return {key: store.read(key) for key in store.list() if key.endswith(suffix)}


def files(lake: Lake, suffix: str = ".parquet") -> dict[str, bytes]:
    """Of the DAG; what is made on request alone may stand in a lake that other tests use too."""
    left_out = {"mlflow", "latent", "study", *(table.name for table in ON_REQUEST)}
    found = (path for path in lake.root.rglob(f"*{suffix}") if path.relative_to(lake.root).parts[0] not in left_out)
    return {path.relative_to(lake.root).as_posix(): path.read_bytes() for path in found}


def test_tables_in_front_of_the_models_equal_those_of_files(shared: SharedLake, ingested: Lake) -> None:
    made, expected = objects(shared), files(ingested)
    assert {key.split("/")[0] for key in expected} >= {*DAILY, "token_bins", "label_thresholds", "feature_scales"}
    assert sorted(made) == sorted(expected)
    assert [key for key in expected if made[key] != expected[key]] == []


def test_nothing_is_made_again(shared: SharedLake, profile: Profile) -> None:
    shared.refresh()
    reasons = staleness_by_table(shared, profile, shared.recorded_days())
    assert {table: set(reasons[table].values()) for table in DAILY if table in reasons} == {
        table: {""} for table in DAILY if table in reasons
    }


def test_status_of_a_store_says_what_status_of_files_says(
    shared: SharedLake, ingested: Lake, url: str, profile: Profile, tmp_path: Path
) -> None:
    settings = tiny_market.write_profile(tmp_path)
    shown = []
    for place in (url, str(ingested.root)):
        result = CliRunner().invoke(app, ["status", "--json", "--lake", place, "--profile", str(settings)])
        assert result.exit_code == 0, result.output
        shown.append(json.loads(result.output))
    assert shown[0].pop("lake") == url
    assert shown[1].pop("lake") == str(ingested.root)
    assert shown[0] == shown[1]
    assert shown[0]["tables"]["book_events"]["current"] == tiny_market.DAYS


def test_a_store_without_a_lake_is_empty(running_server: ObjectServer, url: str) -> None:
    result = CliRunner().invoke(app, ["status", "--lake", running_server.new_bucket()])
    assert result.exit_code == 0
    assert "0 recorded asset-days" in result.output


def test_a_store_that_ignores_conditions_is_refused_at_the_first_command(running_server: ObjectServer, url: str) -> None:
    running_server.before = lambda environ: environ.pop("HTTP_IF_NONE_MATCH", None)
    try:
        result = CliRunner().invoke(app, ["status", "--lake", url])
    finally:
        running_server.before = None
    assert result.exit_code == 1
    assert "ignores conditional writes" in result.output


def test_a_training_goes_on_elsewhere_and_ends_with_the_same_weights(
    shared: SharedLake,
    trained: tuple[Lake, object],
    profile: Profile,
    instance: dg.DagsterInstance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Interrupted on one machine after a checkpoint, resumed on another one that has nothing but the store."""
    from uqlob_models.training_result import TrainingInterrupted
    from uqlob_pipeline.models.stage_training import train_stage

    steps: list[int] = []

    def stop() -> bool:
        steps.append(1)
        return len(steps) > 5

    def train_until_stopped() -> None:
        with working_copy(shared) as copy:
            train_stage(copy, profile, plan_stage(copy, profile, KEY, "encoder"), log=lambda _: None, stop=stop)

    with pytest.raises(TrainingInterrupted):
        train_until_stopped()
    assert [key for key in shared.local.store.list("models/encoder/") if "step-" in key]
    monkeypatch.setenv("UQLOB_SCRATCH", str(tmp_path / "another machine"))
    elsewhere = open_lake(shared.place)
    lines: list[str] = []
    with working_copy(elsewhere) as copy:
        copy.fetch(copy.model("encoder", KEY))
        train_stage(copy, profile, plan_stage(copy, profile, KEY, "encoder"), log=lines.append)
    assert [line for line in lines if "resuming from step-" in line]
    local = read_record(trained[0].model("encoder", KEY))
    elsewhere.refresh()
    elsewhere.fetch(elsewhere.model("encoder", KEY))
    record = read_record(elsewhere.model("encoder", KEY))
    assert local is not None
    assert record is not None
    assert record.weights == local.weights
    assert _weights(record.best) == _weights(local.best)
    assert record.version == local.version


def _weights(best: Path) -> str:
    return weights_hash((best / "weights.safetensors").read_bytes())


@pytest.mark.usefixtures("undrawn")
def test_heads_evaluation_and_report_equal_those_of_files(
    shared: SharedLake, trained: tuple[Lake, object], profile: Profile, instance: dg.DagsterInstance
) -> None:
    partition = tiny_market.model_partition()
    for asset in tiny_market.BY_MODEL:
        assert tiny_market.run(shared, profile, instance, asset, partition=partition).success, asset
    for asset in ("dataset_profile", "paper_report"):
        assert tiny_market.run(shared, profile, instance, asset).success, asset
    made, expected = objects(shared), files(trained[0])
    assert sorted(made) == sorted(expected)
    assert [key for key in expected if made[key] != expected[key]] == []
    store = shared.local.store
    for stage in ("encoder", "uq_regression", "uq_classification"):
        home = trained[0].model(stage, KEY)
        key = (home / "model.json").relative_to(trained[0].root).as_posix()
        assert json.loads(store.read(key)) == json.loads((home / "model.json").read_text())
    assert "report/index.html" in store.list("report/")
    assert store.list("tracking/")  # queued: no MLflow server was named
    assert not store.list("windows/")
    assert not [key for key in store.list() if key.startswith("mlflow/")]


@pytest.mark.usefixtures("one_thread")
def test_a_head_of_the_study_goes_on_elsewhere(
    shared: SharedLake, profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Interrupted on one machine after a checkpoint, resumed on another one that fetches nothing when it opens the store."""
    from uqlob_models import training
    from uqlob_models.training_result import TrainingInterrupted
    from uqlob_pipeline.models.study.rows import write_study_row

    monkeypatch.setattr(shared_files, "SMALL", 0)  # as if the weights of the tiny head were large
    study_profile = profile.model_copy(update={"study": StudySettings(seeds=1)})
    key, train = StudyKey("full", 1, KEY), training.train
    steps: list[int] = []

    def stop() -> bool:
        steps.append(1)
        return len(steps) > 5

    def stopped_train(kind: Any, *values: Any, **options: Any) -> Any:
        return train(kind, *values, **options, stop=None if kind == "pretraining" else stop)

    def write_on_one_machine() -> None:
        with working_copy(shared) as copy:
            write_study_row(copy, study_profile, key, print)

    monkeypatch.setattr(training, "train", stopped_train)
    with pytest.raises(TrainingInterrupted):
        write_on_one_machine()
    monkeypatch.setattr(training, "train", train)
    assert [name for name in shared.local.store.list("study/trainings/") if "step-" in name]
    monkeypatch.setenv("UQLOB_SCRATCH", str(tmp_path / "another machine"))
    lines: list[str] = []
    with caplog.at_level("INFO"), working_copy(open_lake(shared.place)) as copy:
        write_study_row(copy, study_profile, key, lines.append)
    assert [line for line in lines if "training afresh" in line] == []
    assert [record.getMessage() for record in caplog.records if "resuming regression at step 6" in record.getMessage()]
    assert not [name for name in shared.local.store.list("study/trainings/") if name.endswith(".safetensors")]
