"""Checks of the group `labels`. Wrong labels block what comes after them; unusual ones are a warning to a person."""

import dagster as dg

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.defs.materialization import CheckOutcome
from uqlob_pipeline.lake.file_hashes import read_table
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.staleness import why_stale
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.tables.fits import Row
from uqlob_pipeline.tables.labels import CLASSES

WARN, ERROR = dg.AssetCheckSeverity.WARN, dg.AssetCheckSeverity.ERROR

WINDOW_LABELS_CHECKS = [
    dg.AssetCheckSpec(
        "whole_and_of_the_same_windows",
        asset="window_labels",
        blocking=True,
        description="a label has all its parts or none, starts after the latency, and its window ends where event_features says",
    ),
    dg.AssetCheckSpec(
        "few_null", asset="window_labels", description="at most labels.max_null_share of the windows have no label"
    ),
    dg.AssetCheckSpec(
        "regime", asset="window_labels", description="no class share is further than labels.regime_shift_pp from training's"
    ),
    dg.AssetCheckSpec(
        "thresholds_current", asset="window_labels", description="the thresholds are those that a fit would give now"
    ),
]


def window_labels_checks(
    lake: Lake, warehouse: Warehouse, profile: Profile, day: AssetDay, balance: list[Row]
) -> list[CheckOutcome]:
    stale = why_stale(lake, profile, "label_thresholds", day.symbol)
    return [
        _same_windows(lake, warehouse, profile, day),
        _few_null(profile, balance),
        _regime(lake, profile, day, balance),
        CheckOutcome(
            "thresholds_current",
            not stale,
            f"label_thresholds of {day.symbol}: {stale}; materialise it, then window_labels of all days and what comes after"
            if stale
            else "the thresholds are those of the profile's training days",
            WARN,
        ),
    ]


def label_faults(lake: Lake, warehouse: Warehouse, profile: Profile, day: AssetDay) -> dict[str, int]:
    """Counts of what is wrong with an asset-day's labels."""
    found = warehouse.rows(
        "window_labels_faults.sql",
        labels=str(lake.window_labels(day)),
        features=str(lake.event_features(day)),
        window_length=profile.features.window,
        horizons=len(profile.labels.horizons_s),
        latency_ns=profile.labels.latency_us * 1000,
    )[0]
    return {name: count for name, count in found.items() if name != "labels"}


def _same_windows(lake: Lake, warehouse: Warehouse, profile: Profile, day: AssetDay) -> CheckOutcome:
    name = "whole_and_of_the_same_windows"
    if not lake.event_features(day).exists():  # the two are made independently; a model compares them again
        return CheckOutcome(name, True, "event_features of this day is not there yet to compare with", ERROR)
    wrong = {fault: count for fault, count in label_faults(lake, warehouse, profile, day).items() if count}
    counted = ", ".join(f"{fault.replace('_', ' ')}: {count}" for fault, count in wrong.items())
    return CheckOutcome(
        name,
        not wrong,
        f"{counted}; materialise event_features, window_prices and window_labels of this day again, from the same book_events"
        if wrong
        else "labels and windows agree",
        ERROR,
        wrong,
    )


def _few_null(profile: Profile, balance: list[Row]) -> CheckOutcome:
    most = profile.labels.max_null_share
    many = [f"{row['null_share']:.0%} at {row['horizon_s']} s" for row in balance if row["null_share"] > most]
    return CheckOutcome(
        "few_null",
        not many,
        f"windows without a label: {', '.join(many)}; sessions are short (see the checks of book_events) or events sparser than "
        "labels.k within a horizon. Record the day anew, drop the horizon, or raise labels.max_null_share"
        if many
        else f"at most {max((row['null_share'] for row in balance), default=0):.1%} of the windows have no label",
        WARN,
    )


def shifts(lake: Lake, day: AssetDay, balance: list[Row]) -> list[tuple[float, str]]:
    """For each horizon and class: how many percentage points the day lies from training, and that in words."""
    thresholds = read_table(lake.label_thresholds(day.symbol)).to_pylist()
    training = {row["horizon_s"]: row for row in thresholds}
    found = []
    for row in balance:
        for name in CLASSES:
            share, usual = row[f"{name}_share"], training[row["horizon_s"]][f"{name}_share"]
            if share is not None:
                found.append((100 * abs(share - usual), f"{name} at {row['horizon_s']} s {share:.0%}, in training {usual:.0%}"))
    return found


def _regime(lake: Lake, profile: Profile, day: AssetDay, balance: list[Row]) -> CheckOutcome:
    found = shifts(lake, day, balance)
    far = [text for gap, text in found if gap > profile.labels.regime_shift_pp]
    widest = max((gap for gap, _ in found), default=0.0)
    return CheckOutcome(
        "regime",
        not far,
        f"another regime than on the training days: {'; '.join(far)}. Read this day's forecasts with care, watch calibration, "
        "and consider training days that reach closer to it"
        if far
        else f"every class share is within {widest:.1f} pp of training's",
        WARN,
        {"widest gap (pp)": round(widest, 2)},
    )
