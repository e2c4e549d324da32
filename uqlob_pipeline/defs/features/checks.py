"""Checks of the group `features`. Errors block what comes after them: a model must not train on them."""

from typing import Any

import dagster as dg

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.defs.materialization import CheckOutcome
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.staleness import why_stale
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.tables.fits import Row

WARN, ERROR = dg.AssetCheckSeverity.WARN, dg.AssetCheckSeverity.ERROR
RANGE_FAULTS = ("not_finite", "flow_out_of_range", "qi_out_of_range", "negative_logarithms", "token_out_of_range")
WINDOW_FAULTS = ("broken_windows", "windows_out_of_order")
AGAIN = "look at the checks of book_events of this day, then materialise book_events and event_features again"

EVENT_FEATURES_CHECKS = [
    dg.AssetCheckSpec(
        "finite_and_in_range",
        asset="event_features",
        blocking=True,
        description="no NaN, infinity or null; |dnfi| <= 1, |qi| <= 1, tokens 0 to 438",
    ),
    dg.AssetCheckSpec(
        "whole_windows",
        asset="event_features",
        blocking=True,
        description="windows are numbered 0, 1, 2, ... and hold exactly L consecutive events each",
    ),
    dg.AssetCheckSpec(
        "bins_current", asset="event_features", description="the bins are those that a fit on the training days would give now"
    ),
]
FEATURE_SCALES_CHECKS = [
    dg.AssetCheckSpec(
        "every_feature_varies", asset="feature_scales", blocking=True, description="each standard deviation is above zero"
    )
]


def feature_faults(lake: Lake, warehouse: Warehouse, profile: Profile, day: AssetDay) -> dict[str, Any]:
    """Counts of what is wrong with an asset-day's features; the events and windows looked at beside them."""
    return warehouse.rows(
        "event_features_faults.sql", features=str(lake.event_features(day)), window_length=profile.features.window
    )[0]


def event_features_checks(lake: Lake, warehouse: Warehouse, profile: Profile, day: AssetDay) -> list[CheckOutcome]:
    found = feature_faults(lake, warehouse, profile, day)
    wrong_values = {name: found[name] for name in RANGE_FAULTS if found[name]}
    wrong_windows = {name: found[name] for name in WINDOW_FAULTS if found[name]}
    stale = why_stale(lake, profile, "token_bins", day.symbol)
    return [
        CheckOutcome(
            "finite_and_in_range",
            not wrong_values,
            f"{_counted(wrong_values)} of {found['events']} events; {AGAIN}"
            if wrong_values
            else f"all {found['events']} events are",
            ERROR,
            wrong_values,
        ),
        CheckOutcome(
            "whole_windows",
            not wrong_windows,
            f"{_counted(wrong_windows)} of {found['windows']} windows; {AGAIN}"
            if wrong_windows
            else f"{found['windows']} windows, numbered in order, each of {profile.features.window} consecutive events",
            ERROR,
            wrong_windows,
        ),
        CheckOutcome(
            "bins_current",
            not stale,
            f"token_bins of {day.symbol}: {stale}; materialise token_bins, then event_features of all days and what comes after"
            if stale
            else "the bins are those of the profile's training days",
            WARN,
        ),
    ]


def feature_scales_checks(scales: list[Row]) -> list[CheckOutcome]:
    constant = [row["feature"] for row in scales if not row["std"] > 0]
    return [
        CheckOutcome(
            "every_feature_varies",
            not constant,
            f"{', '.join(constant)} never vary on the training days and cannot be scaled; look at book_events of these days "
            "(was the archive complete?), then materialise event_features and feature_scales again"
            if constant
            else "every feature varies on the training days",
            ERROR,
        )
    ]


def _counted(faults: dict[str, int]) -> str:
    return ", ".join(f"{name.replace('_', ' ')}: {count}" for name, count in faults.items())
