"""A slow reference of the labellers: plain Python over a list of events, in fractions, from the paper's appendix."""

import math
import statistics
from fractions import Fraction
from typing import Any

from tests.tables.feature_reference import sessions_of
from tests.tables.synthetic import Event

SECOND = 1_000_000_000


def mid(event: Event) -> Fraction:
    return Fraction(event.bid_ticks + event.ask_ticks, 2)


def reference_prices(
    events: list[Event], window: int = 512, horizons: tuple[int, ...] = (5, 10, 15, 30), k: int = 10, latency_ns: int = 500_000
) -> list[dict[str, Any]]:
    made = []
    number = 0
    for session in sessions_of(events):
        for last in range(window - 1, len(session), window):
            t = session[last].ts
            t_start = t + latency_ns
            start = next((event for event in session if event.ts >= t_start), None)
            for horizon in horizons:
                t_stop = t_start + horizon * SECOND
                ending = [event for event in session if event.ts <= t_stop][-k:]
                known = len(ending) == k and all(event.ts >= t_start for event in ending) and session[-1].ts >= t_stop
                p_end = sum((mid(event) for event in ending), Fraction(0)) / k if known else None
                made.append(
                    {
                        "window": number,
                        "session": session[0].session,
                        "t_end": t,
                        "horizon_s": horizon,
                        "t_start": t_start,
                        "p_start": float(mid(start)) if start else None,
                        "p_end": float(p_end) if p_end is not None else None,
                        "y": float(p_end - mid(start)) if p_end is not None and start else None,
                    }
                )
            number += 1
    return made


def reference_thresholds(prices: list[dict[str, Any]], alpha: float = 0.25) -> dict[int, dict[str, float]]:
    made = {}
    for horizon in sorted({row["horizon_s"] for row in prices}):
        known = [row for row in prices if row["horizon_s"] == horizon and row["y"] is not None]
        returns = [math.log(row["p_end"] / row["p_start"]) for row in known]
        sigma = statistics.stdev(returns)
        moves = [abs(row["y"]) for row in known if row["y"] != 0]
        made[horizon] = {
            "sigma_lr": sigma,
            "tau_lr": alpha * sigma,
            "y_ref": max(1.0, statistics.median(moves)),
            "windows": len(known),
            "zero_share": 1 - len(moves) / len(known),
        }
    return made


def reference_labels(prices: list[dict[str, Any]], thresholds: dict[int, dict[str, float]]) -> list[dict[str, Any]]:
    made = []
    for row in prices:
        tau = thresholds[row["horizon_s"]]["tau_lr"]
        delta = row["p_start"] * (math.exp(tau) - 1) if row["p_start"] is not None else None
        label = None
        if row["y"] is not None and delta is not None:
            label = 2
            if row["y"] >= delta:
                label = 1
            elif row["y"] <= -delta:
                label = 0
        made.append({**row, "delta": delta, "label": label})
    return made
