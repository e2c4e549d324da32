-- dataset_profile/thresholds: one row per symbol and horizon.
--
-- The paper's table of label thresholds and scales.
--
-- parameters: $thresholds the label_thresholds file of each symbol that has one
select symbol, horizon_s, sigma_lr, tau_lr, y_ref, windows, zero_share
from read_parquet($thresholds)
order by symbol, horizon_s
