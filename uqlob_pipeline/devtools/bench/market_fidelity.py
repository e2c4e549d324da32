"""`uqlob bench market`: the simulated market beside the paper's printed tables, its stylised facts, and the null test.

Figures and targets are printed whether met or not. Development seeds (21 to 29) choose and fit; reporting seeds (from 100 on)
are looked at once.
"""

from __future__ import annotations

import json as json_text
import math
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from uqlob_pipeline.cli.simulate import parse_symbols
from uqlob_pipeline.lake.log_function import LogFn

if TYPE_CHECKING:
    from uqlob_pipeline.devtools.bench.direction_baseline import Scored
    from uqlob_pipeline.market.stylised_facts import Fact

TOLERANCE = {"events_per_second": 0.05, "sigma_lr": 0.15, "ratio_30_5": 0.10, "y_ref": 0.25}
SHARE_TOLERANCE = 0.05  # of a stationary share, in absolute terms
F1_TOLERANCE = 0.05
NULL_HOURS = 50.0


def against_paper(value: float, printed: float, tolerance: float) -> dict[str, Any]:
    """A quantity with the paper's value, their ratio, and whether it is near enough."""
    ratio = value / printed
    return {"value": value, "paper": printed, "ratio": ratio, "met": abs(ratio - 1.0) <= tolerance + 1e-9}


def share_against_paper(value: float, printed: float, tolerance: float = SHARE_TOLERANCE) -> dict[str, Any]:
    return {"value": value, "paper": printed, "difference": value - printed, "met": abs(value - printed) <= tolerance + 1e-9}


def calibration(symbol: str, seeds: tuple[int, ...], hours: float) -> dict[str, Any]:
    """Every printed quantity of a symbol, pooled over one day per seed."""
    from uqlob_pipeline.market.simulator import SYMBOLS
    from uqlob_pipeline.market.simulator.fitting import Targets, measure
    from uqlob_pipeline.report.paper import paper

    targets = Targets.from_paper(paper(), symbol)
    measured = measure(SYMBOLS[symbol], seeds, hours)
    scales = measured.scales
    report: dict[str, Any] = {
        "windows": scales[5].windows,
        "events_per_second": against_paper(measured.events_per_second, targets.events_per_second, TOLERANCE["events_per_second"]),
        "ratio_30_5": against_paper(measured.ratio(), targets.ratio(), TOLERANCE["ratio_30_5"]),
    }
    for name in ("sigma_lr", "y_ref"):
        printed = getattr(targets, name)
        report[name] = {str(h): against_paper(getattr(scales[h], name), printed[h], TOLERANCE[name]) for h in scales}
    report["stationary_share"] = {
        str(h): share_against_paper(scales[h].stationary_share, targets.stationary_share[h])
        if h in targets.stationary_share
        else {"value": scales[h].stationary_share}
        for h in scales
    }
    report["zero_share"] = {str(h): scales[h].zero_share for h in scales}
    report["kurtosis"] = {str(h): scales[h].kurtosis for h in scales}
    return report


def shifted_shares(seeds: tuple[int, ...], hours: float) -> dict[str, Any]:
    """BTC's stationary shares after `--shift`, by the threshold of the unshifted market."""
    import numpy as np

    from uqlob_pipeline.market.simulator import SYMBOLS, MarketSettings
    from uqlob_pipeline.market.simulator.fitting import FIRST_DAY
    from uqlob_pipeline.market.simulator.market_statistics import HORIZONS_S, label_scale, window_prices
    from uqlob_pipeline.market.simulator.observation import observe_day
    from uqlob_pipeline.report.paper import paper

    printed = paper()["class_proportions"]["BTC-USD"]["test"]
    taus = {h: paper()["thresholds"]["BTC-USD"][str(h)]["tau_lr"] for h in HORIZONS_S}
    starts, moves = [], []
    for seed in seeds:
        quotes = observe_day("BTC-USD", FIRST_DAY, MarketSettings(seed=seed, hours=hours), SYMBOLS["BTC-USD"].after_shift())
        prices = window_prices(quotes.ts, quotes.bid + quotes.ask, quotes.kept)
        starts.append(prices.p_start)
        moves.append(prices.y)
    p_start, y = np.concatenate(starts), np.concatenate(moves, axis=1)
    shares = {h: label_scale(p_start, y[i], tau=taus[h]).stationary_share for i, h in enumerate(HORIZONS_S)}
    return {h: share_against_paper(shares[int(h)], share) for h, share in printed.items()}


