"""The study group: one partition per row, seed and model. The work is in `uqlob_pipeline.models.study`."""

import dagster as dg

from uqlob_pipeline.defs.materialization import Done
from uqlob_pipeline.defs.models.assets import link
from uqlob_pipeline.defs.table_assets import GPU, Site, table_asset
from uqlob_pipeline.lake.layout import StudyKey
from uqlob_pipeline.models.study.rows import ROWS, write_study_row
from uqlob_pipeline.tracking import study_runs
from uqlob_pipeline.tracking.origin import Origin


@table_asset(ROWS, kinds={"pytorch", "scikitlearn", "parquet", "mlflow"}, pool=GPU)
def study_rows(site: Site, context: dg.AssetExecutionContext, key: StudyKey, _: dg.Config) -> Done:
    done = write_study_row(site.lake, site.profile, key, context.log.info)
    url = study_runs.row_written(site.tracking, site.lake, key, done, Origin.of(context), context.log.info)
    metadata = {
        "dagster/partition_row_count": done.scores.num_rows,
        "dagster/uri": str(site.lake.by_study_row(ROWS, key)),
        "table": done.variant.table,
        "row": done.variant.title,
        "mode": done.mode or "no head is trained",
        **{name: round(value, 4) for name, value in done.headline.items() if value == value},
        **link(url),
    }
    return Done(done.provenance, metadata)


ASSETS = [study_rows]
