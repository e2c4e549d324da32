"""A training that is started over and cancelled in the Dagster UI: the good model survives, and re-executing goes on."""

import json
from typing import Any

import pytest

from tests.browser.conftest import Place
from tests.browser.screen import Screen, needs_chromium
from tests.end_to_end.held import RELEASED, wait_until_held
from tests.end_to_end.tiny_market import KEY, SYMBOL
from uqlob_pipeline.models.stages import StageRecord, read_record

pytestmark = [pytest.mark.browser, needs_chromium]

STAGE = "uq_regression"
LAUNCH = """mutation Launch($executionParams: ExecutionParams!) { launchPipelineExecution(executionParams: $executionParams) {
  __typename ... on LaunchRunSuccess { run { id } } ... on PythonError { message }
  ... on RunConfigValidationInvalid { errors { message } } } }"""
RUN = """query Run($id: ID!) { runOrError(runId: $id) { ... on Run { status parentRunId } } }"""
LATEST = """query { runsOrError(limit: 1) { ... on Runs { results { id parentRunId } } } }"""
LOGS = """query Logs($id: ID!) { logsForRun(runId: $id, limit: 1000) { ... on EventConnection { events {
  ... on MessageEvent { message } } } } }"""
MATERIALISED = """query { assetNodeOrError(assetKey: {path: ["uq_regression"]}) { ... on AssetNode {
  assetMaterializations(partitions: ["5s|BTC-USD"], limit: 9) { runId } } } }"""
FRESH = {
    "selector": {
        "repositoryName": "__repository__",
        "repositoryLocationName": "uqlob",
        "pipelineName": "__ASSET_JOB",
        "assetSelection": [{"path": [STAGE]}],
    },
    "mode": "default",
    "runConfigData": {"ops": {STAGE: {"config": {"fresh": True}}}},
    "executionMetadata": {
        "tags": [
            {"key": "dagster/partition", "value": f"5s|{SYMBOL}"},
            {"key": "dagster/partition/horizon", "value": "5s"},
            {"key": "dagster/partition/symbol", "value": SYMBOL},
        ]
    },
}


def in_use(place: Place) -> StageRecord:
    record = read_record(place.lake.model(STAGE, KEY))
    assert record is not None
    return record


def ended(screen: Screen, run: str) -> str:
    """The status of a run once it has ended."""

    def status() -> str | None:
        found = screen.ask(RUN, id=run)["runOrError"]["status"]
        return found if found in ("SUCCESS", "FAILURE", "CANCELED") else None

    return str(screen.until(f"the end of run {run}", status, patience=600))


def log_of(screen: Screen, run: str) -> str:
    return "\n".join(event.get("message", "") for event in screen.ask(LOGS, id=run)["logsForRun"]["events"])


def test_a_cancelled_fresh_training_leaves_the_good_model_and_resumes_when_it_is_executed_again(
    place: Place, screen: Screen
) -> None:
    before = in_use(place)
    weights = (before.best / "weights.safetensors").read_bytes()
    screen.go(f"{place.dagster}/assets/{STAGE}?view=partitions&partition=5s%7C{SYMBOL}")
    screen.see("Latest materialization")
    (made,) = materialised(screen)
    (place.held / RELEASED).unlink()
    try:
        launched = screen.ask(LAUNCH, executionParams=FRESH)["launchPipelineExecution"]
        assert launched["__typename"] == "LaunchRunSuccess", launched
        run = launched["run"]["id"]
        screen.go(f"{place.dagster}/runs/{run}", height=900)
        wait_until_held(place.held, 1, lambda: True, lambda: screen.text)
        screen.press("Terminate")
        screen.see("Terminate")
        screen.press("Terminate 1 run")
        assert ended(screen, run) == "CANCELED"
    finally:
        (place.held / RELEASED).touch()

    assert in_use(place) == before
    assert (before.best / "weights.safetensors").read_bytes() == weights
    assert materialised(screen) == [made], "Dagster shows the good model, and only that"
    assert "checkpoint saved" in log_of(screen, run)
    assert status_of(place) == {"current": 1, "stale": {}, "missing": []}

    screen.go(f"{place.dagster}/runs/{run}", height=900)
    screen.see("Canceled")
    screen.settle()
    screen.shoot("cancelled_training")
    screen.press("Re-execute")
    again = screen.until("a run that goes on from it", lambda: latest_child(screen, run))
    assert ended(screen, again) == "SUCCESS"
    output = log_of(screen, again)
    assert "resuming from step-" in output
    after = in_use(place)
    assert (after.training, after.version) == (before.training + 1, before.version)  # the same data, seed and steps
    assert not before.directory.exists(), "replaced once the new one was finished"
    assert materialised(screen) == [again, made]


def materialised(screen: Screen) -> list[str]:
    """The runs that materialised the model, latest first."""
    found: dict[str, Any] = screen.ask(MATERIALISED)["assetNodeOrError"]
    return [event["runId"] for event in found["assetMaterializations"]]


def latest_child(screen: Screen, parent: str) -> str | None:
    (found,) = screen.ask(LATEST)["runsOrError"]["results"]
    return found["id"] if found["parentRunId"] == parent else None


def status_of(place: Place) -> dict[str, Any]:
    """What `uqlob status` says of the model."""
    return dict(json.loads(place.uqlob("status", "--json"))["tables"][STAGE])
