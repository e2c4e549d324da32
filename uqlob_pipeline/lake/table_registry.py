"""The tables of the lake as `tables.toml` describes them, and where their files are."""

import json
import tomllib
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from uqlob_models.config import NO_EFFECT_ON_WEIGHTS, StageConfig
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.config.splits import SplitName
from uqlob_pipeline.lake.layout import AssetDay, Lake, ModelKey, StudyKey
from uqlob_pipeline.lake.provenance import Provenance
from uqlob_pipeline.lake.table import Column, Input, Key, SettingsFn, Table, settings_version

RAW_DUMPS = "raw_dumps"  # the only input that is not a table
BOOK_LIMITS = {"max_quarantine_rate", "max_checksum_failures", "max_lost_message_share", "max_lost_time_share"}
STAGES = ("encoder", "uq_regression", "uq_classification")


def symbol_of(key: Key) -> str:
    if isinstance(key, StudyKey):
        return key.model.symbol
    return key.symbol if isinstance(key, AssetDay | ModelKey) else str(key)


def printed_y_ref(profile: Profile, symbol: str, horizon_s: int) -> float | None:
    return profile.labels.y_ref_paper.get(symbol, {}).get(horizon_s)


def book_settings(profile: Profile, key: Key, on_disk: Provenance | None = None, *, verify_all: bool = False) -> str:
    """A day whose checksums were all verified stays current where the profile verifies only a sample."""
    settings = {
        "book": profile.book.model_dump(mode="json", exclude=BOOK_LIMITS),
        "instrument": profile.instrument(symbol_of(key)).model_dump(
            mode="json", include={"tick", "price_precision", "qty_precision"}
        ),
        "verify_all": verify_all or (on_disk is not None and verified_all(on_disk)),
    }
    return json.dumps(settings, sort_keys=True)


def verified_all(provenance: Provenance) -> bool:
    """Whether every checksum of a day's `book_events` was verified, not a sample."""
    return bool(json.loads(provenance.settings_version)["verify_all"])


def threshold_settings(profile: Profile, key: Key, _: Provenance | None = None) -> str:
    """The printed values of y_ref count only for their own symbol, and only where the profile chooses them."""
    keys = [name for name in REGISTRY["label_thresholds"].settings if name != "labels.y_ref_paper"]
    version = settings_version(profile, *keys)
    printed = [(h, printed_y_ref(profile, symbol_of(key), h)) for h in profile.labels.horizons_s]
    return f"{version} {printed}" if profile.labels.y_ref == "paper" else version


def stage_settings(stage: str, profile: Profile, key: Key, _: Provenance | None = None) -> str:
    """Joint stages also depend on which horizons, and universal ones on which symbols, are trained together.

    Both heads take the settings of joint fine-tuning.
    """
    if profile.training.joint == "none":
        return settings_version(profile, *REGISTRY[stage].settings)
    source, recipe = ("encoder", "pretraining") if stage == "encoder" else ("uq_regression", "regression")
    joint = ("training.joint", f"training.{recipe}.joint_epochs", "evaluation.horizons_s")
    version = settings_version(profile, *REGISTRY[source].settings, *joint)
    return f"{version} {', '.join(profile.symbols)}" if profile.training.joint == "universal" else version


SETTINGS_RULES: dict[str, SettingsFn] = {
    "book": book_settings,
    "thresholds": threshold_settings,
    **{stage: partial(stage_settings, stage) for stage in STAGES},
}


def _keys(setting: str) -> list[str]:
    """A setting, or those of a training stage that change its weights: other checkpoints do not."""
    if not setting.endswith(".*"):
        return [setting]
    return [f"{setting[:-1]}{field.name}" for field in fields(StageConfig) if field.name not in NO_EFFECT_ON_WEIGHTS]


def _load() -> dict[str, Table]:
    registry: dict[str, Table] = {}
    for entry in tomllib.loads((Path(__file__).parent / "tables.toml").read_text())["table"]:
        options: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}
        inherited = registry[options.pop("extends")].columns if "extends" in options else ()
        options["columns"] = (*inherited, *(Column(*column) for column in options.get("columns", ())))
        options["inputs"] = tuple(
            Input(**{**source, "splits": tuple(source.get("splits", ()))}) for source in options.get("inputs", ())
        )
        options["settings"] = tuple(key for setting in options.get("settings", ()) for key in _keys(setting))
        options["settings_fn"] = SETTINGS_RULES.get(options.pop("settings_rule", ""))
        registry[options["name"]] = Table(**options)
    return registry


REGISTRY = _load()
DESCRIPTIONS = tuple(REGISTRY.values())
ASSET_TABLES = tuple(table for table in DESCRIPTIONS if not table.companion_of and not table.on_request)  # the DAG
ON_REQUEST = tuple(table for table in DESCRIPTIONS if table.on_request)


def window_inputs(needed_by: str, splits: tuple[SplitName, ...]) -> Table:
    """The windows of a model with their labels and scales, for callers that are not registered tables."""
    sources = (
        Input("feature_scales"),
        Input("label_thresholds"),
        Input("event_features", splits),
        Input("window_labels", splits),
    )
    return Table(needed_by, "models", "model", "one row per window", "", "", inputs=sources)


def table_path(lake: Lake, name: str, key: Key) -> Path:
    """The file of one partition that carries its provenance."""
    if name in STAGES:
        assert isinstance(key, ModelKey)
        return lake.model(name, key) / "model.json"
    if name == "paper_report":
        return lake.report / "provenance.json"
    if name.startswith("dataset_profile"):
        return lake.dataset_profile / f"{name.partition('/')[2] or 'dataset'}.parquet"
    if isinstance(key, AssetDay):
        return lake.by_day(name, key)
    if isinstance(key, StudyKey):
        return lake.by_study_row(name, key)
    return lake.by_model(name, key) if isinstance(key, ModelKey) else lake.by_symbol(name, str(key))


def keys_of(table: Table, symbols: list[str], days: list[AssetDay], horizons: list[int]) -> list[Key]:
    """The partitions of a table within a choice of symbols, days and horizons. The study's are chosen by variant instead."""
    if table.grain == "study":
        return []
    if table.grain == "day":
        return [day for day in days if day.symbol in symbols]
    if table.grain == "symbol":
        return list(symbols)
    if table.grain == "model":
        return [ModelKey(symbol, horizon) for symbol in symbols for horizon in horizons]
    return [None]


def model_keys(profile: Profile) -> list[ModelKey]:
    return [ModelKey(symbol, horizon) for symbol in profile.symbols for horizon in profile.evaluation.horizons_s]
