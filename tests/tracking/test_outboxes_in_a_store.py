"""Outboxes of a lake in a store: several machines add to a run and deliver it, and no entry is lost."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.tables.synthetic import profile as synthetic_profile
from uqlob_pipeline.devtools.loopback_cluster.object_server import ObjectServer
from uqlob_pipeline.lake.layout import Lake, ModelKey
from uqlob_pipeline.lake.shared_files import SMALL
from uqlob_pipeline.lake.shared_lake import open_lake, working_copy
from uqlob_pipeline.tracking.client import Tracking
from uqlob_pipeline.tracking.outbox import Entry

KEY = ModelKey("BTC-USD", 5)


@pytest.fixture(params=["files", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("UQLOB_SCRATCH", str(tmp_path / "scratch"))
    if request.param == "files":
        return f"file://{tmp_path / 'shared'}"
    server: ObjectServer = request.getfixturevalue("server")
    return server.new_bucket()


def tracking_of(copy: Lake, uri: str = "") -> Tracking:
    return Tracking(copy, synthetic_profile(), uri or None)


def in_a_copy(url: str, work: Callable[[Lake], object]) -> None:
    with working_copy(open_lake(url)) as copy:
        work(copy)


def queued(url: str) -> list[Entry]:
    """Every entry that waits in the store."""
    found: list[Entry] = []
    in_a_copy(url, lambda copy: found.extend(_entries(tracking_of(copy))))
    return found


def _entries(tracking: Tracking) -> list[Entry]:
    from uqlob_pipeline.tracking.outbox import open_outbox

    outboxes = [open_outbox(path) for path in tracking.pending()]
    assert None not in outboxes
    return [entry for outbox in outboxes if outbox is not None for entry in outbox.entries()]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


def add_fit(copy: Lake, table: str) -> None:
    tracking_of(copy).open(tracking_of(copy).fits("BTC-USD")).tags({table: "1"})


def add_epoch(copy: Lake, number: int, length: int = 1) -> None:
    """As a training does, whose outbox has one name on every machine."""
    tracking = tracking_of(copy)
    run = tracking.open(tracking.stage(KEY, "encoder", "v1"), copy.model("encoder", KEY) / "v1-tracking.jsonl")
    run.tags({f"epoch{number}": "x" * length})


def test_an_entry_for_a_large_outbox_of_another_process_is_appended(url: str) -> None:
    in_a_copy(url, lambda copy: add_epoch(copy, 1, SMALL))
    in_a_copy(url, lambda copy: add_epoch(copy, 2))
    assert [next(iter(entry["values"])) for entry in queued(url)] == ["epoch1", "epoch2"]


def test_a_large_outbox_of_another_process_is_delivered(url: str, uri: str) -> None:
    in_a_copy(url, lambda copy: add_epoch(copy, 1, SMALL))
    lines: list[str] = []
    in_a_copy(url, lambda copy: tracking_of(copy, uri).flush_pending(lines.append))
    assert lines == []
    assert queued(url) == []


def test_two_steps_of_one_symbol_at_once_keep_the_entries_of_both(url: str) -> None:
    with ExitStack() as both:
        copies = [both.enter_context(working_copy(open_lake(url))) for _ in range(2)]
        for copy, table in zip(copies, ("token_bins", "feature_scales"), strict=True):
            add_fit(copy, table)
    assert sorted(next(iter(entry["values"])) for entry in queued(url)) == ["feature_scales", "token_bins"]


def test_what_was_added_while_another_machine_delivered_stays(url: str, uri: str) -> None:
    with working_copy(open_lake(url)) as trains:
        add_epoch(trains, 1)
        trains.publish()
        with working_copy(open_lake(url)) as delivers:
            assert tracking_of(delivers, uri).flush_pending() == 0
            add_epoch(trains, 2)
            trains.publish()
    assert [next(iter(entry["values"])) for entry in queued(url)] == ["epoch1", "epoch2"]


def test_what_was_added_while_another_machine_delivered_a_part_stays(url: str) -> None:
    with working_copy(open_lake(url)) as trains:
        add_epoch(trains, 1)
        add_epoch(trains, 2)
        trains.publish()
        with working_copy(open_lake(url)) as delivers:
            sent: list[Entry] = []

            def break_off(entry: Entry) -> None:
                if sent:
                    raise ConnectionError("unreachable")
                sent.append(entry)

            tracking = tracking_of(delivers)
            path = delivers.model("encoder", KEY) / "v1-tracking.jsonl"
            outbox = tracking.open(tracking.stage(KEY, "encoder", "v1"), path).outbox
            with pytest.raises(ConnectionError):
                outbox.deliver(break_off)
            add_epoch(trains, 3)
            trains.publish()
    assert [next(iter(entry["values"])) for entry in queued(url)][-2:] == ["epoch2", "epoch3"]


def test_an_object_that_another_machine_has_delivered_is_not_missed(url: str, uri: str) -> None:
    in_a_copy(url, lambda copy: add_epoch(copy, 1))
    with ExitStack() as both:
        for _ in range(2):
            assert tracking_of(both.enter_context(working_copy(open_lake(url))), uri).flush_pending() == 0
    assert queued(url) == []


def test_what_earlier_steps_queued_for_a_run_is_delivered_before_what_a_later_one_adds(url: str, uri: str) -> None:
    def write(copy: Lake, value: str) -> None:
        tracking_of(copy).open(tracking_of(copy).model(KEY)).tags({"data_version": value})

    in_a_copy(url, lambda copy: write(copy, "1"))
    with working_copy(open_lake(url)) as copy:
        write(copy, "2")
        tracking = tracking_of(copy, uri)
        run = tracking.open(tracking.model(KEY))
        assert run.deliver(now=True)
        assert tracking.flush_pending() == 0
        (found,) = tracking.store().search(run.outbox.identity.tags())
        assert found.data.tags["data_version"] == "2"
    assert queued(url) == []
