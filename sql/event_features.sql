-- event_features: one row a kept event of one asset-day, in the order of the book's events.
--
-- What a model may see of an event: its token, seven continuous features (raw: scaling travels inside the model), and
-- the window and position that it has. Everything is known once the event's message is. Nothing crosses a session.
-- Every `over ()` below reads the file in its order (seq) and stays on DuckDB's streaming window operator: the day is
-- never sorted or held. A sum over the last n events is the running sum less the running sum n events ago.
--
-- parameters: $events book_events of the asset-day; $bins token_bins of the symbol; $window_length events a window (L);
--             $flow 'dnfi' as the paper prints it, 'ofi' for the order-flow imbalance of Cont et al.
with

-- A window is L consecutive events of one session; windows are numbered through the day; a session's tail has none.
sessions as (
    select
        session,
        first_seq,
        events // $window_length as windows,
        coalesce(sum(events // $window_length) over (order by session rows between unbounded preceding and 1 preceding), 0) as first_window
    from (select session, min(seq) as first_seq, count(*) as events from read_parquet($events) group by session)
),

events as (
    select
        *,
        lag(session) over () as session_before,
        lag(ts) over () as ts_before,
        lag(bid_ticks) over () as bid_ticks_before,
        lag(ask_ticks) over () as ask_ticks_before,
        lag(bid_lots) over () as bid_lots_before,
        lag(ask_lots) over () as ask_lots_before
    from read_parquet($events)
),

-- Distance is counted from the opposing best quote of the book after the message (docs/decisions.md says why).
attributes as (
    select
        seq, session, ts, type, side, lots,
        coalesce(session = session_before, false) as follows,
        ts - ts_before as dt,
        greatest(if(side = 0, ask_ticks - price_ticks, price_ticks - bid_ticks), 1) as distance,
        bid_lots + ask_lots as depth,
        bid_lots - ask_lots as imbalance,
        case $flow
            -- Eq. DNFI, numerator: the change of the best bid's queue less that of the best ask's
            when 'dnfi' then (bid_lots - bid_lots_before) - (ask_lots - ask_lots_before)
            -- Cont et al. 2014: a queue that a better price replaced counts whole
            else if(bid_ticks >= bid_ticks_before, bid_lots, 0) - if(bid_ticks <= bid_ticks_before, bid_lots_before, 0)
                - if(ask_ticks <= ask_ticks_before, ask_lots, 0) + if(ask_ticks >= ask_ticks_before, ask_lots_before, 0)
        end as net_flow
    from events
),

flows as (
    select
        *,
        if(follows and depth > 0, greatest(-1, least(1, net_flow / depth)), 0) as dnfi,
        if(depth > 0, imbalance / depth, 0) as qi
    from attributes
),

-- Addends on a grid of 2^-26 make every running sum exact, so that no sum depends on what was added before its span.
running as (
    select *, sum(round(dnfi * 67108864)) over (rows between unbounded preceding and current row) as running_flow
    from flows
),

spans as (
    select
        *,
        arg_max(running_flow, session) filter (where not follows) over (rows between unbounded preceding and current row) as flow_before_session,
        lag(running_flow, 50) over () as flow_50_ago,
        lag(running_flow, 200) over () as flow_200_ago
    from running
)

select
    seq,
    ts,
    if(seq - first_seq < windows * $window_length, first_window + (seq - first_seq) // $window_length, null)::integer as "window",
    ((seq - first_seq) % $window_length)::usmallint as position,
    if(
        type = 3,
        432 + side * 2 + (follows and dt = 0)::integer,
        (((type * 2 + side) * 6
            + (lots > $volume_edges[1])::integer + (lots > $volume_edges[2])::integer + (lots > $volume_edges[3])::integer
            + (lots > $volume_edges[4])::integer + (lots > $volume_edges[5])::integer) * 6
            + (distance > $distance_edges[1])::integer + (distance > $distance_edges[2])::integer + (distance > $distance_edges[3])::integer
            + (distance > $distance_edges[4])::integer + (distance > $distance_edges[5])::integer) * 2
            + (follows and dt = 0)::integer
    )::usmallint as token,
    if(follows, ln(1 + dt / 1000), 0)::float as log_dt,
    ln(distance)::float as log_distance,
    ln(greatest(lots, 1) / $median_lots)::float as log_volume,
    dnfi::float as dnfi,
    ((running_flow - if(seq - first_seq < 50, flow_before_session, flow_50_ago)) / 67108864)::float as dnfi_50,
    ((running_flow - if(seq - first_seq < 200, flow_before_session, flow_200_ago)) / 67108864)::float as dnfi_200,
    qi::float as qi
from spans
join sessions using (session)
