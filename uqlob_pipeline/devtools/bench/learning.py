"""`uqlob bench learning`: what the models learn on the simulated market, with and without something to learn.

Each seed gives three markets: the demo's kind, the same without its slow regime, and the same without any signal. Models are
trained with the demo profile's recipe. Figures are pooled over the seeds, and the pool is judged (docs/protocol.md).
All targets are printed, met or not. The figures do not transfer to a real market.
"""

from __future__ import annotations

import json as json_text
import math
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from uqlob_pipeline.devtools.bench.learning_lake import LearningMarket, market_profile, market_windows
from uqlob_pipeline.lake.log_function import LogFn

if TYPE_CHECKING:
    from rich.progress import Progress

    from uqlob_models.config import TrainingConfig
    from uqlob_models.dataset import WindowDataset

SEEDS = (1, 2, 3)  # of the heads in the context comparison
DEVELOPMENT_SEEDS = "21,22,23"
SPLIT_NAMES = ("train", "selection", "calibration", "test")
# Scores with an interval. The last is reported and judges nothing: gating by volatility alone raises it.
SIGN_FIGURES = ("sign_accuracy", "top_decile_sign_accuracy", "top_decile_sign_accuracy_gain", "top_decile_gain_over_share")
FULL = LearningMarket()
QUICK = LearningMarket(seed=27, hours=0.5, train_days=6, validation_days=2, test_days=4)


def silent(_: str) -> None:
    """Drops a log line."""


@dataclass
class TrainedMarket:
    """A market with the models trained on it, in a directory of its own."""

    directory: Path
    market: LearningMarket
    config: TrainingConfig
    log: LogFn = silent
    windows: WindowDataset = field(init=False)

    def __post_init__(self) -> None:
        self.windows = market_windows(self.directory / "lake", self.market, self.log)

    def pretrained(self) -> Path:
        # Imported here so that other commands start fast; likewise below.
        from uqlob_models.training import train

        return train("pretraining", self.windows, self.config, self.directory / "encoder", on_epoch=self._epoch("encoder")).model

    def fine_tuned(self) -> tuple[Path, list[dict[str, float]]]:
        """The regression head trained from the pretrained encoder as the recipe says, and the record of each epoch."""
        from uqlob_models.training import train

        where, encoder = self.directory / "regression", self.pretrained()
        result = train("regression", self.windows, self.config, where, encoder=encoder, on_epoch=self._epoch("regression head"))
        return result.model, result.history

    def encoder_figures(self) -> dict[str, Any]:
        from uqlob_models.checkpoints import load_model
        from uqlob_pipeline.devtools.bench.learning_figures import encoder_figures

        encoder = load_model(self.pretrained()).encoder()
        self.log("boosting on window summaries")
        return encoder_figures(encoder, self.windows)

    def regression_figures(self) -> dict[str, Any]:
        from uqlob_models.checkpoints import load_model
        from uqlob_pipeline.devtools.bench.learning_figures import regression_figures

        model, history = self.fine_tuned()
        return {**regression_figures(load_model(model).uq_model(), self.windows), "by_epoch": sensitivity_by_epoch(history)}

    def context_figures(self) -> dict[str, Any]:
        from uqlob_models.checkpoints import load_model
        from uqlob_pipeline.devtools.bench.learning_context import ARMS, context_gain, freeze_market

        frozen = freeze_market(load_model(self.pretrained()).encoder(), self.windows)
        total, done = len(SEEDS) * len(ARMS), 0

        def trained(arm: str) -> None:
            nonlocal done
            done += 1
            self.log(f"head {done} of {total} ({arm})")

        return context_gain(frozen, self.config, SEEDS, trained)

    def _epoch(self, what: str) -> Any:
        def epoch(record: dict[str, float]) -> None:
            rate, left = record["windows_per_second"], record["eta_seconds"]
            self.log(f"{what}: epoch {record['epoch']:.0f}, {rate:.0f} windows/s, {left:.0f} s left")

        return epoch


def sensitivity_by_epoch(history: list[dict[str, float]]) -> dict[str, list[float]]:
    """How strongly the forecasts follow the context's labels, of the epochs that were validated."""
    names = ("context_sensitivity", "context_sensitivity_log_std")
    return {name: [record[f"validation/{name}"] for record in history if f"validation/{name}" in record] for name in names}


