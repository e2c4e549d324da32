-- book_messages: one row per line of a level-2 dump, in file order.
--
-- The columns are those of level3_messages.sql. Bids and asks hold price levels instead of orders.
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
            bids struct(price decimal(18,8), qty decimal(18,8))[],
            asks struct(price decimal(18,8), qty decimal(18,8))[],
            timestamp varchar
        )[]'
    }
)
