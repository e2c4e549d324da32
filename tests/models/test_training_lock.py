"""The training lock of a lake in a store: what it does where the store is away at the end."""

from pathlib import Path

import pytest

from uqlob_models.training_result import TrainingInterrupted
from uqlob_pipeline.lake.layout import ModelKey
from uqlob_pipeline.lake.shared_lake import open_lake, working_copy
from uqlob_pipeline.lake.store import StoreError
from uqlob_pipeline.models.training_lock import training_lock

KEY = ModelKey("BTC-USD", 5)


def train(url: str, lines: list[str], *, interrupted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training whose store is away from its end on."""

    def away() -> None:
        raise StoreError("the store is away")

    with working_copy(open_lake(url)) as copy, training_lock(copy, copy.model("encoder", KEY), lines.append):
        monkeypatch.setattr(copy.local, "publish", away)
        if interrupted:
            raise TrainingInterrupted(7, copy.model("encoder", KEY))


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("UQLOB_SCRATCH", str(tmp_path / "scratch"))
    return f"file://{tmp_path / 'shared'}"


def test_a_cancelled_training_stays_cancelled_where_the_store_is_away(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    with pytest.raises(TrainingInterrupted, match="stopped after step 7"):
        train(url, lines, interrupted=True, monkeypatch=monkeypatch)
    assert lines == ["not everything was published: the store is away"]


def test_a_finished_training_that_cannot_be_published_is_an_error_of_the_store(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreError, match="the store is away"):
        train(url, [], interrupted=False, monkeypatch=monkeypatch)
