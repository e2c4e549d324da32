"""One stream, cut anywhere into files of different formats and compressions, imported together or one after the other."""

import gzip
import json
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import zstandard
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.market.importer.tardis_files import book_rows
from tests.market.importer.v1_capture import v1_lines
from tests.market.kraken.cut_streams import TODAY, YESTERDAY, events, import_dump, through_midnight, write_lines
from tests.market.kraken.market_streams import Stream, profile, wire
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.market.importer.import_dumps import import_dumps

FORMATS: dict[str, Callable[[Stream], list[bytes]]] = {
    "kraken-v2": lambda part: [wire(message) for message in part.messages],
    "kraken-v1": lambda part: v1_lines(part, same_digits=True),
    "cryptofeed": lambda part: v1_lines(part, same_digits=True, received=True),
    "tardis": book_rows,
}
PACKED = (bytes, gzip.compress, zstandard.ZstdCompressor().compress)
UPDATES = 40  # twenty on either side of midnight


@st.composite
def cut_files(draw: st.DrawFn) -> list[tuple[int, str, int]]:
    """Where each file begins, its format and its compression; the files in the order in which they are named."""
    cuts = sorted(draw(st.sets(st.integers(2, UPDATES), min_size=1, max_size=3)))
    formats, packed = st.sampled_from(sorted(FORMATS)), st.integers(0, 2)
    return [(first, draw(formats), draw(packed)) for first in draw(st.permutations([0, *cuts]))]


@given(cut_files(), st.booleans())
@settings(max_examples=6, deadline=None, phases=[Phase.explicit, Phase.generate])
def test_formats_may_be_mixed_within_one_stream(files: list[tuple[int, str, int]], together: bool) -> None:
    messages = [json.loads(line, parse_float=Decimal) for line in through_midnight("book")[1:]]
    ends = {first: end for first, end in zip(sorted(f[0] for f in files), [*sorted(f[0] for f in files)[1:], None], strict=True)}
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        sources = []
        for number, (first, name, packed) in enumerate(files):
            part = Stream("book")
            part.messages = messages[first : ends[first]]
            path = root / f"{number}.dump"
            path.write_bytes(PACKED[packed](b"\n".join(FORMATS[name](part)) + b"\n"))
            sources.append((first, path))
        mixed, whole = Lake(root / "mixed"), Lake(root / "whole")
        if together:
            reports = list(import_dumps(mixed, profile(), [path for _, path in sources]))
        else:
            reports = [import_dump(mixed, path) for _, path in sorted(sources)]
        assert [(report.unreadable, report.before_snapshot) for report in reports] == [([], 0)] * len(files)
        assert sum(report.snapshots_made for report in reports) == 1
        import_dump(whole, write_lines(root / "whole.jsonl", [wire(message) for message in messages]))
        assert events(mixed, YESTERDAY, TODAY) == events(whole, YESTERDAY, TODAY)
