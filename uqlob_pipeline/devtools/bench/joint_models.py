"""`uqlob bench joint`: one model over all horizons against one per horizon and output, on the same windows.

Both are trained with the demo's recipe on the same training days, on one thread, and judged on the same test days. Core-seconds
are those of training; features are shared. Differences are paired and resampled in blocks of ten minutes (docs/protocol.md).
"""

from __future__ import annotations

import json as json_text
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from uqlob_pipeline.devtools.bench.learning_lake import LearningMarket, market_profile, market_windows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from uqlob_models.config import TrainingConfig
    from uqlob_models.dataset import WindowDataset
    from uqlob_models.model import UqModel

LogFn = Callable[[str], None]
TOP = 0.1
DIFFERENCES = (
    "nlpd",
    "winkler_68",
    "winkler_95",
    "f1_regression",
    "f1_regression_top",
    "f1_classification",
    "f1_classification_top",
)


@dataclass(frozen=True)
class Scored:
    """The test forecasts of one model pair of one horizon, as sums that a block bootstrap can resample."""

    block: NDArray[np.int64]  # (n,) number of the block of ten minutes
    losses: NDArray[np.float64]  # (n, 3): log score and both Winkler scores, per forecast
    counts: NDArray[np.float64]  # (n, 4, 9): confusion of regression, its top tenth, classification, its top tenth


def joint(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    seeds: Annotated[str, typer.Option(help="Markets by seed.")] = "21,22",
    symbols: Annotated[str, typer.Option(help="Symbols of the demo.")] = "BTC-USD,ETH-USD",
    horizons: Annotated[str, typer.Option(help="Horizons in seconds.")] = "5,10,15",
    unseen: Annotated[int, typer.Option(help="A horizon that only the joint model is asked for, untrained; 0 for none.")] = 30,
    hours: Annotated[float, typer.Option(help="Hours per day.")] = 0.8,
    workdir: Annotated[Path | None, typer.Option(help="Keep models here, and resume or reuse those in it.")] = None,
) -> None:
    """Train one model over all horizons and one per horizon and output; compare their forecasts and their cost."""
    import torch

    torch.set_num_threads(1)
    chosen = [int(horizon) for horizon in horizons.split(",")]
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="uqlob-joint-") as temporary:
        root = (workdir or Path(temporary)).absolute()
        for seed in [int(seed) for seed in seeds.split(",")]:
            for symbol in symbols.split(","):
                market = LearningMarket(symbol=symbol, seed=seed, hours=hours, test_days=6)
                place = root / f"{symbol}-{seed}"
                results.append(compare(place, market, chosen, unseen, lambda line: typer.echo(line, err=True)))
    report = {"seeds": seeds, "symbols": symbols, "horizons_s": chosen, **summary(results, chosen, unseen)}
    if json:
        typer.echo(json_text.dumps(report))
        return
    typer.echo(f"joint minus separate, seeds {seeds}, {symbols}: difference (95 % interval), negative is better for losses")
    for horizon, row in report["differences"].items():
        values = "  ".join(f"{name} {value:+.4f} ({low:+.4f} to {high:+.4f})" for name, (value, low, high) in row.items())
        typer.echo(f"{horizon:>4} s  {values}")
    typer.echo(f"core-seconds joint / separate: {report['joint_core_seconds_ratio']:.3f}")


def compare(place: Path, market: LearningMarket, horizons: list[int], unseen: int, log: LogFn) -> dict[str, Any]:
    """Train both ways on one market and score their test forecasts."""
    from uqlob_models.joint_dataset import JointDataset
    from uqlob_models.joint_model import JointModel
    from uqlob_models.joint_training import load_joint

    config = market_profile(market).training
    datasets = {
        horizon: windows_at(place / "lake", market, horizon, log) for horizon in [*horizons, *([unseen] if unseen else [])]
    }
    joint_dataset = JointDataset(tuple(datasets[horizon] for horizon in horizons))
    joint_directory, joint_seconds = train_together(place / "joint", joint_dataset, config, log)
    model = load_joint(joint_directory)
    assert isinstance(model, JointModel)
    seconds, scores = 0.0, {}
    for horizon, dataset in datasets.items():
        together = [model.at(horizon, dataset.y_ref, kind) for kind in ("regression", "classification")]
        apart, cost = train_apart(place / f"separate-{horizon}", dataset, config, log)
        seconds += cost if horizon in horizons else 0.0
        scores[horizon] = (score(together, dataset, config), score(apart, dataset, config))
        log(f"{market.symbol} seed {market.seed}: {horizon} s scored on {len(scores[horizon][0].block)} forecasts")
    return {"scores": scores, "joint_core_seconds": joint_seconds, "separate_core_seconds": seconds}


