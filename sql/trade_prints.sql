-- trade_prints: one row per trade print of a dump, and one row per line without a print, in file order.
--
-- `line` counts the lines of the file from 0 and skips blank ones. Kraken's side is the taker's; `maker_side` is the opposite side,
-- where the order that the print explains was resting. A line that is not JSON becomes a row of nulls. `bad` marks a line, or a
-- print on it, that could not be read.
--
-- parameters: $file path of the dump; $symbol as Kraken writes it
with lines as (
    select
        row_number() over () - 1 as line,
        coalesce(channel, method) is null or (coalesce(channel, '') = 'trade' and data is null) as unreadable,
        unnest(case when channel = 'trade' and len(data) > 0 then data else [null] end) as print
    from read_json(
        $file,
        format = 'newline_delimited',
        ignore_errors = true,
        maximum_object_size = 67108864,
        columns = {
            'channel': 'varchar',
            'method': 'varchar',
            'data': 'struct(symbol varchar, side varchar, price decimal(18,8), qty decimal(18,8), trade_id bigint, timestamp varchar)[]'
        }
    )
),
prints as (
    select
        line,
        unreadable,
        print is not null as printed,
        print.symbol as symbol,
        epoch_ns(try_cast(print.timestamp as timestamp_ns)) as ts,
        case print.side when 'buy' then 1 when 'sell' then 0 end::tinyint as maker_side,
        print.price as price,
        print.qty as qty,
        print.trade_id as trade_id
    from lines
)
select
    line,
    unreadable
        or (printed and (symbol is null or ts is null or maker_side is null or not coalesce(price > 0 and qty > 0, false))) as bad,
    coalesce(symbol = $symbol, false) as of_symbol,
    coalesce(ts, 0) as ts,
    coalesce(maker_side, 0) as maker_side,
    coalesce(price, 0) as price,
    coalesce(qty, 0) as qty,
    coalesce(trade_id, 0) as trade_id
from prints
