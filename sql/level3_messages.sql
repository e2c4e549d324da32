-- level3_messages: one row per line of a level-3 dump, in file order.
--
-- Prices and quantities are decimals. Read as text, DuckDB would reprint the number without its trailing zeros. Read as doubles,
-- the digits that the checksum covers would be lost. A line that is not JSON becomes a row of nulls.
--
-- parameters: $file path of the dump
select
    channel,
    type,
    method,
    result.depth as ack_depth,
    result.symbol as ack_symbol,
    len(data) as parts,
    data[1].symbol as symbol,
    data[1].checksum as checksum,
    data[1].timestamp as timestamp,
    data[1].bids as bids,
    data[1].asks as asks
from read_json(
    $file,
    format = 'newline_delimited',
    ignore_errors = true,
    maximum_object_size = 67108864,
    columns = {
        'channel': 'varchar',
        'type': 'varchar',
        'method': 'varchar',
        'result': 'struct(channel varchar, symbol varchar, depth integer)',
        'data': 'struct(
            symbol varchar,
            checksum bigint,
            bids struct(event varchar, order_id varchar, limit_price decimal(18,8), order_qty decimal(18,8), timestamp varchar)[],
            asks struct(event varchar, order_id varchar, limit_price decimal(18,8), order_qty decimal(18,8), timestamp varchar)[],
            timestamp varchar
        )[]'
    }
)
