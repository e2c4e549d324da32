"""Day by day: what each recording lost, how the intervals covered each test day, and the facts of the report's header."""

from __future__ import annotations

import datetime as dt
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import polars as pl

from uqlob_models.coverage import NOMINAL_LEVELS
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.data_quality import DataQuality, read_quality
from uqlob_pipeline.lake.file_hashes import verified
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.table_registry import model_keys
from uqlob_pipeline.models.evaluation_files import CALIBRATED
from uqlob_pipeline.report.cells import Cell, Heading, View, label, whole

PROJECT = Path(__file__).parents[2]


def split_quality(lake: Lake, profile: Profile) -> list[DataQuality]:
    """The quality of the replayed days of all splits."""
    days = [AssetDay(symbol, date) for symbol in profile.symbols for date in profile.days(symbol, "train", "validation", "test")]
    return [quality for day in days if (quality := read_quality(lake, day)) is not None]


def report_facts(lake: Lake, profile: Profile) -> dict[str, str]:
    """What the header says: when and from what the report was made."""
    test, quality = profile.splits.test, split_quality(lake, profile)
    damaged = [day for day in quality if day.losses()]
    refused = [day for day in damaged if day.beyond_limits(profile.book)]
    state = f"{len(quality)} asset-days, {len(damaged)} incomplete" + (f", {len(refused)} refused" if refused else "")
    return {
        "Made on": f"{dt.datetime.now(dt.UTC).date()} (UTC)",
        "Version": f"uqlob {version('uqlob')}{_commit()}",
        "Profile": f"{profile.name} ({profile.fingerprint[:8]})",
        "Test days": f"{test.first} to {test.last}",
        "Data": state if quality else "no replayed day",
    }


def _commit() -> str:
    """The commit of the checkout, with + where files differ from it; empty without git."""
    try:
        command = ["git", "-C", str(PROJECT), "describe", "--always", "--dirty=+", "--exclude=*"]
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return ""
    return f", commit {found}"


def quality_view(days: Sequence[DataQuality], refused: Mapping[AssetDay, str]) -> View:
    rows = []
    for quality in sorted(days, key=lambda day: (day.symbol, day.date)):
        note = f"refused: {refused[quality.day]}" if quality.day in refused else "; ".join(quality.losses())
        rows.append(
            [
                label(quality.symbol),
                label(str(quality.date)),
                Cell(whole(quality.messages)),
                Cell(f"{quality.lost_message_share:.2%}"),
                Cell(f"{quality.lost_time_share:.2%}"),
                *(
                    Cell(whole(count))
                    for count in (
                        quality.sessions,
                        quality.checksums_failed,
                        quality.unverifiable_messages,
                        quality.quarantined_lines,
                    )
                ),
                Cell("yes" if quality.has_trades else "no"),
                Cell(note),
            ]
        )
    names = ("Messages", "Lost", "Time lost", "Sessions", "Failed checksums", "Unverifiable", "Quarantined", "Trades")
    heads = [[Heading.left("Symbol"), Heading.left("Day"), *(Heading(name) for name in names), Heading.left("Note")]]
    caption = (
        "What each recording lost. A message or a moment is lost where no verified book exists: before the first snapshot, "
        "from a failed checksum to the next snapshot, and between two connections."
    )
    return View("data-quality", "Data quality by day", caption, heads, rows, folded=len(rows) > 40)


def daily_coverage(lake: Lake, profile: Profile) -> pl.DataFrame:
    """The share of outcomes within the published intervals, for every model and test day."""
    parts = []
    for key in model_keys(profile):
        path = lake.by_model(CALIBRATED, key)
        if not path.is_file():
            continue
        calibrated = pl.scan_parquet(verified(path), hive_partitioning=False).filter(pl.col("split") == "test")
        if "lower_68" not in calibrated.collect_schema():  # without a regression head
            continue
        within = [pl.col("y").is_between(f"lower_{name[3:]}", f"upper_{name[3:]}").mean().alias(name) for name in NOMINAL_LEVELS]
        by_day = calibrated.group_by("date").agg(pl.len().alias("windows"), *within)
        model = [pl.lit(key.symbol).alias("symbol"), pl.lit(key.horizon_s).alias("horizon_s")]
        parts.append(by_day.sort("date").select(*model, "date", "windows", *NOMINAL_LEVELS).collect())
    return pl.concat(parts) if parts else pl.DataFrame()


def daily_coverage_view(coverage: pl.DataFrame) -> View:
    rows = []
    for row in coverage.iter_rows(named=True):
        shares = [Cell(f"{row[name]:.3f}") for name in NOMINAL_LEVELS]
        rows.append(
            [label(row["symbol"]), label(f"{row['horizon_s']} s"), label(str(row["date"])), Cell(whole(row["windows"])), *shares]
        )
    names = ("Windows", *(f"within {level:.0%}" for level in NOMINAL_LEVELS.values()))
    heads = [[Heading.left("Symbol"), Heading.left("Horizon"), Heading.left("Day"), *(Heading(name) for name in names)]]
    caption = "Share of outcomes within the published 68 % and 95 % intervals on each test day."
    return View("daily-coverage", "Coverage by test day", caption, heads, rows, folded=len(rows) > 40)
