"""Tables of the results: scores pooled and by symbol, beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from uqlob_models.evaluation import HEADS, POOLED, REGRESSION
from uqlob_models.gating import PERCENTILES, TIERS
from uqlob_pipeline.report.cells import (
    Cell,
    Formatter,
    Heading,
    Scores,
    View,
    general,
    label,
    signed,
    three_places,
    two_places,
    whole,
)
from uqlob_pipeline.report.figures.style import HEAD_NAMES
from uqlob_pipeline.report.paper import paper, printed


def directional_f1_view(scores: Scores, horizons: Sequence[int], symbol: str = POOLED) -> View:
    """Directional macro F1 by gate for both heads and all horizons, with its two references."""
    compares = symbol == POOLED
    heads = [[Heading("")], [Heading("")], [Heading("Gate q")]]
    full_set = ("percentile", 0, "directional_f1")
    groups = [(h, head) for h in horizons for head in HEADS if scores.get(symbol, h, head, *full_set) is not None]
    metrics = [("f1_down", "↓"), ("f1_up", "↑"), ("directional_f1", "mean"), ("prior_directional_f1", "prior")]
    metrics.append(("share_directional_f1", "share"))
    for horizon in horizons:
        here = [head for h, head in groups if h == horizon]
        if here:
            heads[0].append(Heading.group(f"{horizon} s", len(here) * len(metrics)))
        for head in here:
            heads[1].append(Heading.group(HEAD_NAMES[head], len(metrics)))
            heads[2] += [Heading(short, 1, "group" if index == 0 else "") for index, (_, short) in enumerate(metrics)]
    rows = []
    for gate in PERCENTILES:
        cells = [label(str(gate))]
        for horizon, head in groups:
            for metric, _ in metrics:
                reference = metric.startswith(("prior_", "share_"))
                compare = printed("directional_f1", head, horizon, metric, gate) if compares and not reference else None
                if compares and metric == "prior_directional_f1" and gate == 0:
                    compare = paper()["directional_f1"]["prior_matched"].get(str(horizon))
                key = (symbol, horizon, head, "percentile", gate, metric)
                cells.append(scores.cell(key, two_places, compare=compare, shade="" if reference else "directional_f1"))
        rows.append(cells)
    caption = (
        "F1 of down (↓) and up (↑) and their mean, the directional macro F1, as the least confident q % are removed. "
        "“prior”: guessing with the retained subset's own class shares. “share”: the same predictions placed at random."
    )
    return _of(symbol, View("directional-f1", "Directional macro F1 by confidence gate", caption, heads, rows, compares))


def _of(symbol: str, view: View) -> View:
    """The view named after its symbol, unless it is the pooled one, which has the full caption."""
    if symbol == POOLED:
        return view
    title, caption = f"{view.title}, {symbol}", "As the pooled table above, for this symbol alone."
    return replace(view, name=f"{view.name}-{symbol}", title=title, caption=caption)


def large_moves_view(scores: Scores, horizons: Sequence[int], symbol: str = POOLED) -> View:
    compares = symbol == POOLED
    heads = [
        [Heading(""), *(Heading.group(f"Top {tier} %", 3) for tier in TIERS)],
        [
            Heading("Horizon"),
            *(Heading(name, 1, "group" if name == "↓" else "") for _ in TIERS for name in ("↓", "↑", "kept")),
        ],
    ]
    rows = []
    for horizon in horizons:
        cells = [label(f"{horizon} s")]
        for tier in TIERS:
            for metric in ("f1_down", "f1_up"):
                compare = printed("large_moves", REGRESSION, horizon, metric, tier) if compares else None
                key = (symbol, horizon, REGRESSION, "large_moves", tier, metric)
                cells.append(scores.cell(key, two_places, compare=compare, shade="large_moves"))
            found = scores.rows.get((symbol, horizon, REGRESSION, "large_moves", tier, "f1_down"))
            cells.append(Cell(f"{found[3]:,}" if found else "–"))
        rows.append(cells)
    caption = (
        "UQ-regression where the true move is in the upper tercile of magnitude, by SNR tier of the whole test set. Chance is "
        "about 0.5 for either class. “kept” counts the large moves in the tier: below a few hundred the score is mostly noise."
    )
    return _of(symbol, View("large-moves", "Large moves: per-class F1 by SNR tier", caption, heads, rows, compares))


CALIBRATION_ROWS = (
    ("cov68", "Coverage of the 68 % interval (nominal 0.68)", three_places),
    ("cov95", "Coverage of the 95 % interval (nominal 0.95)", three_places),
    ("calibration_error", "Calibration error: mean over symbols of |cov68 − 0.68|", three_places),
    ("ence", "ENCE: mean over symbols, bins of predicted σ", three_places),
    ("cov68_raw", "68 % coverage of the head, before recalibration", three_places),
    ("cov95_raw", "95 % coverage of the head, before recalibration", three_places),
    ("nlpd", "NLPD (nats per tick)", three_places),
    ("nlpd_raw", "NLPD of the head, before recalibration", three_places),
    ("nlpd_ewma", "NLPD of an EWMA of absolute errors with the same kind of tails", three_places),
    ("nlpd_gain_over_ewma", "What the learned distribution gains over that EWMA", three_places),
    ("crps", "CRPS (ticks)", general),
)


def calibration_view(scores: Scores, horizons: Sequence[int]) -> View:
    rows = []
    for metric, name, show in CALIBRATION_ROWS:
        cells = [label(name)]
        for horizon in horizons:
            compare = printed("calibration", REGRESSION, horizon, metric)
            cells.append(scores.cell((POOLED, horizon, REGRESSION, "percentile", 0, metric), show, compare=compare))
        if any(cell.value is not None for cell in cells[1:]):
            rows.append(cells)
    caption = (
        "UQ-regression on the full test set, as published: recalibrated by the outcomes that were known at each forecast's time. "
        "NLPD and CRPS depend on tick sizes: compare them within one market only."
    )
    heads = [[Heading.left("Metric"), *(Heading(f"{horizon} s") for horizon in horizons)]]
    return View("calibration", "Calibration", caption, heads, rows, True)


def per_class_view(scores: Scores, horizons: Sequence[int]) -> View:
    """Per-class F1 by SNR tier. The stationary class vanishes in high tiers, so macro F1 is not used as gating metric."""
    tiers = (100, *TIERS)
    names = {"f1_down": "F1 (down)", "f1_up": "F1 (up)", "f1_stationary": "F1 (stationary)", "macro_f1": "Macro F1"}
    rows = []
    for horizon in horizons:
        for metric, name in names.items():
            cells = [label(f"{horizon} s"), label(name)]
            for tier in tiers:
                compare = printed("per_class_f1", REGRESSION, horizon, metric, tier)
                cells.append(scores.cell((POOLED, horizon, REGRESSION, "tier", tier, metric), three_places, compare=compare))
            rows.append(cells)
    heads = [[Heading.left("Horizon"), Heading.left("Metric"), *(Heading(f"Top {tier} %") for tier in tiers)]]
    caption = "UQ-regression by SNR tier. The paper prints 5 s. Confident means are large, so few predictions are stationary."
    return View("per-class-f1", "Per-class F1 by SNR tier", caption, heads, rows, True)


def symbol_view(scores: Scores, symbols: Sequence[str], horizons: Sequence[int]) -> View:
    """The main results, one row per symbol and horizon."""
    full: list[tuple[str, int, str, Formatter]] = [
        ("cov68", 0, "cov68", three_places),
        ("cov95", 0, "cov95", three_places),
        ("ENCE", 0, "ence", three_places),
        ("UCE", 0, "uce", general),
        ("NLPD", 0, "nlpd", three_places),
    ]
    gated: list[tuple[str, int, str, Formatter]] = [
        ("F1 all", 0, "directional_f1", two_places),
        ("top 10 %", 90, "directional_f1", two_places),
        ("over share", 90, "directional_f1_over_share", signed),
        ("sign all", 0, "sign_accuracy", three_places),
        ("sign top 10 %", 90, "sign_accuracy", three_places),
        ("AURC", 0, "aurc", three_places),
    ]
    fit: list[tuple[str, int, str, Formatter]] = [("all", 0, "wr2", three_places), ("top 10 %", 90, "wr2", three_places)]
    groups = [("Predictive distribution", REGRESSION, full), ("WR²", REGRESSION, fit)]
    groups += [(HEAD_NAMES[head], head, gated) for head in HEADS]
    rows = []
    for symbol, horizon in ((symbol, horizon) for symbol in symbols for horizon in horizons):
        retained = [scores.rows.get((symbol, horizon, head, "percentile", 0, "accuracy")) for head in HEADS]
        found = next((row for row in retained if row), None)
        if not found:
            continue
        cells = [label(symbol), label(f"{horizon} s"), Cell(whole(found[3]))]
        for _, head, columns in groups:
            for _, gate, metric, show in columns:
                shade = "directional_f1" if metric == "directional_f1" else ""
                cells.append(scores.cell((symbol, horizon, head, "percentile", gate, metric), show, shade=shade))
        rows.append(cells)
    above = [Heading("", 3), *(Heading.group(name, len(columns)) for name, _, columns in groups)]
    below = [Heading.left("Symbol"), Heading.left("Horizon"), Heading("Forecasts")]
    for _, _, columns in groups:
        below += [Heading(column[0], 1, "group" if index == 0 else "") for index, column in enumerate(columns)]
    caption = (
        "Top 10 %: the most confident. “over share”: their directional macro F1 above the same predictions placed at random. "
        "“sign”: share of the outcomes that moved whose sign was forecast. "
        "AURC: mean three-class error over all confidence cuts, lower is better. UCE is in squared ticks."
    )
    return View("by-symbol", "Main results by symbol", caption, [above, below], rows)
