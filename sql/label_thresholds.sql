-- label_thresholds: one row per horizon of the symbol.
--
-- Statistics of the mid-price moves of the training days: the scale of the log-return, the class threshold, the scale of the
-- displacement, and the resulting class shares.
--
-- parameters: $prices window_prices of the training days; $symbol; $alpha; $y_ref 'median' or 'paper';
--             $printed the paper's y_ref values as a list of {horizon_s, y_ref}
with

windows as (
    select filename, "window", horizon_s, p_start, y, ln(p_end / p_start) as log_return
    from read_parquet($prices, filename = true, hive_partitioning = false)
    where y is not null
),

-- sigma_LR and Eq. tau_LR = alpha * sigma_LR. A fixed order of summation makes the result reproducible.
scales as (
    select
        horizon_s,
        count(*) as windows,
        stddev_samp(log_return order by filename, "window") as sigma_lr,
        $alpha * stddev_samp(log_return order by filename, "window") as tau_lr,
        median(abs(y)) filter (where y != 0) as median_move,
        count(*) filter (where y = 0) / count(*) as zero_share
    from windows
    group by horizon_s
),

printed as (
    select unnest($printed::struct(horizon_s integer, y_ref double)[], recursive := true)
),

classes as (
    select
        horizon_s,
        count(*) filter (where y <= -p_start * (exp(tau_lr) - 1)) / count(*) as down_share,
        count(*) filter (where y >= p_start * (exp(tau_lr) - 1)) / count(*) as up_share
    from windows
    join scales using (horizon_s)
    group by horizon_s
)

select
    $symbol as symbol,
    scales.horizon_s,
    sigma_lr,
    tau_lr,
    -- The paper prints values without a rule. The rule here: the median of |y| over y != 0, at least one tick.
    if($y_ref = 'paper', printed.y_ref, greatest(coalesce(median_move, 1), 1)) as y_ref,
    windows,
    zero_share,
    down_share,
    up_share,
    1 - down_share - up_share as stationary_share
from scales
join classes using (horizon_s)
left join printed using (horizon_s)
order by scales.horizon_s
