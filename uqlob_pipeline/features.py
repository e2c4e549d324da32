"""Bins, features and scales: what a model may see of an asset-day's events.

The SQL files do the work; here they get their inputs.
"""

import pyarrow.parquet as pq

from uqlob_pipeline.feature_file import WINDOWS_A_ROW_GROUP, write_feature_file
from uqlob_pipeline.fits import NotReady, Row, day_version, require_fit, training_files, training_inputs, why_stale, write_fit
from uqlob_pipeline.lake import AssetDay, Lake, Provenance, atomic_path
from uqlob_pipeline.profile import Profile
from uqlob_pipeline.warehouse import Warehouse, sql_version

TOKEN_BINS_CODE = sql_version("token_bins.sql")
FEATURE_SCALES_CODE = sql_version("feature_scales.sql")
EVENT_FEATURES_CODE = sql_version("event_features.sql")


def token_bins_settings(profile: Profile) -> str:
    """Bins depend on the training days alone, and these stand in the inputs."""
    return profile.settings_version()


def event_features_settings(profile: Profile) -> str:
    return profile.settings_version("features.window", "features.flow")


def fit_token_bins(lake: Lake, warehouse: Warehouse, profile: Profile, symbol: str) -> tuple[Row, Provenance]:
    """Fit and write `token_bins` of a symbol on its training days; returns the one row."""
    inputs = training_inputs(lake, profile, "book_events", symbol, purpose="token_bins")
    provenance = Provenance("token_bins", TOKEN_BINS_CODE, token_bins_settings(profile), inputs)
    files = [str(path) for path in training_files(lake, profile, "book_events", symbol)]

    def check(rows: list[Row]) -> None:
        if not rows or not rows[0]["binned_events"]:
            raise NotReady(f"token_bins of {symbol}: no training day has an event that is not an execution; look at book_events")

    rows = write_fit(warehouse, "token_bins.sql", lake.token_bins(symbol), provenance, check, events=files, symbol=symbol)
    return rows[0], provenance


def read_token_bins(lake: Lake, profile: Profile, symbol: str, *, needed_by: str) -> tuple[Row, str]:
    """The symbol's bins and their data version, if they are those that the profile asks for."""
    path = lake.token_bins(symbol)
    made = require_fit(path, profile, "token_bins", symbol, settings_version=token_bins_settings(profile), needed_by=needed_by)
    return pq.read_table(path, partitioning=None).to_pylist()[0], made.data_version


def write_event_features(lake: Lake, warehouse: Warehouse, profile: Profile, day: AssetDay) -> tuple[int, Provenance]:
    """Write `event_features` of an asset-day with the symbol's frozen bins; returns the number of events."""
    bins, bins_version = read_token_bins(lake, profile, day.symbol, needed_by=f"event_features of {day}")
    events_version = day_version(lake, "book_events", day, needed_by="event_features")
    provenance = Provenance(
        "event_features",
        EVENT_FEATURES_CODE,
        event_features_settings(profile),
        {"book_events": events_version, "token_bins": bins_version},
    )
    length = profile.features.window
    with (
        warehouse.batches(
            "event_features.sql",
            rows=length * WINDOWS_A_ROW_GROUP // 4,
            events=str(lake.book_events(day)),
            volume_edges=bins["volume_edges"],
            distance_edges=bins["distance_edges"],
            median_lots=bins["median_lots"],
            window_length=length,
            flow=profile.features.flow,
        ) as batches,
        atomic_path(lake.event_features(day)) as temporary,
    ):
        rows = write_feature_file(temporary, batches, length, provenance.metadata())
    return rows, provenance


def fit_feature_scales(lake: Lake, warehouse: Warehouse, profile: Profile, symbol: str) -> tuple[list[Row], Provenance]:
    """Fit and write `feature_scales` of a symbol on its training days; returns one row a feature."""
    _, bins_version = read_token_bins(lake, profile, symbol, needed_by=f"feature_scales of {symbol}")
    settings = event_features_settings(profile)
    inputs = training_inputs(
        lake, profile, "event_features", symbol, purpose="feature_scales", settings_version=settings, token_bins=bins_version
    )
    provenance = Provenance("feature_scales", FEATURE_SCALES_CODE, settings, inputs)
    files = [str(path) for path in training_files(lake, profile, "event_features", symbol)]

    def check(rows: list[Row]) -> None:
        if not rows:
            raise NotReady(
                f"feature_scales of {symbol}: the training days hold no whole window of {profile.features.window} events "
                "in one session; train on more days, or shorten features.window"
            )

    path = lake.feature_scales(symbol)
    rows = write_fit(warehouse, "feature_scales.sql", path, provenance, check, features=files, symbol=symbol)
    return rows, provenance


def bin_notes(bins: Row) -> list[str]:
    """What ties did to the bins, in words; empty where all six are filled."""
    notes = []
    for attribute, what in (("volume", "quantity"), ("distance", "tick distance")):
        shares = bins[f"{attribute}_shares"]
        empty = [i for i, share in enumerate(shares) if share == 0]
        if empty:
            fullest = max(range(6), key=lambda i: shares[i])
            notes.append(
                f"{what}: ties leave {len(empty)} of six bins empty ({', '.join(map(str, empty))}); "
                f"bin {fullest} holds {shares[fullest]:.0%} of the events"
            )
        elif max(shares) > 1 / 6 + 0.02:
            notes.append(f"{what}: ties fill the bins unevenly, from {min(shares):.1%} to {max(shares):.1%} of the events")
    return notes


def why_bins_are_stale(lake: Lake, profile: Profile, symbol: str) -> str:
    """Empty where the symbol's bins are what a fit would give now."""
    return why_stale(
        lake,
        profile,
        lake.token_bins(symbol),
        symbol,
        settings_version=token_bins_settings(profile),
        code_version=TOKEN_BINS_CODE,
    )


def why_scales_are_stale(lake: Lake, profile: Profile, symbol: str) -> str:
    """Empty where the symbol's scales are what a fit would give now."""
    return why_stale(
        lake,
        profile,
        lake.feature_scales(symbol),
        symbol,
        settings_version=event_features_settings(profile),
        code_version=FEATURE_SCALES_CODE,
    )
