"""Prices, thresholds and labels: what a model must predict of a window.

The SQL files do the work; here they get their inputs.
"""

from uqlob_pipeline.fits import NotReady, Row, day_version, require_fit, training_files, training_inputs, why_stale, write_fit
from uqlob_pipeline.lake import AssetDay, Lake, Provenance, read_provenance
from uqlob_pipeline.profile import Profile
from uqlob_pipeline.warehouse import Warehouse, sql_version

CLASSES = ("down", "up", "stationary")
WINDOW_PRICES_CODE = sql_version("window_prices.sql")
LABEL_THRESHOLDS_CODE = sql_version("label_thresholds.sql")
WINDOW_LABELS_CODE = sql_version("window_labels.sql")


def window_prices_settings(profile: Profile) -> str:
    return profile.settings_version("features.window", "labels.horizons_s", "labels.k", "labels.latency_us")


def label_thresholds_settings(profile: Profile, symbol: str) -> str:
    """The printed values of other symbols, and of a rule that is not chosen, are no setting of this one's."""
    printed = [(h, printed_y_ref(profile, symbol, h)) for h in profile.labels.horizons_s]
    of_prices = profile.settings_version(
        "features.window", "labels.horizons_s", "labels.k", "labels.latency_us", "labels.alpha", "labels.y_ref"
    )
    return f"{of_prices} {printed}" if profile.labels.y_ref == "paper" else of_prices


def printed_y_ref(profile: Profile, symbol: str, horizon_s: int) -> float | None:
    return profile.labels.y_ref_paper.get(symbol, {}).get(horizon_s)


def write_window_prices(lake: Lake, warehouse: Warehouse, profile: Profile, day: AssetDay) -> tuple[int, Provenance]:
    """Write `window_prices` of an asset-day: start price, end price and displacement; returns the number of rows."""
    events_version = day_version(lake, "book_events", day, needed_by="window_prices")
    provenance = Provenance("window_prices", WINDOW_PRICES_CODE, window_prices_settings(profile), {"book_events": events_version})
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
    """Fit and write `label_thresholds` of a symbol on its training days; returns one row a horizon."""
    inputs = training_inputs(
        lake,
        profile,
        "window_prices",
        symbol,
        purpose="label_thresholds",
        settings_version=window_prices_settings(profile),
    )
    provenance = Provenance("label_thresholds", LABEL_THRESHOLDS_CODE, label_thresholds_settings(profile, symbol), inputs)
    printed = [
        {"horizon_s": h, "y_ref": value}
        for h in profile.labels.horizons_s
        if (value := printed_y_ref(profile, symbol, h)) is not None
    ]
    rows = write_fit(
        warehouse,
        "label_thresholds.sql",
        lake.label_thresholds(symbol),
        provenance,
        lambda rows: _check_thresholds(profile, symbol, rows),
        prices=[str(path) for path in training_files(lake, profile, "window_prices", symbol)],
        symbol=symbol,
        alpha=profile.labels.alpha,
        y_ref=profile.labels.y_ref,
        printed=printed,
    )
    return rows, provenance


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
    thresholds = require_fit(
        lake.label_thresholds(day.symbol),
        profile,
        "label_thresholds",
        day.symbol,
        settings_version=label_thresholds_settings(profile, day.symbol),
        needed_by=f"window_labels of {day}",
    )
    prices_version = day_version(lake, "window_prices", day, needed_by="window_labels")
    prices = read_provenance(lake.window_prices(day))
    if prices is None or prices.settings_version != window_prices_settings(profile):
        raise NotReady(
            f"window_labels of {day}: window_prices of that day was made with other settings than those of profile "
            f"'{profile.name}'. Materialise window_prices for {day} again"
        )
    provenance = Provenance(
        "window_labels",
        WINDOW_LABELS_CODE,
        label_thresholds_settings(profile, day.symbol),
        {"window_prices": prices_version, "label_thresholds": thresholds.data_version},
    )
    rows = warehouse.write(
        "window_labels.sql",
        lake.window_labels(day),
        provenance,
        prices=str(lake.window_prices(day)),
        thresholds=str(lake.label_thresholds(day.symbol)),
    )
    return rows, provenance


def class_balance(lake: Lake, warehouse: Warehouse, day: AssetDay) -> list[Row]:
    """A row a horizon: windows, share without a label, share of each class among those with one."""
    return warehouse.rows("label_balance.sql", labels=str(lake.window_labels(day)))


def why_thresholds_are_stale(lake: Lake, profile: Profile, symbol: str) -> str:
    """Empty where the symbol's thresholds are what a fit would give now."""
    return why_stale(
        lake,
        profile,
        lake.label_thresholds(symbol),
        symbol,
        settings_version=label_thresholds_settings(profile, symbol),
        code_version=LABEL_THRESHOLDS_CODE,
    )
