"""The study on the tiny market: rows of every kind, shared encoders, resuming, the tables, and a variant that a user adds."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import dagster as dg
import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from tests.end_to_end import tiny_market
from tests.end_to_end.conftest import copy_of
from tests.end_to_end.tiny_market import KEY
from uqlob_models.training_result import TrainingInterrupted
from uqlob_pipeline.cli.app import app
from uqlob_pipeline.cli.planning import Choice, MaterializeFailed, check_choice
from uqlob_pipeline.cli.study import shares
from uqlob_pipeline.config.profile import Profile, load_profile
from uqlob_pipeline.config.study import StudySettings, read_variants
from uqlob_pipeline.defs.build_defs import build_assets, build_resources
from uqlob_pipeline.defs.partitions import Partitions, study_partition_key
from uqlob_pipeline.lake.file_hashes import read_table
from uqlob_pipeline.lake.layout import Lake, StudyKey
from uqlob_pipeline.lake.open_store import open_store
from uqlob_pipeline.lake.shared_lake import open_lake, working_copy
from uqlob_pipeline.lake.study_keys import study_keys
from uqlob_pipeline.models.study import variant_forecasts
from uqlob_pipeline.models.study.captions import caption
from uqlob_pipeline.models.study.comparisons import QUESTIONS, compared_pairs
from uqlob_pipeline.models.study.rows import ROWS, STATISTICS, why_row_stale, write_study_row
from uqlob_pipeline.models.study.study_tables import missing_rows, read_rows, study_cells, write_csv
from uqlob_pipeline.tracking.client import Tracking

SIX_LINES = """table = "ablations"
title = "C = 2"
head = "regression"

