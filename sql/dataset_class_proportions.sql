-- dataset_profile/class_proportions: one row per symbol, horizon, split and class.
--
-- The paper's class proportions: the share of each class among the labelled windows of a split.
--
-- parameters: $labels list of {symbol, split, path}, the window_labels file of each available asset-day;
--             $paths the same paths
with

days as (
    select unnest($labels::struct(symbol varchar, split varchar, path varchar)[], recursive := true)
),

labels as (
    select symbol, split, horizon_s, label
    from read_parquet($paths, filename = true, hive_partitioning = false)
    join days on filename = path
    where label is not null
),

totals as (
    select symbol, horizon_s, split, count(*) as windows
    from labels
    group by symbol, horizon_s, split
),

classes as (
    select unnest([0, 1, 2]) as label, unnest(['down', 'up', 'stationary']) as class
),

counts as (
    select symbol, horizon_s, split, label, count(*) as windows
    from labels
    group by symbol, horizon_s, split, label
)

select
    totals.symbol,
    totals.horizon_s,
    totals.split,
    classes.class,
    coalesce(counts.windows, 0) / totals.windows as share,
    totals.windows
from totals
cross join classes
left join counts using (symbol, horizon_s, split, label)
order by totals.symbol, totals.horizon_s, list_position(['train', 'validation', 'test'], totals.split), classes.label
