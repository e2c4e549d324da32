-- Grain: one row a line of a level-3 dump, in the order of the file.
-- Prices and quantities are decimals: as text DuckDB re-prints the number and trailing zeros are lost,
-- as doubles the checksum would be. A line that is not JSON comes as a row of nulls.
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
