"""`uqlob bench study` on two tiny markets: both tables, shifted days without training, and a second call that resumes."""

import json
import tomllib
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from tests.end_to_end.tiny_market import TOML
from uqlob_pipeline.devtools.bench.study import described, shifted_of, study
from uqlob_pipeline.devtools.bench.study_lakes import HEADLINE, Progress, StudyMarket, link_new_models
from uqlob_pipeline.models.study.rows import ROWS

VARIANTS = "uq-regression,uq-classification,ridge,full,no-context,shuffled-context"
SEEDS = (27, 28)


def bench(workdir: Path) -> Result:
    app = typer.Typer()
    app.command()(study)
    options = ["--seeds", "27,28", "--training-seeds", "1", "--variants", VARIANTS, "--shift", "--json"]
    return CliRunner().invoke(app, [*options, "--workdir", str(workdir)])


@pytest.fixture(scope="module")
def workdir(tmp_path_factory) -> Path:
    """A market keeps the profile that is there: here a tiny one."""
    root = tmp_path_factory.mktemp("study")
    text = TOML.format(epochs=1, hours=0.1).replace("[instruments", "regime = 1.0\n\n[instruments", 1)
    for seed in SEEDS:
        place = StudyMarket(root, seed, 1).directory / "profile.toml"
        place.parent.mkdir(parents=True)
        place.write_text(text.replace("seed = 3", f"seed = {seed}"))
    return root


@pytest.fixture(scope="module")
def first(workdir) -> Result:
    return bench(workdir)


def market(workdir: Path, seed: int = 27) -> StudyMarket:
    return StudyMarket(workdir, seed, 1, variants=tuple(VARIANTS.split(",")))


def test_one_command_fills_both_tables_on_the_markets_and_on_shifted_days(first, workdir):
    assert first.exit_code == 0, first.output
    report = json.loads(first.stdout)
    assert (report["seeds"], report["training_seeds"], report["failed"]) == ([27, 28], 1, [])
    for name in ("market", "shift"):
        rows = {(cell["variant"], cell["seeds"], cell["markets"]) for cell in report[name]["baselines"]["cells"]}
        assert rows == {(row, 1, 2) for row in ("uq-regression", "uq-classification", "ridge", *HEADLINE)}
        assert {cell["variant"] for cell in report[name]["ablations"]["cells"]} == {"full", "no-context", "shuffled-context"}
        compared = {(one["variant"], one["reference"]) for one in report[name]["context"]}
        assert compared == {("no-context", "full"), ("shuffled-context", "full")}
        assert {one["variant"] for one in report[name]["end_to_end"]} == set(HEADLINE)
    for part in ("seeds 27, 28", "BTC-USD at 5 s", "1 training seed per row and market", "end_to_end and frozen"):
        assert part in report["market"]["baselines"]["caption"]
    assert "shifted" in report["shift"]["ablations"]["caption"]
    assert json.loads((workdir / "study.json").read_text()) == report


def test_shifted_days_are_forecast_by_the_heads_that_the_market_trained(first, workdir):
    assert first.exit_code == 0
    own = market(workdir)
    (shifted,) = shifted_of([own])
    name = "study/trainings"
    trained = {path.relative_to(own.lake.root): path for path in (own.lake.root / name).rglob("*.safetensors")}
    assert trained
    for path in (shifted.lake.root / name).rglob("*.safetensors"):
        assert path.samefile(trained[path.relative_to(shifted.lake.root)])
    simulation = tomllib.loads((shifted.directory / "profile.toml").read_text())["simulation"]
    assert str(simulation["shift"]) == "2026-01-08"
    for key in own.row_keys():
        assert shifted.lake.by_study_row(ROWS, key).read_bytes() != own.lake.by_study_row(ROWS, key).read_bytes()


def test_a_second_call_makes_only_what_is_missing(first, workdir):
    own = market(workdir)
    key = next(key for key in own.row_keys() if key.variant == "ridge")
    others = {one: own.lake.by_study_row(ROWS, one).stat().st_mtime_ns for one in own.row_keys() if one != key}
    own.lake.by_study_row(ROWS, key).unlink()
    again = bench(workdir)
    assert again.exit_code == 0, again.output
    assert own.lake.by_study_row(ROWS, key).exists()
    assert {one: own.lake.by_study_row(ROWS, one).stat().st_mtime_ns for one in others} == others

    def scores(result: Result) -> list:
        cells = json.loads(result.stdout)["market"]["baselines"]["cells"]
        return [(cell["variant"], cell["metric"], cell["mean"]) for cell in cells if "second" not in cell["metric"]]

    assert scores(again) == scores(first)


def test_progress_counts_rows_by_what_they_cost(first, workdir):
    own = market(workdir)
    assert Progress((own, *shifted_of([own]))).line().startswith("16 of 16 rows")
    assert [weight for weight, _ in Progress((own,)).rows()] == [1, 1, 0.05, 1, 1, 1, 6, 6]


def test_markets_are_described_by_seed_symbol_and_horizon(workdir):
    assert described([market(workdir)]) == "simulated market of seed 27, BTC-USD at 5 s"
    assert described(shifted_of([market(workdir), market(workdir, 28)])).startswith("simulated markets of seeds 27, 28,")


def test_models_trained_after_shifted_days_were_prepared_are_taken_over_and_own_ones_kept(tmp_path):
    source, target = tmp_path / "market", tmp_path / "shifted"
    for root, row, text in ((source, "old", "market"), (source, "new", "market"), (target, "old", "own")):
        (root / "trainings" / row / "best").mkdir(parents=True)
        (root / "trainings" / row / "best" / "weights").write_text(text)
    link_new_models(source, target)
    assert (target / "trainings" / "new" / "best" / "weights").read_text() == "market"
    assert (target / "trainings" / "old" / "best" / "weights").read_text() == "own"
