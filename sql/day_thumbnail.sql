-- day_thumbnail: one row per part of an asset-day, divided into 240 parts of equal duration.
--
-- Mid-price and event rate for the small plot of a day in Dagster's event log. The parts run from the first
-- to the last event. A part without events has no row.
--
-- parameters: $events book_events of the asset-day
with bounds as (
    select min(ts) as first_ts, max(ts) - min(ts) + 1 as nanoseconds
    from read_parquet($events)
)
select
    ((ts - first_ts)::hugeint * 240 // nanoseconds)::integer as part,
    avg(bid_ticks + ask_ticks) / 2 as mid,
    count(*) * 240e9 / nanoseconds as rate,
    (first_ts / 1e9 % 86400 + (part + 0.5) * nanoseconds / 240e9) / 3600 as hour
from read_parquet($events), bounds
group by part, first_ts, nanoseconds
order by part
