-- window_prices: one row per window and horizon of one asset-day.
--
-- The mid-price when a trader could first act on the window, and the mid-price one horizon later, in ticks. No threshold is used
-- here, because label_thresholds is fitted on these rows. Nothing crosses a session. A price that the session does not show is
-- null.
-- Events with equal times are ordered by seq.
--
-- parameters: $events book_events of the asset-day; $window_length events per window (L); $horizons_s horizons in seconds;
--             $latency_ns latency d in ns; $k number of events whose mean mid-price is the end price
with

sessions as (
    select session, min(seq) as first_seq, max(seq) as last_seq, max(ts) as last_ts
    from read_parquet($events)
    group by session
),

-- t_end is the time of the window's last event, when the forecast is made. t_start = t_end + d is the earliest time to act on it.
windows as (
    select
        row_number() over (order by seq) - 1 as "window",
        session, first_seq, last_seq, last_ts,
        ts as t_end,
        ts + $latency_ns as t_start
    from read_parquet($events)
    join sessions using (session)
    where (seq - first_seq + 1) % $window_length = 0
),

-- horizon_s = 0 marks the last nanosecond before t_start: the next event is the first at or after t_start.
moments as (
    select "window", session, first_seq, last_seq, t_start, 0 as horizon_s, t_start - 1 as moment from windows
    union all
    select "window", session, first_seq, last_seq, t_start, horizon_s, t_start + horizon_s * 1_000_000_000 as moment
    from windows, (select unnest($horizons_s::bigint[]) as horizon_s)
),

last_at_their_time as (
    select session, ts, seq
    from (select session, ts, seq, lead(session) over () as session_after, lead(ts) over () as ts_after from read_parquet($events))
    where (session = session_after and ts = ts_after) is not true
),

located as (
    select moments.*, last_at_their_time.seq as seq_before
    from moments
    asof left join last_at_their_time on moments.session = last_at_their_time.session and moments.moment >= last_at_their_time.ts
),

-- The events that the prices are computed from: one for the start, the last k for the end. All lie in the window's session.
wanted as (
    select "window", t_start, horizon_s, coalesce(seq_before + 1, first_seq) as seq, first_seq, last_seq from located where horizon_s = 0
    union all
    select "window", t_start, horizon_s, seq_before - unnest(range($k)) as seq, first_seq, last_seq from located where horizon_s > 0
),

-- The mid-price in half ticks is an integer, so sums and displacements are exact.
priced as (
    select "window", horizon_s, count(*) as events, min(ts) >= any_value(t_start) as all_after_start, sum(bid_ticks + ask_ticks) as half_ticks
    from wanted
    join read_parquet($events) using (seq)
    where seq between first_seq and last_seq
    group by "window", horizon_s
),

starts as (
    select "window", half_ticks from priced where horizon_s = 0
),

-- Eq. end price: k events, all within [t_start, t_start + h]. The final select requires a session that lasts to the horizon's end.
ends as (
    select "window", horizon_s, half_ticks from priced where horizon_s > 0 and events = $k and all_after_start
)

select
    windows."window"::integer as "window",
    session::integer as session,
    t_end,
    horizons.horizon_s::integer as horizon_s,
    t_start,
    starts.half_ticks / 2 as p_start,
    if(t_start + horizons.horizon_s * 1_000_000_000 <= last_ts, ends.half_ticks / (2 * $k), null) as p_end,
    if(t_start + horizons.horizon_s * 1_000_000_000 <= last_ts, (ends.half_ticks - $k * starts.half_ticks) / (2 * $k), null) as y
from windows
cross join (select unnest($horizons_s::bigint[]) as horizon_s) as horizons
left join starts on windows."window" = starts."window"
left join ends on windows."window" = ends."window" and horizons.horizon_s = ends.horizon_s
order by windows."window", horizons.horizon_s
