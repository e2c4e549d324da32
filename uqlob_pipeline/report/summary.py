"""The plain-language summary on top of the page: sentences computed from the scores, none written in advance of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from uqlob_models.evaluation import HEADS, POOLED, REGRESSION
from uqlob_pipeline.report.cells import Cell, Heading, Scores, View, label, signed, two_places
from uqlob_pipeline.report.figures.style import HEAD_NAMES
from uqlob_pipeline.report.inputs import ReportInputs
from uqlob_pipeline.report.paper import printed

# Within this many points of its nominal level a coverage is called nominal.
NOMINAL_POINTS = 3.0
# Fewer forecasts than this in a gate are too few to speak of.
FEW = 100


@dataclass(frozen=True)
class Card:
    """One number to see at a glance."""

    name: str
    text: str
    beside: str
    good: bool | None = None


@dataclass(frozen=True)
class Finding:
    """A heading and its sentences; `tone` is good, mixed, bad or plain."""

    heading: str
    sentences: list[str]
    tone: str = "plain"
    table: View | None = None


def findings(inputs: ReportInputs, scores: Scores) -> list[Finding]:
    horizons = inputs.present_horizons
    return [
        _data(inputs, scores),
        _coverage(scores, horizons),
        _gating(scores, horizons),
        _where_not(inputs, scores),
    ]


def cards(scores: Scores, horizons: Sequence[int]) -> list[Card]:
    """The four numbers of the shortest horizon that a reader looks for first."""
    horizon = horizons[0]
    found = []
    for level, metric in ((68, "cov68"), (95, "cov95")):
        value = scores.get(POOLED, horizon, REGRESSION, "percentile", 0, metric)
        if value is not None:
            there = printed("calibration", REGRESSION, horizon, metric)
            beside = f"paper {100 * there:.1f} %" if there is not None else ""
            nominal = abs(100 * value - level) <= NOMINAL_POINTS
            found.append(Card(f"{level} % interval covers, {horizon} s", f"{100 * value:.1f} %", beside, nominal))
    for head in HEADS:
        full, top = (scores.get(POOLED, horizon, head, "percentile", gate, "directional_f1") for gate in (0, 90))
        if full is not None and top is not None:
            theirs = [printed("directional_f1", head, horizon, "directional_f1", gate) for gate in (0, 90)]
            beside = f"paper {theirs[0]:.2f} → {theirs[1]:.2f}" if None not in theirs else ""
            gain = scores.bounds(POOLED, horizon, head, "percentile", 90, "directional_f1_over_share_gain")
            good = None if gain is None else gain[0] > 0
            name = f"{HEAD_NAMES[head]}: directional F1, all → top 10 %, {horizon} s"
            found.append(Card(name, f"{full:.2f} → {top:.2f}", beside, good))
    return found


def _data(inputs: ReportInputs, scores: Scores) -> Finding:
    market = (
        "A simulated market: these numbers show that the machinery works and say nothing about any real market. "
        "The paper's numbers, from real Kraken data, stand beside them for orientation only."
        if inputs.simulated
        else "Real order-book data recorded from Kraken."
    )
    symbols, horizons = inputs.present_symbols, inputs.present_horizons
    sentences = [market]
    dataset = inputs.dataset_tables.get("dataset")
    extent = f"{_count(len(symbols), 'symbol')} ({', '.join(symbols)}) at {_listed([f'{h} s' for h in horizons])}"
    if dataset is not None and dataset.num_rows:
        days, events = sum(dataset["days"].to_pylist()), sum(dataset["events"].to_pylist())
        extent += f"; {_count(days, 'asset-day')} and {events:,.0f} events in all splits"
    sentences.append(f"{extent}.")
    retained = []
    for horizon in horizons:
        for head in HEADS:
            found = scores.rows.get((POOLED, horizon, head, "percentile", 0, "accuracy"))
            if found:
                retained.append(f"{found[3]:,} at {horizon} s")
                break
    sentences.append(f"Test forecasts, all later than everything fitted: {_listed(retained)}.")
    return Finding("The data", sentences)


def _coverage(scores: Scores, horizons: Sequence[int]) -> Finding:
    sentences, nominal = [], []
    for level, metric in ((68, "cov68"), (95, "cov95")):
        parts = []
        for horizon in horizons:
            value = scores.get(POOLED, horizon, REGRESSION, "percentile", 0, metric)
            if value is None:
                continue
            off = 100 * value - level
            verdict = "nominal" if abs(off) <= NOMINAL_POINTS else "too narrow" if off < 0 else "too wide"
            nominal.append(verdict == "nominal")
            parts.append(f"{100 * value:.1f} % at {horizon} s ({verdict})")
        if parts:
            sentences.append(f"The {level} % interval holds the outcome in {_listed(parts)}.")
    recalibrated = [
        f"{100 * value:.1f} % at {horizon} s"
        for horizon in horizons
        if (value := scores.get(POOLED, horizon, REGRESSION, "percentile", 0, "cov95_conformal")) is not None
    ]
    if recalibrated:
        sentences.append(f"Conformal recalibration on the calibration half makes the 95 % interval hold {_listed(recalibrated)}.")
    if not sentences:
        return Finding("Is coverage nominal?", ["No regression head was evaluated."])
    tone = "good" if all(nominal) else "mixed" if any(nominal) else "bad"
    return Finding("Is coverage nominal?", sentences, tone)


def _gating(scores: Scores, horizons: Sequence[int]) -> Finding:
    """What the most confident tenth is worth, against the full set and against both references."""
    rows, raised, skilled, unknown = [], 0, 0, 0
    for horizon in horizons:
        for head in HEADS:
            key = (POOLED, horizon, head, "percentile")
            full, top = (scores.get(*key, gate, "directional_f1") for gate in (0, 90))
            if full is None or top is None:
                continue
            bounds = scores.bounds(*key, 90, "directional_f1_over_share_gain")
            verdict, good = _skill(bounds)
            raised, skilled, unknown = raised + (top > full), skilled + good, unknown + (bounds is None)
            cells = [label(HEAD_NAMES[head]), label(f"{horizon} s")]
            cells += [scores.cell((*key, gate, "directional_f1"), two_places, shade="directional_f1") for gate in (0, 90)]
            cells += [scores.cell((*key, 90, f"{name}_directional_f1"), two_places) for name in ("prior", "share")]
            cells += [scores.cell((*key, gate, "directional_f1_over_share"), signed) for gate in (0, 90)]
            cells.append(scores.cell((*key, 90, "directional_f1_over_share_gain"), signed, interval=True))
            rows.append([*cells, Cell(verdict)])
    if not rows:
        return Finding("What gating buys", ["Nothing was evaluated at both gates."])
    sentences = [
        f"Keeping the most confident 10 % raises directional macro F1 in {raised} of {len(rows)} cases. In {skilled} it surely "
        f"raises the lead over the forecaster's own calls placed at random too ({scores.interval} above zero), which a mere "
        "change of class mix cannot do."
    ]
    if unknown:
        sentences.append(f"In {unknown} there is no interval, so that this cannot be told.")
    headings = [
        [
            Heading("", 2),
            Heading("Directional F1", 2, "group"),
            Heading("Top 10 %: references", 2, "group"),
            Heading("Lead over share-matched", 3, "group"),
            Heading("", 1, "group"),
        ],
        [
            Heading("Head", 1, "left"),
            Heading("Horizon", 1, "left"),
            Heading("all", 1, "group"),
            Heading("top 10 %"),
            Heading("prior-matched", 1, "group"),
            Heading("share-matched"),
            Heading("all", 1, "group"),
            Heading("top 10 %"),
            Heading(f"change ({scores.interval})"),
            Heading("Verdict", 1, "group left"),
        ],
    ]
    tone = "good" if skilled == len(rows) else "mixed" if skilled else "plain" if unknown == len(rows) else "bad"
    return Finding("What gating buys", sentences, tone, View("gating-verdict", "", "", headings, rows))


def _skill(bounds: tuple[float, float] | None) -> tuple[str, bool]:
    """Does gating add skill beyond the class mix? Only an interval above zero says yes."""
    if bounds is None:
        return "too little data for an interval", False
    if bounds[0] > 0:
        return "gating adds skill", True
    return ("gating costs skill" if bounds[1] < 0 else "may be nothing"), False


def _where_not(inputs: ReportInputs, scores: Scores) -> Finding:
    """Every symbol, horizon and head for which gating or coverage fails, by name."""
    no_gain, no_skill, unknown, uncovered, few = [], [], [], [], []
    for symbol, horizon in sorted(inputs.evaluations):
        where = f"{symbol} {horizon} s"
        for head in HEADS:
            key = (symbol, horizon, head, "percentile", 90)
            gain = scores.bounds(*key, "directional_f1_over_share_gain")
            lead = scores.bounds(*key, "directional_f1_over_share")
            found = scores.rows.get((*key, "directional_f1"))
            if lead is not None and lead[0] <= 0:
                no_skill.append(f"{where} ({head})")
            elif gain is not None and gain[0] <= 0:
                no_gain.append(f"{where} ({head})")
            elif found and (lead is None or gain is None):
                unknown.append(f"{where} ({head})")
            if found and found[3] < FEW and where not in few:
                few.append(where)
        for level, metric in ((68, "cov68"), (95, "cov95")):
            value = scores.get(symbol, horizon, REGRESSION, "percentile", 0, metric)
            if value is not None and abs(100 * value - level) > NOMINAL_POINTS:
                uncovered.append(f"{where} ({100 * value:.0f} % for {level} %)")
    sentences = []
    if no_skill:
        sentences.append(f"The top decile is not surely better than its own calls placed at random for {_listed(no_skill)}.")
    if no_gain:
        sentences.append(f"It is better, but gating does not surely add to what the full set has, for {_listed(no_gain)}.")
    if unknown:
        sentences.append(
            f"Whether gating works cannot be told for {_listed(unknown)}: there is no interval, for want of blocks of time "
            "or because evaluation.bootstrap_replicates is 0."
        )
    if uncovered:
        sentences.append(f"Coverage is more than {NOMINAL_POINTS:.0f} points off for {_listed(uncovered)}.")
    if few:
        sentences.append(f"Fewer than {FEW} forecasts are left in the top decile of {_listed(few)}: read those scores as noise.")
    if not sentences:
        return Finding("Where it does not work", ["Nowhere, by these tests, in what was evaluated."], "good")
    known_to_fail = no_skill or no_gain or uncovered or few
    return Finding("Where it does not work", sentences, "mixed" if known_to_fail else "plain")


def _count(number: float, noun: str) -> str:
    return f"{number:,.0f} {noun}{'' if number == 1 else 's'}"


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else "none"
