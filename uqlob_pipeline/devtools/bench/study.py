"""`uqlob bench study`: both tables of the study, pooled over several markets, and the two questions beside them.

Each seed gives a market of the demo's kind (BTC-USD, 5 s), with its features and labels. Rows are made as by `uqlob study run`,
without Dagster and MLflow. `--shift` adds the same trained models on shifted test days. Figures are pooled over the markets and
printed at the end (docs/protocol.md).
"""

from __future__ import annotations

import json as json_text
import multiprocessing
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from uqlob_pipeline.devtools.bench.study_lakes import Progress, StudyMarket, end_with, log, make_rows, prepare, trains_nothing

if TYPE_CHECKING:
    from uqlob_pipeline.models.study.comparisons import Comparison
    from uqlob_pipeline.models.study.study_tables import StudyCell


def study(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    seeds: Annotated[str, typer.Option(help="Markets by seed.")] = "21,22,23",
    training_seeds: Annotated[int, typer.Option(min=1, help="Trainings per row and market.")] = 2,
    workdir: Annotated[Path | None, typer.Option(help="Keep lakes in this directory, and resume or reuse those in it.")] = None,
    shift: Annotated[bool, typer.Option("--shift", help="Also the same models on shifted test days.")] = False,
    end_to_end: Annotated[bool, typer.Option(help="Also the headline rows end to end, with one training seed.")] = True,
    parallel: Annotated[int, typer.Option(min=1, help="Processes at once, one thread each.")] = 2,
    variants: Annotated[str | None, typer.Option(help="Variants, separated by commas (default: all but optional ones).")] = None,
    build_only: Annotated[bool, typer.Option("--build-only", help="Make the rows and print no figure.")] = False,
) -> None:
    """Fill both tables of the study on several markets; resumes after a kill. Progress goes to the error output."""
    names = tuple(name.strip() for name in variants.split(",")) if variants else ()
    with tempfile.TemporaryDirectory(prefix="uqlob-study-") as temporary:
        root = (workdir or Path(temporary)).absolute()
        options: dict[str, Any] = {"variants": names, "end_to_end": end_to_end}
        markets = [StudyMarket(root, int(seed), training_seeds, **options) for seed in seeds.split(",")]
        failed = run(markets, shift, parallel)
        if build_only:
            raise typer.Exit(1 if failed else 0)
        pools = {"market": markets, **({"shift": shifted_of(markets)} if shift else {})}
        figures = {name: Figures.of(pool) for name, pool in pools.items()}
        about = {"seeds": [market.seed for market in markets], "training_seeds": training_seeds, "failed": failed}
        report = json_text.dumps({**about, **{name: found.as_json() for name, found in figures.items()}})
        (root / "study.json").write_text(report)
    if json:
        typer.echo(report)
    for found in () if json else figures.values():
        show(found)
    for line in failed:
        log(f"FAILED {line}")
    if failed:
        raise typer.Exit(1)


def shifted_of(markets: Sequence[StudyMarket]) -> list[StudyMarket]:
    return [replace(market, shifted=True) for market in markets]


def run(markets: Sequence[StudyMarket], shift: bool, parallel: int) -> list[str]:
    """Simulates every market and makes all rows, `parallel` processes at a time. Returns what failed."""
    os.environ |= {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}  # of the processes
    shifted = shifted_of(markets) if shift else []
    progress = Progress((*markets, *shifted))
    progress = replace(progress, done_before=sum(weight for weight, done in progress.rows() if done))
    failed: list[str] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(parallel, context, initializer=end_with, initargs=(os.getpid(),)) as pool:
        for stage in (markets, shifted):
            list(pool.map(prepare, stage))
            shares = [(market, seed) for seed in range(1, markets[0].training_seeds + 1) for market in stage]
            made = [pool.submit(make_rows, market, seed, progress) for market, seed in shares]
            failed += [line for rows in made for line in rows.result()]
    for market in shifted:
        trains_nothing(market)
    return failed


@dataclass(frozen=True)
class Figures:
    """The pool of some markets: cells and caption of each table, and the comparisons by question."""

    tables: dict[str, tuple[list[StudyCell], str]]
    comparisons: dict[str, list[Comparison]]

    @classmethod
    def of(cls, markets: Sequence[StudyMarket]) -> Figures:
        from uqlob_pipeline.models.study.captions import TITLES, caption
        from uqlob_pipeline.models.study.comparisons import QUESTIONS, compared_pairs
        from uqlob_pipeline.models.study.study_tables import read_rows, study_cells

        profile = markets[0].profile()
        rows = read_rows([market.lake for market in markets], profile)
        tables = {}
        for name in TITLES:
            cells = study_cells(rows, profile, name)
            tables[name] = cells, caption(cells, profile, described(markets))
        return cls(tables, {name: compared_pairs(rows, profile, pairs) for name, pairs in QUESTIONS.items()})

    def as_json(self) -> dict[str, Any]:
        tables = {
            name: {"caption": text, "cells": [asdict(cell) for cell in cells]} for name, (cells, text) in self.tables.items()
        }
        return {**tables, **{name: [asdict(one) for one in found] for name, found in self.comparisons.items()}}


def described(markets: Sequence[StudyMarket]) -> str:
    profile, seeds = markets[0].profile(), ", ".join(str(market.seed) for market in markets)
    models = f"{', '.join(profile.symbols)} at {min(profile.evaluation.horizons_s)} s"
    days = "; test days shifted to another regime, nothing trained again" if markets[0].shifted else ""
    return f"simulated market{'s' if len(markets) > 1 else ''} of seed{'s' if len(markets) > 1 else ''} {seeds}, {models}{days}"


def show(figures: Figures) -> None:
    from rich.console import Console

    from uqlob_pipeline.cli.study_display import comparison_table, table_of

    console = Console(width=max(Console().width, 170))
    for name, (cells, text) in figures.tables.items():
        console.print(table_of(cells, name), markup=False)
        console.print(text, highlight=False)
    for question, comparisons in figures.comparisons.items():
        if comparisons:
            console.print(comparison_table(comparisons, question), markup=False)
