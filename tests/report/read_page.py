"""The report as tests read it: the inputs of a synthetic lake, and the page's numbers, images and links."""

import re
from dataclasses import replace
from html.parser import HTMLParser

from synthetic_lake import PARAMETERS, SETTINGS

from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.report import read_report_inputs


class Page(HTMLParser):
    """Collects the numbers of the tables, the images, and every tag and link that could use the network or run code."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.numbers: list[tuple[str, dict[str, str], str]] = []
        self.views: list[str] = []
        self.images: list[dict[str, str]] = []
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.words: list[str] = []
        self._cell: dict[str, str] | None = None
        self._ours = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = {name: value or "" for name, value in attributes}
        self.tags.add(tag)
        self.links += [found[name] for name in ("src", "href") if name in found]
        if tag == "table":
            self.views.append(found["data-view"])
        elif tag == "img":
            self.images.append(found)
        elif tag == "td":
            self._cell = found if "data-value" in found else None
        elif tag == "span":
            self._ours = found.get("class") == "ours"

    def handle_data(self, text):
        self.words.append(text)
        if self._cell is not None and self._ours and text.strip():
            self.numbers.append((self.views[-1], self._cell, text.strip()))
            self._cell = None

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


def inputs_of(lake: Lake, symbols=("BTC-USD", "ETH-USD"), horizons=(5, 10), **changes):
    given = {"simulated": True, "parameters": PARAMETERS, "hyperparameters": SETTINGS, "profile_name": "demo"}
    given |= changes
    return replace(read_report_inputs(lake, list(symbols), list(horizons), simulated=True), **given)
