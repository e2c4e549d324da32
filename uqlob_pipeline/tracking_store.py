"""Speaks to MLflow: finds or makes a run, and applies journal entries to it. The only module that holds an MLflow client."""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from uqlob_pipeline.lake import Lake, file_hash
from uqlob_pipeline.tracking_journal import TRAINING_TAG, Entry, RunIdentity

PARAMS_A_BATCH, METRICS_A_BATCH = 100, 1000
LONGEST_PARAM, LONGEST_TAG = 6000, 5000
NO_TELEMETRY = {"MLFLOW_DISABLE_TELEMETRY": "true"}  # of whatever imports or serves MLflow; read when it is imported
ENDED_TAG, PARENT_TAG = "uqlob.ended", "mlflow.parentRunId"


class Store:
    """One experiment of one MLflow tracking store."""

    def __init__(self, uri: str, experiment: str, lake: Lake, *, local: bool) -> None:
        for name, value in NO_TELEMETRY.items():
            os.environ.setdefault(name, value)
        # A store that does not answer must not hold up a training: the journal waits better than a socket.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
        from mlflow import MlflowClient

        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # that tables are made is no news to a person
        self.lake = lake
        self.runs: dict[RunIdentity, str] = {}
        with self.locked():  # the first client makes the tables: two at once would trip over each other
            self.client: Any = MlflowClient(tracking_uri=uri)
            found = self.client.get_experiment_by_name(experiment)
            if found is not None:
                self.experiment_id = str(found.experiment_id)
            else:
                place = (lake.mlflow / "artifacts").as_uri() if local else None
                self.experiment_id = str(self.client.create_experiment(experiment, artifact_location=place))

    @contextmanager
    def locked(self) -> Iterator[None]:
        self.lake.mlflow.mkdir(parents=True, exist_ok=True)
        with open(self.lake.mlflow / ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def run_id(self, identity: RunIdentity) -> str:
        """The run of an identity: the one that is there, or a new one below its parent."""
        if identity not in self.runs:
            parent = self.run_id(identity.parent) if identity.parent else None
            with self.locked():
                self.runs[identity] = self._find(identity) or self._create(identity, parent)
        return self.runs[identity]

    def _find(self, identity: RunIdentity) -> str | None:
        wanted = identity.tags()
        # The first training has no number, so that its tags alone would also find those begun afresh.
        found = [run for run in self.search(wanted) if run.data.tags.get(TRAINING_TAG) == wanted.get(TRAINING_TAG)]
        return str(found[0].info.run_id) if found else None

    def search(self, tags: dict[str, str]) -> list[Any]:
        wanted = " and ".join(f"tags.`{name}` = '{value}'" for name, value in tags.items())
        return list(self.client.search_runs([self.experiment_id], wanted, order_by=["attributes.start_time ASC"]))

    def _create(self, identity: RunIdentity, parent: str | None) -> str:
        tags = identity.tags() | ({PARENT_TAG: parent} if parent else {})
        made = self.client.create_run(self.experiment_id, run_name=identity.name, tags=tags)
        self.client.set_terminated(made.info.run_id, "FINISHED")  # under way is only what said so
        return str(made.info.run_id)

    # ---- journal entries

    def take(self, identity: RunIdentity, entry: Entry) -> None:
        run_id = self.run_id(identity)
        getattr(self, f"_take_{entry['op']}")(run_id, identity, entry)

    def _take_start(self, run_id: str, identity: RunIdentity, entry: Entry) -> None:
        """Under way (again). Others of the same model that never ended belong to processes that died: mark them."""
        self.client.update_run(run_id, status="RUNNING")
        if ENDED_TAG in self.client.get_run(run_id).data.tags:
            self.client.delete_tag(run_id, ENDED_TAG)
        family = {"uqlob.kind": identity.kind, "uqlob.key": identity.key}
        for other in self.search(family):
            if other.info.run_id != run_id and other.info.status == "RUNNING":
                self.client.set_tag(other.info.run_id, ENDED_TAG, "its process died, and another training has taken its place")
                self.client.set_terminated(other.info.run_id, "KILLED")

    def _take_tags(self, run_id: str, identity: RunIdentity, entry: Entry) -> None:
        from mlflow.entities import RunTag

        tags = [RunTag(name, str(value)[:LONGEST_TAG]) for name, value in entry["values"].items()]
        for i in range(0, len(tags), PARAMS_A_BATCH):
            self.client.log_batch(run_id, tags=tags[i : i + PARAMS_A_BATCH])

    def _take_params(self, run_id: str, identity: RunIdentity, entry: Entry) -> None:
        """MLflow never lets a parameter change: one that did (a device, say) is told in a tag."""
        from mlflow.entities import Param

        known = self.client.get_run(run_id).data.params
        values = {name: str(value)[:LONGEST_PARAM] for name, value in entry["values"].items()}
        new = [Param(name, value) for name, value in values.items() if name not in known]
        for i in range(0, len(new), PARAMS_A_BATCH):
            self.client.log_batch(run_id, params=new[i : i + PARAMS_A_BATCH])
        changed = {f"changed.{name}": value for name, value in values.items() if known.get(name, value) != value}
        if changed:
            self._take_tags(run_id, identity, {"values": changed})

    def _take_metrics(self, run_id: str, identity: RunIdentity, entry: Entry) -> None:
        from mlflow.entities import Metric

        step, at = int(entry["step"]), int(entry["time"])
        metrics = [Metric(name, float(value), at, step) for name, value in entry["values"].items()]
        for i in range(0, len(metrics), METRICS_A_BATCH):
            self.client.log_batch(run_id, metrics=metrics[i : i + METRICS_A_BATCH])

    def _take_epochs(self, run_id: str, identity: RunIdentity, entry: Entry) -> None:
        """Epochs that were trained but, their process killed in between, never told."""
        prefix = entry.get("prefix", "")  # of a member of an ensemble
        told = {metric.step for metric in self.client.get_metric_history(run_id, f"{prefix}epoch")}
        for epoch in entry["epochs"]:
            if int(epoch["epoch"]) not in told:
                values = {f"{prefix}{name}": value for name, value in epoch.items()}
                self._take_metrics(run_id, identity, {"step": epoch["epoch"], "time": entry["time"], "values": values})

    def _take_inputs(self, run_id: str, identity: RunIdentity, entry: Entry) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag

        datasets = [
            DatasetInput(
                Dataset(said["name"], said["digest"], "uqlob", said["source"], profile=said["profile"]),
                [InputTag("mlflow.data.context", said["context"])],
            )
            for said in entry["datasets"]
        ]
        self.client.log_inputs(run_id, datasets)

    def _take_artifact(self, run_id: str, identity: RunIdentity, entry: Entry) -> None:
        path = self.lake.root / entry["path"]
        if self._replaced(entry):
            return
        if path.is_dir():
            self.client.log_artifacts(run_id, str(path), entry["to"])
        elif path.exists():
            self.client.log_artifact(run_id, str(path), entry["to"])

    def _replaced(self, entry: Entry) -> bool:
        """Whether a later training has taken the place of the one that the entry is about, while it waited in the journal."""
        weights = {self.lake.root / path: version for path, version in entry.get("weights", {}).items()}
        return any(not path.is_file() or file_hash(path) != version for path, version in weights.items())

    def _take_model(self, run_id: str, identity: RunIdentity, entry: Entry) -> None:
        from uqlob_pipeline.model_registry import register

        if not self._replaced(entry):
            members = [str(self.lake.root / member) for member in entry["members"]]
            number = register(self.client, run_id, {**entry, "members": members})
            self._take_tags(run_id, identity, {"values": {"uqlob.registered_model": f"{entry['name']} version {number}"}})

    def _take_end(self, run_id: str, identity: RunIdentity, entry: Entry) -> None:
        if entry.get("why"):
            self._take_tags(run_id, identity, {"values": {ENDED_TAG: entry["why"]}})
        # What waited in the journal may have ended before MLflow made its run.
        started = self.client.get_run(run_id).info.start_time
        self.client.set_terminated(run_id, entry["status"], end_time=max(entry["time"], started))
