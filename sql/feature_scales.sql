-- feature_scales: one row per continuous feature of the symbol, in the order of the model's input.
--
-- Mean and standard deviation over the events in the windows of the training days, which are the events that a model sees.
-- Addends are rounded to 2^-30 and summed as integers, so that the result does not depend on the order in which threads add.
--
-- parameters: $features event_features of the training days; $symbol
with

features as (
    select
        log_dt::double as log_dt,
        log_distance::double as log_distance,
        log_volume::double as log_volume,
        dnfi::double as dnfi,
        dnfi_50::double as dnfi_50,
        dnfi_200::double as dnfi_200,
        qi::double as qi
    from read_parquet($features)
    where "window" is not null
),

sums as (
    select
        count(*) as events,
        [
            {place: 0, feature: 'log_dt', total: sum((log_dt * 1073741824)::bigint), squares: sum((log_dt ** 2 * 1073741824)::bigint)},
            {place: 1, feature: 'log_distance', total: sum((log_distance * 1073741824)::bigint), squares: sum((log_distance ** 2 * 1073741824)::bigint)},
            {place: 2, feature: 'log_volume', total: sum((log_volume * 1073741824)::bigint), squares: sum((log_volume ** 2 * 1073741824)::bigint)},
            {place: 3, feature: 'dnfi', total: sum((dnfi * 1073741824)::bigint), squares: sum((dnfi ** 2 * 1073741824)::bigint)},
            {place: 4, feature: 'dnfi_50', total: sum((dnfi_50 * 1073741824)::bigint), squares: sum((dnfi_50 ** 2 * 1073741824)::bigint)},
            {place: 5, feature: 'dnfi_200', total: sum((dnfi_200 * 1073741824)::bigint), squares: sum((dnfi_200 ** 2 * 1073741824)::bigint)},
            {place: 6, feature: 'qi', total: sum((qi * 1073741824)::bigint), squares: sum((qi ** 2 * 1073741824)::bigint)}
        ] as by_feature
    from features
),

moments as (
    select
        events,
        unnest(by_feature).place as place,
        unnest(by_feature).feature as feature,
        unnest(by_feature).total / 1073741824 / events as mean,
        unnest(by_feature).squares / 1073741824 / events as mean_square
    from sums
)

select
    $symbol as symbol,
    feature,
    mean,
    sqrt(greatest(mean_square - mean ** 2, 0)) as std,
    events
from moments
where events > 0
order by place
