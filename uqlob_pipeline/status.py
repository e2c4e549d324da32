"""What the lake holds, and why a table is not what it would be if it were made now.

Everything is read from the files' own provenance, so it holds whatever made them: the UI, the terminal or a backfill.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from uqlob_pipeline import features, labels
from uqlob_pipeline.kraken.ingest import book_events_provenance, verified_all
from uqlob_pipeline.lake import AssetDay, Lake, ModelKey, Provenance, read_provenance
from uqlob_pipeline.profile import Profile
from uqlob_pipeline.staleness import BY_MODEL, NOT_THERE, why_dataset_profile_is_stale, why_not_current, why_report_is_stale

SHOWN_IN_REPORT = ("dataset_profile", "predictions", "threshold_multiplier", "gated_evaluation")
LONGEST_IN_GRID, MOST_IN_GRID, MOST_NAMED = 60, 3, 4
Grain = Literal["day", "symbol", "model", "all"]
Key = AssetDay | ModelKey | str | None


@dataclass(frozen=True)
class Table:
    """An asset, what it is partitioned by, and how to tell whether it is current (an empty reason)."""

    asset: str
    grain: Grain
    why_stale: Callable[[Lake, Profile, Key], str]


def _version(lake: Lake, table: str, key: AssetDay | str) -> str:
    made = read_provenance(lake.by_day(table, key) if isinstance(key, AssetDay) else lake.by_symbol(table, key))
    return made.data_version if made else NOT_THERE


def _book_events(lake: Lake, profile: Profile, key: Key) -> str:
    assert isinstance(key, AssetDay)
    made = read_provenance(lake.book_events(key))  # with every checksum verified it is no less current
    return why_not_current(
        made, lambda: book_events_provenance(lake, profile, key, verify_all=made is not None and verified_all(made))
    )


def why_not_all_verified(lake: Lake, day: AssetDay) -> str:
    """Empty where the day was replayed with every checksum verified."""
    made = read_provenance(lake.book_events(day))
    return "" if made is not None and verified_all(made) else "only a sample of its checksums was verified"


def _event_features(lake: Lake, profile: Profile, key: Key) -> str:
    assert isinstance(key, AssetDay)
    inputs = {"book_events": _version(lake, "book_events", key), "token_bins": _version(lake, "token_bins", key.symbol)}
    expected = Provenance("event_features", features.EVENT_FEATURES_CODE, features.event_features_settings(profile), inputs)
    return why_not_current(read_provenance(lake.event_features(key)), lambda: expected)


def _window_prices(lake: Lake, profile: Profile, key: Key) -> str:
    assert isinstance(key, AssetDay)
    inputs = {"book_events": _version(lake, "book_events", key)}
    expected = Provenance("window_prices", labels.WINDOW_PRICES_CODE, labels.window_prices_settings(profile), inputs)
    return why_not_current(read_provenance(lake.window_prices(key)), lambda: expected)


def _window_labels(lake: Lake, profile: Profile, key: Key) -> str:
    assert isinstance(key, AssetDay)
    inputs = {
        "window_prices": _version(lake, "window_prices", key),
        "label_thresholds": _version(lake, "label_thresholds", key.symbol),
    }
    settings = labels.label_thresholds_settings(profile, key.symbol)
    expected = Provenance("window_labels", labels.WINDOW_LABELS_CODE, settings, inputs)
    return why_not_current(read_provenance(lake.window_labels(key)), lambda: expected)


def _of_symbol(ask: Callable[[Lake, Profile, str], str]) -> Callable[[Lake, Profile, Key], str]:
    def why(lake: Lake, profile: Profile, key: Key) -> str:
        assert isinstance(key, str)
        return ask(lake, profile, key)

    return why


def _of_model(ask: Callable[[Lake, Profile, ModelKey], str]) -> Callable[[Lake, Profile, Key], str]:
    def why(lake: Lake, profile: Profile, key: Key) -> str:
        assert isinstance(key, ModelKey)
        return ask(lake, profile, key)

    return why


def _dataset_profile(lake: Lake, profile: Profile, _: Key) -> str:
    return why_dataset_profile_is_stale(lake, profile)


def _paper_report(lake: Lake, profile: Profile, _: Key) -> str:
    return why_report_is_stale(lake, profile)


# In the order in which they are made.
TABLES = [
    Table("book_events", "day", _book_events),
    Table("window_prices", "day", _window_prices),
    Table("token_bins", "symbol", _of_symbol(features.why_bins_are_stale)),
    Table("label_thresholds", "symbol", _of_symbol(labels.why_thresholds_are_stale)),
    Table("event_features", "day", _event_features),
    Table("window_labels", "day", _window_labels),
    Table("feature_scales", "symbol", _of_symbol(features.why_scales_are_stale)),
    Table("dataset_profile", "all", _dataset_profile),
    *(Table(asset, "model", _of_model(ask)) for asset, ask in BY_MODEL.items()),
    Table("paper_report", "all", _paper_report),
]


def keys_of(table: Table, symbols: list[str], days: list[AssetDay], horizons: list[int]) -> list[Key]:
    """The partitions of a table within a choice of symbols, days and horizons."""
    if table.grain == "day":
        return [day for day in days if day.symbol in symbols]
    if table.grain == "symbol":
        return list(symbols)
    if table.grain == "model":
        return [ModelKey(symbol, horizon) for symbol in symbols for horizon in horizons]
    return [None]


def why_not_there_or_stale(lake: Lake, profile: Profile, days: list[AssetDay]) -> dict[str, dict[Key, str]]:
    """For each partition of each table why it is not current, or an empty reason.

    A report of stale tables is as stale as they are, although nothing is gained by making the report alone again.
    """
    asked: dict[str, dict[Key, str]] = {}
    for table in TABLES:
        keys = keys_of(table, profile.symbols, days, list(profile.evaluation.horizons_s))
        asked[table.asset] = {key: table.why_stale(lake, profile, key) for key in keys}
    shown = {why for table in SHOWN_IN_REPORT for why in asked[table].values()}
    if shown - {"", NOT_THERE} and not asked["paper_report"][None]:
        asked["paper_report"][None] = "shows tables that are stale"
    return asked


@dataclass
class Notes:
    """Reasons too long for a grid, numbered and each told once, however many tables and models share it."""

    said: dict[str, list[str]] = field(default_factory=dict)  # and of what it was said

    def in_grid(self, stale: dict[Key, str]) -> str:
        """The reasons of one table with how often each holds; of a long one the number of its note."""
        told = {key: _without_subject(why, key) for key, why in stale.items()}
        counted = Counter(told.values()).most_common()
        for reason, _ in counted[:MOST_IN_GRID]:
            if len(reason) > LONGEST_IN_GRID:
                of = self.said.setdefault(reason, [])
                of += [str(key) for key, why in told.items() if why == reason and key is not None and str(key) not in of]
        short = [f"{self._short(reason)} ({count})" for reason, count in counted[:MOST_IN_GRID]]
        rest = sum(count for _, count in counted[MOST_IN_GRID:])
        return "; ".join([*short, f"other reasons ({rest})"] if rest else short)

    def _short(self, reason: str) -> str:
        return f"note {list(self.said).index(reason) + 1}" if reason in self.said else reason

    def lines(self) -> list[str]:
        """Each note with what it is about."""
        told = []
        for number, (reason, of) in enumerate(self.said.items(), 1):
            more = f" and {len(of) - MOST_NAMED} more" if len(of) > MOST_NAMED else ""
            told.append(f"note {number}: {', '.join(of[:MOST_NAMED])}{more}{': ' if of else ''}{reason}")
        return told


def _without_subject(why: str, key: Key) -> str:
    """A reason as it holds for others too: without the table and the partition that it was asked for."""
    return re.sub(rf"\b\w+ of {re.escape(str(key))}:? ", "", why, count=1).replace(f" for {key}", "")


def without_dump(lake: Lake, profile: Profile) -> list[AssetDay]:
    """The asset-days of the profile's splits that were never recorded, whatever a backfill said of them."""
    recorded = set(lake.recorded_days())
    days = [AssetDay(symbol, date) for symbol in profile.symbols for date in profile.days(symbol, "train", "validation", "test")]
    return [day for day in days if day not in recorded]
