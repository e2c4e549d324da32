-- window_labels: one row per window and horizon of one asset-day.
--
-- What a model must predict for a window: the displacement y in ticks, and its class according to the threshold fitted on the
-- training days. y and label are null where the label cannot be known; delta is null where the session has no
-- start price.
--
-- parameters: $prices window_prices of the asset-day; $thresholds label_thresholds of the symbol
with

thresholds as (
    select horizon_s, tau_lr from read_parquet($thresholds)
),

-- Eq. delta_h(t): the log-return threshold converted to a displacement at the start price of the window
displaced as (
    select prices.*, p_start * (exp(tau_lr) - 1) as delta
    from read_parquet($prices) as prices
    join thresholds using (horizon_s)
)

select
    "window",
    session,
    t_end,
    horizon_s,
    t_start,
    p_start,
    p_end,
    y,
    delta,
    -- Eq. label rule: 0 down, 1 up, 2 stationary
    case when y is null then null when y >= delta then 1 when y <= -delta then 0 else 2 end::utinyint as label
from displaced
order by "window", horizon_s
