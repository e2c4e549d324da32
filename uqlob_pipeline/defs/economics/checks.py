"""Checks of `trades` and `economic_evaluation`."""

from typing import TYPE_CHECKING

import dagster as dg

from uqlob_pipeline.defs.materialization import CheckOutcome
from uqlob_pipeline.lake.layout import Lake, ModelKey

if TYPE_CHECKING:
    from uqlob_pipeline.economics.economic_evaluation import EconomicsDone
    from uqlob_pipeline.economics.trades import TradesDone

WARN, ERROR = dg.AssetCheckSeverity.WARN, dg.AssetCheckSeverity.ERROR

TRADES_CHECKS = [
    dg.AssetCheckSpec(
        "possible",
        asset="trades",
        blocking=True,
        description="decision, arrival, fill and exit follow one another; no more is filled than ordered",
    ),
    dg.AssetCheckSpec("queue_places", asset="trades", description="level 3 was recorded, so that queue places are known"),
]
EVALUATION_CHECKS = [
    dg.AssetCheckSpec("random_side_loses", asset="economic_evaluation", description="a random side gains nothing by crossing"),
    dg.AssetCheckSpec("null_loses", asset="economic_evaluation", description="stale forecasts gain nothing by crossing"),
    dg.AssetCheckSpec("acting_pays", asset="economic_evaluation", description="what the calibration half chose earns its fees"),
]


def trades_checks(lake: Lake, key: ModelKey, done: "TradesDone") -> list[CheckOutcome]:
    from uqlob_pipeline.economics.trades import trade_faults

    wrong = {fault: count for fault, count in trade_faults(lake.by_model("trades", key)).items() if count}
    counted = ", ".join(f"{fault.replace('_', ' ')}: {count}" for fault, count in wrong.items())
    return [
        CheckOutcome("possible", not wrong, counted or f"all {done.orders} orders are", ERROR, wrong),
        CheckOutcome(
            "queue_places",
            done.level3,
            "level 3 was recorded"
            if done.level3
            else "some days have level 2 alone: a resting order then fills only when a worse price trades or the other side "
            "arrives, so that fills of makers are too few. Record level 3",
            WARN,
        ),
    ]


def economics_checks(done: "EconomicsDone") -> list[CheckOutcome]:
    from uqlob_pipeline.economics.verdict import PAYS, gaining_controls

    return [
        _control("random_side_loses", "a random side", gaining_controls(done.table, "random")),
        _control("null_loses", "a stale forecast", gaining_controls(done.table, "null")),
        CheckOutcome("acting_pays", done.verdict.startswith(PAYS), done.verdict, WARN),
    ]


def _control(name: str, what: str, gaining: list[str]) -> CheckOutcome:
    wrong = f"{what} gains at {', '.join(gaining)}: the market or its replay is at fault, or prices cross"
    return CheckOutcome(name, not gaining, wrong if gaining else f"{what} gains nothing", WARN)
