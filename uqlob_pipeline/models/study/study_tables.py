"""The paper's two tables from the rows of the study: mean and spread over seeds, and paired differences to the reference row."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from uqlob_models.bootstrap import Bootstrap
from uqlob_models.gating import STATISTICS as SUMS
from uqlob_models.gating import gated_scores
from uqlob_models.metrics import FloatArray
from uqlob_models.paired_comparison import Blocks, Difference, Score, holm, paired_difference
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.config.study import REFERENCE, Variant, read_variants
from uqlob_pipeline.lake.atomic_files import atomic_path
from uqlob_pipeline.lake.file_hashes import read_table
from uqlob_pipeline.lake.layout import Lake, StudyKey
from uqlob_pipeline.lake.staleness import version_on_disk
from uqlob_pipeline.lake.study_keys import study_keys
from uqlob_pipeline.models.gated_evaluation import bootstrap
from uqlob_pipeline.models.study.rows import KEPT_GATES, ROWS, STATISTICS, row_mode

REPLICATES = 2000
SIGNIFICANT = 0.05
COSTS = ("parameters", "core_seconds", "encoder_core_seconds", "milliseconds_per_forecast")
# Metric and gate of each column; differences are tested for those in TESTED.
COLUMNS: dict[str, tuple[tuple[str, int], ...]] = {
    "baselines": (
        ("directional_f1", 90),
        ("sign_accuracy", 90),
        ("sign_accuracy_gain", 90),
        ("directional_f1", 0),
        ("nlpd", 0),
        ("nlpd_ewma", 0),  # the row's mean with the width, tails and point mass of the EWMA reference
    ),
    "ablations": (
        ("cov68_raw", 0),
        ("wr2", 0),
        ("directional_f1", 90),
        ("sign_accuracy", 90),
        ("nlpd_raw", 0),
        ("nlpd", 0),
    ),
}
TESTED: dict[str, tuple[tuple[str, int], ...]] = {
    "baselines": (("directional_f1", 90), ("sign_accuracy", 90)),
    "ablations": (("directional_f1", 90), ("nlpd_raw", 0)),
}


@dataclass(frozen=True)
class StudyCell:
    """One metric of one row. `std` is over seeds; a difference is to the reference row, `significant` after Holm's correction."""

    table: str
    variant: str
    title: str
    confidence: str
    horizon_s: int
    mode: str
    seeds: int
    markets: int
    windows: int
    metric: str
    gate: int
    mean: float | None
    std: float | None
    difference: float | None = None
    lower: float | None = None
    upper: float | None = None
    p_holm: float | None = None
    significant: bool = False


@dataclass(frozen=True)
class Row:
    """What was found of one variant and confidence score at one horizon."""

    variant: Variant
    confidence: str
    mode: str
    blocks: dict[int, dict[str, Blocks]]  # by seed, then by market
    costs: dict[str, list[float]]
    windows: int
    regression: bool

    @property
    def markets(self) -> int:
        return len({market for by_market in self.blocks.values() for market in by_market})


def read_rows(lakes: Sequence[Lake], profile: Profile, symbol: str | None = None) -> dict[tuple[str, str, int], Row]:
    """The finished rows of one or several lakes, by variant, confidence score and horizon, of one symbol or of all pooled.

    Each lake is a market of its own.
    """
    variants = read_variants(profile.study)
    found: dict[tuple[str, str, int], Row] = {}
    for number, lake in enumerate(lakes, 1):
        for key in study_keys(profile, variants):
            if symbol not in (None, key.model.symbol) or version_on_disk(lake, ROWS, key) is None:
                continue
            _add(found, lake, profile, variants[key.variant], key, f"{number}/{key.model.symbol}")
    order = {name: place for place, name in enumerate(variants)}
    return dict(sorted(found.items(), key=lambda item: (order[item[0][0]], item[0][2], item[0][1] != "snr")))


def _add(
    found: dict[tuple[str, str, int], Row], lake: Lake, profile: Profile, variant: Variant, key: StudyKey, market: str
) -> None:
    statistics = pl.DataFrame(read_table(lake.by_study_row(STATISTICS, key)))
    scores = pl.DataFrame(read_table(lake.by_study_row(ROWS, key)))
    for confidence in statistics["confidence"].unique().sort():
        own = statistics.filter(confidence=confidence).sort("block_start", "gate")
        sums = own.select(SUMS).to_numpy(order="c").astype(np.float64).reshape(-1, len(KEPT_GATES), len(SUMS))
        starts = own["block_start"].to_numpy()[:: len(KEPT_GATES)]
        place = (variant.name, confidence, key.model.horizon_s)
        if place not in found:
            regression = own["head"][0] == "regression"
            found[place] = Row(variant, confidence, row_mode(profile, variant), {}, {name: [] for name in COSTS}, 0, regression)
        row = found[place]
        row.blocks.setdefault(key.seed, {})[market] = (starts, sums)
        for name in COSTS:
            row.costs[name] += scores.filter(confidence=confidence, gate_kind="cost", metric=name)["value"].to_list()


