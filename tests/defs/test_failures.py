"""What may pass is tried again; what cannot, and what a person stopped, is not."""

from pathlib import Path

import dagster as dg
import pytest

from uqlob_models.training_result import TrainingInterrupted
from uqlob_pipeline.defs import failures
from uqlob_pipeline.defs.failures import translate_errors
from uqlob_pipeline.lake.staleness import NotReady


def attempts(error: BaseException, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often a step that always ends in `error` is tried."""
    monkeypatch.setattr(failures, "FIRST_WAIT_S", 0)
    tried = []

    @dg.asset
    def fails(context: dg.AssetExecutionContext) -> None:
        tried.append(context.retry_number)
        with translate_errors(context):
            raise error

    try:
        result = dg.materialize([fails], instance=instance, raise_on_error=False)
    except dg.DagsterExecutionInterruptedError:
        return len(tried)
    assert not result.success
    return len(tried)


def test_a_full_disk_is_tried_again_and_given_up_in_the_end(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert attempts(OSError(28, "No space left on device"), instance, monkeypatch) == 3


@pytest.mark.parametrize("error", [NotReady("a day is missing"), ValueError("a bug")])
def test_what_cannot_pass_is_tried_once(error: Exception, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    assert attempts(error, instance, monkeypatch) == 1


def test_what_a_person_stopped_is_not_tried_again(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    assert attempts(TrainingInterrupted(3, Path("checkpoints")), instance, monkeypatch) == 1
