"""The contents of a lake, of files or in a store, in a form in which two can be compared."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from uqlob_models.content_hash import weights_hash
from uqlob_pipeline.defs.instance import PROJECT
from uqlob_pipeline.devtools.loopback_cluster.cluster import MOST_SECONDS, Cluster
from uqlob_pipeline.lake.open_store import open_store
from uqlob_pipeline.lake.published_dumps import HASHES
from uqlob_pipeline.lake.shared_files import shown
from uqlob_pipeline.models.stages import RECORD
from uqlob_pipeline.tracking.client import OUTBOX

LOCAL_ONLY = ("mlflow/", "windows/")
STORE_ONLY = (".index/", HASHES, "tracking/")  # records of all files, hashes of dumps, and what is queued for MLflow
WEIGHTS = "best/weights.safetensors"


def files_of(root: Path) -> dict[str, bytes]:
    """Every file of a lake of files that a store would hold too."""
    found = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    return {key: path.read_bytes() for key, path in found.items() if not key.startswith(LOCAL_ONLY)}


def copy_objects(url: str, directory: Path) -> None:
    """Every object of the lake in a store as a file."""
    store = open_store(url)
    for key in shown(store.list()):
        (directory / key).parent.mkdir(parents=True, exist_ok=True)
        (directory / key).write_bytes(store.read(key))


def objects(running: Cluster) -> dict[str, bytes]:
    """What the store holds; read by another process, whose threads are all in the cluster's network."""
    with tempfile.TemporaryDirectory() as directory:
        command: list[str | Path] = [sys.executable, "-m", "tests.cluster.lake_contents", running.url, directory]
        subprocess.run(command, env=running.environment, cwd=PROJECT, check=True, timeout=MOST_SECONDS)
        return files_of(Path(directory))


def comparable(contents: dict[str, bytes]) -> dict[str, Any]:
    """Dumps and tables as they are, models as records and hashes of their weights."""
    found: dict[str, Any] = {}
    for key, content in contents.items():
        if key.endswith((".parquet", ".zst")):
            found[key] = content
        elif key.startswith("models/") and key.endswith(RECORD):
            found[key] = json.loads(content)
        elif key.startswith("models/") and key.endswith(WEIGHTS):
            found[key] = weights_hash(content)
    return found


def leftovers(made: dict[str, bytes], expected: dict[str, bytes]) -> list[str]:
    """The objects that one machine has no file for, apart from what only a store keeps or a cluster without MLflow queues."""
    return sorted(key for key in made.keys() - expected.keys() if not key.startswith(STORE_ONLY) and not key.endswith(OUTBOX))


def differences(made: dict[str, bytes], expected: dict[str, bytes]) -> dict[str, list[str]]:
    """Nothing, where the two lakes hold the same."""
    ours, theirs = comparable(made), comparable(expected)
    found = {
        "missing": sorted(theirs.keys() - ours.keys()),
        "not expected": sorted(ours.keys() - theirs.keys()),
        "different": sorted(key for key in ours.keys() & theirs.keys() if ours[key] != theirs[key]),
    }
    return {kind: keys for kind, keys in found.items() if keys}


if __name__ == "__main__":
    copy_objects(sys.argv[1], Path(sys.argv[2]))
