"""The partitions of the study: which models it trains, and its rows."""

from collections.abc import Iterable

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.layout import ModelKey, StudyKey

STUDY_ROWS = "study_rows"


def study_models(profile: Profile) -> list[ModelKey]:
    """The models of the study: by default the first symbol at the shortest horizon."""
    symbols = profile.study.symbols or tuple(profile.symbols[:1])
    horizons = profile.study.horizons_s or (min(profile.evaluation.horizons_s),)
    return [ModelKey(symbol, horizon) for symbol in symbols for horizon in horizons]


def study_keys(profile: Profile, variants: Iterable[str]) -> list[StudyKey]:
    """Every row, seed by seed, so that an interrupted study has whole columns first."""
    seeds = range(1, profile.study.seeds + 1)
    return [StudyKey(name, seed, model) for model in study_models(profile) for seed in seeds for name in variants]
