-- event_features: one row per kept event of one asset-day, in the order of book_events.
--
-- What a model may see of an event: its token, seven continuous features, and its window and position. The features are raw;
-- scaling is part of the model. Every value is known once the event's message is received. Nothing crosses a session.
-- Every `over ()` below reads the file in its order (seq) and uses DuckDB's streaming window operator, so that the day is neither
-- sorted nor held in memory. The sum over the last n events is the running sum minus the running sum n events earlier.
--
-- parameters: $events book_events of the asset-day; $window_length events per window (L);
--             $flow 'dnfi' for the paper's equation, 'ofi' for the order-flow imbalance of Cont et al.;
--             $volume_edges, $distance_edges, $median_lots the columns of the symbol's token_bins
with

-- A window is L consecutive events of one session. Windows are numbered through the day. The remaining events of a session,
-- fewer than L, belong to no window.
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

-- Distance is measured from the opposing best quote of the book after the message (reason: docs/decisions.md).
attributes as (
    select
        seq, session, ts, type, side, lots,
        coalesce(session = session_before, false) as follows,
        ts - ts_before as dt,
        greatest(if(side = 0, ask_ticks - price_ticks, price_ticks - bid_ticks), 1) as distance,
        bid_lots + ask_lots as depth,
        bid_lots - ask_lots as imbalance,
        case $flow
            -- Eq. DNFI, numerator: the change of the queue at the best bid minus that at the best ask
            when 'dnfi' then (bid_lots - bid_lots_before) - (ask_lots - ask_lots_before)
            -- Cont et al. 2014: when the best price changes, the whole queue counts
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

-- Addends rounded to 2^-26 make every running sum exact, so that the sum over a span does not depend on earlier events.
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
