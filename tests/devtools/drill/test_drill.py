"""The drill finds the differences that it should find, and every fault passes."""

import datetime as dt
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from uqlob_pipeline.devtools.drill.lakes import STAGES, Site, differences, kill, table_hashes
from uqlob_pipeline.devtools.drill.scenarios import unnamed_failure, unreported_damage
from uqlob_pipeline.lake.atomic_files import sweep_temporaries
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.table_registry import ASSET_TABLES
from uqlob_pipeline.market.kraken.ingest_report import REPORT_KEY, IngestReport

UQLOB = Path(sys.executable).parent / "uqlob"


def lake_with(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name / "symbol=BTC-USD" / "date=2026-01-05.parquet"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return root


def test_missing_changed_and_unexpected_tables_are_each_named(tmp_path: Path) -> None:
    one = table_hashes(lake_with(tmp_path / "one", book_events="a", window_prices="b"))
    other = table_hashes(lake_with(tmp_path / "other", book_events="c", window_labels="d"))
    assert differences(one, one) == ()
    assert differences(one, other) == (
        "window_prices/symbol=BTC-USD/date=2026-01-05.parquet is missing",
        "book_events/symbol=BTC-USD/date=2026-01-05.parquet has other bytes",
        "window_labels/symbol=BTC-USD/date=2026-01-05.parquet should not exist",
    )


def test_a_failure_must_name_the_day_in_its_reason(tmp_path: Path) -> None:
    site = Site(tmp_path)
    began = "book_events BTC-USD 2026-01-05: not there\n"
    (tmp_path / "run.log").write_text(began + "book_events BTC-USD 2026-01-05 failed: BTC-USD 2026-01-05: no snapshot (run 1)")
    assert unnamed_failure(site, "BTC-USD", "2026-01-05") == ()
    (tmp_path / "run.log").write_text(began + "book_events BTC-USD 2026-01-05 failed: division by zero (run 1)")
    assert unnamed_failure(site, "BTC-USD", "2026-01-05") == (
        "the failure does not name BTC-USD 2026-01-05: division by zero (run 1)",
    )


def test_a_day_ingested_from_a_damaged_dump_must_report_it(tmp_path: Path) -> None:
    site, dump = Site(tmp_path), Path("a.jsonl.zst")
    path = Lake(site.lake).book_events(AssetDay("BTC-USD", dt.date(2026, 1, 5)))
    path.parent.mkdir(parents=True)
    assert "is missing" in unreported_damage(site, "BTC-USD", "2026-01-05", dump)[0]
    for truncated, problems in (([dump.name], 0), ([], 1)):
        report = json.dumps(asdict(IngestReport("level3", truncated_files=truncated)))
        pq.write_table(pa.table({"seq": [0]}).replace_schema_metadata({REPORT_KEY: report}), path)
        assert len(unreported_damage(site, "BTC-USD", "2026-01-05", dump)) == problems


def test_the_stages_hold_every_partitioned_asset_in_the_order_of_the_dag() -> None:
    order = [table.name for table in ASSET_TABLES if table.grain != "all"]
    drilled = [asset for assets in STAGES.values() for asset in assets]
    assert sorted(drilled) == sorted(order)


def test_temporary_files_of_killed_processes_are_found_and_swept_and_those_of_living_ones_are_kept(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    script = (
        "import sys, time; from pathlib import Path; from uqlob_pipeline.lake.atomic_files import atomic_path\n"
        "with atomic_path(Path(sys.argv[1])) as temporary:\n"
        "    temporary.write_text('half'); print('writing', flush=True); time.sleep(60)\n"
    )
    path = lake.root / "book_events" / "symbol=BTC-USD" / "date=2026-01-05.parquet"
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    assert sweep_temporaries(lake.root) == 0
    assert kill(process)
    process.stdout.close()
    site = Site(tmp_path)
    assert len(site.leftovers()) == 1
    assert table_hashes(lake.root) == {}
    assert sweep_temporaries(lake.root) == 1
    assert site.leftovers() == ()


def test_an_unknown_stage_is_an_error_that_lists_the_stages() -> None:
    done = subprocess.run([UQLOB, "drill", "--stages", "trian"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "trian" in done.stderr
    assert "evaluate" in done.stderr


@pytest.mark.slow
def test_every_fault_leaves_the_lake_identical_to_the_undisturbed_one(tmp_path: Path) -> None:
    done = subprocess.run(
        [UQLOB, "drill", "--kills", "2", "--keep", str(tmp_path / "lakes")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED" not in done.stdout