def learnt(parts: dict[str, dict[int, Scored]]) -> dict[str, Any]:
    """Directional F1 of boosting by horizon: all forecasts and the most confident tenth, beside the paper's regression head."""
    import numpy as np

    from uqlob_pipeline.devtools.bench.direction_baseline import LEARNT_HORIZONS_S, pooled_directional_f1
    from uqlob_pipeline.report.paper import printed

    report: dict[str, Any] = {}
    for horizon in LEARNT_HORIZONS_S:
        scored = [part[horizon] for part in parts.values()]
        gates = {}
        for gate, retained in ((0, 1.0), (90, 0.1)):
            own = printed("directional_f1", "regression", horizon, "directional_f1", gate)
            assert own is not None
            score = pooled_directional_f1(scored, retained)
            gates[str(gate)] = share_against_paper(score.value, own, F1_TOLERANCE) | {"lower": score.lower, "upper": score.upper}
        report[str(horizon)] = {
            "gates": gates,
            "windows": sum(len(part.true) for part in scored),
            "stationary_share": float(np.concatenate([part.true == 2 for part in scored]).mean()),
            "by_market": {
                name: {
                    "0": part[horizon].directional_f1(),
                    "90": part[horizon].directional_f1(0.1),
                    "sign_accuracy": part[horizon].sign_accuracy(),
                }
                for name, part in parts.items()
            },
        }
    return report


def null_report(symbol: str, seeds: tuple[int, ...], hours: float) -> dict[str, Any]:
    """Every test of the null market, and the correlation that each would detect."""
    from uqlob_pipeline.market.simulator.null_test import CRITICAL_T, null_market_tests, worst

    tests = null_market_tests(symbol, seeds, hours)
    found = worst(tests)
    return {
        "hours_per_seed": hours,
        "critical_t": CRITICAL_T,
        "largest_t": found.t,
        "met": abs(found.t) < CRITICAL_T,
        "tests": [
            {
                "known": "queue imbalance" if lag == 0 else f"move over {lag:g} s",
                "horizon_s": horizon,
                "windows": test.windows,
                "correlation": test.correlation,
                "t": test.t,
                "detectable": test.detectable(CRITICAL_T) if test.windows else None,
            }
            for (lag, horizon), test in tests.items()
        ],
    }


def targets_met(report: dict[str, Any]) -> dict[str, bool]:
    """One line per symbol and quantity, and for what was learnt and tested."""
    met: dict[str, bool] = {}
    for symbol, found in report["symbols"].items():
        met[f"{symbol}: event rate within 5 %"] = found["events_per_second"]["met"]
        met[f"{symbol}: sigma_LR within 15 % at all horizons"] = all(row["met"] for row in found["sigma_lr"].values())
        met[f"{symbol}: ratio 30 s / 5 s within 10 %"] = found["ratio_30_5"]["met"]
        met[f"{symbol}: y_ref within 25 % at all horizons"] = all(row["met"] for row in found["y_ref"].values())
        shares = [row["met"] for row in found["stationary_share"].values() if "met" in row]
        if shares:
            met[f"{symbol}: stationary shares of training within 0.05"] = all(shares)
    if "shift" in report:
        met["BTC-USD: stationary shares after the shift within 0.05 of the test days'"] = all(
            row["met"] for row in report["shift"].values()
        )
    for horizon, found in report.get("learning", {}).items():
        met[f"boosting, {horizon} s: directional F1 within 0.05 of the paper's head"] = found["gates"]["0"]["met"]
        met[f"boosting, {horizon} s: top decile within 0.05 of the paper's head"] = found["gates"]["90"]["met"]
    for symbol, found in report.get("null_market", {}).items():
        met[f"{symbol}: nothing known at a window's end predicts the sign of y without signal"] = found["met"]
    return met


