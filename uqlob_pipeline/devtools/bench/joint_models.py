"""`uqlob bench joint`: one model over all horizons against one per horizon and output, and against plain models.

Plain models are ridge and logistic regression, and gradient boosting, on the same window summaries and context statistics, and
the joint model's own linear path before anything else was trained: a linear model with the head's distribution.
Joint and separate models are trained with the demo's recipe on the same training days, on one thread, and judged on the same test
days. Core-seconds are those of training; features are shared. Differences are paired and resampled in blocks of ten minutes
(docs/protocol.md).
"""

from __future__ import annotations

import json as json_text
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from uqlob_pipeline.devtools.bench.joint_scores import Scored, means, paired, score, score_plain
from uqlob_pipeline.devtools.bench.learning_lake import LearningMarket, market_profile, market_windows
from uqlob_pipeline.lake.log_function import LogFn

if TYPE_CHECKING:
    from uqlob_models.config import TrainingConfig
    from uqlob_models.dataset import WindowDataset
    from uqlob_models.joint_dataset import JointDataset
    from uqlob_models.joint_model import JointModel
    from uqlob_models.model import UqModel

PLAIN = {"linear": "linear", "boosting": "boosting", "linear_path": "its own linear path"}
WAYS = ("joint", "separate", *PLAIN)


