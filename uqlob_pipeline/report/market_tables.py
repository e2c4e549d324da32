"""The market of the lake beside the paper's: every quantity that the paper prints of its market, and the ratio."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from uqlob_pipeline.report.cells import Cell, Heading, View, general, label, plain_cell, two_places
from uqlob_pipeline.report.paper import paper

NAMES = {
    "events_per_second": "events per second",
    "sigma_lr": "σ of log-return",
    "sigma_ratio": "σ, longest over shortest horizon",
    "y_ref": "y_ref (ticks)",
    "stationary_share": "share of stationary windows, training",
}
SCHEMA = {"symbol": pl.String, "quantity": pl.String, "horizon_s": pl.Int64, "value": pl.Float64, "paper": pl.Float64}


def market_comparison(tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Rows of symbol, quantity, horizon_s (null where none), value, paper and ratio, for what both sides have."""
    rows = [row for row in _compared(tables) if row["value"] is not None and row["paper"]]
    return pl.DataFrame(rows, schema=SCHEMA).with_columns(ratio=pl.col("value") / pl.col("paper"))


def _compared(tables: Mapping[str, pl.DataFrame]) -> Iterator[dict[str, Any]]:
    printed = paper()
    shares = tables.get("class_proportions")
    for row in tables["dataset"].iter_rows(named=True):
        symbol = row["symbol"]
        thresholds = printed["thresholds"].get(symbol, {})
        own = tables["thresholds"].filter(symbol=symbol).sort("horizon_s")

        def compared(quantity: str, horizon: int | None, value: Any, in_paper: Any, symbol: str = symbol) -> dict[str, Any]:
            return {"symbol": symbol, "quantity": quantity, "horizon_s": horizon, "value": value, "paper": in_paper}

        rate = printed["dataset"].get(symbol, {}).get("events_per_second")
        yield compared("events_per_second", None, row["events_per_second"], rate)
        for scale in own.iter_rows(named=True):
            horizon = scale["horizon_s"]
            for quantity in ("sigma_lr", "y_ref"):
                yield compared(quantity, horizon, scale[quantity], thresholds.get(str(horizon), {}).get(quantity))
            if shares is not None:
                found = shares.filter(pl.col("class") == "stationary", symbol=symbol, horizon_s=horizon, split="train")["share"]
                share = printed["class_proportions"].get(symbol, {}).get("train", {}).get(str(horizon))
                yield compared("stationary_share", horizon, found.first(), share)
        both = [h for h in own["horizon_s"] if str(h) in thresholds]
        if len(both) > 1:
            first, last = both[0], both[-1]
            sigma = dict(own.select("horizon_s", "sigma_lr").iter_rows())
            of_paper = thresholds[str(last)]["sigma_lr"] / thresholds[str(first)]["sigma_lr"]
            yield compared("sigma_ratio", None, sigma[last] / sigma[first], of_paper)


def market_view(compared: pl.DataFrame) -> View:
    rows, order = [], pl.col("quantity").replace_strict({name: place for place, name in enumerate(NAMES)})
    for row in compared.sort("symbol", order, "horizon_s").iter_rows(named=True):
        horizon = "" if row["horizon_s"] is None else f"{row['horizon_s']} s"
        key = f"{row['symbol']}/{row['quantity']}/{'' if row['horizon_s'] is None else row['horizon_s']}"
        show = "{:.2e}".format if row["quantity"] == "sigma_lr" else general
        cells = [label(row["symbol"]), label(NAMES[row["quantity"]]), Cell(horizon)]
        cells += [plain_cell("market", f"{key}/value", row["value"], show, None), Cell(show(row["paper"]))]
        rows.append([*cells, plain_cell("market", f"{key}/ratio", row["ratio"], two_places, None)])
    left, right = ("Symbol", "Quantity", "Horizon"), ("Here", "Paper", "Ratio")
    heads = [[*(Heading.left(name) for name in left), *(Heading(name) for name in right)]]
    about = "Training days, except the event rate. A ratio of 1 is the paper's market."
    return View("market", "The market beside the paper's", about, heads, rows, folded=True)