def market(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    symbols: Annotated[str, typer.Option(help="Comma-separated, or 'all'.")] = "all",
    seeds: Annotated[str, typer.Option(help="One market each; from 100 on for reporting only.")] = "21,22,23",
    hours: Annotated[float, typer.Option(min=0.5, max=24.0, help="Hours of each market's day.")] = 24.0,
    facts_hours: Annotated[float, typer.Option(min=0.0, max=24.0, help="Hours for the stylised facts; 0 leaves them out.")] = 6.0,
    learning: Annotated[bool, typer.Option(help="Whether boosting is fitted, through the whole pipeline.")] = True,
    null_hours: Annotated[float, typer.Option(min=0.0, help="Hours per seed of the null test; 0 leaves it out.")] = NULL_HOURS,
    null_symbols: Annotated[str, typer.Option(help="The symbols of the null test.")] = "BTC-USD",
    figures: Annotated[Path | None, typer.Option(help="Write the figures of the stylised facts into this directory.")] = None,
    workdir: Annotated[Path | None, typer.Option(help="Keep what boosting scored here, market by market, and reuse it.")] = None,
) -> None:
    """Measure the simulated market against the paper's tables, with every target and whether it was met."""
    try:
        names, null_names = parse_symbols(symbols), parse_symbols(null_symbols)
        chosen = tuple(int(seed) for seed in seeds.split(","))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    log: LogFn = (lambda _: None) if json else typer.echo
    started = time.monotonic()
    if workdir is not None:
        workdir.mkdir(parents=True, exist_ok=True)
    null_names = null_names if null_hours > 0 else []
    report = measure_all(names, chosen, hours, facts_hours, learning, null_names, null_hours, log, workdir)
    report["targets"] = targets_met(report)
    report["seconds"] = round(time.monotonic() - started, 1)
    if figures is not None and facts_hours > 0:
        write_figures(report, figures)
    if json:
        typer.echo(json_text.dumps(report))
        return
    typer.echo(json_text.dumps({name: value for name, value in report.items() if name != "targets"}, indent=1))
    for target, met in report["targets"].items():
        typer.echo(f"{'met    ' if met else 'NOT MET'}  {target}")


def measure_all(
    symbols: list[str],
    seeds: tuple[int, ...],
    hours: float,
    facts_hours: float,
    learning: bool,
    null_symbols: list[str],
    null_hours: float,
    log: LogFn,
    workdir: Path | None = None,
) -> dict[str, Any]:
    from uqlob_pipeline.devtools.bench.direction_baseline import LearnableMarket, kept_scores
    from uqlob_pipeline.devtools.bench.market_facts import simulated_facts

    report: dict[str, Any] = {"market": "simulated", "seeds": list(seeds), "hours": hours, "symbols": {}}
    for symbol in symbols:
        log(f"{symbol}: {len(seeds)} days of {hours:g} hours")
        report["symbols"][symbol] = calibration(symbol, seeds, hours)
        if facts_hours > 0:
            with tempfile.TemporaryDirectory(prefix="uqlob-market-") as root:
                facts = simulated_facts(Path(root), symbol, seeds[0], facts_hours)
            report["symbols"][symbol]["stylised_facts"] = curves(facts)
    if "BTC-USD" in symbols:
        report["shift"] = shifted_shares(seeds, min(hours, 8.0))
    if learning:
        parts = {}
        for symbol, seed in product(symbols, seeds):
            log(f"{symbol}, seed {seed}: boosting")
            # The paper's BTC changed its volatility regime after the training days.
            chosen = LearnableMarket(symbol, seed, shifted=symbol == "BTC-USD")
            parts[f"{symbol} seed {seed}"] = kept_scores(workdir, chosen)
        report["learning"] = learnt(parts)
    if null_symbols:
        report["null_market"] = {}
    for symbol in null_symbols:
        log(f"{symbol}: null market, {null_hours:g} hours for each seed")
        report["null_market"][symbol] = null_report(symbol, seeds, null_hours)
    return report


def curves(facts: list[Fact]) -> dict[str, list[list[float | None]]]:
    """Points [x, value] of each fact; null where a value is not defined, since JSON has no NaN."""
    found: dict[str, list[list[float | None]]] = {}
    for fact, x, value in facts:
        found.setdefault(fact, []).append([x, None if math.isnan(value) else value])
    return found


def write_figures(report: dict[str, Any], directory: Path) -> None:
    import polars as pl

    from uqlob_pipeline.report.figures import png
    from uqlob_pipeline.report.figures.market_figures import figure_calibration, figure_stylised_facts

    directory.mkdir(parents=True, exist_ok=True)
    facts = [
        {"symbol": symbol, "fact": fact, "x": x, "value": value}
        for symbol, found in report["symbols"].items()
        for fact, points in found["stylised_facts"].items()
        for x, value in points
    ]
    ratios = [
        {"symbol": symbol, "quantity": name, "horizon_s": int(horizon), "ratio": row["ratio"]}
        for symbol, found in report["symbols"].items()
        for name in ("sigma_lr", "y_ref")
        for horizon, row in found[name].items()
    ]
    (directory / "stylised_facts.png").write_bytes(png(figure_stylised_facts(pl.DataFrame(facts))))
    (directory / "calibration.png").write_bytes(png(figure_calibration(pl.DataFrame(ratios))))
