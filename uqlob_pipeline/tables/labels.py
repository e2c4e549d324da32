"""Prices, thresholds and labels: what a model must predict of a window. The SQL files do the work; this module runs them."""

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.layout import AssetDay, Lake
from uqlob_pipeline.lake.provenance import Provenance
from uqlob_pipeline.lake.staleness import NotReady, expected_provenance
from uqlob_pipeline.lake.table_registry import printed_y_ref
from uqlob_pipeline.lake.warehouse import Warehouse
from uqlob_pipeline.tables.fits import Row, write_fit

CLASSES = ("down", "up", "stationary")


def write_window_prices(lake: Lake, warehouse: Warehouse, profile: Profile, day: AssetDay) -> tuple[int, Provenance]:
    """Write `window_prices` of an asset-day: start price, end price and displacement; returns the number of rows."""
    provenance = expected_provenance(lake, profile, "window_prices", day)
    rows = warehouse.write(
        "window_prices.sql",
        lake.window_prices(day),
        provenance,
        events=str(lake.book_events(day)),
        window_length=profile.features.window,
        horizons_s=list(profile.labels.horizons_s),
        latency_ns=profile.labels.latency_us * 1000,
        k=profile.labels.k,
    )
    return rows, provenance


def fit_label_thresholds(lake: Lake, warehouse: Warehouse, profile: Profile, symbol: str) -> tuple[list[Row], Provenance]:
    """Fit and write `label_thresholds` of a symbol on its training days; returns one row per horizon."""
    printed = [
        {"horizon_s": h, "y_ref": value}
        for h in profile.labels.horizons_s
        if (value := printed_y_ref(profile, symbol, h)) is not None
    ]
    return write_fit(
        lake,
        warehouse,
        profile,
        "label_thresholds",
        symbol,
        lambda rows: _check_thresholds(profile, symbol, rows),
        files_as="prices",
        alpha=profile.labels.alpha,
        y_ref=profile.labels.y_ref,
        printed=printed,
    )


def _check_thresholds(profile: Profile, symbol: str, rows: list[Row]) -> None:
    by_horizon = {row["horizon_s"]: row for row in rows}
    for horizon in profile.labels.horizons_s:
        row = by_horizon.get(horizon)
        windows = row["windows"] if row else 0
        if row is None or windows < 2:
            raise NotReady(
                f"label_thresholds of {symbol}: {windows} window(s) of the training days have a label at {horizon} s, "
                f"two are needed at the least. Train on more days, or drop {horizon} from labels.horizons_s"
            )
        if not row["sigma_lr"] > 0:
            raise NotReady(
                f"label_thresholds of {symbol}: the mid-price never moved over {horizon} s in any of the {windows} windows of "
                "the training days, so that no threshold separates the classes. Look at book_events of these days"
            )


def write_window_labels(lake: Lake, warehouse: Warehouse, profile: Profile, day: AssetDay) -> tuple[int, Provenance]:
    """Write `window_labels` of an asset-day with the symbol's frozen thresholds; returns the number of rows."""
    provenance = expected_provenance(lake, profile, "window_labels", day)
    rows = warehouse.write(
        "window_labels.sql",
        lake.window_labels(day),
        provenance,
        prices=str(lake.window_prices(day)),
        thresholds=str(lake.label_thresholds(day.symbol)),
    )
    return rows, provenance


def class_balance(lake: Lake, warehouse: Warehouse, day: AssetDay) -> list[Row]:
    """One row per horizon: windows, share without a label, share of each class among those with one."""
    return warehouse.rows("label_balance.sql", labels=str(lake.window_labels(day)))