def windows_at(root: Path, market: LearningMarket, horizon: int, log: LogFn) -> WindowDataset:
    """The windows with the labels of one horizon; the lake is built once for all of them."""
    from uqlob_pipeline.lake.layout import Lake, ModelKey
    from uqlob_pipeline.models.inputs import ALL_SPLITS, gather_inputs, load_windows

    own = replace(market, horizon_s=horizon)
    if not (root / "complete").exists():
        market_windows(root, own, log)
        (root / "complete").touch()
    profile = market_profile(own)
    inputs = gather_inputs(Lake(root), profile, ModelKey(market.symbol, horizon), ALL_SPLITS, needed_by="the benchmark")
    return load_windows(Lake(root), profile, inputs)


@contextmanager
def counted(place: Path) -> Iterator[None]:
    """Adds the processor seconds of the block to a file in `place`, so that a resumed benchmark counts them all."""
    before = time.process_time()
    try:
        yield
    finally:
        place.mkdir(parents=True, exist_ok=True)
        with (place / "core_seconds").open("a") as file:
            file.write(f"{time.process_time() - before}\n")


def core_seconds(place: Path) -> float:
    return sum(float(line) for line in (place / "core_seconds").read_text().splitlines())


def train_together(place: Path, dataset: Any, config: TrainingConfig, log: LogFn) -> tuple[Path, float]:
    from uqlob_models.checkpoints import save_model
    from uqlob_models.joint_model import JointEncoder
    from uqlob_models.joint_training import load_joint, train_joint

    with counted(place):
        encoder = train_joint("encoder", dataset, config, place / "encoder")
        own = load_joint(encoder.model)
        assert isinstance(own, JointEncoder)
        version = dataset.data_version()
        save_model(place / "pretrained", own.at(0), "pretraining", config, step=encoder.steps, data_version=version, y_ref=1.0)
        heads = train_joint("heads", dataset, config, place / "heads", encoder=place / "pretrained")
    log(f"{place}: joint model trained, {core_seconds(place):.0f} core-seconds")
    return heads.model, core_seconds(place)


def train_apart(place: Path, dataset: WindowDataset, config: TrainingConfig, log: LogFn) -> tuple[list[UqModel], float]:
    from uqlob_models.checkpoints import load_model
    from uqlob_models.training import train

    with counted(place):
        encoder = train("pretraining", dataset, config, place / "encoder").model
        heads = [train(kind, dataset, config, place / kind, encoder=encoder).model for kind in ("regression", "classification")]
    log(f"{place}: separate models trained, {core_seconds(place):.0f} core-seconds")
    return [load_model(head).uq_model() for head in heads], core_seconds(place)


