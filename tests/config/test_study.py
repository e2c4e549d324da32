"""Variants of the study are overlays on the profile: the built-in ones are complete, wrong ones name their file and key."""

from pathlib import Path

import pytest

from uqlob_models.config import TrainingConfig
from uqlob_pipeline.config.profile import load_profile
from uqlob_pipeline.config.study import REFERENCE, StudyError, StudySettings, read_variant, read_variants

BUILT_IN = read_variants(StudySettings())


def written(directory: Path, text: str, name: str = "mine") -> Path:
    path = directory / f"{name}.toml"
    path.write_text(text)
    return path


def test_every_row_of_the_papers_layouts_is_there():
    titles = {variant.title for variant in BUILT_IN.values()}
    for title in (
        "Base D-TABL",
        "MC dropout on D-TABL, 20 passes",
        "Deep ensemble of 5 D-TABL",
        "UQ-classification",
        "UQ-regression",
    ):
        assert title in titles
    for title in ("w/o L_calib", "w/o L_dir", "w/o L_WMAE", "NLL only", "C = 0 (no context)", "Shuffled context labels"):
        assert title in titles
    assert {
        "Full objective, C = {C}",
        "w/o DNFI / QI features",
        "w/o token",
        "Gaussian likelihood",
        "Student-t likelihood",
    } <= titles
    for table, name in REFERENCE.items():
        assert BUILT_IN[name].table == table
        assert BUILT_IN[name].forecasts == "regression"


@pytest.mark.parametrize("profile", ["demo", "paper"])
@pytest.mark.parametrize("name", BUILT_IN)
def test_every_variant_is_valid_on_the_built_in_profiles(profile, name):
    base = load_profile(profile).training
    config = BUILT_IN[name].training_config(base, "frozen", 1)
    assert config.seed == base.seed
    assert config.regression.freeze_encoder == (BUILT_IN[name].mode != "end_to_end")
    assert not BUILT_IN[name].training_config(base, "end_to_end", 3).classification.freeze_encoder
    assert BUILT_IN[name].optional == (BUILT_IN[name].mode is not None or config.encoder.kind == "deeplob")
    assert BUILT_IN[name].training_config(base, "end_to_end", 3).seed == base.seed + 2


def test_an_ablation_differs_from_the_full_objective_in_what_its_title_says():
    base = load_profile("demo").training

    def config(name: str) -> TrainingConfig:
        return BUILT_IN[name].training_config(base, "frozen", 1)

    full = config("full")
    assert (full.loss.lambda_nll, full.loss.lambda_weighted_mae) == (1.0, 0.1)
    assert (full.loss.lambda_directional, full.loss.lambda_calibration) == (0.5, 0.5)
    zeros = {
        "without-calibration": {"lambda_calibration"},
        "without-directional": {"lambda_directional"},
        "without-weighted-mae": {"lambda_weighted_mae"},
        "nll-only": {"lambda_calibration", "lambda_directional", "lambda_weighted_mae"},
    }
    for name, switched_off in zeros.items():
        changed = {key for key, value in vars(config(name).loss).items() if value != getattr(full.loss, key)}
        assert changed == switched_off
        assert all(getattr(config(name).loss, key) == 0 for key in switched_off)
        assert config(name).head == full.head
    assert config("no-context").head.context == 0
    assert config("shuffled-context").head.shuffle_context_labels
    assert config("without-flow").encoder.dropped_features == ("dnfi", "dnfi_50", "dnfi_200", "qi")
    assert config("without-token").encoder.dropped_features == ("token",)
    assert not config("without-attention").encoder.temporal_attention
    for name in ("no-context", "shuffled-context", "without-flow", "without-token", "without-attention", "gaussian"):
        assert config(name).loss == full.loss


def test_a_head_whose_last_epoch_counts_is_validated_once():
    demo = load_profile("demo").training
    found = BUILT_IN["full"].training_config(demo, "frozen", 1)
    assert demo.regression.select_from == demo.regression.epochs == found.regression.validate_every
    assert found.pretraining == demo.pretraining
    paper = load_profile("paper").training
    assert BUILT_IN["full"].training_config(paper, "frozen", 1).regression.validate_every == paper.regression.validate_every


def test_a_directory_of_ones_own_variants_adds_and_replaces(tmp_path):
    written(
        tmp_path, 'table = "ablations"\ntitle = "C = 30"\nhead = "regression"\n[training.head]\ncontext = 30\n', "long-context"
    )
    written(tmp_path, 'table = "baselines"\ntitle = "mine"\nmethod = "ewma"\n', "ewma")
    found = read_variants(StudySettings(overlays=tmp_path))
    assert found["long-context"].training_config(TrainingConfig(), "frozen", 1).head.context == 30
    assert found["ewma"].title == "mine"
    assert len(found) == len(BUILT_IN) + 1


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('table = "ablation"\ntitle = "x"\nhead = "regression"', "table"),
        ('table = "ablations"\ntitle = "x"', "needs one"),
        ('table = "ablations"\ntitle = "x"\nmethod = "ridge"\nhead = "regression"', "takes none"),
        ('table = "ablations"\ntitle = "x"\nhead = "regression"\ncontext_statistics = true', "belong to plain models"),
        ('table = "ablations"\ntitle = "x"\nhead = "regression"\n[training.head]\ncontexts = 3', "training.head.contexts"),
        ('table = "ablations"\ntitle = "x"\nhead = "regression"\n[training.head]\ncontext = -1', "training.head.context"),
        ('table = "ablations"\ntitle = "x"\nhead = "regression"\nnmae = 1', "nmae"),
        ('name = "other"\ntable = "ablations"\ntitle = "x"\nhead = "regression"', "that of its file"),
        ("table = ", "not valid TOML"),
    ],
)
def test_a_wrong_variant_names_its_file_and_what_is_wrong(tmp_path, text, named):
    path = written(tmp_path, text)
    with pytest.raises(StudyError) as caught:
        read_variant(path)
    assert str(path) in str(caught.value)
    assert named in str(caught.value)


def test_a_missing_directory_of_variants_is_named(tmp_path):
    with pytest.raises(StudyError, match="is no directory"):
        read_variants(StudySettings(overlays=tmp_path / "nowhere"))
