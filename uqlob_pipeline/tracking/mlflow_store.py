"""Applies outbox entries to MLflow runs, which it finds or creates. The only module that holds an MLflow client.

MLflow is imported inside functions: the code server imports this module and must not load it.
"""

import logging
import os
from typing import Any

from filelock import FileLock

from uqlob_pipeline.lake.file_hashes import file_hash
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.tracking.moved_lake import adopt_artifacts
from uqlob_pipeline.tracking.outbox import TRAINING_TAG, Entry, RunIdentity

BATCH_SIZE = {"params": 100, "tags": 100, "metrics": 1000}  # MLflow's limits per request
MAX_PARAM_LENGTH, MAX_TAG_LENGTH = 6000, 5000
NO_TELEMETRY = {"MLFLOW_DISABLE_TELEMETRY": "true"}  # MLflow reads it when it is imported
UI_STORE = "UQLOB_MLFLOW_STORE"  # tells the MLflow UI of `uqlob ui` its store; the address may hold a password
ENDED_TAG, PARENT_TAG = "uqlob.ended", "mlflow.parentRunId"


class Store:
    """One experiment of one MLflow tracking store."""

    def __init__(self, uri: str, experiment: str, lake: Lake, *, local: bool) -> None:
        for name, value in NO_TELEMETRY.items():
            os.environ.setdefault(name, value)
        # An unreachable store must not delay a training: fail fast, the outbox keeps the entries.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
        from mlflow import MlflowClient

        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # hides the messages about creating tables
        self.lake = lake
        self.runs: dict[RunIdentity, str] = {}
        lake.mlflow.mkdir(parents=True, exist_ok=True)
        self.lock = FileLock(lake.mlflow / ".lock")
        artifacts = lake.mlflow / "artifacts"
        with self.lock:  # the first client creates the tables, which must not happen twice at once
            if local:
                adopt_artifacts(lake.mlflow / "mlflow.db", artifacts)
            self.client: Any = MlflowClient(tracking_uri=uri)
            found = self.client.get_experiment_by_name(experiment)
            if found is not None:
                self.experiment_id = str(found.experiment_id)
            else:
                location = artifacts.as_uri() if local else None
                self.experiment_id = str(self.client.create_experiment(experiment, artifact_location=location))

    def run_id(self, identity: RunIdentity) -> str:
        """The existing run of an identity, or a new one below its parent."""
        if identity not in self.runs:
            parent = self.run_id(identity.parent) if identity.parent else None
            with self.lock:
                self.runs[identity] = self._find(identity) or self._create(identity, parent)
        return self.runs[identity]

    def _find(self, identity: RunIdentity) -> str | None:
        tags = identity.tags()
        # The first training has no training tag, so a search by its tags also finds the later trainings.
        found = [run for run in self.search(tags) if run.data.tags.get(TRAINING_TAG) == tags.get(TRAINING_TAG)]
        return str(found[0].info.run_id) if found else None

    def search(self, tags: dict[str, str]) -> list[Any]:
        condition = " and ".join(f"tags.`{name}` = '{value}'" for name, value in tags.items())
        return list(self.client.search_runs([self.experiment_id], condition, order_by=["attributes.start_time ASC"]))

    def _create(self, identity: RunIdentity, parent: str | None) -> str:
        tags = identity.tags() | ({PARENT_TAG: parent} if parent else {})
        created = self.client.create_run(self.experiment_id, run_name=identity.name, tags=tags)
        self.client.set_terminated(created.info.run_id, "FINISHED")  # a `start` entry sets RUNNING
        return str(created.info.run_id)

    # ---- outbox entries

    def apply(self, identity: RunIdentity, entry: Entry) -> None:
        run_id = self.run_id(identity)
        getattr(self, f"_apply_{entry['op']}")(run_id, identity, entry)

    def _apply_start(self, run_id: str, identity: RunIdentity, entry: Entry) -> None:
        """Mark the run as running. Other running runs of the same stage and model belong to processes that died."""
        self.client.update_run(run_id, status="RUNNING")
        if ENDED_TAG in self.client.get_run(run_id).data.tags:
            self.client.delete_tag(run_id, ENDED_TAG)
        for other in self.search({"uqlob.kind": identity.kind, "uqlob.key": identity.key}):
            if other.info.run_id != run_id and other.info.status == "RUNNING":
                self.client.set_tag(other.info.run_id, ENDED_TAG, "its process died, and another training has taken its place")
                self.client.set_terminated(other.info.run_id, "KILLED")

    def _apply_tags(self, run_id: str, identity: RunIdentity, entry: Entry) -> None:
        self._log_tags(run_id, entry["values"])

    def _apply_params(self, run_id: str, identity: RunIdentity, entry: Entry) -> None:
        """MLflow parameters are immutable: one that changed, such as the device, is recorded as a tag."""
        from mlflow.entities import Param

        logged = self.client.get_run(run_id).data.params
        values = {name: str(value)[:MAX_PARAM_LENGTH] for name, value in entry["values"].items()}
        self._log(run_id, "params", [Param(name, value) for name, value in values.items() if name not in logged])
        self._log_tags(run_id, {f"changed.{name}": value for name, value in values.items() if logged.get(name, value) != value})

    def _apply_metrics(self, run_id: str, identity: RunIdentity, entry: Entry) -> None:
        self._log_metrics(run_id, entry["values"], entry["step"], entry["time"])

    def _apply_epochs(self, run_id: str, identity: RunIdentity, entry: Entry) -> None:
        """Log the epochs that are not logged yet."""
        prefix = entry.get("prefix", "")  # of an ensemble member
        logged = {metric.step for metric in self.client.get_metric_history(run_id, f"{prefix}epoch")}
        for epoch in entry["epochs"]:
            if int(epoch["epoch"]) not in logged:
                values = {f"{prefix}{name}": value for name, value in epoch.items()}
                self._log_metrics(run_id, values, epoch["epoch"], entry["time"])

    def _apply_inputs(self, run_id: str, identity: RunIdentity, entry: Entry) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag

        datasets = [
            DatasetInput(
                Dataset(dataset["name"], dataset["digest"], "uqlob", dataset["source"], profile=dataset["profile"]),
                [InputTag("mlflow.data.context", dataset["context"])],
            )
            for dataset in entry["datasets"]
        ]
        self.client.log_inputs(run_id, datasets)

    def _apply_artifact(self, run_id: str, identity: RunIdentity, entry: Entry) -> None:
        path = self.lake.root / entry["path"]
        self.lake.fetch(path)
        if self._is_superseded(entry):
            return
        if path.is_dir():
            self.client.log_artifacts(run_id, str(path), entry["to"])
        elif path.exists():
            self.client.log_artifact(run_id, str(path), entry["to"])

    def _apply_model(self, run_id: str, identity: RunIdentity, entry: Entry) -> None:
        from uqlob_pipeline.tracking.model_registry import parts_of, register

        if not self._is_superseded(entry):
            parts = [self._in_lake(part) for part in parts_of(entry)]
            version = register(self.client, run_id, {**entry, **({"horizons": parts} if "horizons" in entry else parts[0])})
            self._log_tags(run_id, {f"uqlob.registered_model{entry.get('task', '')}": f"{entry['name']} version {version}"})

    def _in_lake(self, part: dict[str, Any]) -> dict[str, Any]:
        state = str(self.lake.root / part["state"]) if part.get("state") else None
        return {**part, "members": [str(self.lake.root / member) for member in part["members"]], "state": state}

    def _apply_end(self, run_id: str, identity: RunIdentity, entry: Entry) -> None:
        if entry.get("why"):
            self._log_tags(run_id, {ENDED_TAG: entry["why"]})
        # An entry from the outbox may be older than the run that MLflow created for it.
        started = self.client.get_run(run_id).info.start_time
        self.client.set_terminated(run_id, entry["status"], end_time=max(entry["time"], started))

    def _is_superseded(self, entry: Entry) -> bool:
        """Whether a later training replaced the weights of the entry while it was queued."""
        weights = {self.lake.root / path: version for path, version in entry.get("weights", {}).items()}
        self.lake.fetch(*weights)
        return any(not path.is_file() or file_hash(path) != version for path, version in weights.items())

    def _log_tags(self, run_id: str, values: dict[str, Any]) -> None:
        from mlflow.entities import RunTag

        self._log(run_id, "tags", [RunTag(name, str(value)[:MAX_TAG_LENGTH]) for name, value in values.items()])

    def _log_metrics(self, run_id: str, values: dict[str, float], step: float, time_ms: int) -> None:
        from mlflow.entities import Metric

        metrics = [Metric(name, float(value), int(time_ms), int(step)) for name, value in values.items()]
        self._log(run_id, "metrics", metrics)

    def _log(self, run_id: str, kind: str, entities: list[Any]) -> None:
        size = BATCH_SIZE[kind]
        for first in range(0, len(entities), size):
            self.client.log_batch(run_id, **{kind: entities[first : first + size]})