def score(models: list[UqModel], dataset: WindowDataset, config: TrainingConfig) -> Scored:
    """Scores of the test forecasts. Confidence is |mean| / std, and the largest class probability."""
    import numpy as np

    from uqlob_models.bootstrap import Bootstrap
    from uqlob_models.distributions import winkler
    from uqlob_models.metrics import class_of
    from uqlob_models.prediction import predict_classification, predict_regression

    targets = dataset.targets("test", config.head.context)
    y, label = dataset.y[targets], dataset.label[targets]
    forecast = predict_regression(models[0], dataset, targets)
    whole = forecast.distribution
    losses = [whole.log_score(y), *(winkler(y, *whole.interval(level), level) / dataset.y_ref for level in (0.68, 0.95))]
    probabilities = predict_classification(models[1], dataset, targets).probabilities
    answers = (
        (class_of(forecast.mean, dataset.delta[targets]), np.abs(forecast.mean) / forecast.std),
        (probabilities.argmax(axis=1), probabilities.max(axis=1)),
    )
    counts = np.zeros((len(targets), 4, 9))
    for number, (predicted, confidence) in enumerate(answers):
        cell = label * 3 + predicted
        counts[np.arange(len(targets)), 2 * number, cell] = 1
        best = np.argsort(-confidence, kind="stable")[: round(TOP * len(targets))]
        counts[best, 2 * number + 1, cell[best]] = 1
    _, block = Bootstrap().block_starts(dataset.t_end[targets])
    return Scored(block, np.stack(losses, axis=1), counts)


def summary(results: list[dict[str, Any]], horizons: list[int], unseen: int) -> dict[str, Any]:
    """Differences pooled over markets, by horizon, with the interval of resampled blocks; and the ratio of costs."""
    ratio = sum(result["joint_core_seconds"] for result in results) / sum(result["separate_core_seconds"] for result in results)
    every = [*horizons, *([unseen] if unseen else [])]
    return {
        "joint_core_seconds_ratio": ratio,
        "joint_core_seconds": [result["joint_core_seconds"] for result in results],
        "separate_core_seconds": [result["separate_core_seconds"] for result in results],
        "windows": {str(horizon): sum(len(result["scores"][horizon][0].block) for result in results) for horizon in every},
        "differences": {str(horizon): paired([result["scores"][horizon] for result in results]) for horizon in every},
        "joint": {str(horizon): means([result["scores"][horizon][0] for result in results]) for horizon in every},
        "separate": {str(horizon): means([result["scores"][horizon][1] for result in results]) for horizon in every},
        "untrained_horizon_s": unseen or None,
    }


def figures(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """(..., 1 + 3 + 36) sums of forecasts, losses and counts -> (..., 7) as in DIFFERENCES."""
    import numpy as np

    from uqlob_models.metrics import f1_of_confusion

    losses = sums[..., 1:4] / sums[..., :1]
    counts = sums[..., 4:].reshape(*sums.shape[:-1], 4, 3, 3)
    f1 = f1_of_confusion(counts)[..., :2].mean(axis=-1)
    return np.concatenate([losses, f1], axis=-1)


def block_sums(scored: list[Scored]) -> NDArray[np.float64]:
    """(blocks, 40) over all markets."""
    import numpy as np

    parts = []
    for one in scored:
        rows = np.concatenate([np.ones((len(one.block), 1)), one.losses, one.counts.reshape(len(one.block), -1)], axis=1)
        sums = np.zeros((one.block.max() + 1, rows.shape[1]))
        np.add.at(sums, one.block, rows)
        parts.append(sums)
    return np.concatenate(parts)


def means(scored: list[Scored]) -> dict[str, float]:
    return dict(zip(DIFFERENCES, figures(block_sums(scored).sum(axis=0)).tolist(), strict=True))


def paired(pairs: list[tuple[Scored, Scored]]) -> dict[str, tuple[float, float, float]]:
    """Joint minus separate, with the bounds of a bootstrap that draws the same blocks for both."""
    import numpy as np

    from uqlob_models.bootstrap import Bootstrap

    together, apart = (block_sums([pair[side] for pair in pairs]) for side in (0, 1))
    both = np.stack([together, apart], axis=1)  # (blocks, 2, 40)
    point = figures(both.sum(axis=0))
    drawn = Bootstrap().draw(both)
    bounds = np.full((2, len(DIFFERENCES)), np.nan)
    if drawn is not None:
        resampled = figures(drawn)
        bounds = np.stack(Bootstrap().interval(resampled[:, 0] - resampled[:, 1]))
    difference = point[0] - point[1]
    return {name: (float(difference[i]), float(bounds[0, i]), float(bounds[1, i])) for i, name in enumerate(DIFFERENCES)}
