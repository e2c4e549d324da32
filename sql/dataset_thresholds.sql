-- dataset_profile/thresholds: one row a symbol and horizon.
--
-- The paper's table of label thresholds and scales.
--
-- parameters: $thresholds label_thresholds of every symbol that has them
select symbol, horizon_s, sigma_lr, tau_lr, y_ref, windows, zero_share
from read_parquet($thresholds)
order by symbol, horizon_s
