-- bare_scan: one row per dump file.
--
-- Reads every field of a level-3 dump with explicit columns and aggregates it. This is the baseline of `uqlob bench ingest` and
-- `uqlob bench features`: a replay cannot be faster than reading the dump.
--
-- parameters: $file path of the dump
with messages as (
    select channel, type, data[1] as book
    from read_json(
        $file,
        format = 'newline_delimited',
        ignore_errors = true,
        maximum_object_size = 67108864,
        columns = {
            'channel': 'varchar',
            'type': 'varchar',
            'data': 'struct(
                symbol varchar,
                checksum bigint,
                bids struct(event varchar, order_id varchar, limit_price decimal(18,8), order_qty decimal(18,8), timestamp varchar)[],
                asks struct(event varchar, order_id varchar, limit_price decimal(18,8), order_qty decimal(18,8), timestamp varchar)[],
                timestamp varchar
            )[]'
        }
    )
),

orders as (
    select channel, type, book.symbol, book.checksum, book.timestamp as message_time, unnest(book.bids || book.asks) as placed
    from messages
)

select
    count(*) as events,
    max(channel) as channel,
    max(type) as type,
    max(symbol) as symbol,
    bit_xor(checksum) as checksum,
    max(message_time) as message_time,
    max(placed.event) as event,
    max(placed.order_id) as order_id,
    sum(placed.limit_price) as limit_price,
    sum(placed.order_qty) as order_qty,
    max(placed.timestamp) as order_time
from orders
