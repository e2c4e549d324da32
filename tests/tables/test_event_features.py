"""event_features against the slow reference, column by column, and the shape of its file."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.tables.feature_reference import reference_features
from tests.tables.synthetic import Event, day, profile, put, random_day, rows, warehouse
from uqlob_models.tokens import decode, encode
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.provenance import read_provenance
from uqlob_pipeline.lake.warehouse import sql
from uqlob_pipeline.tables.feature_file import ENCODINGS
from uqlob_pipeline.tables.features import fit_token_bins, write_event_features

FLOATS = ("log_dt", "log_distance", "log_volume", "dnfi", "dnfi_50", "dnfi_200", "qi")
EXACT = ("seq", "ts", "window", "position", "token")

DAYS = {
    "one session": random_day(1, events=2600),
    "a reconnect": random_day(2, sessions=[1300, 1800]),
    "a one-event session": random_day(3, sessions=[700, 1, 1100]),
    "sessions shorter than a window": random_day(4, sessions=[3, 511, 512, 1, 199, 513]),
    "mostly simultaneous": random_day(5, events=1500, simultaneous=0.8),
    "a sparse asset": random_day(6, events=1200, mean_gap_us=2_500_000, simultaneous=0.0),
    "a single event": random_day(7, events=1),
}


def check_against_reference(lake: Lake, events: list[Event], **settings) -> None:
    chosen = profile(**settings)
    put(lake, day(0), events)
    bins, _ = fit_token_bins(lake, warehouse(lake), chosen, day(0).symbol)
    written, _ = write_event_features(lake, warehouse(lake), chosen, day(0))
    expected = reference_features(
        events, bins["volume_edges"], bins["distance_edges"], bins["median_lots"], chosen.features.window, chosen.features.flow
    )
    found = pq.read_table(lake.event_features(day(0)), partitioning=None)
    assert written == found.num_rows == len(expected)
    for name in EXACT:
        assert found[name].to_pylist() == [row[name] for row in expected], name
    for name in FLOATS:
        assert found.schema.field(name).type == pa.float32()
        np.testing.assert_allclose(found[name].to_numpy(), [row[name] for row in expected], rtol=3e-7, atol=3e-7, err_msg=name)


@pytest.mark.parametrize("name", DAYS)
@pytest.mark.parametrize("flow", ["dnfi", "ofi"])
def test_every_column_agrees_with_the_reference(tmp_path, name, flow):
    check_against_reference(Lake(tmp_path), DAYS[name], flow=flow)


def test_other_window_lengths_agree_too(tmp_path):
    check_against_reference(Lake(tmp_path), DAYS["a reconnect"], window=100)


def test_column_types_are_the_contract(tmp_path):
    lake = Lake(tmp_path)
    check_against_reference(lake, DAYS["a reconnect"])
    schema = pq.read_schema(lake.event_features(day(0)))
    assert {name: str(schema.field(name).type) for name in EXACT} == {
        "seq": "int64",
        "ts": "int64",
        "window": "int32",
        "position": "uint16",
        "token": "uint16",
    }
    assert schema.names == [*EXACT, *FLOATS]


def test_tokens_decode_to_the_attributes_they_were_made_of(tmp_path):
    lake = Lake(tmp_path)
    events = DAYS["a reconnect"]
    check_against_reference(lake, events)
    bins = rows(lake.token_bins(day(0).symbol))[0]
    token = pq.read_table(lake.event_features(day(0)), partitioning=None)["token"].to_numpy()
    assert token.min() >= 0
    assert token.max() <= 438
    parts = decode(token)
    np.testing.assert_array_equal(parts.type, [event.type for event in events])
    np.testing.assert_array_equal(parts.side, [event.side for event in events])
    book = parts.type != 3
    volume = np.searchsorted(bins["volume_edges"], [event.lots for event in events], side="left")
    np.testing.assert_array_equal(parts.volume_bin[book], volume[book])
    assert (parts.volume_bin[~book] == -1).all()
    np.testing.assert_array_equal(encode(*parts), token)


def test_the_sums_of_a_session_do_not_feel_the_session_before(tmp_path):
    """Bit for bit: a session alone gives the features that it has after another one."""
    lake = Lake(tmp_path)
    both = random_day(8, sessions=[900, 700])
    alone = [event._replace(session=0) for event in both if event.session == 1]
    put(lake, day(0), both)
    put(lake, day(1), alone)
    chosen = profile()
    fit_token_bins(lake, warehouse(lake), chosen, day(0).symbol)
    for number in (0, 1):
        write_event_features(lake, warehouse(lake), chosen, day(number))
    after = pq.read_table(lake.event_features(day(0)), partitioning=None).slice(900)
    single = pq.read_table(lake.event_features(day(1)), partitioning=None)
    for name in ("ts", "position", "token", *FLOATS):
        assert after[name].to_pylist() == single[name].to_pylist(), name


def test_row_groups_hold_whole_windows_whatever_the_sessions(tmp_path, monkeypatch):
    monkeypatch.setattr("uqlob_pipeline.tables.feature_file.WINDOWS_A_ROW_GROUP", 3)
    lake = Lake(tmp_path)
    put(lake, day(0), random_day(9, sessions=[1000, 1, 37, 1024, 700]))
    chosen = profile(window=64)
    fit_token_bins(lake, warehouse(lake), chosen, day(0).symbol)
    write_event_features(lake, warehouse(lake), chosen, day(0))
    with pq.ParquetFile(lake.event_features(day(0))) as file:
        groups = [file.read_row_group(i, ["window", "position"]) for i in range(file.num_row_groups)]
    assert len(groups) > 10
    assert max(len(group) for group in groups) <= 3 * 64
    seen: set[int] = set()
    for group in groups:
        windows = group["window"].to_pylist()
        for window in set(windows) - {None}:
            assert windows.count(window) == 64
            assert window not in seen
            seen.add(window)
    assert seen == set(range(1000 // 64 + 1024 // 64 + 700 // 64))


def test_writing_twice_gives_the_same_bytes_and_says_what_it_was_made_from(tmp_path):
    lake = Lake(tmp_path)
    put(lake, day(0), DAYS["a reconnect"])
    chosen = profile()
    _, bins = fit_token_bins(lake, warehouse(lake), chosen, day(0).symbol)
    _, first = write_event_features(lake, warehouse(lake), chosen, day(0))
    before = lake.event_features(day(0)).read_bytes()
    _, second = write_event_features(lake, warehouse(lake), chosen, day(0))
    assert lake.event_features(day(0)).read_bytes() == before
    assert read_provenance(lake.event_features(day(0))) == first == second
    assert first.inputs["token_bins"] == bins.data_version


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    lake = Lake(tmp_path)
    put(lake, day(0), DAYS["a reconnect"])
    chosen = profile()
    fit_token_bins(lake, warehouse(lake), chosen, day(0).symbol)
    write_event_features(lake, warehouse(lake), chosen, day(0))
    before = lake.event_features(day(0)).read_bytes()
    monkeypatch.setitem(ENCODINGS, "qi", "DELTA_BINARY_PACKED")
    with pytest.raises(OSError, match="DELTA_BINARY_PACKED"):
        write_event_features(lake, warehouse(lake), chosen, day(0))
    assert lake.event_features(day(0)).read_bytes() == before
    written = lake.event_features(day(0))
    assert sorted(path.name for path in written.parent.iterdir()) == [f".{written.name}.blake2b", written.name]


def test_the_day_is_streamed_never_sorted(tmp_path):
    """A blocking window operator would hold the whole day; the only one allowed numbers the handful of sessions."""
    lake = Lake(tmp_path)
    put(lake, day(0), DAYS["a reconnect"])
    parameters = {
        "events": str(lake.book_events(day(0))),
        "volume_edges": [1, 2, 3, 4, 5],
        "distance_edges": [1, 2, 3, 4, 5],
        "median_lots": 10,
        "window_length": 512,
    }
    for flow in ("dnfi", "ofi"):
        with warehouse(lake).connection() as connection:
            text = "explain (format json) " + sql("event_features.sql")
            plan = json.loads(connection.execute(text, {**parameters, "flow": flow}).fetchall()[0][1])
        operators: list[tuple[str, str]] = []

        def visit(node, found=operators):
            found.append((node["name"].strip(), str(node.get("extra_info"))))
            for child in node["children"]:
                visit(child)

        visit(plan[0])
        names = [name for name, _ in operators]
        assert names.count("STREAMING_WINDOW") >= 3
        assert "ORDER_BY" not in names
        blocking = [output for name, output in operators if name == "WINDOW"]
        assert len(blocking) == 1
        assert "session" in blocking[0]
        assert "events" in blocking[0]
