"""The page: every number equals its Parquet table, missing parts are listed, and a simulated market is labelled."""

import os
import re
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from read_page import Page, inputs_of
from synthetic_lake import fill_lake
from typer.testing import CliRunner

from uqlob_models.bootstrap import Bootstrap
from uqlob_models.evaluation import EvaluationTables, score_table
from uqlob_models.gating import GATES, STATISTICS
from uqlob_pipeline.lake.layout import Lake, ModelKey
from uqlob_pipeline.report import cells
from uqlob_pipeline.report.page import build_report
from uqlob_pipeline.report.pooling import combine

SHOWN = {
    "directional-f1": cells.two_places,
    "calibration": None,
    "per-class-f1": cells.three_places,
    "large-moves": cells.two_places,
}


@pytest.fixture(scope="module")
def report(lake, tmp_path_factory) -> Path:
    return build_report(inputs_of(lake), tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def page(report) -> Page:
    return Page(report.read_text())


def value_behind(folder: Path, source: str, key: str) -> float:
    """The value in the Parquet file `source` at the row and column that `key` spells."""
    rows = pq.ParquetFile(folder / f"{source}.parquet").read().to_pylist()
    parts = key.split("/")
    if source.endswith("_evaluation"):
        names = ("symbol", "horizon_s", "head", "gate_kind", "gate", "metric")
        (found,) = [row for row in rows if [str(row[name]) for name in names] == parts]
        return found["value"]
    if source == "parameters":
        return next(row["parameters"] for row in rows if row["part"] == key)
    *where, metric = parts
    if source == "market":
        return next(row[metric] for row in rows if [row["symbol"], row["quantity"], str(row["horizon_s"] or "")] == where)
    names = ("symbol", "horizon_s")[: len(where)]
    return next(row[metric] for row in rows if [str(row[name]) for name in names] == where)


def economic_figures(folder: Path) -> dict[tuple[str, str], float]:
    """Every figure of `economic_evaluation` by the source and key of its cell."""
    names = ("symbol", "horizon_s", "split", "head", "gate", "policy", "latency_ms", "size", "tier")
    found = {}
    for row in pq.ParquetFile(folder / "economic_evaluation.parquet").read().to_pylist():
        key = "/".join(f"{row[name]:g}" if isinstance(row[name], float) else str(row[name]) for name in names)
        found |= {("economic_evaluation", f"{key}/{metric}"): value for metric, value in row.items()}
    return found


def test_every_number_of_the_page_equals_its_parquet_table(report, page):
    indexed = economic_figures(report.parent / "tables")
    for _, attributes, _ in page.numbers:
        source, key = attributes["data-source"], attributes["data-key"]
        if source in ("gated_evaluation", "pooled_evaluation") and source not in {name for name, _ in indexed}:
            for row in pq.ParquetFile(report.parent / "tables" / f"{source}.parquet").read().to_pylist():
                names = ("symbol", "horizon_s", "head", "gate_kind", "gate", "metric")
                indexed[source, "/".join(str(row[name]) for name in names)] = row["value"]
    assert len(page.numbers) > 500
    for view, attributes, text in page.numbers:
        source, key = attributes["data-source"], attributes["data-key"]
        value = indexed[source, key] if (source, key) in indexed else value_behind(report.parent / "tables", source, key)
        assert float(attributes["data-value"]) == value, (view, key)
        shown = float(text.replace(",", "").replace("+", ""))
        assert shown == pytest.approx(value, rel=0.006, abs=0.0051), (view, key)
        if SHOWN.get(view):
            assert text == SHOWN[view](value)


def test_pooled_numbers_equal_the_metrics_of_the_pooled_predictions(lake, report):
    from sklearn.metrics import f1_score

    from uqlob_models.evaluation import fit_threshold_multiplier, rows_of
    from uqlob_models.threshold_multiplier import regression_class
    from uqlob_pipeline.devtools.bench.metric_speed import TAU

    true, predicted, covered = [], [], []
    for symbol in ("BTC-USD", "ETH-USD"):
        predictions = pq.ParquetFile(lake.by_model("calibrated_predictions", ModelKey(symbol, 5))).read()
        k_star = fit_threshold_multiplier(predictions, TAU).k
        test = rows_of(predictions, "test").sort_by([("snr", "descending")])
        mu, sigma, y = (test[name].to_numpy() for name in ("mu", "sigma", "y"))
        covered += list(abs(y - mu) <= NormalDist().inv_cdf(0.84) * sigma)
        kept = round(test.num_rows * 0.1)
        true += test["label"].to_pylist()[:kept]
        predicted += regression_class(mu, test["p_start"].to_numpy(), TAU, k_star).tolist()[:kept]
    expected = f1_score(true, predicted, labels=[0, 1], average="macro")
    folder = report.parent / "tables"
    assert value_behind(folder, "pooled_evaluation", "pooled/5/regression/percentile/90/directional_f1") == pytest.approx(
        expected
    )
    cov68 = value_behind(folder, "pooled_evaluation", "pooled/5/regression/percentile/0/cov68")
    assert cov68 == pytest.approx(sum(covered) / len(covered))
    own = [value_behind(folder, "gated_evaluation", f"{s}/5/regression/percentile/0/cov68") for s in ("BTC-USD", "ETH-USD")]
    error = value_behind(folder, "pooled_evaluation", "pooled/5/regression/percentile/0/calibration_error")
    assert error == pytest.approx(sum(abs(value - 0.68) for value in own) / 2)


def test_pooled_scores_of_three_symbols_are_those_of_their_sums_added_in_order(lake):
    """Bit for bit: a parallel sum would depend on the order in which threads finish."""
    found = inputs_of(lake).evaluations
    evaluations = {
        (symbol, 5): renamed(found[source], symbol)
        for symbol, source in (("A-USD", ("BTC-USD", 5)), ("B-USD", ("ETH-USD", 5)), ("C-USD", ("BTC-USD", 10)))
    }
    pooled = combine(evaluations, Bootstrap(replicates=0)).scores.filter(symbol="pooled", head="regression")
    first, second, third = (
        pl.DataFrame(tables.statistics).filter(head="regression").select(STATISTICS).to_numpy(order="c")
        for tables in evaluations.values()
    )
    sums = ((first + second) + third).reshape(-1, len(GATES), len(STATISTICS))
    key = {"symbol": "pooled", "horizon_s": 5, "head": "regression"}
    expected = pl.DataFrame(score_table(sums, Bootstrap(replicates=0), key, raw=True, extras={}))
    assert pooled.head(expected.height).equals(expected)


def renamed(tables: EvaluationTables, symbol: str) -> EvaluationTables:
    """The tables of one model as those of another symbol at 5 s."""
    changed = {}
    for name, table in vars(tables).items():
        columns = {"symbol": [symbol] * table.num_rows, "horizon_s": [5] * table.num_rows}
        values = [
            pa.array(columns[field.name], field.type) if field.name in columns else table[field.name] for field in table.schema
        ]
        changed[name] = pa.table(values, table.schema)
    return EvaluationTables(**changed)


def test_the_page_has_every_table_and_figure(page):
    tables = {"directional-f1", "large-moves", "calibration", "per-class-f1", "by-symbol", "dataset", "thresholds", "parameters"}
    tables |= {"economics-chosen", "economics-savings"}
    assert tables | {"hyperparameters", "threshold-multiplier", "gating-verdict", "directional-f1-ETH-USD"} <= set(page.views)
    titles = " ".join(image["alt"] for image in page.images)
    for figure in ("One forecast", "Prediction intervals", "R² against", "Directional macro F1 against", "macro F1 against"):
        assert figure in titles
    for figure in ("Break-even fee by gate", "Markouts, latency, size and waiting", "Result over time"):
        assert figure in titles
    for figure in ("accuracy against", "Reliability", "PIT", "Risk-coverage", "Class proportions", "Class drift", "Sweep"):
        assert figure in titles


def test_the_page_uses_no_network_and_no_script(report, page):
    assert not page.tags & {"script", "link", "iframe", "object"}
    assert all(link.startswith(("#", "data:image/svg+xml;base64,")) for link in page.links)
    assert "<script>" not in report.read_text()  # a setting that holds markup is shown as text
    assert "alert('no')" in page.text
    assert not re.search(r"url\(|@import", report.read_text())


def test_every_table_and_figure_of_a_simulated_market_is_labelled(report, page):
    text = report.read_text()
    assert "Every number of this run comes from simulated order books" in page.text
    figures = re.findall(r'<figure class="item".*?</h3>', text, flags=re.DOTALL)
    assert len(figures) > 20
    assert all("simulated market" in figure for figure in figures)
    assert all("(simulated market)" in image["alt"] for image in page.images)


@pytest.mark.usefixtures("undrawn")
def test_real_data_are_not_labelled_simulated(lake, tmp_path):
    text = build_report(inputs_of(lake, simulated=False), tmp_path).read_text()
    assert "Real order-book data recorded from Kraken" in text
    assert "imulated market" not in text


def test_the_papers_numbers_are_shown_beside_ours(report):
    def cells_of(key: str) -> list[str]:
        return re.findall(rf'<td [^>]*data-key="{key}".*?</td>', report.read_text())

    top = cells_of("pooled/5/regression/percentile/90/directional_f1")
    assert any('<span class="paper">0.57</span>' in cell and "rgba(34, 160, 84" in cell for cell in top)
    (coverage,) = cells_of("pooled/10/regression/percentile/0/cov95")
    assert '<span class="paper">0.904</span>' in coverage


@pytest.mark.usefixtures("undrawn")
def test_missing_symbols_and_horizons_are_listed_and_the_rest_is_shown(tmp_path):
    lake = fill_lake(tmp_path / "lake", ["ETH-USD"], [5])
    inputs = inputs_of(lake, parameters=None, hyperparameters=None)
    page = Page(build_report(inputs, tmp_path / "report").read_text())
    assert "No evaluation of BTC-USD at 5 s, BTC-USD at 10 s, ETH-USD at 10 s" in page.text
    assert "No parameter counts were given" in page.text
    assert "directional-f1-ETH-USD" in page.views
    assert "directional-f1-BTC-USD" not in page.views
    assert not any(attributes["data-key"].split("/")[1:2] == ["10"] for _, attributes, _ in page.numbers)


@pytest.mark.usefixtures("undrawn")
def test_the_summary_names_the_models_where_gating_adds_skill_and_where_it_does_not(page, tmp_path):
    assert "the sign of the forecast is also right more often among the outcomes that moved" in page.text
    # The classifier at 5 s: its lead over the reference rises within the gate, its sign does not improve.
    assert "In 3 cases the sign" in page.text
    assert "gating adds skill" in page.text
    assert "no clear effect" in page.text
    lake = fill_lake(tmp_path / "lake", ["BTC-USD"], [5], permuted=True)
    useless = Page(build_report(inputs_of(lake, ["BTC-USD"], [5]), tmp_path / "report").read_text())
    assert "In 0 cases the sign" in useless.text
    assert "gating adds skill" not in useless.text
    assert "not clearly more often than in the full set, for BTC-USD 5 s (regression)" in useless.text


@pytest.mark.usefixtures("undrawn")
def test_intervals_are_named_by_their_level(lake, tmp_path):
    text = build_report(inputs_of(lake), tmp_path, bootstrap=Bootstrap(replicates=50, level=0.9)).read_text()
    assert "90 % interval +0." in text or "90 % interval 0." in text
    assert "gain (90 % interval)" in text
    assert "95 % interval +0." not in text
    assert "95 % interval 0." not in text


def test_stale_tables_are_listed_as_missing(lake):
    reasons = {"BTC-USD 5s": "made with other settings than the profile's", "ETH-USD 5s": "made by other code"}
    stale = {"gated_evaluation": reasons, "dataset_profile": {"dataset_profile": "made by other code"}, "predictions": {}}
    evaluation, dataset = [text for text in inputs_of(lake, stale=stale).missing() if text.startswith("Stale")]
    assert "`gated_evaluation` of BTC-USD 5s, ETH-USD 5s (BTC-USD 5s: made with other settings" in evaluation
    assert "`dataset_profile` (made by other code)" in dataset


def test_the_batch_shown_is_the_number_of_targets_per_step():
    """With block sampling a batch of 16 instances has 64 targets per step, which differs from the paper's 16."""
    from uqlob_pipeline.config.profile import load_profile
    from uqlob_pipeline.report.build import report_inputs
    from uqlob_pipeline.report.data_tables import hyperparameters_view

    paper = load_profile("paper")

    def row(**changes):
        stage = replace(paper.training.regression, batch=16, **changes)
        profile = paper.model_copy(update={"training": replace(paper.training, regression=stage)})
        view = hyperparameters_view(report_inputs(Lake("/nonexistent"), profile).hyperparameters)
        return [cell.text for cell in next(row for row in view.rows if row[1].text.startswith("Instances"))][2:]

    assert row(sampling="blocks", targets_per_block=32, blocks_per_step=2) == ["64", "16", "differs"]
    assert row(sampling="instances") == ["16", "16", ""]


def test_settings_of_a_schedule_that_was_not_chosen_are_not_shown_as_this_runs():
    from uqlob_pipeline.config.profile import load_profile
    from uqlob_pipeline.report.build import report_inputs
    from uqlob_pipeline.report.data_tables import hyperparameters_view, settings_view

    paper = load_profile("paper")

    def shown(kind):
        schedule = replace(paper.training.regression.schedule, kind=kind)
        stage = replace(paper.training.regression, schedule=schedule)
        profile = paper.model_copy(update={"training": replace(paper.training, regression=stage)})
        settings = report_inputs(Lake("/nonexistent"), profile).hyperparameters
        table = {row[1].text: [cell.text for cell in row[2:]] for row in hyperparameters_view(settings).rows}
        named = [row[0].text for row in settings_view(settings).rows if row[0].text.startswith("training.regression.schedule.")]
        return table, {name.rpartition(".")[2] for name in named}

    table, settings = shown("one_cycle")
    assert table["Learning-rate schedule"] == ["one_cycle", "warmup_restarts", "differs"]
    for name in ("Linear warm-up (steps)", "Restarts: first period (steps)", "Restarts: peak decay"):
        assert table[name][0] == "not used"
    assert settings == {"kind", "one_cycle_rise", "one_cycle_start", "one_cycle_end"}
    table, settings = shown("warmup_restarts")
    assert table["Linear warm-up (steps)"] == ["10000", "10000", ""]
    assert "one_cycle_rise" not in settings


def test_a_report_without_dataset_tables_forecasts_and_one_head_works(tmp_path, lake):
    complete = inputs_of(lake)
    import pyarrow.compute as pc

    only = {
        key: type(tables)(*(part.filter(pc.equal(part["head"], "regression")) for part in vars(tables).values()))
        for key, tables in complete.evaluations.items()
    }
    inputs = replace(complete, evaluations=only, dataset_tables={}, forecasts={}, multipliers={}, economics={})
    page = Page(build_report(inputs, tmp_path).read_text())
    assert "A head was not trained for BTC-USD at 5 s (classification)" in page.text
    assert "materialise `dataset_profile`" in page.text
    assert not any("/classification/" in attributes["data-key"] for _, attributes, _ in page.numbers)


def test_building_twice_gives_the_same_bytes_and_no_other_files(lake, report, tmp_path):
    again = build_report(inputs_of(lake), tmp_path)
    assert again.read_bytes() == report.read_bytes()
    assert sorted(os.listdir(tmp_path)) == [".index.html.blake2b", "index.html", "tables"]
    for name in os.listdir(tmp_path / "tables"):
        assert (tmp_path / "tables" / name).read_bytes() == (report.parent / "tables" / name).read_bytes()


def test_a_partly_written_evaluation_is_neither_read_nor_current(lake, tmp_path, monkeypatch):
    """Wherever the process is killed between two files, no reader sees a mixture of the old and the new evaluation."""
    from uqlob_pipeline.lake.atomic_files import write_parquet
    from uqlob_pipeline.lake.provenance import Provenance
    from uqlob_pipeline.lake.staleness import version_on_disk
    from uqlob_pipeline.models import evaluation_files
    from uqlob_pipeline.models.evaluation_files import read_evaluation, write_evaluation

    tables = read_evaluation(lake, ModelKey("BTC-USD", 5))
    before, after = (Provenance("gated_evaluation", version, "s") for version in ("1", "2"))
    for survives in range(1, 4):
        key = ModelKey("BTC-USD", 5 + survives)
        own = Lake(tmp_path)
        write_evaluation(own, key, tables, before.metadata())
        assert version_on_disk(own, "gated_evaluation", key) == before.data_version
        written = []

        def killed(table, path, metadata, written=written, survives=survives):
            if len(written) == survives:
                raise KeyboardInterrupt
            written.append(path)
            write_parquet(table, path, metadata)

        monkeypatch.setattr(evaluation_files, "write_parquet", killed)
        with pytest.raises(KeyboardInterrupt):
            write_evaluation(own, key, tables, after.metadata())
        monkeypatch.undo()
        assert version_on_disk(own, "gated_evaluation", key) is None
        assert read_evaluation(own, key) is None
        write_evaluation(own, key, tables, after.metadata())
        assert version_on_disk(own, "gated_evaluation", key) == after.data_version
        assert read_evaluation(own, key) is not None


@pytest.mark.usefixtures("undrawn")
def test_the_command_rebuilds_the_page_and_lists_what_is_missing(tmp_path):
    import typer

    from uqlob_pipeline.cli.report import report as command

    app = typer.Typer()
    app.command()(command)
    fill_lake(tmp_path / "lake", ["BTC-USD"], [5])
    found = CliRunner().invoke(app, ["--profile", "demo", "--lake", str(tmp_path / "lake")])
    assert found.exit_code == 0, found.output
    assert "ETH-USD at 5 s" in found.output.replace("\n", " ")
    assert (tmp_path / "lake" / "report" / "index.html").exists()
    empty = CliRunner().invoke(app, ["--profile", "demo", "--lake", str(tmp_path / "empty")])
    assert empty.exit_code == 1
    assert "gated_evaluation" in empty.output
