"""Links from an MLflow run back to the Dagster run that made it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from uqlob_pipeline.lake.provenance import Provenance
from uqlob_pipeline.tracking.client import Tracking

if TYPE_CHECKING:
    import dagster as dg


@dataclass(frozen=True)
class Origin:
    """The Dagster run that materialised an asset."""

    run_id: str
    partition: str
    asset: str

    @classmethod
    def of(cls, context: "dg.AssetExecutionContext") -> "Origin":
        partition = str(context.partition_key) if context.has_partition_key else ""
        return cls(context.run.run_id, partition, context.asset_key.to_user_string())

    def tags(self, tracking: Tracking, provenance: Provenance) -> dict[str, str]:
        url = f"{tracking.dagster_ui}/runs/{self.run_id}"
        return {
            "dagster.run_id": self.run_id,
            "dagster.partition": self.partition,
            "dagster.asset": self.asset,
            "dagster.url": url,
            "code_version": provenance.code_version,
            "data_version": provenance.data_version,
            "settings_version": provenance.settings_version,
            "mlflow.note.content": f"Made by [Dagster run {self.run_id[:8]}]({url}), {self.asset} {self.partition}.",
        }
