"""The summary at the top of the page: sentences and key numbers computed from the scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from uqlob_models.bootstrap import Bootstrap
from uqlob_models.coverage import NOMINAL_LEVELS, RULE, Verdict, coverage_verdict
from uqlob_models.evaluation import HEADS, POOLED, REGRESSION
from uqlob_pipeline.economics.verdict import PAYS, verdict
from uqlob_pipeline.report import economics_part
from uqlob_pipeline.report.cells import Cell, Heading, Scores, View, label, signed, signed_three_places, three_places, two_places
from uqlob_pipeline.report.figures.style import HEAD_NAMES
from uqlob_pipeline.report.paper import printed
from uqlob_pipeline.report.report_inputs import ReportInputs

SUFFIXES = {"_raw": "Before recalibration", "": "As published, recalibrated by the outcomes known at each forecast's time"}
# Scores of fewer forecasts than this count as noise.
FEW = 100


@dataclass(frozen=True)
class Card:
    """One key number."""

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
        _sharpness(scores, horizons),
        _gating(scores, horizons),
        *([_worth(inputs)] if inputs.economics else []),
        _where_not(inputs, scores),
    ]


def cards(scores: Scores, horizons: Sequence[int]) -> list[Card]:
    """Coverage and gated F1 of the shortest horizon."""
    horizon = horizons[0]
    found = []
    for metric, level in NOMINAL_LEVELS.items():
        judged = _judged(scores, POOLED, horizon, metric, level)
        if judged is not None:
            value, verdict = judged
            there = printed("calibration", REGRESSION, horizon, metric)
            beside = f"paper {100 * there:.1f} %" if there is not None else ""
            good = None if verdict == "undecided" else verdict == "nominal"
            found.append(Card(f"{100 * level:.0f} % interval covers, {horizon} s", f"{100 * value:.1f} %", beside, good))
    for head in HEADS:
        full, top = (scores.get(POOLED, horizon, head, "percentile", gate, "directional_f1") for gate in (0, 90))
        if full is not None and top is not None:
            theirs = [printed("directional_f1", head, horizon, "directional_f1", gate) for gate in (0, 90)]
            beside = f"paper {theirs[0]:.2f} → {theirs[1]:.2f}" if None not in theirs else ""
            gain = scores.bounds(POOLED, horizon, head, "percentile", 90, "sign_accuracy_gain")
            good = None if gain is None else gain[0] > 0
            name = f"{HEAD_NAMES[head]}: directional F1, all → top 10 %, {horizon} s"
            found.append(Card(name, f"{full:.2f} → {top:.2f}", beside, good))
    return found


def _data(inputs: ReportInputs, scores: Scores) -> Finding:
    market = (
        "A simulated market: these numbers show that the software works, and nothing about any real market. "
        "The paper's numbers, from real Kraken data, are shown for orientation only."
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


def _judged(scores: Scores, symbol: str, horizon: int, metric: str, level: float) -> tuple[float, Verdict] | None:
    """A coverage of the full test set and whether it is nominal; None where it was not evaluated."""
    key = (symbol, horizon, REGRESSION, "percentile", 0, metric)
    value = scores.get(*key)
    return None if value is None else (value, coverage_verdict(value, level, scores.bounds(*key)))


def _coverage(scores: Scores, horizons: Sequence[int]) -> Finding:
    """Both levels, before and after recalibration."""
    sentences, verdicts = [], []
    for suffix, when in SUFFIXES.items():
        for metric, level in NOMINAL_LEVELS.items():
            parts = []
            for horizon in horizons:
                judged = _judged(scores, POOLED, horizon, f"{metric}{suffix}", level)
                if judged is not None:
                    value, verdict = judged
                    parts.append(f"{100 * value:.1f} % at {horizon} s ({verdict})")
                    verdicts += [verdict] if not suffix else []
            if parts:
                sentences.append(f"{when}, the {100 * level:.0f} % interval contains the outcome in {_listed(parts)}.")
    if not sentences:
        return Finding("Is coverage nominal?", ["No regression head was evaluated."])
    nominal = [verdict == "nominal" for verdict in verdicts]
    undecided = all(verdict == "undecided" for verdict in verdicts)
    tone = "good" if all(nominal) else "mixed" if any(nominal) else "plain" if undecided else "bad"
    return Finding("Is coverage nominal?", [*sentences, RULE], tone)


def _sharpness(scores: Scores, horizons: Sequence[int]) -> Finding:
    """Whether a learned distribution is worth more than an EWMA of what happened."""
    heading, parts, gains = "Is the learned distribution better than an EWMA?", [], []
    for horizon in horizons:
        key = (POOLED, horizon, REGRESSION, "percentile", 0, "nlpd_gain_over_ewma")
        gain, bounds = scores.get(*key), scores.bounds(*key)
        if gain is not None:
            parts.append(f"{gain:+.3f} at {horizon} s" + (f" ({bounds[0]:+.3f} to {bounds[1]:+.3f})" if bounds else ""))
            gains.append(bounds is not None and bounds[0] > 0)
    if not parts:
        return Finding(heading, ["No recalibrated regression head was evaluated."])
    sentences = [
        "The reference learns nothing: its scale and probability of no move are EWMAs of the outcomes known at each forecast. "
        f"The published distribution gains {_listed(parts)} nats per forecast over it."
    ]
    if all(gains):
        return Finding(heading, sentences, "good")
    sentences.append("Where the interval includes zero, the learned scale is not shown to improve on an EWMA.")
    return Finding(heading, sentences, "mixed" if any(gains) else "bad")


def _gating(scores: Scores, horizons: Sequence[int]) -> Finding:
    """Sign accuracy on true movers within the gate judges; F1 and both references stand beside it."""
    rows, raised, skilled, unknown = [], 0, 0, 0
    for horizon in horizons:
        for head in HEADS:
            key = (POOLED, horizon, head, "percentile")
            full, top = (scores.get(*key, gate, "directional_f1") for gate in (0, 90))
            if full is None or top is None:
                continue
            bounds = scores.bounds(*key, 90, "sign_accuracy_gain")
            verdict, good = _skill(bounds)
            raised, skilled, unknown = raised + (top > full), skilled + good, unknown + (bounds is None)
            cells = [label(HEAD_NAMES[head]), label(f"{horizon} s")]
            cells += [scores.cell((*key, gate, "directional_f1"), two_places, shade="directional_f1") for gate in (0, 90)]
            cells += [scores.cell((*key, 90, f"{name}_directional_f1"), two_places) for name in ("prior", "share")]
            cells.append(scores.cell((*key, 90, "directional_f1_over_share"), signed))
            cells.append(scores.cell((*key, 0, "sign_accuracy"), three_places))
            cells.append(scores.cell((*key, 90, "sign_accuracy"), three_places, interval=True))
            cells.append(scores.cell((*key, 90, "sign_accuracy_gain"), signed_three_places, interval=True))
            rows.append([*cells, Cell(verdict)])
    if not rows:
        return Finding("The effect of gating", ["Nothing was evaluated at both gates."])
    sentences = [
        f"Keeping the most confident 10 % raises directional macro F1 in {raised} of {len(rows)} cases. That alone proves "
        "nothing: a gate that keeps volatile times raises it, and its lead over the share-matched reference, without any better "
        f"direction. In {skilled} cases the sign of the forecast is also right more often among the outcomes that moved "
        f"({scores.interval} of the gain above zero), which neither class shares nor volatility can bring about."
    ]
    if unknown:
        sentences.append(
            f"In {unknown} cases there is no interval, so this is unknown: fewer than {Bootstrap.minimum_blocks} blocks of time "
            f"give no {scores.interval}."
        )
    above = [Heading("", 2), Heading.group("Directional F1", 2), Heading.group("Top 10 %: references", 3)]
    above += [Heading.group("Sign accuracy on true movers", 3), Heading.group("")]
    below = [Heading.left("Head"), Heading.left("Horizon"), Heading.group("all"), Heading("top 10 %")]
    below += [Heading.group("prior-matched"), Heading("share-matched"), Heading("lead over share")]
    below += [
        Heading.group("all"),
        Heading("top 10 %"),
        Heading(f"gain ({scores.interval})"),
        Heading("Verdict", 1, "group left"),
    ]
    tone = "good" if skilled == len(rows) else "mixed" if skilled else "plain" if unknown == len(rows) else "bad"
    return Finding("The effect of gating", sentences, tone, View("gating-verdict", "", "", [above, below], rows))


def _worth(inputs: ReportInputs) -> Finding:
    """At which fee tier, if any, acting pays, and what the forecasts save a trader who must execute in any case."""
    sentences, paying, saved = [], 0, 0
    for (symbol, horizon), table in sorted(inputs.economics.items()):
        conclusion = verdict([row for row in table.to_pylist() if row["split"] == "test"])
        paying += conclusion.startswith(PAYS)
        sentences.append(f"{symbol} at {horizon} s: {conclusion}.")
        saving = economics_part.savings(pl.DataFrame(table))
        if not saving.is_empty() and saving["gross_bps"][0] is not None:
            row = saving.row(0, named=True)
            bounds = "" if row["gross_lower"] is None else f" ({row['gross_lower']:.2f} to {row['gross_upper']:.2f})"
            saved += (row["gross_lower"] or 0) > 0
            delay = f"delaying when the {row['head']} head advises it (gate {row['gate']})"
            saves = f"saves {row['gross_bps']:.2f} bps{bounds} per order"
            sentences.append(f"A trader who must execute in any case {saves} by {delay}.")
    tone = "good" if paying == len(inputs.economics) else "mixed" if paying or saved else "bad"
    return Finding("What is it worth?", sentences, tone)


def _skill(bounds: tuple[float, float] | None) -> tuple[str, bool]:
    """Whether gating adds skill: only if the whole interval of the gain in sign accuracy is above zero."""
    if bounds is None:
        return f"no interval: fewer than {Bootstrap.minimum_blocks} blocks", False
    if bounds[0] > 0:
        return "gating adds skill", True
    return ("gating costs skill" if bounds[1] < 0 else "no clear effect"), False


def _where_not(inputs: ReportInputs, scores: Scores) -> Finding:
    """Every symbol, horizon and head for which gating or coverage fails."""
    no_gain, no_skill, unknown, few = [], [], [], []
    uncovered: list[str] = []
    undecided: list[str] = []
    for symbol, horizon in sorted(inputs.evaluations):
        where = f"{symbol} {horizon} s"
        for head in HEADS:
            key = (symbol, horizon, head, "percentile", 90)
            gain = scores.bounds(*key, "sign_accuracy_gain")
            accuracy = scores.bounds(*key, "sign_accuracy")
            found = scores.rows.get((*key, "directional_f1"))
            if accuracy is not None and accuracy[0] <= 0.5:
                no_skill.append(f"{where} ({head})")
            elif gain is not None and gain[0] <= 0:
                no_gain.append(f"{where} ({head})")
            elif found and (accuracy is None or gain is None):
                unknown.append(f"{where} ({head})")
            if found and found[3] < FEW and where not in few:
                few.append(where)
        for metric, level in NOMINAL_LEVELS.items():
            judged = _judged(scores, symbol, horizon, metric, level)
            if judged is not None and judged[1] != "nominal":
                named = f"{where} ({100 * judged[0]:.1f} % for {100 * level:.0f} %)"
                (undecided if judged[1] == "undecided" else uncovered).append(named)
    sentences = []
    if no_skill:
        sentences.append(
            f"Among the outcomes that moved, the sign of the top decile is not clearly right more often than a coin's for "
            f"{_listed(no_skill)}."
        )
    if no_gain:
        sentences.append(f"It is right more often, but not clearly more often than in the full set, for {_listed(no_gain)}.")
    if unknown:
        sentences.append(
            f"Whether gating works is unknown for {_listed(unknown)}: there is no interval, because there are fewer than "
            f"{Bootstrap.minimum_blocks} blocks of time or evaluation.bootstrap_replicates is 0."
        )
    if uncovered:
        sentences.append(f"Coverage is not nominal for {_listed(uncovered)}.")
    if undecided:
        sentences.append(f"There are too few forecasts to tell whether coverage is nominal for {_listed(undecided)}.")
    if few:
        sentences.append(f"Fewer than {FEW} forecasts are left in the top decile of {_listed(few)}: read those scores as noise.")
    if not sentences:
        return Finding("Where it does not work", ["No failure was found in what was evaluated."], "good")
    known_to_fail = no_skill or no_gain or uncovered or few
    return Finding("Where it does not work", sentences, "mixed" if known_to_fail else "plain")


def _count(number: float, noun: str) -> str:
    return f"{number:,.0f} {noun}{'' if number == 1 else 's'}"


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else "none"
