"""The gain of in-context conditioning: the same head on the same frozen representations, with context, without, and with shuffled
context labels.

The encoder is pretrained once per market and every window encoded once, plain and mirrored. Only the head is trained, for a fixed
number of steps, from several seeds. No model is selected: the last step counts. Likelihood, losses and mirrored predictions are
those of the recipe, and arms are compared by the log score of their distributions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor

    from uqlob_models.config import TrainingConfig
    from uqlob_models.dataset import WindowDataset
    from uqlob_models.encoders import Encoder
    from uqlob_models.model import UqModel

Arm = Literal["context", "no_context", "shuffled_labels"]
ARMS: tuple[Arm, ...] = ("context", "no_context", "shuffled_labels")
LONGER = 2  # times the epochs of the recipe: the head alone needs longer to converge


@dataclass(frozen=True)
class FrozenMarket:
    """A dataset with every window as the pretrained encoder sees it: (2, n, d_h), plain and with bid and ask exchanged."""

    dataset: WindowDataset
    hidden: Tensor


def freeze_market(encoder: Encoder, dataset: WindowDataset) -> FrozenMarket:
    # Imported here so that other commands start fast; likewise below.
    import numpy as np

    from uqlob_models.frozen import freeze

    return FrozenMarket(dataset, freeze(encoder, dataset, np.arange(len(dataset))).hidden)


def arm_config(config: TrainingConfig, arm: Arm, seed: int) -> TrainingConfig:
    """The three arms differ in the context of the head only."""
    longer = replace(config.regression, epochs=LONGER * config.regression.epochs)
    context = 0 if arm == "no_context" else config.head.context
    head = replace(config.head, context=context, shuffle_context_labels=arm == "shuffled_labels")
    return replace(config, head=head, regression=longer, seed=seed)


def train_head(frozen: FrozenMarket, config: TrainingConfig, targets: Any) -> UqModel:
    """The regression stage of `config` with a frozen encoder, on the given targets."""
    import torch

    from uqlob_models.learner import learning_rate
    from uqlob_models.losses import regression_terms
    from uqlob_models.model import UqModel
    from uqlob_models.sampling import Sampler, block_rows

    dataset, stage = frozen.dataset, config.regression
    torch.manual_seed(config.seed)
    model = UqModel(config, "regression")
    model.y_ref.fill_(dataset.y_ref)
    parameters = [parameter for name, parameter in model.named_parameters() if not name.startswith("encoder.")]
    optimiser = torch.optim.AdamW(parameters, lr=stage.head_rate, weight_decay=stage.weight_decay)
    sampler = Sampler(targets, stage, "blocks", config.seed)
    context = dataset.context(config.head.context)
    labels = torch.from_numpy(dataset.context_labels(config.head.shuffle_context_labels, config.test_seed))
    y, delta = (torch.from_numpy(values / dataset.y_ref).float() for values in (dataset.y, dataset.delta))
    total, step = sampler.steps * stage.epochs, 0
    for epoch in range(stage.epochs):
        for selection in sampler.epoch(epoch):
            rows = block_rows(selection, context.windows(selection.targets))
            windows, mirrored = torch.from_numpy(rows.windows), torch.from_numpy(rows.mirrored)
            sign = 1 - 2 * mirrored.float()
            hidden = frozen.hidden[mirrored.long(), windows]
            target, chosen = torch.from_numpy(rows.target), torch.from_numpy(selection.targets)
            outputs = model.head(hidden, labels[windows] * sign, target, torch.from_numpy(rows.context))
            forecast = model.forecast(outputs)
            shape = forecast.dof, forecast.zero_logit
            signed = y[chosen] * sign[target]
            terms = regression_terms(forecast.location, forecast.variance, signed, delta[chosen], config.loss, *shape)
            optimiser.zero_grad(set_to_none=True)
            terms["loss"].backward()
            torch.nn.utils.clip_grad_norm_(parameters, stage.clip_norm or float("inf"))
            optimiser.param_groups[0]["lr"] = learning_rate(step, total, stage.head_rate, stage.schedule)
            optimiser.step()
            step += 1
    return model


def density(frozen: FrozenMarket, model: UqModel, targets: Any) -> float:
    """Log score of the targets, in nats per tick."""
    import torch

    from uqlob_models.prediction import decode_targets, mix_distributions

    dataset, head = frozen.dataset, model.config.head
    context = torch.from_numpy(dataset.context(head.context).windows(targets))
    labels = torch.from_numpy(dataset.context_labels(head.shuffle_context_labels, model.config.test_seed))

    def outputs(model: UqModel, mirrored: bool) -> Tensor:
        signed = -labels if mirrored else labels
        return decode_targets(model, frozen.hidden[int(mirrored)], signed, torch.from_numpy(targets), context)

    found = mix_distributions(targets, model, outputs)
    return float(found.distribution.log_score(dataset.y[targets]).mean())


def context_gain(
    frozen: FrozenMarket, config: TrainingConfig, seeds: tuple[int, ...], done: Callable[[str], None] | None = None
) -> dict[str, Any]:
    """Log score on the test days of each arm and seed, the differences of their means, and the spread of the seeds."""
    size = config.head.context
    train, test = (frozen.dataset.targets(split, size) for split in ("train", "test"))
    found: dict[Arm, list[float]] = {arm: [] for arm in ARMS}
    for seed in seeds:
        for arm in ARMS:
            model = train_head(frozen, arm_config(config, arm, seed), train)
            found[arm].append(density(frozen, model, test))
            if done is not None:
                done(arm)
    return {"test_targets": len(test), "seeds": list(seeds), **compared(found)}


def compared(found: dict[Arm, list[float]]) -> dict[str, Any]:
    """A gain is the mean log score of the other arm minus that of the context arm. The spread is the widest range over the seeds
    of an arm: a gain counts if it is larger."""
    import numpy as np

    means = {arm: float(np.mean(values)) for arm, values in found.items()}
    spread = max(float(np.ptp(values)) for values in found.values())
    gains = {f"gain_over_{arm}": means[arm] - means["context"] for arm in ARMS if arm != "context"}
    return {
        "log_score": dict(found),
        "mean_log_score": means,
        **gains,
        "spread_of_seeds": spread,
        "beats_both_by_more_than_the_spread": all(gain > spread for gain in gains.values()),
    }
