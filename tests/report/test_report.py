"""The page: every number equals the Parquet behind it, absences are named, and the market is called what it is."""

import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from synthetic_lake import PARAMETERS, SETTINGS, fill_lake
from typer.testing import CliRunner

from uqlob_models.bootstrap import Bootstrap
from uqlob_pipeline.lake import Lake, ModelKey
from uqlob_pipeline.report import cells, read_report_inputs
from uqlob_pipeline.report.page import build_report
from uqlob_pipeline.report.pooling import pool
from uqlob_pipeline.report.summary import findings
from uqlob_pipeline.report.tables import directional_f1_view

SHOWN = {
    "directional-f1": cells.two_places,
    "calibration": None,
    "per-class-f1": cells.three_places,
    "large-moves": cells.two_places,
}


class Page(HTMLParser):
    """Collects the numbers of the tables, the pictures, and everything that could reach the network or run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.numbers: list[tuple[str, dict[str, str], str]] = []
        self.views: list[str] = []
        self.images: list[dict[str, str]] = []
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.words: list[str] = []
        self._cell: dict[str, str] | None = None
        self._ours = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = {name: value or "" for name, value in attributes}
        self.tags.add(tag)
        self.links += [found[name] for name in ("src", "href") if name in found]
        if tag == "table":
            self.views.append(found["data-view"])
        elif tag == "img":
            self.images.append(found)
        elif tag == "td":
            self._cell = found if "data-value" in found else None
        elif tag == "span":
            self._ours = found.get("class") == "ours"

    def handle_data(self, text):
        self.words.append(text)
        if self._cell is not None and self._ours and text.strip():
            self.numbers.append((self.views[-1], self._cell, text.strip()))
            self._cell = None

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


def inputs_of(lake: Lake, symbols=("BTC-USD", "ETH-USD"), horizons=(5, 10), **changes):
    given = {"simulated": True, "parameters": PARAMETERS, "hyperparameters": SETTINGS, "profile_name": "demo"}
    return read_report_inputs(lake, list(symbols), list(horizons), **(given | changes))


@pytest.fixture(scope="module")
def report(lake, tmp_path_factory) -> Path:
    return build_report(inputs_of(lake), tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def page(report) -> Page:
    return Page(report.read_text())


def value_behind(folder: Path, source: str, key: str) -> float:
    """Look a key up in the Parquet file that the page names, knowing only how keys are spelled."""
    rows = pq.ParquetFile(folder / f"{source}.parquet").read().to_pylist()
    parts = key.split("/")
    if source.endswith("_evaluation"):
        names = ("symbol", "horizon_s", "head", "gate_kind", "gate", "metric")
        (found,) = [row for row in rows if [str(row[name]) for name in names] == parts]
        return found["value"]
    if source == "parameters":
        return next(row["parameters"] for row in rows if row["part"] == key)
    *where, metric = parts
    names = ("symbol", "horizon_s")[: len(where)]
    return next(row[metric] for row in rows if [str(row[name]) for name in names] == where)


def test_every_number_in_the_tables_equals_the_parquet_behind_it(report, page):
    indexed: dict[tuple[str, str], float] = {}
    for _, attributes, _ in page.numbers:
        source, key = attributes["data-source"], attributes["data-key"]
        if source.endswith("_evaluation") and source not in {name for name, _ in indexed}:
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


def test_pooled_numbers_of_the_page_are_those_of_the_pooled_predictions(lake, report):
    from sklearn.metrics import f1_score

    from uqlob_models.calibration import regression_class
    from uqlob_models.evaluation import fit_threshold_multiplier, rows_of
    from uqlob_pipeline.benchmarks.evaluation import TAU

    true, predicted, covered = [], [], []
    for symbol in ("BTC-USD", "ETH-USD"):
        predictions = pq.ParquetFile(lake.predictions(ModelKey(symbol, 5))).read()
        k_star = fit_threshold_multiplier(predictions, TAU).k
        test = rows_of(predictions, "test").sort_by([("snr", "descending")])
        mu, sigma, y = (test[name].to_numpy() for name in ("mu", "sigma", "y"))
        covered += list(abs(y - mu) <= sigma)
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


def test_the_page_has_every_table_and_figure(page):
    tables = {"directional-f1", "large-moves", "calibration", "per-class-f1", "by-symbol", "dataset", "thresholds", "parameters"}
    assert tables | {"hyperparameters", "threshold-multiplier", "gating-verdict", "directional-f1-ETH-USD"} <= set(page.views)
    titles = " ".join(image["alt"] for image in page.images)
    for figure in ("One forecast", "Prediction intervals", "R² against", "Directional macro F1 against", "macro F1 against"):
        assert figure in titles
    for figure in ("accuracy against", "Reliability", "PIT", "Risk-coverage", "Class proportions", "Class drift", "Sweep"):
        assert figure in titles


def test_the_page_needs_no_network_and_runs_nothing(report, page):
    assert not page.tags & {"script", "link", "iframe", "object"}
    assert all(link.startswith(("#", "data:image/svg+xml;base64,")) for link in page.links)
    assert "<script>" not in report.read_text()  # a setting that holds markup is shown as text
    assert "alert('no')" in page.text
    assert not re.search(r"url\(|@import", report.read_text())


def test_a_simulated_market_is_called_one_wherever_its_numbers_appear(report, page):
    text = report.read_text()
    assert "Every number of this run comes from simulated order books" in page.text
    figures = re.findall(r'<figure class="item".*?</h3>', text, flags=re.DOTALL)
    assert len(figures) > 20
    assert all("simulated market" in figure for figure in figures)
    assert all("(simulated market)" in image["alt"] for image in page.images)


def test_real_data_are_not_called_simulated(lake, tmp_path):
    text = build_report(inputs_of(lake, simulated=False), tmp_path).read_text()
    assert "Real order-book data recorded from Kraken" in text
    assert "imulated market" not in text


def test_the_papers_numbers_stand_beside_ours(report):
    def cells_of(key: str) -> list[str]:
        return re.findall(rf'<td [^>]*data-key="{key}".*?</td>', report.read_text())

    top = cells_of("pooled/5/regression/percentile/90/directional_f1")
    assert any('<span class="paper">0.57</span>' in cell and "rgba(34, 160, 84" in cell for cell in top)
    (coverage,) = cells_of("pooled/10/regression/percentile/0/cov95")
    assert '<span class="paper">0.904</span>' in coverage


def test_absent_symbols_and_horizons_are_named_and_the_rest_is_shown(tmp_path):
    lake = fill_lake(tmp_path / "lake", ["ETH-USD"], [5])
    inputs = inputs_of(lake, parameters=None, hyperparameters=None)
    page = Page(build_report(inputs, tmp_path / "report").read_text())
    assert "No evaluation of BTC-USD at 5 s, BTC-USD at 10 s, ETH-USD at 10 s" in page.text
    assert "No parameter counts were given" in page.text
    assert "directional-f1-ETH-USD" in page.views
    assert "directional-f1-BTC-USD" not in page.views
    assert not any(attributes["data-key"].split("/")[1:2] == ["10"] for _, attributes, _ in page.numbers)


def test_the_summary_says_where_gating_adds_skill_and_where_it_does_not(page, tmp_path):
    assert "raises the lead over the forecaster's own calls placed at random" in page.text
    assert "In 4 it surely" in page.text
    assert "gating adds skill" in page.text
    lake = fill_lake(tmp_path / "lake", ["BTC-USD"], [5], permuted=True)
    useless = Page(build_report(inputs_of(lake, ["BTC-USD"], [5]), tmp_path / "report").read_text())
    assert "In 0 it surely" in useless.text
    assert "gating adds skill" not in useless.text
    assert "gating does not surely add to what the full set has, for BTC-USD 5 s (regression)" in useless.text


def test_intervals_are_called_by_the_level_they_were_drawn_with(lake, tmp_path):
    text = build_report(inputs_of(lake), tmp_path, bootstrap=Bootstrap(replicates=50, level=0.9)).read_text()
    assert "90 % interval +0." in text or "90 % interval 0." in text
    assert "change (90 % interval)" in text
    assert "95 % interval +0." not in text
    assert "95 % interval 0." not in text


def test_stale_tables_are_named_where_the_report_says_what_is_missing(lake):
    reasons = {"BTC-USD 5s": "made with other settings than the profile's", "ETH-USD 5s": "made by other code"}
    stale = {"gated_evaluation": reasons, "dataset_profile": {"dataset_profile": "made by other code"}, "predictions": {}}
    evaluation, dataset = [said for said in inputs_of(lake, stale=stale).missing() if said.startswith("Stale")]
    assert "`gated_evaluation` of BTC-USD 5s, ETH-USD 5s (BTC-USD 5s: made with other settings" in evaluation
    assert "`dataset_profile` (made by other code)" in dataset


def test_a_step_of_blocks_is_not_called_the_papers_batch():
    """Sixteen instances a batch would be shown as the paper's own where a step takes sixty-four targets."""
    from dataclasses import replace

    from uqlob_pipeline.evaluations import report_inputs
    from uqlob_pipeline.profile import load_profile
    from uqlob_pipeline.report.data_tables import hyperparameters_view

    paper = load_profile("paper")

    def row(**changes):
        stage = replace(paper.training.regression, batch=16, **changes)
        profile = paper.model_copy(update={"training": replace(paper.training, regression=stage)})
        view = hyperparameters_view(report_inputs(Lake("/nonexistent"), profile).hyperparameters)
        return [cell.text for cell in next(row for row in view.rows if row[1].text.startswith("Instances"))][2:]

    assert row(sampling="blocks", targets_per_block=32, blocks_per_step=2) == ["64", "16", "differs"]
    assert row(sampling="instances") == ["16", "16", ""]


