-- label_balance: one row per horizon of one asset-day.
--
-- Share of windows without a label, and class shares of the labelled windows.
--
-- parameters: $labels window_labels of the asset-day
select
    horizon_s,
    count(*) as windows,
    1 - count(label) / count(*) as null_share,
    count(*) filter (where label = 0) / nullif(count(label), 0) as down_share,
    count(*) filter (where label = 1) / nullif(count(label), 0) as up_share,
    count(*) filter (where label = 2) / nullif(count(label), 0) as stationary_share
from read_parquet($labels)
group by horizon_s
order by horizon_s
