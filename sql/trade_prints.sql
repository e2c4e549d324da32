-- Grain: one row a trade print of an asset-day, in order of time and then of trade id.
-- The side is the taker's; the maker whose order the print explains rests on the other side. A print that two dumps share counts once.
with lines as (
    select unnest(data) as print
    from read_json(
        $files,
        format = 'newline_delimited',
        ignore_errors = true,
        columns = {
            'channel': 'varchar',
            'type': 'varchar',
            'data': 'struct(symbol varchar, side varchar, price decimal(18,8), qty decimal(18,8), trade_id bigint, timestamp varchar)[]'
        }
    )
    where channel = 'trade'
)
select distinct
    epoch_ns(print.timestamp::timestamp_ns) as ts,
    case print.side when 'buy' then 1 else 0 end::utinyint as maker_side,
    print.price as price,
    print.qty as qty,
    print.trade_id as trade_id
from lines
where print.symbol = $symbol
    and print.timestamp is not null
    and print.price is not null
    and print.qty is not null
    and print.side in ('buy', 'sell')
order by ts, trade_id
