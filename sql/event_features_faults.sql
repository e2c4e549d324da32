-- event_features_faults: one row per asset-day.
--
-- Counts of the faults in the asset-day's event_features. Every fault count is zero in a valid file.
--
-- parameters: $features event_features of the asset-day; $window_length events per window (L)
with

events as (
    select
        count(*) as events,
        count(*) filter (
            where not (
                isfinite(log_dt) and isfinite(log_distance) and isfinite(log_volume) and isfinite(dnfi)
                and isfinite(dnfi_50) and isfinite(dnfi_200) and isfinite(qi)
            ) or log_dt is null or log_distance is null or log_volume is null or dnfi is null
            or dnfi_50 is null or dnfi_200 is null or qi is null
        ) as not_finite,
        count(*) filter (where abs(dnfi) > 1 or abs(dnfi_50) > 50 or abs(dnfi_200) > 200) as flow_out_of_range,
        count(*) filter (where abs(qi) > 1) as qi_out_of_range,
        count(*) filter (where log_dt < 0 or log_distance < 0) as negative_logarithms,
        count(*) filter (where token > 438) as token_out_of_range
    from read_parquet($features)
),

windows as (
    select
        "window",
        count(*) = $window_length and min(position) = 0 and max(position) = $window_length - 1
            and min(seq - position) = max(seq - position) as whole,
        min(seq) as first_seq,
        min(ts) as first_ts
    from read_parquet($features)
    where "window" is not null
    group by "window"
),

numbered as (
    select
        *,
        row_number() over (order by first_seq) - 1 as expected_window
    from windows
)

select
    events.*,
    (select count(*) from windows) as windows,
    (select count(*) from numbered where not whole) as broken_windows,
    (select count(*) from numbered where "window" != expected_window) as windows_out_of_order
from events
