"""Where the training engine's speed comes from: ratios measured in one run on the same data, the paper's model on one core.

Windows are synthetic: 512 events each, a pressure that shows in the queue imbalance, and a scale that changes slowly over time.
"""

from __future__ import annotations

import json as json_module
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from uqlob_pipeline.benchmarks.training_cores import second_core
from uqlob_pipeline.benchmarks.training_quality import Sampled, both_samplings, same_quality

if TYPE_CHECKING:
    from torch import Tensor

    from uqlob_models.config import TrainingConfig
    from uqlob_models.dataset import WindowDataset
    from uqlob_models.dtabl import Bilinear

WINDOWS = 1600


def synthetic_windows(windows: int = WINDOWS, length: int = 512, seed: int = 0) -> WindowDataset:
    """Windows five seconds apart with labels at 5 s; three fifths train, the rest selects."""
    import numpy as np

    from uqlob_models.dataset import NANOSECONDS, WindowDataset
    from uqlob_models.metrics import class_of
    from uqlob_models.windows import WindowStore

    rng = np.random.default_rng(seed)
    pressure = rng.standard_normal(windows)
    scale = np.exp(0.6 * np.sin(np.arange(windows) / 40))
    y = 4 * scale * (0.7 * pressure + 0.7 * rng.standard_normal(windows))
    continuous = rng.standard_normal((windows, 7, length), dtype=np.float32)
    continuous[:, 6] += pressure[:, None]
    tokens = rng.integers(0, 436, (windows, length)).astype(np.uint16)
    t_end = np.arange(windows, dtype=np.int64) * 5 * NANOSECONDS
    delta = np.full(windows, 2.0)
    return WindowDataset(
        stores=[WindowStore("synthetic", f"{seed}-{windows}-{length}", tokens, continuous.astype(np.float16), t_end)],
        t_end=t_end,
        y=y,
        delta=delta,
        label=class_of(y, delta).astype(np.int64),
        split=(np.arange(windows) >= windows * 3 // 5).astype(np.int8),
        horizon_ns=5 * NANOSECONDS,
        latency_ns=500_000,
        y_ref=3.0,
        feature_mean=np.zeros(7),
        feature_std=np.ones(7),
    )


def fastest(ways: dict[str, Callable[[], None]], repeats: int) -> dict[str, float]:
    """CPU seconds of the fastest of several turns of each. Turns alternate and other processes do not count (one thread works),
    so that a busy machine changes the ratios little.
    """
    best = dict.fromkeys(ways, float("inf"))
    for way in ways.values():
        way()  # warms caches and allocations
    for _ in range(repeats):
        for name, way in ways.items():
            started = time.process_time()
            way()
            best[name] = min(best[name], time.process_time() - started)
    return best


def plain_products(layer: Bilinear, x: Tensor) -> Tensor:  # (D, B, T) -> (D', B, T')
    """The equation as it is printed, window by window: features first, in a layout that takes a product a window."""
    import torch

    windows = x.transpose(0, 1)  # (B, D, T)
    return torch.relu_(((layer.w1 @ windows) @ layer.w2).transpose(0, 1) + layer.bias[:, None])


def pretraining_speed(dataset: WindowDataset, config: TrainingConfig, repeats: int) -> dict[str, float]:
    """One pretraining step of 64 windows, the time axis contracted first against the same code with the features first.

    `ratio` is that of whole steps: input, attention layer, dropout and optimiser cost the same either way. `layers_ratio` is
    that of the three bilinear layers alone, forwards and backwards. Plain products are a third way, written otherwise.
    """
    from uqlob_models.dtabl import FEATURES_FIRST, TIMES_FIRST, DTabl
    from uqlob_models.learner import Learner
    from uqlob_models.sampling import Sampler, assemble, instance_rows

    learner = Learner("pretraining", dataset, config, total_steps=10_000)
    sampler = Sampler(dataset.targets("train", 0), config.pretraining, "windows", seed=0)
    selection = sampler.epoch(0)[0]
    batch = assemble(
        dataset, instance_rows(selection, dataset.context(0).windows(selection.targets)), selection, dataset.context_labels()
    )
    encoder = learner.model
    if not isinstance(encoder, DTabl):
        raise TypeError("the benchmark is about D-TABL")
    layers = cast("list[Bilinear]", list(encoder.bilinear))

    def contract_first(axis: str) -> None:
        for layer in layers:
            layer.first = axis

    def step(axis: str) -> None:
        contract_first(axis)
        learner.learn(batch, 0)

    def step_of_plain_products() -> None:
        for layer in layers:
            layer.forward = partial(plain_products, layer)  # type: ignore[method-assign]
        try:
            learner.learn(batch, 0)
        finally:
            for layer in layers:
                del layer.forward

    inputs = encoder.input(batch.tokens, batch.continuous).detach().transpose(0, 1).contiguous().requires_grad_()

    def layers_alone(axis: str) -> None:
        contract_first(axis)
        x = inputs
        for layer in layers:
            x = layer(x)
        x.sum().backward()

    seconds = fastest(
        {
            "times": lambda: step(TIMES_FIRST),
            "features": lambda: step(FEATURES_FIRST),
            "plain": step_of_plain_products,
            "layers, times": lambda: layers_alone(TIMES_FIRST),
            "layers, features": lambda: layers_alone(FEATURES_FIRST),
        },
        repeats,
    )
    speed = {name: len(batch.tokens) / value for name, value in seconds.items()}
    return {
        "windows_per_second": speed["times"],
        "windows_per_second_features_first": speed["features"],
        "ratio": speed["times"] / speed["features"],
        "layers_ratio": speed["layers, times"] / speed["layers, features"],
        "windows_per_second_plain_products": speed["plain"],
        "ratio_to_plain_products": speed["times"] / speed["plain"],
    }


def fine_tuning_speed(dataset: WindowDataset, config: TrainingConfig, repeats: int) -> dict[str, float]:
    """One fine-tuning step of each sampling, data reading included; instances are targets with their contexts."""
    from uqlob_models.learner import Learner
    from uqlob_models.sampling import Sampler, assemble, block_rows, instance_rows

    size = config.head.context
    learner = Learner("regression", dataset, config, total_steps=10_000)
    context, labels = dataset.context(size), dataset.context_labels()
    targets = dataset.targets("train", size)
    stages = {name: settings.regression for name, settings in both_samplings(config).items()}
    selections = {name: Sampler(targets, stage, name, seed=0).epoch(0)[0] for name, stage in stages.items()}
    rows_of = {"blocks": block_rows, "instances": instance_rows}

    def step(name: Sampled) -> None:
        selection = selections[name]
        rows = rows_of[name](selection, context.windows(selection.targets))
        learner.learn(assemble(dataset, rows, selection, labels), 0)

    seconds = fastest({name: lambda name=name: step(name) for name in selections}, repeats)  # type: ignore[misc]
    speed = {name: len(selection.targets) / seconds[name] for name, selection in selections.items()}
    return {
        "targets_per_step": config.regression.targets_per_step,
        "blocks_instances_per_second": speed["blocks"],
        "instances_instances_per_second": speed["instances"],
        "ratio": speed["blocks"] / speed["instances"],
    }


def prediction_speed(dataset: WindowDataset, config: TrainingConfig, repeats: int) -> dict[str, float]:
    """Predictions with each window encoded once against each context encoded anew, on the same targets."""
    import torch

    from uqlob_models.model import UqModel
    from uqlob_models.prediction import predict_instances, predict_regression

    model = UqModel(config, "regression").eval()
    size = config.head.context
    many = dataset.targets("train", size)[:640]
    few = many[:32]
    context = dataset.context(size)

    def anew() -> None:
        import numpy as np

        windows = np.concatenate([context.windows(few), few[:, None]], axis=1)
        tokens, continuous = (torch.from_numpy(array) for array in dataset.read(windows.ravel()))
        labels = torch.from_numpy(dataset.y[context.windows(few)]).float()
        predict_instances(model, tokens.unflatten(0, windows.shape), continuous.unflatten(0, windows.shape), labels)

    seconds = fastest({"once": lambda: void(predict_regression(model, dataset, many)), "anew": anew}, repeats)
    speed = {"once": len(many) / seconds["once"], "anew": len(few) / seconds["anew"]}
    return {
        "predictions_per_second": speed["once"],
        "predictions_per_second_contexts_anew": speed["anew"],
        "ratio": speed["once"] / speed["anew"],
    }


def void(_: object) -> None:
    """Drops a result."""


def latency(dataset: WindowDataset, config: TrainingConfig, count: int = 400) -> dict[str, float]:
    """One new window: encode it, attend to fifteen contexts whose representations are kept, decode. Milliseconds on one core."""
    import numpy as np
    import torch

    from uqlob_models.model import UqModel
    from uqlob_models.prediction import encode_windows, evaluating

    model = UqModel(config, "regression").eval()
    size = config.head.context
    context_rows = torch.arange(size)[None]
    own = torch.tensor([size])
    taken = []
    with evaluating(model):
        kept = encode_windows(model.encoder, dataset, np.arange(size))
        labels = torch.from_numpy(dataset.context_labels()[: size + 1])
        for number in range(count + 20):
            tokens, continuous = (
                torch.from_numpy(array) for array in dataset.read(np.array([size + number % (len(dataset) - size)]))
            )
            started = time.perf_counter()
            hidden = torch.cat([kept, model.encode(tokens, continuous)])
            model.gaussian(model.head(hidden, labels, own, context_rows))
            taken.append(1e3 * (time.perf_counter() - started))
    p50, p99 = np.percentile(taken[20:], [50, 99])
    return {"p50_ms": float(p50), "p99_ms": float(p99)}


def training(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    repeats: Annotated[int, typer.Option(min=1, help="Turns of each timing; the fastest counts.")] = 15,
) -> None:
    """Time pretraining, fine-tuning and prediction against the plain way of doing each, and check that quality is the same."""
    import torch

    from uqlob_models.config import ScheduleConfig, StageConfig, TrainingConfig

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        schedule = ScheduleConfig(kind="one_cycle")
        stage = StageConfig(encoder_rate=3e-4, head_rate=1e-3, schedule=schedule)
        config = TrainingConfig(device="cpu", pretraining=replace(stage, batch=64), regression=stage)
        # Two blocks a step either way: of 32 targets, the default, and of 8, the paper profile's, which makes the paper's step.
        paper_step = replace(config, regression=replace(stage, targets_per_block=8))
        dataset, fewer = synthetic_windows(), synthetic_windows(640, seed=1)
        report: dict[str, Any] = {
            "windows": len(dataset),
            "threads": 1,
            "pretraining": pretraining_speed(dataset, config, repeats),
            "fine_tuning": fine_tuning_speed(dataset, config, repeats),
            "fine_tuning_paper_step": fine_tuning_speed(dataset, paper_step, repeats),
            "prediction": prediction_speed(dataset, config, max(repeats // 2, 1)),
            "single_window_latency": latency(dataset, config),
            "second_core": second_core(config),
            "sampling_quality": same_quality(fewer, config),
            "sampling_quality_paper_step": same_quality(fewer, paper_step),
        }
    finally:
        torch.set_num_threads(before)
    if json:
        typer.echo(json_module.dumps(report))
        return
    for name, figures in report.items():
        typer.echo(f"{name}: {figures if not isinstance(figures, dict) else ''}")
        for key, value in figures.items() if isinstance(figures, dict) else ():
            typer.echo(f"  {key}: {value:.4g}" if isinstance(value, float) else f"  {key}: {value}")
