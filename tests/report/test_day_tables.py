"""The report's header and its tables by day: from what it was made, what each recording lost, coverage of each test day."""

import datetime as dt
import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.tables.synthetic import whole_quality
from uqlob_pipeline.config.profile import Profile, load_profile
from uqlob_pipeline.lake.atomic_files import write_parquet
from uqlob_pipeline.lake.data_quality import write_quality
from uqlob_pipeline.lake.layout import AssetDay, Lake, ModelKey
from uqlob_pipeline.lake.provenance import Provenance
from uqlob_pipeline.models.evaluation_files import CALIBRATED
from uqlob_pipeline.report.day_tables import daily_coverage, daily_coverage_view, quality_view, report_facts, split_quality


@pytest.fixture
def profile() -> Profile:
    return load_profile("demo")


@pytest.fixture
def replayed(tmp_path: Path, profile: Profile) -> Lake:
    """Three replayed test days: a whole one, one that lost 4 % of its messages, one that lost 48.7 %."""
    lake, provenance = Lake(tmp_path), Provenance("data_quality", "1", "s")
    days = profile.days("BTC-USD", "test")[:3]
    for date, lost in zip(days, (0.0, 0.04, 0.487), strict=True):
        quality = replace(
            whole_quality(AssetDay("BTC-USD", date), 1_000), lost_messages=int(1_000 * lost), lost_message_share=lost
        )
        write_quality(lake, quality, provenance)
    return lake


def test_the_header_has_date_commit_profile_test_range_and_data_quality(replayed: Lake, profile: Profile) -> None:
    facts = report_facts(replayed, profile)
    assert facts["Made on"] == f"{dt.datetime.now(dt.UTC).date()} (UTC)"
    assert re.fullmatch(r"uqlob \d+\.\d+\.\d+, commit [0-9a-f]{7,}\+?", facts["Version"])
    assert facts["Profile"] == f"demo ({profile.fingerprint[:8]})"
    assert facts["Test days"] == f"{profile.splits.test.first} to {profile.splits.test.last}"
    assert facts["Data"] == "3 asset-days, 2 incomplete, 1 refused"


def test_a_lake_without_a_replayed_day_says_so(tmp_path: Path, profile: Profile) -> None:
    assert report_facts(Lake(tmp_path), profile)["Data"] == "no replayed day"


def test_a_damaged_day_has_its_row_with_what_was_lost_and_whether_it_is_refused(replayed: Lake, profile: Profile) -> None:
    days = split_quality(replayed, profile)
    refused = {day.day: beyond for day in days if (beyond := day.beyond_limits(profile.book))}
    rows = [[cell.text for cell in row] for row in quality_view(days, refused).rows]
    assert [(row[1], row[3], row[-1] == "", row[-1].startswith("refused: ")) for row in rows] == [
        (str(days[0].date), "0.00%", True, False),
        (str(days[1].date), "4.00%", False, False),
        (str(days[2].date), "48.70%", False, True),
    ]


def test_coverage_of_each_test_day_is_counted_by_hand(tmp_path: Path, profile: Profile) -> None:
    # Two test days and a calibration day: 2 of 4 and 1 of 2 outcomes within the 68 % interval, 3 of 4 and 2 of 2 within the 95 %.
    lake, (first, second, *_) = Lake(tmp_path), profile.days("BTC-USD", "test")
    outcomes = [(first, y) for y in (0.0, -1.0, 1.5, 9.0)] + [(second, y) for y in (0.5, -2.0)]
    rows = [{"date": date, "split": "test", "y": y} for date, y in outcomes]
    rows.append({"date": profile.splits.validation.last, "split": "calibration", "y": 0.0})
    bounds = {"lower_68": -1.0, "upper_68": 1.0, "lower_95": -2.0, "upper_95": 2.0}
    write_parquet(pa.Table.from_pylist([row | bounds for row in rows]), lake.by_model(CALIBRATED, ModelKey("BTC-USD", 5)))
    coverage = daily_coverage(lake, profile)
    assert coverage.rows() == [("BTC-USD", 5, first, 4, 0.5, 0.75), ("BTC-USD", 5, second, 2, 0.5, 1.0)]
    shown = [[cell.text for cell in row] for row in daily_coverage_view(coverage).rows]
    assert shown == [
        ["BTC-USD", "5 s", str(first), "4", "0.500", "0.750"],
        ["BTC-USD", "5 s", str(second), "2", "0.500", "1.000"],
    ]