[training.head]
context = 2
"""
NAMES = (
    "uq-regression",
    "full",
    "uq-classification",
    "mc-dropout",
    "logistic-context",
    "boosting-regressor",
    "queue-and-flow",
    "ewma",
)


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def overlays(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("overlays")
    (directory / "short-context.toml").write_text(SIX_LINES)
    (directory / "mc-dropout.toml").write_text(
        'table = "baselines"\ntitle = "MC dropout"\nmethod = "encoder"\n[training]\nmc_dropout_passes = 2\n'
    )
    return directory


@pytest.fixture(scope="module")
def study_profile(profile: Profile, overlays: Path) -> Profile:
    """Two seeds; blocks of five seconds, so that the short test day has more than twenty."""
    evaluation = profile.evaluation.model_copy(update={"bootstrap_block_s": 5})
    return profile.model_copy(update={"study": StudySettings(seeds=2, overlays=overlays), "evaluation": evaluation})


def key(variant: str, seed: int = 1) -> StudyKey:
    return StudyKey(variant, seed, KEY)


@pytest.fixture(scope="module")
def studied(tmp_path_factory, ingested: Lake, study_profile: Profile) -> tuple[Lake, list[str]]:
    """A lake with some rows of the first seed, and what making them logged."""
    lake = copy_of(ingested, tmp_path_factory.mktemp("studied") / "lake")
    log: list[str] = []
    for name in NAMES:
        write_study_row(lake, study_profile, key(name), log.append)
    return lake, log


def scores_of(lake: Lake, name: str) -> pl.DataFrame:
    return pl.DataFrame(read_table(lake.by_study_row(ROWS, key(name))))


def test_variants_that_do_not_change_the_encoder_share_one_and_its_representations(studied):
    lake, log = studied
    assert sum("pretraining an encoder" in line for line in log) == 1
    assert sum("encoding" in line for line in log) == 1
    assert sum("summaries of" in line for line in log) == 1
    assert len(list((lake.study / "encoders").glob("*/*/*/encoder.json"))) == 1
    assert not list((lake.study / "trainings").glob("**/*.safetensors"))  # cleared once the row is written


@pytest.mark.parametrize("name", NAMES)
def test_a_row_has_scores_and_costs(studied, study_profile, name):
    lake, _ = studied
    scores = scores_of(lake, name)
    variant = read_variants(study_profile.study)[name]
    assert set(scores["head"]) == {variant.forecasts}
    confidences = {"snr"} if variant.forecasts == "regression" else {"softmax", "snr"} if name == "mc-dropout" else {"softmax"}
    assert set(scores["confidence"]) == confidences
    assert set(scores["mode"]) == {"frozen" if variant.method == "head" else ""}
    costs = dict(scores.filter(gate_kind="cost").select("metric", "value").iter_rows())
    assert costs["parameters"] > 0
    assert costs["milliseconds_per_forecast"] > 0
    assert (costs["encoder_core_seconds"] > 0) == (variant.method in ("head", "encoder"))
    accuracy = scores.filter(gate_kind="percentile", gate=0, metric="sign_accuracy")["value"][0]
    assert 0 <= accuracy <= 1
    if name == "ewma":
        assert accuracy == 0.5  # a zero mean has no sign


def test_every_variant_is_judged_on_the_same_forecasts(studied):
    lake, _ = studied
    retained = {scores_of(lake, name).filter(gate_kind="percentile", gate=0)["retained"][0] for name in NAMES}
    assert len(retained) == 1
    sums = pl.DataFrame(read_table(lake.by_study_row(STATISTICS, key("ewma"))))
    assert set(sums["gate"]) == {0, 50, 90}


def test_a_frozen_head_from_known_representations_is_the_head_without_them(studied, study_profile, tmp_path, monkeypatch):
    """The shortcut changes nothing: the same row, computed by encoding every window again."""
    lake, _ = studied
    own = copy_of(lake, tmp_path / "lake")
    monkeypatch.setattr(variant_forecasts, "representations", lambda *_: None)
    write_study_row(own, study_profile, key("full"), print)
    again, before = scores_of(own, "full"), scores_of(lake, "full")
    values = [frame.filter(pl.col("gate_kind") != "cost")["value"].to_numpy() for frame in (again, before)]
    assert np.allclose(*values, atol=1e-5, equal_nan=True)


def test_a_row_is_current_until_its_settings_change(studied, study_profile):
    lake, _ = studied
    variants = read_variants(study_profile.study)
    assert why_row_stale(lake, study_profile, variants["full"], key("full")) == ""
    assert why_row_stale(lake, study_profile, variants["full"], key("full", 2)) == "missing"
    changed = variants["full"].model_copy(update={"training": {"loss": {"lambda_directional": 0.25}}})
    assert "other settings" in why_row_stale(lake, study_profile, changed, key("full"))
    retitled = variants["full"].model_copy(update={"title": "another name", "order": 3})
    assert why_row_stale(lake, study_profile, retitled, key("full")) == ""


def test_an_interrupted_row_resumes_and_the_encoder_is_not_trained_again(studied, study_profile, tmp_path, monkeypatch):
    lake, _ = studied
    own = copy_of(lake, tmp_path / "lake")
    own.by_study_row(ROWS, key("full")).unlink()
    from uqlob_models import training

    real = training.train

    def interrupted(*arguments, **options):
        steps = iter(range(100))
        return real(*arguments, **options, stop=lambda: next(steps) >= 3)

    monkeypatch.setattr(training, "train", interrupted)
    with pytest.raises(TrainingInterrupted):
        write_study_row(own, study_profile, key("full"), print)
    assert list((own.study / "trainings").glob("**/step-*"))
    monkeypatch.setattr(training, "train", real)
    log: list[str] = []
    write_study_row(own, study_profile, key("full"), log.append)
    assert not any("pretraining" in line for line in log)
    values = [scores_of(each, "full").filter(pl.col("gate_kind") != "cost")["value"] for each in (own, lake)]
    assert values[0].equals(values[1], null_equal=True)


def test_the_tables_have_means_paired_differences_and_captions(studied, study_profile, tmp_path):
    lake, _ = studied
    rows = read_rows([lake], study_profile)
    cells = study_cells(rows, study_profile, "baselines")
    by_row = {(cell.variant, cell.confidence, cell.metric, cell.gate): cell for cell in cells}
    top = scores_of(lake, "uq-classification").filter(gate_kind="percentile", gate=90, metric="directional_f1")["value"][0]
    found = by_row["uq-classification", "softmax", "directional_f1", 90]
    reference = by_row["uq-regression", "snr", "directional_f1", 90]
    assert found.mean == pytest.approx(top)
    assert reference.difference is None
    assert found.difference == pytest.approx(found.mean - reference.mean)
    assert found.lower <= found.difference <= found.upper
    assert found.std is None  # one seed has no spread
    assert by_row["uq-classification", "softmax", "nlpd", 0].mean is None
    assert {("mc-dropout", "snr"), ("mc-dropout", "softmax")} <= {(cell.variant, cell.confidence) for cell in cells}
    text = caption(cells, study_profile)
    for part in (
        "seed 3",
        "1 training seed per row",
        "test forecasts",
        "frozen",
        "Holm",
        "With one seed",
        "more seeds, test days",
    ):
        assert part in text
    assert len(pl.read_csv(write_csv(cells, tmp_path / "baselines.csv"))) == len(cells)


def test_context_is_compared_with_none_on_the_same_forecasts(studied, study_profile, tmp_path):
    lake, _ = studied
    own = copy_of(lake, tmp_path / "lake")
    write_study_row(own, study_profile, key("no-context"), print)
    rows = read_rows([own], study_profile)
    found = {(one.variant, one.metric, one.gate): one for one in compared_pairs(rows, study_profile, QUESTIONS["context"])}
    assert {variant for variant, *_ in found} == {"no-context"}  # shuffled labels are missing, and so is their comparison
    one = found["no-context", "nlpd", 0]
    assert one.difference == pytest.approx(one.mean - one.reference_mean)
    assert one.lower <= one.difference <= one.upper
    assert one.seeds == 1
    assert compared_pairs(rows, study_profile, QUESTIONS["end_to_end"]) == []


def test_a_checkpoint_of_other_settings_is_replaced(studied, study_profile, tmp_path):
    """An interrupted training whose variant was then changed left one."""
    lake, _ = studied
    own = copy_of(lake, tmp_path / "lake")
    keeping = study_profile.model_copy(update={"study": study_profile.study.model_copy(update={"keep_models": True})})
    write_study_row(own, keeping, key("short-context"), print)
    assert list((own.study / "trainings").glob("**/best/*.safetensors"))
    training = keeping.training
    changed = keeping.model_copy(update={"training": replace(training, loss=replace(training.loss, lambda_directional=0.25))})
    log: list[str] = []
    write_study_row(own, changed, key("short-context"), log.append)
    assert any("training afresh" in line for line in log)


def test_two_processes_take_one_seed_each_and_share_the_rows_of_the_last():
    due = [key(name, seed) for seed in (1, 2, 3) for name in ("full", "ewma", "ridge")]
    found = shares(due, 2)
    assert {title: {one.seed for one in part} for title, part in found.items()} == {
        "seed 1": {1}, "seed 2": {2}, "seed 3, part 1 of 2": {3}, "seed 3, part 2 of 2": {3},
    }  # fmt: skip
    assert sorted(map(str, (one for part in found.values() for one in part))) == sorted(map(str, due))
    assert list(shares(due[:6], 2)) == ["seed 1", "seed 2"]
    dealt = shares(due[:3], 2)
    assert [[one.variant for one in part] for part in dealt.values()] == [["full", "ridge"], ["ewma"]]
    assert list(dealt) == ["seed 1, part 1 of 2", "seed 1, part 2 of 2"]


def test_two_lakes_are_two_markets(studied, study_profile):
    lake, _ = studied
    rows = read_rows([lake, lake], study_profile)
    one = read_rows([lake], study_profile)
    place = ("uq-regression", "snr", 5)
    assert rows[place].markets == 2
    assert read_rows([lake], study_profile, "ETH-USD") == {}
    doubled = study_cells(rows, study_profile, "baselines")
    single = study_cells(one, study_profile, "baselines")
    assert doubled[0].windows == 2 * single[0].windows
    assert doubled[0].mean == pytest.approx(single[0].mean)


def test_too_few_blocks_give_no_interval_and_the_caption_says_so(studied, study_profile):
    lake, _ = studied
    rows = read_rows([lake], study_profile)
    for row in rows.values():
        for by_market in row.blocks.values():
            for market, (starts, sums) in by_market.items():
                by_market[market] = (starts[:10], sums[:10])
    cells = study_cells(rows, study_profile, "baselines")
    tested = [cell for cell in cells if cell.difference is not None]
    assert tested
    assert all(cell.lower is None and not cell.significant for cell in tested)
    assert "fewer than 20 blocks" in caption(cells, study_profile)


def test_missing_rows_are_named(studied, study_profile):
    lake, _ = studied
    missing = missing_rows([lake], study_profile)
    assert key("full", 2) in missing
    assert key("full", 1) not in missing
    expected = {name: variant for name, variant in read_variants(study_profile.study).items() if not variant.optional}
    assert len(missing) == len(study_keys(study_profile, expected)) - len(NAMES)
    assert not any(one.variant == "uq-regression-end-to-end" for one in missing)


def test_a_row_is_a_partition_of_dagster_and_a_run_of_mlflow(studied, study_profile, tmp_path):
    lake, _ = studied
    own = copy_of(lake, tmp_path / "lake")
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            build_assets(study_profile, own),
            selection=[ROWS],
            partition_key=study_partition_key(key("ewma", 2)),
            instance=instance,
            resources=build_resources(study_profile, own),
        )
    assert result.success
    (event,) = result.asset_materializations_for_node(ROWS)
    assert event.metadata["table"].value == "baselines"
    store = Tracking(own, study_profile).store()
    (run,) = store.search({"study.variant": "ewma", "study.seed": "2"})
    (parent,) = store.search({"uqlob.kind": "study_baselines"})
    assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert run.data.tags["study.table"] == "baselines"
    assert "core_seconds" in run.data.metrics


def test_partitions_of_the_study_map_to_the_days_of_their_symbol(study_profile):
    names = Partitions.of(study_profile).study.get_partition_keys()
    assert len(names) == 2 * len(read_variants(study_profile.study))
    assets = {
        asset.key.to_user_string(): asset for asset in build_assets(study_profile) if isinstance(asset, dg.AssetsDefinition)
    }
    rows, labels = assets[ROWS], assets["window_labels"]
    mapping = rows.get_partition_mapping(labels.key)
    found = mapping.get_upstream_mapped_partitions_result_for_partitions(
        rows.partitions_def.subset_with_partition_keys([study_partition_key(key("full"))]),
        rows.partitions_def,
        labels.partitions_def,
    )
    assert {str(name) for name in found.partitions_subset.get_partition_keys()} == {
        f"2026-01-0{number}|BTC-USD" for number in (5, 6, 7, 8)
    }


def test_six_lines_of_toml_become_a_row_of_the_printed_table(ingested, overlays, tmp_path, monkeypatch):
    """As a user would: a file in a directory, the directory in the profile, one command, and the table shows the row."""
    assert len(SIX_LINES.strip().splitlines()) == 6
    lake = copy_of(ingested, tmp_path / "lake")
    profile = tiny_market.write_profile(tmp_path)
    profile.write_text(profile.read_text() + f'\n[study]\nseeds = 1\noverlays = "{overlays}"\n')
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster_home"))
    (tmp_path / "dagster_home").mkdir()
    options = ["--lake", str(lake.root), "--profile", str(profile)]
    runner = CliRunner()
    listed = runner.invoke(app, ["study", "list", "--table", "ablations", *options])
    assert "uqlob study run --variants short-context" in listed.output
    before = dict(os.environ)
    ran = runner.invoke(app, ["study", "run", "--variants", "short-context,full", "--one-process", *options])
    for name in set(os.environ) - set(before):
        monkeypatch.delenv(name)
    assert ran.exit_code == 0, ran.output
    assert "2 of 2 rows to make" in ran.output
    again = runner.invoke(app, ["study", "run", "--variants", "short-context,full", "--one-process", *options])
    assert "every row is current" in again.output
    shown = runner.invoke(app, ["study", "show", "--table", "ablations", *options])
    assert shown.exit_code == 0, shown.output
    assert "C = 2 (SNR)" in shown.output
    assert "missing: 1 row(s) of nll-only: uqlob study run --variants nll-only" in shown.output
    frame = pl.read_csv(lake.study / "ablations.csv")
    assert set(frame["variant"]) == {"full", "short-context"}
    monkeypatch.setenv("UQLOB_SCRATCH", str(tmp_path / "scratch"))
    url = f"file://{tmp_path / 'shared'}"
    with working_copy(open_lake(url)) as copy:
        for table in (ROWS, STATISTICS):
            shutil.copytree(lake.root / table, copy.root / table)
    stored = runner.invoke(app, ["study", "show", "--table", "ablations", "--lake", url, "--profile", str(profile)])
    assert stored.exit_code == 0, stored.output
    assert f"written to {url}/study/ablations.csv" in stored.output.replace("\n", "")
    assert open_store(url).read("study/ablations.csv") == (lake.study / "ablations.csv").read_bytes()


def test_an_unknown_variant_and_the_wrong_command_are_refused(ingested, tmp_path, monkeypatch):
    profile = tiny_market.write_profile(tmp_path)
    options = ["--lake", str(ingested.root), "--profile", str(profile)]
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    wrong = CliRunner().invoke(app, ["study", "run", "--variants", "nothing", *options])
    assert wrong.exit_code == 2
    empty = CliRunner().invoke(app, ["study", "show", *options])
    assert empty.exit_code == 1
    with pytest.raises(MaterializeFailed, match="uqlob study run"):
        check_choice(load_profile(str(profile)), Choice(assets=(ROWS,)))
