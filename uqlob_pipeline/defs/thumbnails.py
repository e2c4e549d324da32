"""Small plots for the Dagster event log: Markdown with the picture inside."""

import base64
import io
from pathlib import Path
from typing import TYPE_CHECKING

from uqlob_pipeline.lake.warehouse import sql

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def as_markdown(figure: "Figure", alt: str) -> str:
    """A figure as a Markdown image that needs no server."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=72)
    return f"![{alt}](data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()})"


def day_thumbnail(book_events: Path, title: str) -> str:
    """Mid-price and event rate over one asset-day, from a few hundred averages."""
    # Imported here to keep the code server light.
    import duckdb
    from matplotlib.figure import Figure

    with duckdb.connect() as connection:
        found = connection.execute(sql("day_thumbnail.sql"), {"events": str(book_events)}).fetchnumpy()
    figure = Figure(figsize=(6, 2.6), layout="constrained")
    mid, rate = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    mid.plot(found["hour"], found["mid"], color="#1b6ca8", linewidth=1)
    mid.set_title(title, fontsize=9, loc="left")
    mid.set_ylabel("mid (ticks)", fontsize=8)
    rate.fill_between(found["hour"], found["rate"], color="#c9782b", alpha=0.7, linewidth=0)
    rate.set_ylabel("events/s", fontsize=8)
    rate.set_xlabel("hour (UTC)", fontsize=8)
    for axis in (mid, rate):
        axis.tick_params(labelsize=7)
        axis.ticklabel_format(axis="y", useOffset=False)
        axis.spines[["top", "right"]].set_visible(False)
    return as_markdown(figure, f"mid-price and event rate of {title}")
