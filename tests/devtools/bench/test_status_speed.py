"""The made-up lake of `uqlob bench status` is one that status calls current, on files and in a store."""

from pathlib import Path

from uqlob_pipeline.devtools.bench.status_speed import measure


def test_every_made_up_table_is_current_wherever_it_is(tmp_path: Path) -> None:
    found = measure(tmp_path, asset_days=70, store=None)
    assert found["asset_days"] == 70
    for place in ("files", "store_first", "store_again", "store_new_machine"):
        assert found[place]["current"] == {"book_events": 70, "window_labels": 70}
        assert found[place]["seconds"] > 0
