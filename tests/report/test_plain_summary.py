"""The summary's sentences: what they call nominal, better, unknown or without skill, from scores that are given."""

from dataclasses import replace

import polars as pl
import pyarrow as pa
import pytest
from read_page import inputs_of

from uqlob_models.bootstrap import Bootstrap
from uqlob_pipeline.report import cells
from uqlob_pipeline.report.plain_summary import findings
from uqlob_pipeline.report.pooling import combine
from uqlob_pipeline.report.result_tables import directional_f1_view


def changed_scores(inputs, change):
    """The inputs with `change` applied to every row of their scores."""
    changed = {}
    for key, tables in inputs.evaluations.items():
        rows = [change(row) for row in tables.scores.to_pylist()]
        changed[key] = replace(tables, scores=pa.Table.from_pylist(rows, tables.scores.schema))
    return replace(inputs, evaluations=changed)


def test_without_intervals_the_summary_calls_gating_unknown(lake, tmp_path):
    """No bootstrap replicates, nominal coverage: nothing fails, and nothing is known to work."""

    def without_interval(row):
        nominal = {"cov68": 0.68, "cov95": 0.95}.get(row["metric"], row["value"])
        return row | {"lower": None, "upper": None, "value": nominal}

    inputs = changed_scores(inputs_of(lake), without_interval)
    combined = combine(inputs.evaluations, Bootstrap(replicates=0))
    gating, *_, where_not = findings(inputs, cells.Scores(combined.scores))[3:]
    assert "Whether gating works is unknown for BTC-USD 5 s (regression), BTC-USD 5 s (class" in where_not.sentences[0]
    assert not any("No failure" in sentence for sentence in where_not.sentences)
    assert any("too few forecasts to tell whether coverage is nominal" in sentence for sentence in where_not.sentences)
    assert where_not.tone == "plain"
    assert gating.tone == "plain"
    unknown = "In 4 cases there is no interval, so this is unknown: fewer than 20 blocks of time give no 95 % interval."
    assert unknown in gating.sentences


def test_a_coverage_is_called_nominal_only_within_one_point_and_both_levels_are_shown_before_and_after(lake):
    """92.2 % is not nominal for 95 %."""
    given = {"cov68": (0.683, 0.67, 0.70), "cov95": (0.922, 0.905, 0.938), "cov68_raw": (0.769, 0.74, 0.80)}
    given["cov95_raw"] = (0.93, 0.90, 0.96)

    def covering(row):
        return row | dict(zip(("value", "lower", "upper"), given[row["metric"]], strict=True)) if row["metric"] in given else row

    inputs = changed_scores(inputs_of(lake), covering)
    scores = cells.Scores(pl.DataFrame(pa.concat_tables([tables.scores for tables in inputs.evaluations.values()])))
    pooled = {("pooled", *key[1:]): row for key, row in scores.rows.items() if key[0] == "BTC-USD"}
    scores.rows.update(pooled)
    coverage = next(finding for finding in findings(inputs, scores) if finding.heading == "Is coverage nominal?")
    text = " ".join(coverage.sentences)
    after = "As published, recalibrated by the outcomes known at each forecast's time, the"
    assert f"{after} 68 % interval contains the outcome in 68.3 % at 5 s (nominal)" in text
    assert f"{after} 95 % interval contains the outcome in 92.2 % at 5 s (too narrow)" in text
    assert "Before recalibration, the 68 % interval contains the outcome in 76.9 % at 5 s (too wide)" in text
    assert "Before recalibration, the 95 % interval contains the outcome in 93.0 % at 5 s (undecided)" in text
    assert "within 1 percentage point" in text
    assert coverage.tone == "mixed"
    where_not = " ".join(findings(inputs, scores)[-1].sentences)
    assert "Coverage is not nominal for BTC-USD 5 s (92.2 % for 95 %)" in where_not


@pytest.mark.parametrize(("lower", "tone"), [(0.01, "good"), (-0.01, "bad")])
def test_the_summary_says_whether_the_learned_distribution_beats_an_ewma(lake, lower, tone):
    def gaining(row):
        return row | {"value": 0.02, "lower": lower, "upper": 0.05} if row["metric"] == "nlpd_gain_over_ewma" else row

    inputs = changed_scores(inputs_of(lake), gaining)
    scores = cells.Scores(pl.DataFrame(pa.concat_tables([tables.scores for tables in inputs.evaluations.values()])))
    scores.rows.update({("pooled", *key[1:]): row for key, row in scores.rows.items() if key[0] == "BTC-USD"})
    sharpness = next(finding for finding in findings(inputs, scores) if "better than an EWMA" in finding.heading)
    assert f"+0.020 at 5 s ({lower:+.3f} to +0.050)" in sharpness.sentences[0]
    assert sharpness.tone == tone
    assert ("not shown to improve on an EWMA" in " ".join(sharpness.sentences)) == (tone == "bad")


def test_a_head_with_a_directional_f1_of_zero_is_shown(lake):
    def hopeless(row):
        return row | {"value": 0.0} if (row["head"], row["metric"]) == ("classification", "directional_f1") else row

    inputs = changed_scores(inputs_of(lake), hopeless)
    scores = cells.Scores(combine(inputs.evaluations, Bootstrap(replicates=0)).scores)
    view = directional_f1_view(scores, [5], "BTC-USD")
    assert [cell.text for cell in view.headings[1]] == ["", "UQ-regression", "UQ-classification"]
    assert "0.00" in [cell.text for cell in view.rows[0]]
