"""Bins, features and scales: what a model may see of an asset-day's events. The SQL files do the work; this module runs them."""

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.atomic_files import atomic_path
from uqlob_pipeline.lake.file_hashes import read_table
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.provenance import Provenance
from uqlob_pipeline.lake.staleness import NotReady, expected_provenance
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.tables.feature_file import WINDOWS_A_ROW_GROUP, write_feature_file
from uqlob_pipeline.tables.fits import Row, write_fit


def fit_token_bins(lake: Lake, warehouse: Warehouse, profile: Profile, symbol: str) -> tuple[Row, Provenance]:
    """Fit and write `token_bins` of a symbol on its training days; returns the one row."""

    def check(rows: list[Row]) -> None:
        if not rows or not rows[0]["binned_events"]:
            raise NotReady(f"token_bins of {symbol}: no training day has an event that is not an execution; look at book_events")

    rows, provenance = write_fit(lake, warehouse, profile, "token_bins", symbol, check, files_as="events")
    return rows[0], provenance


def read_token_bins(lake: Lake, symbol: str) -> Row:
    return read_table(lake.token_bins(symbol)).to_pylist()[0]


def write_event_features(lake: Lake, warehouse: Warehouse, profile: Profile, day: AssetDay) -> tuple[int, Provenance]:
    """Write `event_features` of an asset-day with the symbol's frozen bins; returns the number of events."""
    provenance = expected_provenance(lake, profile, "event_features", day)
    bins = read_token_bins(lake, day.symbol)
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
        atomic_path(lake.event_features(day), hashed=True) as temporary,
    ):
        rows = write_feature_file(temporary, batches, length, provenance.metadata())
    return rows, provenance


def fit_feature_scales(lake: Lake, warehouse: Warehouse, profile: Profile, symbol: str) -> tuple[list[Row], Provenance]:
    """Fit and write `feature_scales` of a symbol on its training days; returns one row per feature."""

    def check(rows: list[Row]) -> None:
        if not rows:
            raise NotReady(
                f"feature_scales of {symbol}: the training days hold no whole window of {profile.features.window} events "
                "in one session; train on more days, or shorten features.window"
            )

    return write_fit(lake, warehouse, profile, "feature_scales", symbol, check, files_as="features")


def bin_notes(bins: Row) -> list[str]:
    """How tied values fill the bins unevenly; empty where all six are filled."""
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
