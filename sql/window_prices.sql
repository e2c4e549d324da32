-- window_prices: one row a window of one asset-day and horizon.
--
-- Where the mid-price stood once one could have acted on the window, and where it stood a horizon later. Prices are
-- mid-prices in ticks. No threshold enters here: the training days' rows are what label_thresholds is fitted on.
-- Nothing crosses a session; what the session does not show is null.
-- Where events share a time, the first of them is the one that came first, the last the one that came last (seq).
--
-- parameters: $events book_events of the asset-day; $window_length events a window (L); $horizons_s horizons in seconds;
--             $latency_ns delay d; $k events whose mean mid-price is the end price
with

sessions as (
    select session, min(seq) as first_seq, max(seq) as last_seq, max(ts) as last_ts
    from read_parquet($events)
    group by session
),

-- t_end, the time of a window's last event, is the model's present; t_start = t_end + d is when it can have acted.
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

-- h = 0 stands for the last nanosecond before t_start: the event after it is the first at or after t_start.
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

-- The events that make the prices: one for the start, the k last ones for the end. None may lie in another session.
wanted as (
    select "window", t_start, horizon_s, coalesce(seq_before + 1, first_seq) as seq, first_seq, last_seq from located where horizon_s = 0
    union all
    select "window", t_start, horizon_s, seq_before - unnest(range($k)) as seq, first_seq, last_seq from located where horizon_s > 0
),

-- The mid-price in half ticks is an integer, so that sums and displacements are exact.
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

-- Eq. end price: k events, all within [t_start, t_start + h], and a session that outlives the horizon
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
