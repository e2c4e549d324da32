"""`uqlob bench intervals`: are the published distributions nominal, and sharper than simple baselines?

Each seed gives a lake of the demo's kind, built through the real DAG and kept. `--shift` judges the same models on test days in
another regime, `--null` models trained on a market without any signal. Figures are pooled over the seeds (docs/protocol.md).
"""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from uqlob_pipeline.devtools.bench.interval_lakes import DEVELOPMENT_SEEDS, IntervalLake, Variant, built_lakes

if TYPE_CHECKING:
    from uqlob_pipeline.devtools.bench.interval_scores import ModelScores


def intervals(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    seeds: Annotated[str, typer.Option(help="Markets by seed.")] = DEVELOPMENT_SEEDS,
    workdir: Annotated[Path | None, typer.Option(help="Keep lakes in this directory, and resume or reuse those in it.")] = None,
    shift: Annotated[bool, typer.Option("--shift", help="Also judge the same models on shifted test days.")] = False,
    null: Annotated[bool, typer.Option("--null", help="Also judge models of a market without signal, BTC-USD at 5 s.")] = False,
    build_only: Annotated[bool, typer.Option("--build-only", help="Build the lakes and print no figure.")] = False,
) -> None:
    """Build demo lakes of several seeds and score the published distributions against references."""
    variants: list[Variant] = ["market", *(["shift"] if shift else []), *(["null"] if null else [])]  # type: ignore[list-item]
    with built_lakes(seeds, variants, workdir, lambda line: typer.echo(line, err=True)) as built:
        if build_only:
            return
        report = {variant: judge(lakes) for variant, lakes in built.items()}
    if json:
        typer.echo(json_text.dumps({"seeds": [int(seed) for seed in seeds.split(",")], **report}))
        return
    for variant, figures in report.items():
        typer.echo(f"\n{variant}, seeds {seeds}")
        typer.echo(markdown(figures))
        for target, met in figures["targets"].items():
            typer.echo(f"{'met    ' if met else 'NOT MET'}  {target}")


def judge(lakes: list[IntervalLake]) -> dict[str, Any]:
    """The figures of one variant: pooled, by symbol and horizon, by model, and the gated table of the release."""
    from uqlob_pipeline.config.profile import load_profile
    from uqlob_pipeline.devtools.bench import interval_scores as scoring
    from uqlob_pipeline.devtools.bench.release_table import release_rows

    models: list[ModelScores] = []
    for lake in lakes:
        profile = load_profile(str(lake.profile))
        for symbol in profile.symbols:
            for horizon in profile.evaluation.horizons_s:
                if lake.variant != "shift" or symbol == "BTC-USD":  # the shift changes BTC alone
                    models.append(scoring.score_model(lake.lake, lake.profile, lake.seed, symbol, horizon))
    pooled = scoring.score_table(models)
    by_model = {model.name: scoring.score_table([model]) for model in models}
    kinds = sorted({model.kind for model in models})
    return {
        "windows": sum(len(model.block) for model in models),
        "pooled": pooled,
        "block_noise": {name: scoring.block_noise(models, level) for name, level in scoring.LEVELS.items()},
        "by_kind": {kind: scoring.score_table([model for model in models if model.kind == kind]) for kind in kinds},
        "by_model": {
            name: {method: row for method, row in table.items() if method in (scoring.CALIBRATED, scoring.RAW)}
            for name, table in by_model.items()
        },
        "correlation_of_the_mean": scoring.mean_with_bounds(
            models, [model.scores[scoring.CALIBRATED][scoring.CORRELATION] for model in models]
        ),
        "coverage_by": {method: scoring.coverage_by_group(models, method) for method in (scoring.CALIBRATED, scoring.RAW)},
        "pit": {model.name: model.pit for model in models},
        "settings": {model.name: model.settings for model in models},
        "targets": scoring.targets(pooled, by_model),
        "release": release_rows(lakes),
    }


def markdown(figures: dict[str, Any]) -> str:
    """The pooled table as it stands in the documents."""

    def shown(cell: dict[str, Any] | None, digits: int) -> str:
        return "" if cell is None else f"{cell['value']:.{digits}f}"

    def difference(row: dict[str, Any], score: str, digits: int) -> str:
        cell = row.get("minus_calibrated", {}).get(score)
        if cell is None:
            return ""
        bounds = "" if cell["lower"] is None else f" ({cell['lower']:+.{digits}f} to {cell['upper']:+.{digits}f})"
        return f"{cell['value']:+.{digits}f}{bounds}"

    lines = [
        "| method | cov68 | cov95 | block deviation 68 / 95 | log score | worse by | Winkler 68 | worse by | Winkler 95 "
        "| worse by | CRPS |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for method, row in figures["pooled"].items():
        cells = [
            method,
            shown(row.get("inside68"), 3),
            shown(row.get("inside95"), 3),
            f"{row['block_deviation68']:.3f} / {row['block_deviation95']:.3f}",
            shown(row.get("log_score"), 3),
            difference(row, "log_score", 3),
            shown(row.get("winkler68"), 3),
            difference(row, "winkler68", 3),
            shown(row.get("winkler95"), 3),
            difference(row, "winkler95", 3),
            shown(row.get("crps"), 4),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "| model | head | windows | cov68 | cov95 | raw 68 / 95 | F1 all | F1 top 50 % | F1 top 10 % | reference |",
        "|" + "---|" * 10,
    ]
    lines += [f"| {' | '.join(row)} |" for row in figures["release"]]
    return "\n".join(lines)