def changed_scores(inputs, change):
    """The inputs with every row of their scores put through `change`."""
    from dataclasses import replace

    changed = {}
    for key, tables in inputs.evaluations.items():
        rows = [change(row) for row in tables.scores.to_pylist()]
        changed[key] = replace(tables, scores=pa.Table.from_pylist(rows, tables.scores.schema))
    return replace(inputs, evaluations=changed)


def test_without_intervals_the_summary_says_that_it_cannot_tell(lake, tmp_path):
    """No replicates, and coverage as it should be: nothing fails, and nothing is known to work."""

    def without_interval(row):
        nominal = {"cov68": 0.68, "cov95": 0.95}.get(row["metric"], row["value"])
        return row | {"lower": None, "upper": None, "value": nominal}

    inputs = changed_scores(inputs_of(lake), without_interval)
    own = pa.concat_tables([tables.scores for tables in inputs.evaluations.values()])
    pooled = pool(inputs.evaluations, Bootstrap(replicates=0)).scores
    gating, where_not = findings(inputs, cells.Scores(pa.concat_tables([pooled, own])))[-2:]
    assert "Whether gating works cannot be told for BTC-USD 5 s (regression), BTC-USD 5 s (class" in where_not.sentences[0]
    assert not any("Nowhere" in sentence for sentence in where_not.sentences)
    assert where_not.tone == "plain"
    assert gating.tone == "plain"
    assert "In 4 there is no interval, so that this cannot be told." in gating.sentences


