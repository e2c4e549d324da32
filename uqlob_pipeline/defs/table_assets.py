"""How a table of the registry becomes a Dagster asset.

The registry gives an asset its name, partitions, dependencies, description, columns and code version; the decorated function
does the work. Assets are built per profile, since partitions depend on it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dagster as dg

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.defs.executor import lock_database, resources_on_ray
from uqlob_pipeline.defs.failures import translate_errors
from uqlob_pipeline.defs.materialization import DAYS_PER_RUN, Done, materialize_days, materialize_one
from uqlob_pipeline.defs.partitions import Partitions, mapping, partition_of
from uqlob_pipeline.lake.layout import AssetDay, Lake, ModelKey
from uqlob_pipeline.lake.shared_lake import working_copy
from uqlob_pipeline.lake.table import Input, Table
from uqlob_pipeline.lake.table_registry import RAW_DUMPS, REGISTRY, STAGES
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.models.joint_stages import TASKS, UNIVERSAL
from uqlob_pipeline.tracking.client import Tracking

OWNERS = ["team:uqlob"]
GPU = "gpu"  # the pool of whatever runs a model
LAYERS = {"market": "events"}  # tag of a group where it differs from the group's name


@dataclass(frozen=True)
class Site:
    """What every asset works with."""

    lake: Lake
    warehouse: Warehouse
    profile: Profile
    tracking: Tracking


class NoConfig(dg.Config):
    """An asset without run configuration."""


@dataclass(frozen=True)
class TableAsset:
    """An asset without its partitions, which the profile brings.

    `work` makes one partition: `work(site, context, key, config)`, where the key is an AssetDay, a symbol, a ModelKey or None.
    """

    table: Table
    work: Callable[..., Done]
    config: type[dg.Config]
    observe: Callable[[Lake, AssetDay], dg.AssetObservation] | None
    options: dict[str, Any]

    def _made(self, site: Site, context: dg.AssetExecutionContext, key: Any, config: dg.Config) -> Done:
        """Make a partition and publish it before its materialisation is reported to Dagster."""
        if self.table.group in ("models", "evaluation") and isinstance(key, AssetDay | ModelKey):
            universal = site.profile.training.joint == "universal"
            symbols = [*site.profile.symbols, UNIVERSAL] if universal else [key.symbol]
            models = site.lake.root / "models"
            site.lake.fetch(*(models / stage / f"symbol={symbol}" for stage in (*STAGES, *TASKS) for symbol in symbols))
        done = self.work(site, context, key, config)
        site.lake.publish()
        return done

    def build(self, profile: Profile, partitions: Partitions) -> dg.AssetsDefinition:
        table = self.table

        def compute(
            context: dg.AssetExecutionContext,
            config: self.config,  # type: ignore[name-defined]
            lake: dg.ResourceParam[Lake],
            warehouse: dg.ResourceParam[Warehouse],
            profile: dg.ResourceParam[Profile],
            tracking: dg.ResourceParam[Tracking],
        ) -> Iterator[Any]:
            with translate_errors(context), _workplace(Site(lake, warehouse, profile, tracking), context) as site:
                if table.grain == "day":
                    yield from materialize_days(
                        context, site.lake, profile, lambda day: self._made(site, context, day, config), self.observe
                    )
                else:
                    key = partition_of(context) if table.grain != "all" else None
                    yield from materialize_one(context, lambda: self._made(site, context, key, config))

        backfill = dg.BackfillPolicy.multi_run(max_partitions_per_run=DAYS_PER_RUN) if table.grain == "day" else None
        return dg.asset(
            name=table.name,
            description=table.description,
            partitions_def=partitions.of_table(table),
            deps=[_dependency(profile, table, source) for source in table.inputs],
            group_name=table.group,
            owners=OWNERS,
            code_version=table.code_version,
            metadata=column_schema(table),
            backfill_policy=backfill,
            op_tags=resources_on_ray(table),
            **self.options,
        )(compute)


@contextmanager
def _workplace(site: Site, context: dg.AssetExecutionContext) -> Iterator[Site]:
    """Where a step works: in the lake, or in a copy of a lake in a store, from which the results are published."""
    with working_copy(site.lake, context.log.warning, lock_database(context.instance)) as lake:
        if lake is site.lake:
            yield site
        else:
            yield Site(lake, Warehouse(lake, site.warehouse.settings), site.profile, site.tracking.of(lake))


def table_asset(
    name: str,
    *,
    kinds: set[str],
    tags: dict[str, str] | None = None,
    config: type[dg.Config] = NoConfig,
    observe: Callable[[Lake, AssetDay], dg.AssetObservation] | None = None,
    **options: Any,
) -> Callable[[Callable[..., Done]], TableAsset]:
    """Declare the function that makes one partition of a table.

    `observe` reports what an external input of a day looks like just before it is read.
    """
    table = REGISTRY[name]
    options |= {"kinds": kinds, "tags": {"layer": LAYERS.get(table.group, table.group), **(tags or {})}}
    return lambda work: TableAsset(table, work, config, observe, options)


def _dependency(profile: Profile, table: Table, source: Input) -> dg.AssetDep:
    grain = "day" if source.table == RAW_DUMPS else REGISTRY[source.table].grain
    all_symbols = profile.training.joint == "universal" and table.name in STAGES
    chosen = mapping(profile, table.grain, grain, source.splits, all_symbols=all_symbols)
    return dg.AssetDep(source.table, partition_mapping=chosen)


def column_schema(table: Table) -> dict[str, Any]:
    """The asset metadata that shows a table's columns and their meaning in Dagster's catalogue."""
    if not table.columns:
        return {}
    columns = [dg.TableColumn(column.name, column.type, description=column.description) for column in table.columns]
    return {"dagster/column_schema": dg.TableSchema(columns=columns)}
