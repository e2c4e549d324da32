"""A figure on the page."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING

from uqlob_pipeline.report import figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Picture:
    """A figure on the page, with its caption."""

    name: str
    title: str
    caption: str
    figure: Figure

    @property
    def address(self) -> str:
        return "data:image/svg+xml;base64," + base64.b64encode(figures.svg(self.figure)).decode()
