"""What the imports of an asset-day's dumps refused or lost, from the records that imports leave below `raw/.imports`."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from uqlob_pipeline.lake.layout import Lake

IMPORTED = re.compile(r"imported-(\w+)\.jsonl")  # the name of an imported dump carries the identity of its source


@dataclass(frozen=True)
class ImportLosses:
    """Of one import, for every asset-day that it wrote: an unreadable line has neither symbol nor day."""

    refused_lines: int
    cut: str  # why its archive or its last line breaks off, or empty


def import_record_path(lake: Lake, identity: str) -> Path:
    return lake.root / "raw" / ".imports" / f"{identity}.json"


def imports_of(lake: Lake, dumps: Iterable[Path]) -> list[ImportLosses]:
    """The losses of every import that some of these dumps came from."""
    identities = sorted({found.group(1) for dump in dumps if (found := IMPORTED.search(dump.name))})
    records = [json.loads(path.read_text()) for one in identities if (path := import_record_path(lake, one)).is_file()]
    return [ImportLosses(int(record.get("refused_lines", 0)), str(record.get("cut", ""))) for record in records]