def recipe(market: LearningMarket) -> TrainingConfig:
    """The demo's recipe, with the same number of head steps for any length of day: with half of them a head learns no context."""
    demo = market_profile(market).training
    times = max(round(FULL.hours * FULL.train_days / (market.hours * market.train_days)), 1)
    stage = replace(demo.regression, epochs=times * demo.regression.epochs, select_from=times * demo.regression.select_from)
    return replace(demo, device="cpu", regression=stage)


def measure(market: LearningMarket, directory: Path, progress: Steps) -> dict[str, Any]:
    """Every figure, one market after the other."""
    config = recipe(market)
    started = time.monotonic()

    def simulated(name: str, chosen: LearningMarket) -> TrainedMarket:
        with progress.step(f"{name}: simulating", weight=chosen.days * chosen.hours * 5) as log:
            return TrainedMarket(directory / name, chosen, config, log)

    def measured(title: str, weight: float, trained: TrainedMarket, work: Any) -> dict[str, Any]:
        with progress.step(title, weight) as trained.log:
            figures: dict[str, Any] = work()
            trained.log(json_text.dumps(figures))
        return figures

    hours = market.train_days * market.hours
    main = simulated("market", market)
    report: dict[str, Any] = {
        "market": "simulated",
        "seed": market.seed,
        "symbol": market.symbol,
        "horizon_s": market.horizon_s,
        "hours_a_day": market.hours,
        "windows": {name: int((main.windows.split == code).sum()) for code, name in enumerate(SPLIT_NAMES)},
        "encoder": measured("encoder", 5 * hours, main, main.encoder_figures),
        "regression": measured("regression head", 14 * hours, main, main.regression_figures),
        "context": {"regime_on": measured("context, regime on", 50 * hours, main, main.context_figures)},
    }
    steady = simulated("no regime", market.without_regime())
    report["context"]["regime_off"] = measured("context, regime off", 55 * hours, steady, steady.context_figures)
    null = simulated("no signal", market.without_signal())
    report["null_market"] = measured("null market", 18 * hours, null, null.regression_figures)
    return {**report, "seconds": round(time.monotonic() - started, 1)}


def measured_once(market: LearningMarket, directory: Path, progress: Steps) -> dict[str, Any]:
    """The figures of a market, kept in its directory: the same market with the same recipe is not measured again."""
    from uqlob_pipeline.lake.atomic_files import atomic_path

    kept = directory / "figures.json"
    origin = json_text.loads(json_text.dumps({"market": asdict(market), "recipe": asdict(recipe(market))}))
    if kept.exists():
        found = json_text.loads(kept.read_text())
        if found["origin"] == origin:
            return dict(found["figures"])
    figures = measure(market, directory, progress)
    with atomic_path(kept) as temporary:
        temporary.write_text(json_text.dumps({"origin": origin, "figures": figures}, indent=1))
    return figures


