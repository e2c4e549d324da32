"""The coverage checks of the regression head and of the evaluation follow the one rule of `uqlob_models.coverage`."""

from pathlib import Path

import pyarrow as pa
import pytest

from uqlob_models.evaluation import SCORES_SCHEMA
from uqlob_pipeline.defs.evaluation.checks import coverage_outcome
from uqlob_pipeline.defs.models.checks import _coverage
from uqlob_pipeline.lake.provenance import Provenance
from uqlob_pipeline.models.stages import StageRecord


def record(**validation: float) -> StageRecord:
    return StageRecord(
        Provenance("uq_regression", "1", "s"), "w", "weighted_r2", 0.1, 1, 1, 1, False, {}, validation, [], Path("nowhere")
    )


def bounded(name: str, value: float, lower: float, upper: float) -> dict[str, float]:
    return {name: value, f"{name}_lower": lower, f"{name}_upper": upper}


NOMINAL_95 = bounded("coverage_95", 0.948, 0.93, 0.96)


def test_a_head_whose_68_percent_intervals_cover_77_percent_is_warned_of() -> None:
    found = _coverage(record(**bounded("coverage_68", 0.769, 0.74, 0.80), **NOMINAL_95))
    assert not found.passed
    assert "68% intervals cover 76.9% (too wide), 95% intervals cover 94.8% (nominal)" in found.description
    assert _coverage(record(**bounded("coverage_68", 0.685, 0.67, 0.70), **NOMINAL_95)).passed


def test_a_head_without_bounds_is_undecided_and_not_passed() -> None:
    found = _coverage(record(coverage_68=0.68, coverage_95=0.95))
    assert not found.passed
    assert "(undecided)" in found.description


@pytest.mark.parametrize(("covered", "verdict", "passed"), [(0.922, "too narrow", False), (0.951, "nominal", True)])
def test_an_evaluation_is_judged_by_the_same_rule_and_shows_both_levels_before_and_after(
    covered: float, verdict: str, passed: bool
) -> None:
    metrics = {"cov68": 0.68, "cov95": covered, "cov68_raw": 0.68, "cov95_raw": 0.95}
    rows = [
        ("BTC-USD", 5, "regression", "percentile", 0, metric, value, value - 0.015, value + 0.015, 1000)
        for metric, value in metrics.items()
    ]
    columns = dict(zip(SCORES_SCHEMA.names, map(list, zip(*rows, strict=True)), strict=True))
    found = coverage_outcome(pa.table(columns, schema=SCORES_SCHEMA))
    assert found.passed == passed
    assert f"68% intervals cover 68.0% (nominal), 95% intervals cover {covered:.1%} ({verdict})" in found.description
    assert "before recalibration, 68% intervals cover 68.0% (nominal), 95% intervals cover 95.0% (nominal)" in found.description
