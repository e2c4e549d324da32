"""Figures of a training: curves by epoch, the confusion matrix of the selection half, and the parameter table.

matplotlib and torch are imported inside functions, to keep them out of the code server.
"""

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uqlob_pipeline.lake.atomic_files import atomic_path
from uqlob_pipeline.models.stages import StageRecord
from uqlob_pipeline.tables.labels import CLASSES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVES, CONFUSION, PARAMETERS = "training_curves.png", "confusion_matrix.png", "parameters.csv"


def training_curves(record: StageRecord, title: str, size: tuple[float, float] = (6, 2.4)) -> "Figure":
    """Loss terms on the left, the selection metric on the right, by epoch."""
    from matplotlib.figure import Figure

    epochs: list[dict[str, Any]] = record.history()["epochs"]
    number = [epoch["epoch"] for epoch in epochs]
    figure = Figure(figsize=size, layout="constrained")
    losses, metric = figure.subplots(1, 2)
    for name in (name for name in epochs[0] if name.startswith("train/")):
        width = 1.8 if name == "train/loss" else 0.9
        losses.plot(number, [epoch.get(name) for epoch in epochs], label=name.removeprefix("train/"), linewidth=width, marker=".")
    losses.set_title(f"{title}: training loss", fontsize=8, loc="left")
    losses.legend(fontsize=6, frameon=False)
    selection = f"validation/{record.metric}"
    measured = [epoch for epoch in epochs if selection in epoch]
    metric.plot([epoch["epoch"] for epoch in measured], [epoch[selection] for epoch in measured], color="#1b6ca8", marker=".")
    metric.axvline(record.best_epoch, color="#c9782b", linewidth=0.8, linestyle="--")
    metric.set_title(f"selection: {record.metric.replace('_', ' ')}", fontsize=8, loc="left")
    for axis in (losses, metric):
        axis.set_xlabel("epoch", fontsize=7)
        axis.tick_params(labelsize=6)
        axis.spines[["top", "right"]].set_visible(False)
        axis.xaxis.get_major_locator().set_params(integer=True)
    return figure


def confusion_matrix(record: StageRecord, title: str) -> "Figure":
    """Counts, coloured by their share of the true class."""
    from matplotlib.figure import Figure

    counts = record.confusion
    shares = [[value / max(sum(row), 1) for value in row] for row in counts]
    figure = Figure(figsize=(3.2, 3), layout="constrained")
    axis = figure.subplots()
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for true, row in enumerate(counts):
        for predicted, value in enumerate(row):
            colour = "white" if shares[true][predicted] > 0.5 else "black"
            axis.text(predicted, true, str(value), ha="center", va="center", fontsize=8, color=colour)
    axis.set_xticks(range(3), CLASSES, fontsize=7)
    axis.set_yticks(range(3), CLASSES, fontsize=7)
    axis.set_xlabel("predicted", fontsize=8)
    axis.set_ylabel("true", fontsize=8)
    axis.set_title(f"{title}, selection half", fontsize=8, loc="left")
    return figure


def write_training_plots(record: StageRecord, title: str) -> list[Path]:
    """Write the figures and the parameter table to the directory of the training."""
    from uqlob_models.checkpoints import load_model
    from uqlob_models.parameter_table import parameter_table

    paths = [record.directory / name for name in (CURVES, CONFUSION, PARAMETERS)]
    for path, figure in zip(paths, (training_curves(record, title), confusion_matrix(record, title)), strict=False):
        with atomic_path(path) as temporary:
            figure.savefig(temporary, format="png", dpi=130, metadata={"Software": None})
    config = load_model(record.best).config
    with atomic_path(paths[-1]) as temporary, open(temporary, "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["part", "shape", "parameters"])
        table.writerows((row.part, row.shape, row.parameters) for row in parameter_table(config))
    return paths
