"""The profile is validated before anything runs, and an error names the key."""

import datetime as dt
from pathlib import Path

import pytest

from uqlob_pipeline.config.profile import PROFILES, ProfileError, check_symbol, load_profile


@pytest.mark.parametrize("name", ["demo", "paper", "free-days"])
def test_built_in_profiles_load(name: str) -> None:
    assert load_profile(name).name == name


def test_the_paper_profile_holds_the_papers_splits_and_hyperparameters() -> None:
    paper = load_profile("paper")
    assert paper.symbols == ["BTC-USD", "ETH-USD", "DOGE-USD", "SOL-USD", "TAO-USD", "SUI-USD", "LTC-USD"]
    assert (paper.splits.train.last, paper.splits.test.last) == (dt.date(2026, 1, 18), dt.date(2026, 2, 15))
    assert (paper.labels.alpha, paper.labels.k, paper.labels.latency_us) == (0.25, 10, 500)
    training = paper.training
    assert (training.seed, training.test_seed, training.head.context, training.regression.batch) == (42, 999, 15, 16)
    # Warm-up, restarts and rates are counted in steps: a step must be the paper's sixteen targets, however they are sampled.
    assert [stage.targets_per_step for stage in (training.regression, training.classification)] == [16, 16]
    loss = training.loss
    assert (loss.lambda_nll, loss.lambda_weighted_mae, loss.lambda_directional, loss.lambda_calibration) == (1.0, 0.1, 0.5, 0.5)
    assert (loss.p, loss.w_max, loss.margin, loss.bins, training.head.variance_floor) == (4, 40, 1.0, 3, 1e-8)
    schedule = training.regression.schedule
    assert (schedule.warmup_steps, schedule.restart_period, schedule.restart_multiplier) == (10_000, 15_000, 2)
    assert (schedule.minimum_rate, schedule.peak_decay) == (1e-5, 0.5)
    assert (training.regression.encoder_rate, training.regression.head_rate) == (1e-5, 5e-5)
    assert (training.regression.epochs, training.regression.weight_decay) == (15, 0.0)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (
            "hours = ",
            "hour = ",
            r"simulation.hour: no such key \(did you mean hours\?\); valid keys are seed, hours, ",
        ),
        (
            "[duckdb]",
            "[duckb]",
            r"  duckb: no such key \(did you mean duckdb\?\); valid keys are name, description, instruments, ",
        ),
        ("[duckdb]", "[duckdb]\nzzz = 1", r"duckdb.zzz: no such key; valid keys are memory_limit, threads$"),
        (
            "[splits]",
            "[splits]\nvalidaton = 1",
            r"splits.validaton: no such key \(did you mean validation\?\); valid keys are train, ",
        ),
        ('tick = "0.1"', 'tik = "0.1"', r"instruments.BTC-USD.tik: no such key \(did you mean tick\?\); valid keys are tick, "),
        (
            "[training.head]",
            "[training.head]\ncontxt = 3",
            r"training.head.contxt: no such key \(did you mean context\?\); valid keys are ",
        ),
        ("[training.head]", "[training.head]\nheads = 0", "training.head.heads: Input should be greater than 0 .found 0."),
        ("[training.head]", "[training.head]\nheads = 7", "training.head: .*attention 256 must be a multiple of heads 7"),
        ("[training.encoder]", '[training.encoder]\nkind = "x"', "training.encoder.kind: Input should be 'dtabl' or 'deeplob'"),
        ("[training.loss]", "[training.loss]\nw_max = 0.5", "training.loss.w_max: Input should be greater than or equal to 1"),
        ('tick = "0.1"', 'tick = "-1"', "instruments.BTC-USD.tick: Input should be greater than 0"),
        ("last = 2026-01-10", "last = 2026-01-12", "train, validation and test must follow one another"),
        (
            "first = 2026-01-05, ",
            "frist = 2026-01-05, ",
            r"  splits.train.frist: no such key \(did you mean first\?\); valid keys",
        ),
        (
            "train = { first = 2026-01-05, last = 2026-01-10 }",
            "train = [2026-01-05, 2026-01-12]",
            "train, validation and test must follow one another",
        ),
        (
            "train = { first = 2026-01-05, last = 2026-01-10 }",
            "train = [2026-01-05, 2026-01-05]",
            "splits.train: .*days must be in order and different: 2026-01-05 follows 2026-01-05",
        ),
        ("train = { first = 2026-01-05, last = 2026-01-10 }", "train = []", "splits.train: .*needs at least one day"),
        ("horizons_s = [5, 10, 15]", "horizons_s = [5, 7]", r"\[7\] have no label"),
        ("[instruments.BTC-USD]", '[instruments."../x"]', "is not a symbol such as BTC-USD"),
        ("[simulation]", "[simulation", "is not valid TOML"),
    ],
)
def test_an_invalid_profile_is_an_error_that_names_the_key_and_the_expected_value(
    tmp_path: Path, old: str, new: str, complaint: str
) -> None:
    text = (PROFILES / "demo.toml").read_text()
    assert old in text
    path = tmp_path / "own.toml"
    path.write_text(text.replace(old, new))
    with pytest.raises(ProfileError, match=complaint):
        load_profile(str(path))


