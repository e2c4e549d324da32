-- instruments: one row per distinct announcement of the symbol's pair that was in force on a day.
--
-- An announcement holds the increments and precisions that Kraken published for the pair. In force are the announcements received
-- on the day and the last one before it. If none of these is dated, all undated announcements are in force. `received_at` is added
-- by the recorder, in nanoseconds or RFC 3339. A field that an update omits keeps its earlier value.
--
-- parameters: $files paths of the instrument dumps; $symbol as Kraken writes it; $day_start, $day_end bounds of the day in ns
with lines as (
    select
        row_number() over () as line,
        coalesce(try_cast(received_at as bigint), epoch_ns(try_cast(received_at as timestamp_ns))) as received_at,
        unnest(data.pairs) as pair
    from read_json(
        $files,
        format = 'newline_delimited',
        ignore_errors = true,
        maximum_object_size = 67108864,
        columns = {
            'channel': 'varchar',
            'received_at': 'varchar',
            'data': 'struct(pairs struct(symbol varchar, price_increment decimal(18,10), price_precision integer, qty_precision integer)[])'
        }
    )
    where channel = 'instrument'
),
announced as (
    select
        received_at is not null as dated,
        received_at,
        last_value(pair.price_increment ignore nulls) over told as price_increment,
        last_value(pair.price_precision ignore nulls) over told as price_precision,
        last_value(pair.qty_precision ignore nulls) over told as qty_precision,
        lead(received_at) over told as replaced_at
    from lines
    where pair.symbol = $symbol
    window told as (partition by received_at is not null order by received_at, line)
),
in_force as (
    select *
    from announced
    where not dated or (received_at < $day_end and coalesce(replaced_at > $day_start, true))
)
select distinct dated, price_increment, price_precision, qty_precision
from in_force
where dated = (select bool_or(dated) from in_force)
order by all
