-- dataset_profile/drift: one row a symbol, horizon and class that has both a training and a test split.
--
-- Eq. D(s, c, h): how far the share of a class in the test split lies from that in training, in percentage points.
--
-- parameters: $proportions dataset_profile/class_proportions
with

train as (
    select symbol, horizon_s, class, share from read_parquet($proportions) where split = 'train'
),

test as (
    select symbol, horizon_s, class, share from read_parquet($proportions) where split = 'test'
)

select symbol, horizon_s, class, 100 * abs(train.share - test.share) as drift_pp
from train
join test using (symbol, horizon_s, class)
order by symbol, horizon_s, list_position(['down', 'up', 'stationary'], class)
