"""The two figures of the dataset profile, drawn without a display and without pyplot's global state."""

from typing import Any

from matplotlib.figure import Figure

from uqlob_pipeline.labels import CLASSES

Rows = list[dict[str, Any]]

# Three hues that stay apart for colour-blind readers and in grey print.
COLOURS = {"down": "#c2543b", "up": "#3b7a57", "stationary": "#8a93a6"}
SPLITS = ("train", "validation", "test")


def class_proportion_grid(rows: Rows, market: str = "") -> Figure:
    """One panel a symbol and horizon: a stacked bar a split."""
    symbols, horizons = _symbols(rows), _horizons(rows)
    figure = Figure(figsize=(1.2 + 2.1 * len(horizons), 1.3 + 1.55 * len(symbols)), layout="constrained")
    panels = figure.subplots(len(symbols), len(horizons), sharex=True, sharey=True, squeeze=False)
    share = {(row["symbol"], row["horizon_s"], row["split"], row["class"]): row["share"] for row in rows}
    for line, symbol in enumerate(symbols):
        for column, horizon in enumerate(horizons):
            panel = panels[line, column]
            for place, split in enumerate(SPLITS):
                bottom = 0.0
                for name in CLASSES:
                    height = 100 * share.get((symbol, horizon, split, name), 0.0)
                    panel.bar(place, height, bottom=bottom, color=COLOURS[name], width=0.8, edgecolor="white", linewidth=0.6)
                    if height >= 9:
                        panel.text(
                            place, bottom + height / 2, f"{height:.0f}", ha="center", va="center", color="white", fontsize=7
                        )
                    bottom += height
            panel.set_xticks(range(len(SPLITS)), ["train", "val.", "test"], fontsize=8)
            panel.set_ylim(0, 100)
            panel.tick_params(axis="y", labelsize=8)
            panel.spines[["top", "right"]].set_visible(False)
            if line == 0:
                panel.set_title(f"{horizon} s", fontsize=9)
            if column == 0:
                panel.set_ylabel(f"{symbol}\n% of windows", fontsize=8)
    _legend(figure)
    figure.suptitle(f"Class proportions by symbol, horizon and split{market}", fontsize=10)
    return figure


def drift_bars(rows: Rows, market: str = "") -> Figure:
    """One panel a horizon: a group of bars a symbol, a bar a class."""
    symbols, horizons = _symbols(rows), _horizons(rows)
    panels_needed = max(len(horizons), 1)
    figure = Figure(figsize=(1.5 + (0.9 + 0.6 * len(symbols)) * panels_needed, 3.4), layout="constrained")
    panels = figure.subplots(1, panels_needed, sharey=True, squeeze=False)[0]
    drift = {(row["symbol"], row["horizon_s"], row["class"]): row["drift_pp"] for row in rows}
    for panel, horizon in zip(panels, horizons, strict=False):
        for place, name in enumerate(CLASSES):
            heights = [drift.get((symbol, horizon, name), 0.0) for symbol in symbols]
            panel.bar([i + (place - 1) * 0.27 for i in range(len(symbols))], heights, width=0.27, color=COLOURS[name])
        panel.set_title(f"{horizon} s", fontsize=9)
        panel.set_xticks(range(len(symbols)), [symbol.split("-")[0] for symbol in symbols], fontsize=8)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("|train - test|, percentage points", fontsize=8)
    if rows:
        _legend(figure)
    else:
        panels[0].text(
            0.5, 0.5, "no symbol has both a training\nand a test split yet", ha="center", transform=panels[0].transAxes
        )
    figure.suptitle(f"Train-test drift of class proportions{market}", fontsize=10)
    return figure


def _legend(figure: Figure) -> None:
    from matplotlib.patches import Patch

    figure.legend(
        handles=[Patch(color=COLOURS[name], label=name) for name in CLASSES],
        loc="outside lower center",
        ncols=3,
        fontsize=8,
        frameon=False,
    )


def _symbols(rows: Rows) -> list[str]:
    return list(dict.fromkeys(row["symbol"] for row in rows))


def _horizons(rows: Rows) -> list[int]:
    return sorted({row["horizon_s"] for row in rows})
