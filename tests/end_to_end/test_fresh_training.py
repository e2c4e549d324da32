"""Fresh, resumed and repeated trainings with a real store: each training is one MLflow run, each epoch one point."""

import json

import pytest

from tests.end_to_end.tiny_market import KEY, model_partition, run
from uqlob_pipeline.defs import failures
from uqlob_pipeline.defs.models import assets as models
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.models.stages import plan_stage
from uqlob_pipeline.tracking.client import Tracking
from uqlob_pipeline.tracking.origin import Origin
from uqlob_pipeline.tracking.training_runs import train_tracked

ORIGIN = Origin("run", "partition", "encoder")


def trained(lake: Lake, profile, *, fresh: bool, log=print):
    tracking = Tracking(lake, profile)
    return train_tracked(tracking, lake, plan_stage(lake, profile, KEY, "encoder"), ORIGIN, fresh=fresh, log=log)


def runs_of(lake: Lake, profile) -> dict[str, dict[str, list[int]]]:
    """The logged steps of some metrics, by run name."""
    store = Tracking(lake, profile).store()
    return {
        found.info.run_name: {
            name: [point.step for point in store.client.get_metric_history(found.info.run_id, name)]
            for name in ("epoch", "train/loss", "best/epoch", "steps", "windows/train")
        }
        for found in store.search({"uqlob.kind": "encoder"})
    }


def test_a_fresh_training_has_its_own_run_and_keeps_it_when_it_is_resumed(lake, profile):
    logged = {"epoch": [1, 2], "train/loss": [1, 2], "best/epoch": [0], "steps": [0], "windows/train": [0]}
    trained(lake, profile, fresh=True)  # there is no earlier training to repeat
    assert runs_of(lake, profile) == {"BTC-USD 5s encoder": logged}

    def stops_after_the_first_epoch(text: str) -> None:
        if "epoch 2 of 2" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(lake, profile, fresh=True, log=stops_after_the_first_epoch)
    found = runs_of(lake, profile)
    assert found["BTC-USD 5s encoder"] == logged
    assert found["BTC-USD 5s encoder (2)"]["epoch"] == [1]
    lines: list[str] = []
    _, url = trained(lake, profile, fresh=False, log=lines.append)
    assert any("resuming from step-" in text for text in lines)
    assert runs_of(lake, profile) == {"BTC-USD 5s encoder": logged, "BTC-USD 5s encoder (2)": logged}
    store = Tracking(lake, profile).store()
    assert store.client.get_run(url.rsplit("/", 1)[1].partition("?")[0]).info.run_name == "BTC-USD 5s encoder (2)"
    assert {found.info.status for found in store.search({"uqlob.kind": "encoder"})} == {"FINISHED"}
    assert trained(lake, profile, fresh=False)[1] == url


def test_logging_a_finished_training_again_adds_no_point(lake, profile):
    trained(lake, profile, fresh=False)
    before = runs_of(lake, profile)
    for done in (lake.root / "tracking").glob("*.done"):
        done.unlink()
    trained(lake, profile, fresh=False)
    assert runs_of(lake, profile) == before


def test_dataset_inputs_have_the_number_of_windows_of_each_split(lake, profile):
    record, _ = trained(lake, profile, fresh=False)
    (logged,) = Tracking(lake, profile).store().search({"uqlob.kind": "encoder"})
    profiles = {given.dataset.name: json.loads(given.dataset.profile) for given in logged.inputs.dataset_inputs}
    assert profiles["BTC-USD 5s train"]["labelled_windows"] == record.windows["train"]
    validation = profiles["BTC-USD 5s validation"]
    assert record.windows["selection"] < validation["labelled_windows"] <= validation["windows"]


def test_a_retry_resumes_the_fresh_training(lake, profile, instance, monkeypatch):
    requested: list[bool] = []

    def disk_full_once(*arguments, fresh: bool, **named):
        requested.append(fresh)
        found = train_tracked(*arguments, fresh=fresh, **named)
        if len(requested) == 1:
            raise OSError("no space left on device")
        return found

    monkeypatch.setattr(models, "train_tracked", disk_full_once)
    monkeypatch.setattr(failures, "FIRST_WAIT_S", 0)
    config = {"ops": {"encoder": {"config": {"fresh": True}}}}
    assert run(lake, profile, instance, "encoder", partition=model_partition(), run_config=config).success
    assert requested == [True, False]
