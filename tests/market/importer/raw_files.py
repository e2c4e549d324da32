"""The messages of an asset-day's raw files."""

import json
from typing import Any

from uqlob_pipeline.lake.layout import AssetDay, Channel, Lake
from uqlob_pipeline.market.kraken.dump_reader import read_lines


def messages_of(lake: Lake, channel: Channel, day: AssetDay) -> list[dict[str, Any]]:
    return [json.loads(line) for file in lake.dumps(channel, day) for _, line in read_lines(file)]