def joint(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    seeds: Annotated[str, typer.Option(help="Markets by seed.")] = "21,22",
    symbols: Annotated[str, typer.Option(help="Symbols of the demo.")] = "BTC-USD,ETH-USD",
    horizons: Annotated[str, typer.Option(help="Horizons in seconds.")] = "5,10,15",
    unseen: Annotated[int, typer.Option(help="A horizon that only the joint model is asked for, untrained; 0 for none.")] = 30,
    hours: Annotated[float, typer.Option(help="Hours per day.")] = 0.8,
    training_seeds: Annotated[
        int, typer.Option(min=1, help="Trainings per model, each from another seed; more than one measures their spread.")
    ] = 1,
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
                results.append(compare(place, market, chosen, unseen, training_seeds, lambda line: typer.echo(line, err=True)))
    report = {"seeds": seeds, "symbols": symbols, "horizons_s": chosen, **summary(results, chosen, unseen)}
    if json:
        typer.echo(json_text.dumps(report))
        return
    for name, title in (("differences", "separate"), *((f"differences_from_{way}", title) for way, title in PLAIN.items())):
        typer.echo(f"joint minus {title}, seeds {seeds}, {symbols}: difference (95 % interval), negative is better for losses")
        for horizon, row in report[name].items():
            values = "  ".join(f"{what} {value:+.4f} ({low:+.4f} to {high:+.4f})" for what, (value, low, high) in row.items())
            typer.echo(f"{horizon:>7}  {values}")
    for horizon, ways in report["training_spread"].items():
        for way, row in ways.items():
            values = "  ".join(f"{what} {value:.4f}" for what, value in row.items())
            typer.echo(f"{horizon:>7}  {way}, largest minus smallest of {training_seeds} training seeds: {values}")
    typer.echo(f"core-seconds joint / separate: {report['joint_core_seconds_ratio']:.3f}")


def compare(
    place: Path, market: LearningMarket, horizons: list[int], unseen: int, training_seeds: int, log: LogFn
) -> dict[str, Any]:
    """Train both ways on one market and score their test forecasts; further training seeds are scored for their spread alone."""
    from uqlob_models.joint_dataset import JointDataset
    from uqlob_models.plain_models import window_summaries

    config = market_profile(market).training
    datasets = {
        horizon: windows_at(place / "lake", market, horizon, log) for horizon in [*horizons, *([unseen] if unseen else [])]
    }
    joint_dataset = JointDataset(tuple(datasets[horizon] for horizon in horizons))
    summaries = window_summaries(joint_dataset.horizons[0])  # those of a window are the same at every horizon
    scores, joint_seconds, seconds = _train_and_score(place, datasets, joint_dataset, config, log)
    linear = linear_path_alone(joint_dataset, config, place / "joint" / "pretrained")
    for horizon, dataset in datasets.items():
        untrained = [linear.at(horizon, dataset.y_ref, kind) for kind in ("regression", "classification")]
        plain = {kind: score_plain(kind, dataset, config, summaries) for kind in ("linear", "boosting")}
        scores[horizon] |= {**plain, "linear_path": score(untrained, dataset, config)}
        log(f"{market.symbol} seed {market.seed}: {horizon} s scored on {len(scores[horizon]['joint'].block)} forecasts")
    repeated = [
        _train_and_score(
            place / f"training-{number}",
            {horizon: datasets[horizon] for horizon in horizons},
            joint_dataset,
            replace(config, seed=config.seed + number - 1),
            log,
        )[0]
        for number in range(2, training_seeds + 1)
    ]
    return {"scores": scores, "repeated": repeated, "joint_core_seconds": joint_seconds, "separate_core_seconds": seconds}


def _train_and_score(
    place: Path, datasets: dict[int, WindowDataset], joint_dataset: JointDataset, config: TrainingConfig, log: LogFn
) -> tuple[dict[int, dict[str, Scored]], float, float]:
    """By horizon the scores of the joint model and of the separate ones, and the core-seconds of both on the joint horizons."""
    from uqlob_models.joint_model import JointModel
    from uqlob_models.joint_training import load_joint

    directory, joint_seconds = train_together(place / "joint", joint_dataset, config, log)
    model = load_joint(directory)
    assert isinstance(model, JointModel)
    seconds, scores = 0.0, {}
    for horizon, dataset in datasets.items():
        together = [model.at(horizon, dataset.y_ref, kind) for kind in ("regression", "classification")]
        apart, cost = train_apart(place / f"separate-{horizon}", dataset, config, log)
        seconds += cost if horizon in joint_dataset.horizons_s else 0.0
        scores[horizon] = {"joint": score(together, dataset, config), "separate": score(apart, dataset, config)}
    return scores, joint_seconds, seconds


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


def linear_path_alone(dataset: Any, config: TrainingConfig, encoder: Path) -> JointModel:
    """The joint model before its first step: the linear path is fitted, and the decoders add nothing."""
    from uqlob_models.joint_model import JointModel
    from uqlob_models.joint_training import JointLearner

    model = JointLearner("regression", dataset, config, total_steps=1, encoder=encoder).model.eval()
    assert isinstance(model, JointModel)
    return model


def train_apart(place: Path, dataset: WindowDataset, config: TrainingConfig, log: LogFn) -> tuple[list[UqModel], float]:
    from uqlob_models.checkpoints import load_model
    from uqlob_models.training import train

    with counted(place):
        encoder = train("pretraining", dataset, config, place / "encoder").model
        heads = [train(kind, dataset, config, place / kind, encoder=encoder).model for kind in ("regression", "classification")]
    log(f"{place}: separate models trained, {core_seconds(place):.0f} core-seconds")
    return [load_model(head).uq_model() for head in heads], core_seconds(place)


def summary(results: list[dict[str, Any]], horizons: list[int], unseen: int) -> dict[str, Any]:
    """Differences pooled over markets, by horizon and over those trained on, with intervals; and the ratio of costs."""
    ratio = sum(result["joint_core_seconds"] for result in results) / sum(result["separate_core_seconds"] for result in results)
    every = [*horizons, *([unseen] if unseen else [])]

    def scores(way: str, *chosen: int) -> list[Scored]:
        return [result["scores"][horizon][way] for result in results for horizon in chosen]

    def against(way: str) -> dict[str, Any]:
        rows = {str(horizon): (horizon,) for horizon in every} | {"trained": tuple(horizons)}
        return {name: paired(list(zip(scores("joint", *own), scores(way, *own), strict=True))) for name, own in rows.items()}

    return {
        "joint_core_seconds_ratio": ratio,
        "training_spread": training_spread(results, horizons),
        "joint_core_seconds": [result["joint_core_seconds"] for result in results],
        "separate_core_seconds": [result["separate_core_seconds"] for result in results],
        "windows": {str(horizon): sum(len(one.block) for one in scores("joint", horizon)) for horizon in every},
        "differences": against("separate"),
        **{f"differences_from_{way}": against(way) for way in PLAIN},
        **{way: {str(horizon): means(scores(way, horizon)) for horizon in every} for way in WAYS},
        "untrained_horizon_s": unseen or None,
    }


def training_spread(results: list[dict[str, Any]], horizons: list[int]) -> dict[str, Any]:
    """By horizon and way, the largest minus the smallest of each figure over training seeds, pooled over markets."""
    trainings = [[result["scores"], *result["repeated"]] for result in results]
    if len(trainings[0]) == 1:
        return {}
    found: dict[str, Any] = {}
    for horizon in horizons:
        for way in ("joint", "separate"):
            by_seed = [means([scores[horizon][way] for scores in seed]) for seed in zip(*trainings, strict=True)]
            spread = {name: max(one[name] for one in by_seed) - min(one[name] for one in by_seed) for name in by_seed[0]}
            found.setdefault(str(horizon), {})[way] = spread
    return found
