-- token_bins: one row per symbol.
--
-- Sextile edges of volume and of distance, and the median quantity, over all kept events of the training days.
-- An edge is the smallest value that at least i/6 of the events do not exceed. The bin of a value is the number of edges below it.
-- Equal values therefore share one bin. If one value holds more than a sixth of the events, the bins after it are empty.
-- Execution tokens carry no bins, so executions do not count for the edges. They count for the median.
-- Values are rounded up to four significant digits and counted, and the counts are ranked. Memory does not grow with the number
-- of events, and round quantities stay exact.
--
-- parameters: $events book_events of the training days; $symbol
with

events as (
    select
        type,
        greatest(lots, 1) as lots,
        greatest(if(side = 0, ask_ticks - price_ticks, price_ticks - bid_ticks), 1) as distance
    from read_parquet($events)
),

stepped as (
    select
        *,
        (10 ** greatest(floor(log10(lots)) - 3, 0))::bigint as lots_step,
        (10 ** greatest(floor(log10(distance)) - 3, 0))::bigint as distance_step
    from events
),

rounded as (
    select
        type = 3 as execution,
        (lots + lots_step - 1) // lots_step * lots_step as lots,
        (distance + distance_step - 1) // distance_step * distance_step as distance
    from stepped
),

counted as (
    select
        if(lots is not null, 'volume', 'distance') as attribute,
        coalesce(lots, distance) as value,
        count(*) as events,
        count(*) filter (where not execution) as binned
    from rounded
    group by grouping sets ((lots), (distance))
),

ranked as (
    select attribute, value, binned, sum(events) over in_order as events_to, sum(binned) over in_order as binned_to
    from counted
    window in_order as (partition by attribute order by value rows between unbounded preceding and current row)
),

totals as (
    select attribute, max(events_to) as events, max(binned_to) as binned_events
    from ranked
    group by attribute
),

edges as (
    select
        attribute,
        any_value(events) as events,
        any_value(binned_events) as binned_events,
        min(value) filter (where 2 * events_to >= events) as median,
        [
            min(value) filter (where 6 * binned_to >= 1 * binned_events),
            min(value) filter (where 6 * binned_to >= 2 * binned_events),
            min(value) filter (where 6 * binned_to >= 3 * binned_events),
            min(value) filter (where 6 * binned_to >= 4 * binned_events),
            min(value) filter (where 6 * binned_to >= 5 * binned_events)
        ] as edges
    from ranked
    join totals using (attribute)
    group by attribute
),

-- Share of the events in each bin: a sixth, unless values tie.
filled as (
    select
        attribute,
        any_value(edges) as edges,
        any_value(median) as median,
        any_value(events) as events,
        any_value(binned_events) as binned_events,
        [
            coalesce(sum(binned) filter (where value <= edges[1]), 0) / any_value(binned_events),
            coalesce(sum(binned) filter (where value > edges[1] and value <= edges[2]), 0) / any_value(binned_events),
            coalesce(sum(binned) filter (where value > edges[2] and value <= edges[3]), 0) / any_value(binned_events),
            coalesce(sum(binned) filter (where value > edges[3] and value <= edges[4]), 0) / any_value(binned_events),
            coalesce(sum(binned) filter (where value > edges[4] and value <= edges[5]), 0) / any_value(binned_events),
            coalesce(sum(binned) filter (where value > edges[5]), 0) / any_value(binned_events)
        ] as shares
    from ranked
    join edges using (attribute)
    group by attribute
)

select
    $symbol as symbol,
    volume.events::bigint as events,
    volume.binned_events::bigint as binned_events,
    volume.median as median_lots,
    volume.edges as volume_edges,
    distance.edges as distance_edges,
    volume.shares as volume_shares,
    distance.shares as distance_shares
from filled as volume, filled as distance
where volume.attribute = 'volume' and distance.attribute = 'distance'