def resampling_of(profile: Profile) -> Bootstrap:
    return Bootstrap(profile.evaluation.bootstrap_block_s, REPLICATES, seed=bootstrap(profile).seed)


def study_cells(rows: Mapping[tuple[str, str, int], Row], profile: Profile, table: str) -> list[StudyCell]:
    """Every metric of every row of one table."""
    resampling = resampling_of(profile)
    cells: list[StudyCell] = []
    own = {place: row for place, row in rows.items() if row.variant.table == table}
    for metric, gate in COLUMNS[table]:
        tested: dict[tuple[str, str, int], Difference] = {}
        for place, row in own.items():
            reference = rows.get((REFERENCE[table], "snr", place[2]))
            if (metric, gate) not in TESTED[table] or reference is None or reference is row:
                continue
            difference = paired_difference(row.blocks, reference.blocks, score_of(metric, gate), resampling)
            if difference is not None and np.isfinite(difference.value):
                tested[place] = difference
        adjusted = dict(zip(tested, holm([difference.p_value for difference in tested.values()]), strict=True))
        for place, row in own.items():
            values = [value for value in seed_values(row, metric, gate) if np.isfinite(value)]
            cell = _cell(row, place[2], profile, metric, gate, values)
            difference = tested.get(place)
            cells.append(cell if difference is None else _compared(cell, difference, adjusted[place]))
    return cells + [_cell(row, place[2], profile, name, 0, row.costs[name]) for name in COSTS for place, row in own.items()]


def _cell(row: Row, horizon_s: int, profile: Profile, metric: str, gate: int, values: list[float]) -> StudyCell:
    return StudyCell(
        table=row.variant.table,
        variant=row.variant.name,
        title=shown_title(row.variant, profile),
        confidence=row.confidence,
        horizon_s=horizon_s,
        mode=row.mode,
        seeds=len(row.blocks),
        markets=row.markets,
        windows=windows_of(row),
        metric=metric,
        gate=gate,
        mean=float(np.mean(values)) if values else None,
        std=float(np.std(values, ddof=1)) if len(values) > 1 else None,
    )


def _compared(cell: StudyCell, difference: Difference, p_holm: float | None) -> StudyCell:
    return replace(
        cell,
        difference=difference.value,
        lower=difference.lower,
        upper=difference.upper,
        p_holm=p_holm,
        significant=is_significant(difference, p_holm),
    )


def is_significant(difference: Difference, p_holm: float | None) -> bool:
    lower, upper = difference.lower, difference.upper
    excludes_zero = lower is not None and upper is not None and not lower <= 0 <= upper
    return excludes_zero and p_holm is not None and p_holm < SIGNIFICANT


def shown_title(variant: Variant, profile: Profile) -> str:
    return variant.title.replace("{C}", str(profile.training.head.context))


def score_of(metric: str, gate: int) -> Score:
    """A score from sums over blocks."""
    place = KEPT_GATES.index(gate)

    def score(sums: FloatArray) -> FloatArray:
        found = gated_scores(sums, density=True, raw=True)
        values: FloatArray = found[metric][..., place]
        return values

    return score


def is_defined(row: Row, metric: str) -> bool:
    """A classifier has no density."""
    return row.regression or metric not in ("nlpd", "nlpd_raw", "nlpd_ewma", "cov68_raw", "wr2")


def seed_values(row: Row, metric: str, gate: int, seeds: Sequence[int] | None = None) -> list[float]:
    """The score of each seed, or of the given ones, its markets pooled; empty where the metric is not defined."""
    if not is_defined(row, metric):
        return []
    score = score_of(metric, gate)
    chosen = [row.blocks[seed] for seed in (seeds or row.blocks)]
    pooled = [np.sum([sums.sum(axis=0) for _, sums in by_market.values()], axis=0) for by_market in chosen]
    return [float(score(sums)) for sums in pooled]


def windows_of(row: Row) -> int:
    """Test forecasts of one seed, all markets together."""
    first = next(iter(row.blocks.values()))
    return int(sum(sums[:, 0, :9].sum() for _, sums in first.values()))


def missing_rows(lakes: Sequence[Lake], profile: Profile) -> list[StudyKey]:
    """The rows that no file holds yet, in any of the lakes; optional ones are not missed."""
    variants = {name: variant for name, variant in read_variants(profile.study).items() if not variant.optional}
    keys = study_keys(profile, variants)
    return [key for key in keys if any(version_on_disk(lake, ROWS, key) is None for lake in lakes)]


def fill_command(key: StudyKey) -> str:
    """What would fill a missing row."""
    return f"uqlob study run --variants {key.variant}"


def write_csv(cells: Sequence[StudyCell], path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary, open(temporary, "w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(StudyCell.__dataclass_fields__))
        writer.writeheader()
        writer.writerows(asdict(cell) for cell in cells)
    return path
