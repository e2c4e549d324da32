"""The layouts of the mixed dumps of `uqlob bench import`."""

import json

from typer.testing import CliRunner

from uqlob_pipeline.devtools.bench.mixed_dumps import LAYOUTS, in_layout
from uqlob_pipeline.devtools.commands import app


def test_layouts_change_the_text_and_not_the_content() -> None:
    line = b'{"channel":"level3","type":"update","data":[{"symbol":"BTC/USD","checksum":1,"bids":[],"asks":[]}]}'
    texts = [in_layout(line, layout) for layout in LAYOUTS]
    assert len(set(texts)) == len(LAYOUTS)
    assert all(json.loads(text) == json.loads(line) for text in texts)


def test_a_layout_needs_a_mixed_dump() -> None:
    assert CliRunner().invoke(app, ["bench", "import", "--layout", "spaced"]).exit_code == 2