def test_a_head_that_never_gets_a_direction_right_is_shown(lake):
    def hopeless(row):
        return row | {"value": 0.0} if (row["head"], row["metric"]) == ("classification", "directional_f1") else row

    inputs = changed_scores(inputs_of(lake), hopeless)
    scores = cells.Scores(pa.concat_tables([tables.scores for tables in inputs.evaluations.values()]))
    view = directional_f1_view(scores, [5], "BTC-USD")
    assert [cell.text for cell in view.headings[1]] == ["", "UQ-regression", "UQ-classification"]
    assert "0.00" in [cell.text for cell in view.rows[0]]


def test_a_report_without_dataset_tables_forecasts_and_one_head_works(tmp_path, lake):
    complete = inputs_of(lake)
    from dataclasses import replace

    import pyarrow.compute as pc

    only = {
        key: type(tables)(*(part.filter(pc.equal(part["head"], "regression")) for part in vars(tables).values()))
        for key, tables in complete.evaluations.items()
    }
    inputs = replace(complete, evaluations=only, dataset_tables={}, forecasts={}, multipliers={})
    page = Page(build_report(inputs, tmp_path).read_text())
    assert "A head was not trained for BTC-USD at 5 s (classification)" in page.text
    assert "materialise `dataset_profile`" in page.text
    assert not any("/classification/" in attributes["data-key"] for _, attributes, _ in page.numbers)


def test_building_twice_gives_the_same_bytes_and_leaves_nothing_behind(lake, report, tmp_path):
    again = build_report(inputs_of(lake), tmp_path)
    assert again.read_bytes() == report.read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["index.html", "tables"]
    for name in os.listdir(tmp_path / "tables"):
        assert (tmp_path / "tables" / name).read_bytes() == (report.parent / "tables" / name).read_bytes()


def test_an_evaluation_written_in_part_is_neither_read_nor_called_current(lake, tmp_path, monkeypatch):
    """A process killed between any two of its files: what is asked is still the evaluation before, and nothing mixes the two."""
    from uqlob_pipeline import evaluation_tables
    from uqlob_pipeline.evaluation_tables import evaluation_made, made_apart, read_evaluation, write_evaluation
    from uqlob_pipeline.lake import Provenance, write_parquet

    tables = read_evaluation(lake, ModelKey("BTC-USD", 5))
    before, after = (Provenance("gated_evaluation", version, "s") for version in ("1", "2"))
    for survives in range(1, 4):
        key = ModelKey("BTC-USD", 5 + survives)
        own = Lake(tmp_path)
        write_evaluation(own, key, tables, before.metadata())
        assert evaluation_made(own, key) == before
        written = []

        def killed(table, path, metadata, written=written, survives=survives):
            if len(written) == survives:
                raise KeyboardInterrupt
            written.append(path)
            write_parquet(table, path, metadata)

        monkeypatch.setattr(evaluation_tables, "write_parquet", killed)
        with pytest.raises(KeyboardInterrupt):
            write_evaluation(own, key, tables, after.metadata())
        monkeypatch.undo()
        assert len(made_apart(own, key)) == survives
        assert evaluation_made(own, key) is None
        assert read_evaluation(own, key) is None
        write_evaluation(own, key, tables, after.metadata())
        assert evaluation_made(own, key) == after
        assert read_evaluation(own, key) is not None


def test_the_command_rebuilds_the_page_and_says_what_is_missing(tmp_path):
    import typer

    from uqlob_pipeline.report.command import report as command

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
