"""Parts of the report's tables: cells with the source of their value, and scores looked up by their key."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from uqlob_models.bootstrap import Bootstrap
from uqlob_models.evaluation import POOLED
from uqlob_pipeline.report.paper import intensity

Formatter = Callable[[float], str]
ScoreKey = tuple[str, int, str, str, int, str]


@dataclass(frozen=True)
class Cell:
    """`source` and `key` name the Parquet file and row behind `value`; `paper` is the paper's number as shown."""

    text: str
    value: float | None = None
    source: str = ""
    key: str = ""
    paper: str = ""
    colour: str = ""
    hint: str = ""
    head: bool = False


@dataclass(frozen=True)
class Heading:
    text: str
    span: int = 1
    css: str = ""

    @classmethod
    def left(cls, text: str) -> Heading:
        return cls(text, css="left")

    @classmethod
    def group(cls, text: str, span: int = 1) -> Heading:
        """The first column of a group, or the heading above one."""
        return cls(text, span, "group")


@dataclass(frozen=True)
class View:
    """A table as the page shows it."""

    name: str
    title: str
    caption: str
    headings: Sequence[Sequence[Heading]]
    rows: Sequence[Sequence[Cell]]
    compares: bool = False  # with the paper; the page then explains the small grey numbers
    folded: bool = False  # collapsed until the reader opens it

    @property
    def dense(self) -> bool:
        return len(self.rows[0]) > 24 if self.rows else False


two_places: Formatter = "{:.2f}".format
three_places: Formatter = "{:.3f}".format
signed: Formatter = "{:+.2f}".format
signed_three_places: Formatter = "{:+.3f}".format
whole: Formatter = "{:,.0f}".format
general: Formatter = "{:.3g}".format


class Scores:
    """Value, lower and upper bound and retained forecasts, by symbol, horizon, head, kind of gate, gate and metric."""

    def __init__(self, scores: pl.DataFrame, level: float = Bootstrap.level) -> None:
        self.interval = f"{100 * level:g} % interval"  # the name of the bounds
        key = ["symbol", "horizon_s", "head", "gate_kind", "gate", "metric"]
        self.rows: dict[ScoreKey, tuple[float | None, float | None, float | None, int]] = scores.select(
            *key, "value", "lower", "upper", "retained"
        ).rows_by_key(key, unique=True)

    def get(self, *key: Any) -> float | None:
        found = self.rows.get(key)
        return found[0] if found else None

    def bounds(self, *key: Any) -> tuple[float, float] | None:
        found = self.rows.get(key)
        return (found[1], found[2]) if found and found[1] is not None and found[2] is not None else None

    def cell(
        self, key: ScoreKey, show: Formatter, *, compare: float | None = None, shade: str = "", interval: bool = False
    ) -> Cell:
        """One score. `compare` is the paper's number, or with `interval` the bounds; `shade` names the paper's table whose
        colours it takes."""
        found = self.rows.get(key)
        beside = show(compare) if compare is not None else ""
        if found is None or (value := found[0]) is None:
            return Cell("–", paper=beside, hint="not defined here" if found else "not evaluated")
        _, lower, upper, retained = found
        within = f"{self.interval} {show(lower)} to {show(upper)}; " if lower is not None and upper is not None else ""
        if interval and lower is not None and upper is not None:
            beside = f"{show(lower)} to {show(upper)}"
        source = "pooled_evaluation" if key[0] == POOLED else "gated_evaluation"
        named = "/".join(str(part) for part in key)
        colour = shading(intensity(shade, value)) if shade else ""
        return Cell(show(value), value, source, named, beside, colour, f"{within}{retained:,} forecasts")


def shading(percent: float) -> str:
    """The paper's green and red, light enough for black text."""
    red, green, blue = (34, 160, 84) if percent >= 0 else (222, 73, 56)
    return f"rgba({red}, {green}, {blue}, {abs(percent) / 100 * 0.85:.3f})"


def label(text: str) -> Cell:
    return Cell(text, head=True)


def plain_cell(source: str, key: str, value: float | None, show: Formatter, compare: float | None) -> Cell:
    beside = show(compare) if compare is not None else ""
    if value is None or not math.isfinite(float(value)):
        return Cell("–", paper=beside)
    return Cell(show(float(value)), float(value), source, key, beside)
