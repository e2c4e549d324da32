"""`uqlob status --deep`: verifies every file of the lake, with progress, and names what is damaged."""

import json
import sys
import time
from dataclasses import asdict

from uqlob_pipeline.lake.layout import Lake

EVERY_S = 0.5
MOST_UNKNOWN = 5


def show_deep_check(lake: Lake, *, as_json: bool) -> bool:
    """Print what was found; returns whether every file is what was written."""
    # Imported here so that other commands start fast.
    from uqlob_pipeline.lake.deep_check import check_lake

    progress = Progress()
    found = check_lake(lake, progress.show)
    progress.clear()
    if as_json:
        print(json.dumps({"lake": lake.name, **asdict(found)}, indent=1))
        return not found.damaged
    for one in found.damaged:
        print(f"damaged  {one}")
    if found.unknown:
        more = f" and {len(found.unknown) - MOST_UNKNOWN} more" if len(found.unknown) > MOST_UNKNOWN else ""
        print(f"no hash was recorded for {len(found.unknown)} file(s): {', '.join(found.unknown[:MOST_UNKNOWN])}{more}")
    rate = found.size / 1e6 / max(progress.seconds, 1e-9)
    print(
        f"{lake.name}: {found.files} files, {found.size / 1e6:,.1f} MB in {progress.seconds:.1f} s ({rate:,.0f} MB/s), "
        f"{len(found.damaged)} damaged"
    )
    return not found.damaged


class Progress:
    """A line that is written over on a terminal; nothing elsewhere."""

    def __init__(self) -> None:
        self.started = self.shown = time.monotonic()
        self.terminal = sys.stderr.isatty()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def show(self, files: int, all_files: int, size: int) -> None:
        if self.terminal and time.monotonic() - self.shown >= EVERY_S:
            self.shown = time.monotonic()
            print(f"\r{files} of {all_files} files, {size / 1e6:,.0f} MB", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self.terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
