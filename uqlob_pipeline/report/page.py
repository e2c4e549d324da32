"""The page: tables, figures and summary in one HTML file that opens from disk without other files.

The Parquet files behind its numbers are written beside it, in `tables/`; a cell's `data-source` and `data-key` name the
file and the row of its `data-value`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import jinja2
import polars as pl
import pyarrow as pa

from uqlob_models.bootstrap import Bootstrap
from uqlob_pipeline.lake.atomic_files import atomic_path, write_parquet
from uqlob_pipeline.report import data_tables, day_tables, figures
from uqlob_pipeline.report import result_tables as tables
from uqlob_pipeline.report.cells import Scores, View
from uqlob_pipeline.report.economics_part import economics_items
from uqlob_pipeline.report.market_tables import market_comparison, market_view
from uqlob_pipeline.report.paper import paper
from uqlob_pipeline.report.picture import Picture
from uqlob_pipeline.report.plain_summary import cards, findings
from uqlob_pipeline.report.pooling import CombinedTables, combine
from uqlob_pipeline.report.report_inputs import ReportInputs
from uqlob_pipeline.report.study_part import study_items, study_table

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Section:
    name: str
    title: str
    items: list[View | Picture]


def build_report(
    inputs: ReportInputs, output: Path, *, bootstrap: Bootstrap | None = None, progress: Progress | None = None
) -> Path:
    """Write `index.html` and its tables into `output`; the page is replaced atomically."""
    log = progress or (lambda step: None)
    log("pooling over symbols")
    bootstrap = bootstrap or Bootstrap()
    combined = combine(inputs.evaluations, bootstrap)
    scores = Scores(combined.scores, bootstrap.level)
    sections = []
    for section in _sections(inputs, combined, scores):
        log(section.title.lower())
        sections.append(section)
    page = _template().render(
        title=paper()["title"],
        inputs=inputs,
        cards=cards(scores, inputs.present_horizons),
        findings=findings(inputs, scores),
        missing=inputs.missing(),
        interval=scores.interval,
        sections=sections,
        style=(Path(__file__).parent / "page.css").read_text(),
        is_picture=lambda item: isinstance(item, Picture),
    )
    for name, table in report_tables(inputs, combined.pooled_scores).items():
        write_parquet(table, output / "tables" / f"{name}.parquet")
    path = output / "index.html"
    with atomic_path(path, hashed=True) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def report_tables(inputs: ReportInputs, pooled_scores: pa.Table) -> dict[str, pa.Table]:
    """The tables behind the numbers of the page, by file name."""
    own = pa.concat_tables([tables.scores for _, tables in sorted(inputs.evaluations.items())])
    found = {"pooled_evaluation": pooled_scores, "gated_evaluation": own, **inputs.dataset_tables}
    if {"dataset", "thresholds"} <= set(inputs.dataset_tables):
        compared = market_comparison({name: pl.DataFrame(table) for name, table in inputs.dataset_tables.items()})
        found["market"] = compared.to_arrow()
    if inputs.economics:
        found["economic_evaluation"] = pa.concat_tables([table for _, table in sorted(inputs.economics.items())])
    if inputs.study:
        found["study"] = study_table(inputs.study)
    if inputs.multipliers:
        sweeps = []
        for (symbol, horizon), sweep in sorted(inputs.multipliers.items()):
            keys = {"symbol": [symbol] * sweep.num_rows, "horizon_s": pa.array([horizon] * sweep.num_rows, pa.int32())}
            sweeps.append(pa.table(keys | {name: sweep[name] for name in sweep.column_names}))
        found["threshold_multiplier"] = pa.concat_tables(sweeps)
    if inputs.parameters is not None:
        rows = inputs.parameters
        counts = {"part": [str(row["part"]) for row in rows], "parameters": [int(row["parameters"]) for row in rows]}
        found["parameters"] = pa.table(counts)
    return found


def _sections(inputs: ReportInputs, combined: CombinedTables, scores: Scores) -> Iterator[Section]:
    symbols, horizons = inputs.present_symbols, inputs.present_horizons
    yield Section("forecasts", "Example forecasts", list(_forecast_pictures(inputs, symbols[:1])))
    calibration: list[View | Picture] = [tables.calibration_view(scores, horizons), *_calibration(inputs, combined)]
    if inputs.daily_coverage is not None and not inputs.daily_coverage.is_empty():
        calibration.append(day_tables.daily_coverage_view(inputs.daily_coverage))
    yield Section("calibration", "Calibration of the intervals", calibration)
    yield Section("gating", "Scores by confidence gate", list(_gating(inputs, combined, scores)))
    by_symbol: list[View | Picture] = [tables.symbol_view(scores, symbols, horizons)]
    for symbol in symbols:
        its_horizons = [horizon for horizon in horizons if (symbol, horizon) in inputs.evaluations]
        by_symbol += [
            tables.directional_f1_view(scores, its_horizons, symbol),
            tables.large_moves_view(scores, its_horizons, symbol),
        ]
        if symbol != symbols[0]:  # the first symbol is in the first section
            by_symbol += _forecast_pictures(inputs, [symbol], single=False)
    yield Section("symbols", "Symbol by symbol", by_symbol)
    if inputs.economics:
        yield Section("economics", "What is it worth?", list(economics_items(inputs)))
    if inputs.study:
        yield Section("study", "Study", list(study_items(inputs)))
    yield Section("data", "Data and labels", list(_data(inputs, scores)))
    yield Section("model", "Model and settings", list(_model(inputs)))


def _forecast_pictures(inputs: ReportInputs, symbols: list[str], *, single: bool = True) -> Iterator[Picture]:
    for (symbol, horizon), forecasts in sorted(inputs.forecasts.items()):
        if symbol not in symbols or forecasts.is_empty():
            continue
        if single:
            figure = figures.figure_single_forecast(forecasts, symbol, horizon, simulated=inputs.simulated)
            caption = (
                "From the data before t the model predicts a distribution for t + h: the bands are its intervals, the bell is a "
                "Gaussian of its mean and standard deviation. Shown is the test window whose SNR is nearest to the 90th "
                "percentile, the limit of the top-decile gate."
            )
            yield Picture(f"single-forecast-{symbol}", "One forecast", caption, figure)
        figure = figures.figure_prediction_intervals(forecasts, symbol, horizon, simulated=inputs.simulated)
        caption = "Consecutive windows from the middle of the middle test day, chosen by position alone."
        yield Picture(f"intervals-{symbol}", f"Prediction intervals, {symbol}", caption, figure)


def _calibration(inputs: ReportInputs, combined: CombinedTables) -> Iterator[Picture]:
    if not combined.reliability.is_empty():
        figure = figures.figure_reliability(combined.reliability, inputs.present_symbols, simulated=inputs.simulated)
        caption = (
            "Top: on the dashed line the coverage is nominal; below it the intervals are too narrow. Middle: a flat PIT "
            "histogram is ideal, a hump means too wide, peaks at both ends mean tails heavier than forecast. Bottom: "
            "predicted against observed error in bins of predicted uncertainty."
        )
        yield Picture("reliability", "Reliability, PIT and error by uncertainty", caption, figure)


def _gating(inputs: ReportInputs, combined: CombinedTables, scores: Scores) -> Iterator[View | Picture]:
    symbols, horizons = inputs.present_symbols, inputs.present_horizons
    yield tables.directional_f1_view(scores, horizons)
    reference = "Dashed: guessing with the class shares of the retained subset. Dotted: the same predictions placed at random."
    whole = f" Black: all symbols pooled, with a {scores.interval} from the block bootstrap." if len(symbols) > 1 else ""
    for metric, name, caption in (
        ("directional_f1", "Directional macro F1 against the gate", reference + whole),
        ("wr2", "Magnitude-weighted R² against the gate", "UQ-regression. Higher is better; 0 is the weighted mean." + whole),
    ):
        if metric in combined.scores["metric"]:
            figure = figures.figure_gated(combined.scores, metric, symbols, simulated=inputs.simulated)
            yield Picture(f"gated-{metric}", name, caption, figure)
    yield tables.large_moves_view(scores, horizons)
    yield tables.per_class_view(scores, horizons)
    for metric, name in (
        ("macro_f1", "Three-class macro F1 against the gate"),
        ("accuracy", "Three-class accuracy against the gate"),
    ):
        figure = figures.figure_gated(combined.scores, metric, symbols, simulated=inputs.simulated)
        yield Picture(f"gated-{metric}", name, reference + whole, figure)
    figure = figures.figure_risk_coverage(combined.risk_coverage, symbols, simulated=inputs.simulated)
    caption = (
        "Error rate of the most confident forecasts. Dotted: the error rate of all, where an uninformative ranking would stay."
    )
    yield Picture("risk-coverage", "Risk-coverage", caption, figure)


def _data(inputs: ReportInputs, scores: Scores) -> Iterator[View | Picture]:
    if inputs.quality:
        yield day_tables.quality_view(inputs.quality, inputs.refused)
    found = {name: pl.DataFrame(table) for name, table in inputs.dataset_tables.items()}
    if "dataset" in found:
        yield data_tables.dataset_view(found["dataset"])
    if "thresholds" in found:
        yield data_tables.thresholds_view(found["thresholds"])
    if "dataset" in found and "thresholds" in found:
        compared = market_comparison(found)
        if not compared.is_empty():
            yield market_view(compared)
            figure = figures.figure_calibration(compared, simulated=inputs.simulated)
            caption = "Ratio to the printed value. The grey bands show 15 % and 25 %."
            yield Picture("market-calibration", "This market beside the paper's", caption, figure)
    if "stylised_facts" in found and not found["stylised_facts"].is_empty():
        figure = figures.figure_stylised_facts(found["stylised_facts"], simulated=inputs.simulated)
        caption = (
            "The last training day of each symbol. Signature plot: variance per second by sampling step, 1 for a random walk. "
            "Response: the mid-price's mean move in the direction of a trade. Scaled: divided by the symbol's largest value."
        )
        yield Picture("stylised-facts", "Stylised facts", caption, figure)
    if "class_proportions" in found and not found["class_proportions"].is_empty():
        figure = figures.figure_class_proportions(found["class_proportions"], inputs.symbols, simulated=inputs.simulated)
        yield Picture("class-proportions", "Class proportions", "Percent of windows in each class, by split.", figure)
    if "drift" in found and not found["drift"].is_empty():
        figure = figures.figure_drift(found["drift"], inputs.symbols, simulated=inputs.simulated)
        caption = "Absolute difference of class shares between training and test. The dotted line marks ten points."
        yield Picture("drift", "Class drift", caption, figure)
    if inputs.multipliers:
        sweeps = {key: pl.DataFrame(sweep) for key, sweep in inputs.multipliers.items()}
        yield data_tables.multipliers_view(sweeps, scores)
        figure = figures.figure_threshold_sweep(sweeps, simulated=inputs.simulated)
        yield Picture("k-star", "Sweep of the threshold multiplier", "On the calibration half alone.", figure)


def _model(inputs: ReportInputs) -> Iterator[View]:
    if inputs.parameters is not None:
        yield data_tables.parameters_view(inputs.parameters)
    yield data_tables.hyperparameters_view(inputs.hyperparameters)
    if inputs.hyperparameters is not None:
        yield data_tables.settings_view(inputs.hyperparameters)


def _template() -> jinja2.Template:
    folder = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(
        loader=folder, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template("page.html.j2")
