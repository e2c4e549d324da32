-- Grain: one row for each of 240 equal parts of an asset-day's recorded time: what the small plot of a day shows.
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
