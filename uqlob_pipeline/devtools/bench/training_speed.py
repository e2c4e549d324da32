"""`uqlob bench training`: where the speed of training comes from, as ratios measured in one run: the paper's model, one core."""

from __future__ import annotations

import json as json_module
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from uqlob_pipeline.devtools.bench.core_scaling import second_core
from uqlob_pipeline.devtools.bench.joint_cost import joint_cost
from uqlob_pipeline.devtools.bench.training_quality import Sampled, both_samplings, same_quality

if TYPE_CHECKING:
    from torch import Tensor

    from uqlob_models.config import TrainingConfig
    from uqlob_models.dataset import WindowDataset
    from uqlob_models.dtabl import Bilinear


def fastest(ways: dict[str, Callable[[], None]], repeats: int) -> dict[str, float]:
    """Minimum CPU seconds of each function. Repetitions alternate, and CPU time excludes other processes, so that a busy machine
    changes the ratios little.
    """
    best = dict.fromkeys(ways, float("inf"))
    for way in ways.values():
        way()  # warm-up
    for _ in range(repeats):
        for name, way in ways.items():
            started = time.process_time()
            way()
            best[name] = min(best[name], time.process_time() - started)
    return best


def plain_products(layer: Bilinear, x: Tensor) -> Tensor:  # (D, B, T) -> (D', B, T')
    """W_1 X W_2 as printed: features first, one product per window."""
    # Imported here so that other commands start fast; likewise below.
    import torch

    windows = x.transpose(0, 1)  # (B, D, T)
    return torch.relu_(((layer.w1 @ windows) @ layer.w2).transpose(0, 1) + layer.bias[:, None])


def pretraining_speed(dataset: WindowDataset, config: TrainingConfig, repeats: int) -> dict[str, float]:
    """One pretraining step of 64 windows: the time axis contracted first, against the features first.

    `ratio` is that of whole steps, `layers_ratio` that of the three bilinear layers alone, forward and backward.
    `plain_products` is a third variant.
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
        raise TypeError("this benchmark needs D-TABL")
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
    """One fine-tuning step of each sampling, with reading the data; an instance is a target with its contexts."""
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
    """Predictions with each window encoded once, against encoding every context of every target."""
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
    """Milliseconds per new window on one core: encode it, attend to fifteen encoded contexts, decode."""
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
            model.forecast(model.head(hidden, labels, own, context_rows))
            taken.append(1e3 * (time.perf_counter() - started))
    p50, p99 = np.percentile(taken[20:], [50, 99])
    return {"p50_ms": float(p50), "p99_ms": float(p99)}


def training(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    repeats: Annotated[int, typer.Option(min=1, help="Repetitions of each timing; the fastest counts.")] = 15,
) -> None:
    """Time pretraining, fine-tuning and prediction against a plain implementation, and compare the quality of samplings."""
    import torch

    from uqlob_models.config import ScheduleConfig, StageConfig, TrainingConfig
    from uqlob_pipeline.config.profile import load_profile
    from uqlob_pipeline.devtools.bench.synthetic_windows import synthetic_windows

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        schedule = ScheduleConfig(kind="one_cycle")
        stage = StageConfig(encoder_rate=3e-4, head_rate=1e-3, schedule=schedule)
        config = TrainingConfig(device="cpu", pretraining=replace(stage, batch=64), regression=stage)
        # Two blocks per step: of 32 targets, the default, and of 8, as in the paper profile, which gives the paper's batch of 16.
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
        demo = replace(load_profile("demo").training, device="cpu")
        report |= {"joint_training": (cost := joint_cost(demo)), "joint_core_seconds_ratio": cost["joint_core_seconds_ratio"]}
    finally:
        torch.set_num_threads(before)
    if json:
        typer.echo(json_module.dumps(report))
        return
    for name, figures in report.items():
        typer.echo(f"{name}: {figures if not isinstance(figures, dict) else ''}")
        for key, value in figures.items() if isinstance(figures, dict) else ():
            typer.echo(f"  {key}: {value:.4g}" if isinstance(value, float) else f"  {key}: {value}")
