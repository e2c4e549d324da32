"""A lake that was copied writes its artefacts below its own root, never into the lake that it was copied from."""

import shutil
from pathlib import Path

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.layout import Lake, ModelKey
from uqlob_pipeline.tracking.client import Tracking


def track(lake: Lake, profile: Profile, version: str) -> str:
    """Upload one artefact; returns where MLflow put the run."""
    tracking = Tracking(lake, profile)
    lake.root.mkdir(exist_ok=True)
    (lake.root / "note.txt").write_text(version)
    identity = tracking.stage(ModelKey("BTC-USD", 5), "encoder", version)
    with tracking.start_run(identity) as run:
        run.artifact(lake.root / "note.txt")
    assert tracking.pending() == []
    return str(tracking.store().client.get_run(tracking.store().run_id(identity)).info.artifact_uri)


def files(lake: Lake) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(lake.root.rglob("*")) if path.is_file()}


def test_a_copied_lake_writes_nothing_into_the_original(tmp_path: Path, profile: Profile) -> None:
    original, copy = Lake(tmp_path / "original"), Lake(tmp_path / "copy of it")
    first = track(original, profile, "v1")
    shutil.copytree(original.root, copy.root)
    before = files(original)
    second = track(copy, profile, "v2")  # a new run in the old experiment
    again = track(copy, profile, "v1")  # the old run
    assert files(original) == before
    assert first.startswith(original.mlflow.as_uri())
    assert second.startswith(copy.mlflow.as_uri())
    assert again == first.replace(original.mlflow.as_uri(), copy.mlflow.as_uri())
    assert len(list(copy.mlflow.rglob("note.txt"))) == 2
