"""The page's part "What is it worth?": what acting on the forecasts earns, and at which fees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import polars as pl

from uqlob_pipeline.economics.names import MUST_TRADE
from uqlob_pipeline.economics.verdict import chosen_by_tier
from uqlob_pipeline.report import figures
from uqlob_pipeline.report.cells import Cell, Formatter, Heading, View, label, signed, two_places, whole
from uqlob_pipeline.report.figures.style import HEAD_NAMES
from uqlob_pipeline.report.picture import Picture
from uqlob_pipeline.report.report_inputs import ReportInputs

CAPTION = (
    "Per fee tier, what earned the most on the calibration half, and what it earned on the test days. Results in bps of the "
    "mid-price per filled order. Break-even: the fee per side at which nothing is left. Foresight: the better side at the same "
    "moments, before fees. Random: the mean of both sides there. Null: the same head, gate and policy with forecasts that are "
    "too old to predict the next price move, before fees."
)

SAVINGS_CAPTION = (
    "Every order is executed within the horizon; the forecast only decides whether it is delayed. Saving in bps of the mid-price "
    "per delayed order, with 95 % intervals, of the head and gate that saved the most on the calibration half. Fees do not "
    "matter: they are paid in any case."
)


def economics_items(inputs: ReportInputs) -> Iterator[View | Picture]:
    yield chosen_view(inputs)
    yield savings_view(inputs)
    settings = (inputs.hyperparameters or {}).get("economics")
    if settings is None:
        return
    for symbol in inputs.present_symbols:
        horizons = [horizon for other, horizon in inputs.economics if other == symbol]
        for horizon in sorted(horizons, key=lambda horizon: abs(horizon - 10))[:1]:  # the horizon that the other figures show
            yield from _pictures(inputs, symbol, horizon, settings)


def _pictures(inputs: ReportInputs, symbol: str, horizon: int, settings: Mapping[str, Any]) -> Iterator[Picture]:
    test = pl.DataFrame(inputs.economics[symbol, horizon]).filter(split="test")
    if test.is_empty():
        return
    latency, size = float(settings["latency_ms"]), float(settings["sizes"][0])
    model = f"{symbol}, {horizon} s"
    figure = figures.figure_break_even(test, latency_ms=latency, size=size, simulated=inputs.simulated)
    caption = (
        f"Fee per side at which acting earns nothing, at {latency:g} ms latency. The bands are 95 % intervals, the dotted lines "
        "the lowest and the highest fees. Null: takers with forecasts that are too old to predict the next price move. The scale "
        "is linear up to 1 bps and logarithmic above."
    )
    yield Picture(f"break-even-{symbol}", f"Break-even fee by gate, {model}", caption, figure)
    figure = figures.figure_sweeps(test, latency_ms=latency, size=size, horizon_s=horizon, simulated=inputs.simulated)
    caption = (
        "At the tightest gate. Must trade: the forecast only says whether to trade now or at the horizon, so no fee is a hurdle."
    )
    yield Picture(f"economic-sweeps-{symbol}", f"Markouts, latency, size and waiting, {model}", caption, figure)
    orders = inputs.chosen_orders.get((symbol, horizon))
    chosen = chosen_by_tier(test.to_dicts())
    if orders is not None and not orders.is_empty() and chosen:
        row: dict[str, Any] = chosen[-1]
        title = f"{row['head']}, gate {row['gate']}, {figures.POLICY_NAMES[row['policy']]}, tier {row['tier']}"
        figure = figures.figure_net_path(orders, title, row["taker_bps"], row["maker_bps"], simulated=inputs.simulated)
        caption = (
            "Running sum over the test days of what the calibration half chose at the cheapest tier, with a 95 % band as if "
            "orders were independent of one another."
        )
        yield Picture(f"net-path-{symbol}", f"Result over time, {model}", caption, figure)


def chosen_view(inputs: ReportInputs) -> View:
    """One row per model and tier."""
    rows = []
    for (symbol, horizon), table in sorted(inputs.economics.items()):
        test = pl.DataFrame(table).filter(split="test")
        rows += [_row(f"{symbol} {horizon} s", row) for row in chosen_by_tier(test.to_dicts())]
    headings = [Heading.left("Model"), Heading.left("Tier"), Heading.left("Head"), Heading.left("Gate"), Heading.left("Policy")]
    headings += [
        Heading(name)
        for name in ("Orders", "Fill rate", "Before fees", "Fees", "After fees", "Break-even", "Foresight", "Random", "Null")
    ]
    return View("economics-chosen", "Acting on the forecasts, by fee tier", CAPTION, [headings], rows)


def savings_view(inputs: ReportInputs) -> View:
    """One row per model: what the calibration half chose for orders that are executed in any case."""
    rows = []
    for (symbol, horizon), table in sorted(inputs.economics.items()):
        for row in savings(pl.DataFrame(table)).iter_rows(named=True):
            number = _numbers(row)
            rows.append(
                [
                    label(f"{symbol} {horizon} s"),
                    label(HEAD_NAMES[row["head"]]),
                    label(str(row["gate"])),
                    number("orders", whole),
                    number("gross_bps", signed, _bounds(row, "gross")),
                    number("random_bps", signed, _bounds(row, "random")),
                    number("null_bps", signed, _bounds(row, "null")),
                ]
            )
    headings = [Heading.left("Model"), Heading.left("Head"), Heading.left("Gate")]
    headings += [Heading(name) for name in ("Delayed orders", "Saving", "Random", "Null")]
    return View("economics-savings", "Must-trade policy: saving from delayed execution", SAVINGS_CAPTION, [headings], rows)


def _numbers(row: Mapping[str, Any]) -> Callable[..., Cell]:
    """Cells of a row of `economic_evaluation`, with the key of their value."""
    names = ("symbol", "horizon_s", "split", "head", "gate", "policy", "latency_ms", "size", "tier")
    key = "/".join(f"{row[name]:g}" if isinstance(row[name], float) else str(row[name]) for name in names)

    def number(name: str, show: Formatter, beside: str = "") -> Cell:
        value = row[name]
        return Cell("–") if value is None else Cell(show(value), value, "economic_evaluation", f"{key}/{name}", beside)

    return number


def _bounds(row: Mapping[str, Any], name: str) -> str:
    lower, upper = row[f"{name}_lower"], row[f"{name}_upper"]
    return "" if lower is None else f"{signed(lower)} to {signed(upper)}"


def _row(model: str, row: Mapping[str, Any]) -> list[Cell]:
    number = _numbers(row)
    return [
        label(model),
        label(str(row["tier"])),
        label(HEAD_NAMES[row["head"]]),
        label(str(row["gate"])),
        label(figures.POLICY_NAMES[row["policy"]]),
        number("orders", whole),
        number("fill_rate", two_places),
        number("gross_bps", signed),
        number("fees_bps", two_places),
        number("net_bps", signed, _bounds(row, "net")),
        number("break_even_bps", two_places),
        number("oracle_bps", signed),
        number("random_bps", signed),
        number("null_bps", signed),
    ]


def savings(table: pl.DataFrame) -> pl.DataFrame:
    """The must-trade row of the test days that the calibration half chose."""
    return table.filter((pl.col("policy") == MUST_TRADE) & (pl.col("split") == "test") & pl.col("chosen"))
