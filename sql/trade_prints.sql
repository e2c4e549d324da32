-- trade_prints: one row per trade print, and one row per line without a print, in file order.
--
-- The general path, for lines whose layout the scanner does not know. `line` counts the given lines from 0. Kraken's side is the
-- taker's; `maker_side` is the opposite side, where the order that the print explains was resting. Prices, quantities and times are
-- the text on the wire, from which exact integers are made. `unreadable` marks a line that is neither a message nor a list of prints.
--
-- relation: lines(line), the text of each line; it is registered, and nothing is bound
with messages as (
    select
        json_transform(
            -- numbers as text: DuckDB would read them through doubles, which hold 15 digits
            regexp_replace(line, '("(?:price|qty)"\s*:\s*)(-?[0-9][-+.0-9eE]*)', '\1"\2"', 'g'),
            '{
                "channel": "varchar",
                "method": "varchar",
                "data": [{
                    "symbol": "varchar",
                    "side": "varchar",
                    "price": "varchar",
                    "qty": "varchar",
                    "trade_id": "bigint",
                    "timestamp": "varchar"
                }]
            }'
        ) as message
    from (select case when json_valid(line) then line end as line from lines)
),
prints as (
    select
        row_number() over () - 1 as line,
        coalesce(message.channel, message.method) is null
            or (coalesce(message.channel, '') = 'trade' and message.data is null) as unreadable,
        unnest(case when message.channel = 'trade' and len(message.data) > 0 then message.data else [null] end) as print
    from messages
)
select
    line,
    unreadable,
    print is not null as printed,
    print.symbol as symbol,
    case print.side when 'buy' then 1 when 'sell' then 0 end::tinyint as maker_side,
    print.price as price,
    print.qty as qty,
    coalesce(print.trade_id, 0) as trade_id,
    print.timestamp as timestamp
from prints
