-- dataset_profile/dataset: one row per symbol.
--
-- The paper's table of dataset characteristics, over all splits. Time is counted within sessions: a pause between two sessions is
-- not market time.
--
-- parameters: $events list of {symbol, path}, the book_events file of each available asset-day; $paths the same paths;
--             $ticks list of {symbol, tick, place}, where place is the symbol's position in the output
with

days as (
    select unnest($events::struct(symbol varchar, path varchar)[], recursive := true)
),

instruments as (
    select unnest($ticks::struct(symbol varchar, tick double, place integer)[], recursive := true)
),

sessions as (
    select filename as path, session, count(*) as events, max(ts) - min(ts) as nanoseconds
    from read_parquet($paths, filename = true, hive_partitioning = false)
    group by filename, session
),

symbols as (
    select
        symbol,
        count(distinct path) as days,
        sum(events)::bigint as events,
        sum(nanoseconds) / nullif(sum(events - 1), 0) / 1_000_000 as inter_event_ms
    from sessions
    join days using (path)
    group by symbol
)

select
    symbol,
    tick,
    days,
    events,
    events / days as events_per_day,
    1000 / nullif(inter_event_ms, 0) as events_per_second,
    inter_event_ms,
    5 * 1000 / nullif(inter_event_ms, 0) as events_5s,
    10 * 1000 / nullif(inter_event_ms, 0) as events_10s,
    15 * 1000 / nullif(inter_event_ms, 0) as events_15s
from symbols
join instruments using (symbol)
order by place
