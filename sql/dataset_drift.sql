-- dataset_profile/drift: one row per symbol, horizon and class that occurs in both the training and the test split.
--
-- Eq. D(s, c, h): absolute difference between the shares of a class in the test and the training split, in percentage points.
--
-- parameters: $proportions path of dataset_profile/class_proportions
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
