"""The study in MLflow: one parent run per table, one run per row, with tags to filter by."""

import math
from dataclasses import asdict
from pathlib import Path

from uqlob_pipeline.lake.layout import Lake, StudyKey
from uqlob_pipeline.lake.log_function import LogFn
from uqlob_pipeline.models.study.rows import ROWS, StudyRowDone
from uqlob_pipeline.tracking.asset_runs import model_params
from uqlob_pipeline.tracking.client import Tracking, now_ms
from uqlob_pipeline.tracking.origin import Origin
from uqlob_pipeline.tracking.outbox import RunIdentity


def table_identity(tracking: Tracking, table: str) -> RunIdentity:
    return RunIdentity(f"study {table}", f"study_{table}", tracking.profile.name)


def row_identity(tracking: Tracking, key: StudyKey, table: str) -> RunIdentity:
    """A row keeps its run when it is made again."""
    return RunIdentity(str(key), "study_row", f"{key.variant}.{key.seed} {key.model}", parent=table_identity(tracking, table))


def row_written(tracking: Tracking, lake: Lake, key: StudyKey, done: StudyRowDone, origin: Origin, log: LogFn) -> str | None:
    variant = done.variant
    run = tracking.open(row_identity(tracking, key, variant.table), log=log)
    run.params({**model_params(key.model), "variant": key.variant, "seed": key.seed, "head": variant.forecasts})
    config = variant.training_config(tracking.profile.training, tracking.profile.study.mode, key.seed)
    run.params({"training": asdict(config)})
    run.tags(
        {
            "study.table": variant.table,
            "study.variant": key.variant,
            "study.title": variant.title,
            "study.method": variant.method,
            "study.mode": done.mode,
            "study.seed": key.seed,
            "study.model": key.model,
        }
    )
    costs = {row["metric"]: row["value"] for row in done.scores.to_pylist() if row["gate_kind"] == "cost"}
    run.metrics({**{name: value for name, value in done.headline.items() if math.isfinite(value)}, **costs})
    run.artifact(lake.by_study_row(ROWS, key), ROWS)
    run.tags(origin.tags(tracking, done.provenance))
    run.add("end", status="FINISHED", why="", time=now_ms())
    run.deliver(now=True)
    tracking.flush_pending(log)
    return run.url


def table_written(tracking: Tracking, table: str, files: list[Path], caption: str, log: LogFn) -> str | None:
    """The table as CSV, and its caption, on the parent run."""
    run = tracking.open(table_identity(tracking, table), log=log)
    for path in files:
        run.artifact(path, "study")
    run.tags({"study.table": table, "mlflow.note.content": caption})
    run.add("end", status="FINISHED", why="", time=now_ms())
    run.deliver(now=True)
    return run.url