def test_a_missing_profile_is_an_error_that_lists_the_built_in_ones() -> None:
    with pytest.raises(ProfileError, match="demo, drill, free-days, paper"):
        load_profile("nowhere")


@pytest.mark.parametrize("name", ["../etc", "btc-usd", "BTC/USD", "BTC-USD/..", "", "BTC-USD\n"])
def test_invalid_symbols_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a symbol"):
        check_symbol(name)


def test_settings_version_depends_on_its_sections_only() -> None:
    demo = load_profile("demo")
    other = demo.model_copy(update={"labels": demo.labels.model_copy(update={"alpha": 0.3})})
    assert demo.settings_version("labels") != other.settings_version("labels")
    assert demo.settings_version("features") == other.settings_version("features")


def test_days_exclude_those_without_recording() -> None:
    demo = load_profile("demo")
    instrument = demo.instruments["BTC-USD"].model_copy(
        update={"first_day": dt.date(2026, 1, 6), "absent_days": (dt.date(2026, 1, 8),)}
    )
    trimmed = demo.model_copy(update={"instruments": {"BTC-USD": instrument}})
    assert trimmed.days("BTC-USD", "train") == [dt.date(2026, 1, d) for d in (6, 7, 9, 10)]


@pytest.mark.parametrize("name", ["BTC/USD", "btc-usd", "btc/usd"])
def test_a_symbol_in_another_spelling_gets_the_profiles_spelling_as_advice(name: str) -> None:
    with pytest.raises(ProfileError) as refused:
        load_profile("demo").instrument(name)
    assert str(refused.value) == f"symbol {name} is not in profile 'demo' (it has BTC-USD, ETH-USD): did you mean BTC-USD?"


def test_adding_a_symbol_is_advised_only_if_its_name_is_valid() -> None:
    demo = load_profile("demo")
    with pytest.raises(ProfileError, match=r"add \[instruments.SOL-USD\] to it$"):
        demo.instrument("SOL-USD")
    for name in ("sol/usd", "BTCUSD", "../x"):
        with pytest.raises(ProfileError, match=r"a symbol is written such as BTC-USD$"):
            demo.instrument(name)


def test_splits_may_list_days_that_are_not_consecutive() -> None:
    free = load_profile("free-days")
    assert free.symbols == load_profile("paper").symbols
    days = {split: free.days("BTC-USD", split) for split in ("train", "validation", "test")}
    assert [len(found) for found in days.values()] == [6, 2, 1]
    assert all(day.day == 1 for found in days.values() for day in found)
    assert free.first_day == dt.date(2025, 6, 1)
    asked = [dt.date(2025, 7, 1), dt.date(2025, 7, 2), dt.date(2026, 1, 1), dt.date(2026, 2, 1), dt.date(2026, 2, 2)]
    assert [free.splits.of(day) for day in asked] == ["train", None, "validation", "test", None]


def test_an_optional_key_without_a_value_leaves_existing_tables_current() -> None:
    demo = load_profile("demo")
    assert demo.settings_version("labels.alpha", "context.max_age_s") == demo.settings_version("labels.alpha")
    aged = demo.model_copy(update={"context": demo.context.model_copy(update={"max_age_s": 60.0})})
    assert aged.settings_version("labels.alpha", "context.max_age_s") != demo.settings_version("labels.alpha")