def pool(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over markets. Bounds of a mean follow from the bounds of its parts, which are independent of each other."""

    def figures(path: tuple[str, ...]) -> list[Any]:
        return [reduce(lambda part, name: part[name], path, report) for report in reports]

    def mean(*path: str) -> float:
        values = figures(path)
        return float(sum(values) / len(values))

    def mean_gain(*path: str) -> dict[str, float | None]:
        gains = figures(path)
        if any(gain[bound] is None for gain in gains for bound in ("value", "lower", "upper")):
            return {"value": None, "lower": None, "upper": None}
        value = sum(gain["value"] for gain in gains) / len(gains)
        half = math.sqrt(sum(((gain["upper"] - gain["lower"]) / 2) ** 2 for gain in gains)) / len(gains)
        return {"value": value, "lower": value - half, "upper": value + half}

    context = {
        regime: {
            name: mean("context", regime, name)
            for name in ("gain_over_no_context", "gain_over_shuffled_labels", "spread_of_seeds")
        }
        for regime in ("regime_on", "regime_off")
    }
    return {
        "encoder": {name: mean("encoder", name) for name in ("over_prior", "over_boosting")},
        "regression": {
            "cov68": mean("regression", "cov68"),
            "cov95": mean("regression", "cov95"),
            "top_decile_gain": mean_gain("regression", "top_decile_gain"),
            **{name: mean_gain("regression", name) for name in SIGN_FIGURES},
        },
        "context": context,
        "null_market": {name: mean_gain("null_market", name) for name in SIGN_FIGURES},
        "test_windows": sum(report["windows"]["test"] for report in reports),
    }


def targets(report: dict[str, Any]) -> dict[str, bool]:
    """The targets, and whether the pooled figures meet each. A missing figure meets no target."""
    encoder, regression = report["encoder"], report["regression"]
    on, off = report["context"]["regime_on"], report["context"]["regime_off"]
    gain, null = regression["top_decile_gain"], report["null_market"]
    return {
        "encoder macro F1 at least 0.05 above the prior-matched reference": encoder["over_prior"] >= 0.05,
        "encoder macro F1 above boosting, or within 0.02 of it": encoder["over_boosting"] >= -0.02,
        "cov68 on test days between 0.63 and 0.73": 0.63 <= regression["cov68"] <= 0.73,
        "directional F1 of the top decile at least 0.05 above the full set's": gain["value"] is not None
        and gain["value"] >= 0.05,
        "context beats no context and shuffled labels by more than the spread of seeds, with the regime on": min(
            on["gain_over_no_context"], on["gain_over_shuffled_labels"]
        )
        > on["spread_of_seeds"],
        "context beats shuffled labels by no more than the spread of seeds, with the regime off": off["gain_over_shuffled_labels"]
        <= off["spread_of_seeds"],
        "signs of the null market's movers are not clearly predicted, neither of all nor of the top decile": all(
            not_clearly_above(null[name], 0.5) for name in ("sign_accuracy", "top_decile_sign_accuracy")
        ),
        "gating does not clearly raise the sign accuracy on the null market's movers": not_clearly_above(
            null["top_decile_sign_accuracy_gain"], 0.0
        ),
    }


def not_clearly_above(figure: dict[str, float | None], value: float) -> bool:
    """The report's verdict on skill, reversed: the interval reaches down to the value. Without an interval nothing is known."""
    return figure["lower"] is not None and figure["lower"] <= value


@dataclass
class Steps:
    """A progress bar over the steps of the benchmark, weighted by their expected work."""

    bar: Progress | None = None

    @contextmanager
    def step(self, title: str, weight: float) -> Iterator[LogFn]:
        if self.bar is None:
            yield silent
            return
        task = self.bar.task_ids[0]
        bar = self.bar
        bar.update(task, description=title)
        yield lambda line: bar.console.print(f"  {title}: {line}", highlight=False)
        bar.advance(task, weight)


@contextmanager
def shown(markets: list[LearningMarket], quiet: bool) -> Iterator[Steps]:
    if quiet:
        yield Steps()
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, speed_estimate_period=600) as bar:
        hours = markets[0].train_days * markets[0].hours
        weight = 3 * 5 * markets[0].days * markets[0].hours + (5 + 14 + 50 + 55 + 18) * hours
        bar.add_task("learning", total=weight * len(markets))
        yield Steps(bar)


def learning(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Half the data: what the slow tests run.")] = False,
    seeds: Annotated[str | None, typer.Option(help="Markets by seed (default: 21,22,23, or 27 with --quick).")] = None,
    lake: Annotated[
        Path | None, typer.Option(help="Keep markets, models and figures in this directory, and reuse those in it.")
    ] = None,
) -> None:
    """Train on the simulated market and report the scores, with every target and whether it was met."""
    import torch

    kind = QUICK if quick else FULL
    chosen = seeds or (str(QUICK.seed) if quick else DEVELOPMENT_SEEDS)
    markets = [replace(kind, seed=int(seed)) for seed in chosen.split(",")]
    before = torch.get_num_threads()
    torch.set_num_threads(min(before, 2))
    try:
        with tempfile.TemporaryDirectory(prefix="uqlob-learning-") as temporary, shown(markets, quiet=json) as progress:
            root = (lake or Path(temporary)).absolute()
            reports = [measured_once(market, root / f"seed-{market.seed}", progress) for market in markets]
        pooled = pool(reports)
        report: dict[str, Any] = {"quick": quick, "pooled": pooled, "targets": targets(pooled), "markets": reports}
    finally:
        torch.set_num_threads(before)
    if json:
        typer.echo(json_text.dumps(report))
        return
    typer.echo(json_text.dumps({name: value for name, value in report.items() if name != "targets"}, indent=1))
    for target, met in report["targets"].items():
        typer.echo(f"{'met    ' if met else 'NOT MET'}  {target}")
