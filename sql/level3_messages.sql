-- level3_messages: one row per line of a level-3 dump, in file order.
--
-- The general path, for lines whose layout the scanner does not know. Prices and quantities are the text on the wire, from which
-- exact integers are made. A line that is not JSON becomes a row of nulls.
--
-- relation: lines(line), the text of each line; it is registered, and nothing is bound
with messages as (
    select
        json_transform(
            -- numbers as text: DuckDB would read them through doubles, which hold 15 digits
            regexp_replace(line, '("(?:limit_price|order_qty)"\s*:\s*)(-?[0-9][-+.0-9eE]*)', '\1"\2"', 'g'),
            '{
                "channel": "varchar",
                "type": "varchar",
                "method": "varchar",
                "result": {"channel": "varchar", "symbol": "varchar", "depth": "integer"},
                "data": [{
                    "symbol": "varchar",
                    "checksum": "bigint",
                    "bids": [{
                        "event": "varchar",
                        "order_id": "varchar",
                        "limit_price": "varchar",
                        "order_qty": "varchar",
                        "timestamp": "varchar"
                    }],
                    "asks": [{
                        "event": "varchar",
                        "order_id": "varchar",
                        "limit_price": "varchar",
                        "order_qty": "varchar",
                        "timestamp": "varchar"
                    }],
                    "timestamp": "varchar"
                }]
            }'
        ) as message
    from (select case when json_valid(line) then line end as line from lines)
)
select
    message.channel,
    message.type,
    message.method,
    message.result.channel as ack_channel,
    message.result.depth as ack_depth,
    message.result.symbol as ack_symbol,
    len(message.data) as parts,
    message.data[1].symbol as symbol,
    message.data[1].checksum as checksum,
    message.data[1].timestamp as timestamp,
    message.data[1].bids as bids,
    message.data[1].asks as asks
from messages
