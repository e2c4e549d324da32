-- Grain: one row a pair of an instrument dump: the increments and precisions that Kraken announced.
with lines as (
    select unnest(data.pairs) as pair
    from read_json(
        $files,
        format = 'newline_delimited',
        ignore_errors = true,
        maximum_object_size = 67108864,
        columns = {
            'channel': 'varchar',
            'data': 'struct(pairs struct(symbol varchar, price_increment decimal(18,10), price_precision integer, qty_precision integer)[])'
        }
    )
    where channel = 'instrument'
)
select distinct
    pair.symbol as symbol,
    pair.price_increment as price_increment,
    pair.price_precision as price_precision,
    pair.qty_precision as qty_precision
from lines
where pair.symbol = $symbol
