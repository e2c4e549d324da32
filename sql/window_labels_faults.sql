-- window_labels_faults: one row per asset-day.
--
-- Counts of the faults in the asset-day's window_labels. Every fault count is zero in a valid file.
--
-- parameters: $labels window_labels of the asset-day; $features its event_features; $window_length events per window (L);
--             $horizons number of horizons; $latency_ns latency d in ns
with

labels as (
    select * from read_parquet($labels)
),

windows as (
    select "window", ts as t_end from read_parquet($features) where "window" is not null and position = $window_length - 1
)

select
    (select count(*) from labels) as labels,
    (select count(*) from labels where not (isfinite(y) and isfinite(p_start) and isfinite(p_end) and isfinite(delta))) as not_finite,
    (select count(*) from labels where y is not null and (label is null or p_start is null or p_end is null or delta is null))
        + (select count(*) from labels where y is null and label is not null) as half_known,
    (select count(*) from labels where t_start != t_end + $latency_ns) as start_not_after_latency,
    (select count(*) from labels where delta <= 0 or label > 2) as threshold_or_class_out_of_range,
    (select count(*) from windows) * $horizons - (select count(*) from labels) as labels_missing,
    (select count(*) from labels left join windows using ("window") where windows.t_end is distinct from labels.t_end) as other_windows
