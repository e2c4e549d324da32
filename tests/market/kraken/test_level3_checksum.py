"""The documented checksum of the level-3 guide, of both books: the replay's and the recorder's."""

import numpy as np

from uqlob_pipeline.market.kraken.book import ASK, BID, NONE, add_order, new_book
from uqlob_pipeline.market.kraken.checksum import checksum
from uqlob_pipeline.market.kraken.running_book import RunningBook

# Kraken's level-3 checksum guide: each price with the quantities of its queue, first come first.
GUIDE_ASKS = """
    44939.5 4.52308393 0.00111261 0.00100000 0.01000000,  44950.0 0.10334926,  44953.0 0.00064537,  44955.0 0.00250000,
    44959.6 0.35630000 0.35630000,  44960.1 0.00338072,  44960.2 0.88967575,  44967.0 3.14392283,  44978.5 0.06778960,
    44979.2 0.35630000,
"""
GUIDE_BIDS = """
    44939.4 0.88968699 0.45210000 0.10000000 0.14296323 0.25000000 0.10292988 0.33880000 1.28140860,  44937.1
    0.03346877,  44934.7 0.35630000,  44930.2 0.22734299 0.01000000 0.05550000 0.70000000 0.15000000,  44928.0
    0.00105240,  44919.6 0.33870000,  44919.5 0.07610000,  44912.0 0.35630000,  44909.7 0.06690000,  44901.9
    0.00088982,
"""
CHECKSUM = 1063832831


def queues(text: str) -> list[tuple[str, list[str]]]:
    return [(words[0], words[1:]) for words in (level.split() for level in text.split(",")) if words]


def test_the_replays_book_has_the_level_3_guides_checksum() -> None:
    book = new_book()
    for side, text in ((ASK, GUIDE_ASKS), (BID, GUIDE_BIDS)):
        for price, quantities in queues(text):
            for place, qty in enumerate(quantities):
                ticks = int(price.replace(".", ""))
                add_order(book, np.int64(100 * ticks + place), side, ticks, int(qty.replace(".", "")), NONE)
    assert int(checksum(book, 1)) == CHECKSUM


def test_the_recorders_book_has_the_level_3_guides_checksum() -> None:
    sides = {
        name: [
            {"order_id": f"{price} {place}", "limit_price": price, "order_qty": qty}
            for price, quantities in queues(text)
            for place, qty in enumerate(quantities)
        ]
        for name, text in (("bids", GUIDE_BIDS), ("asks", GUIDE_ASKS))
    }
    book = RunningBook("level3", 1000)
    book.apply({"channel": "level3", "type": "snapshot", "data": [{"symbol": "BTC/USD", **sides}]})
    assert book.checksum() == book.checksum(1, 8) == CHECKSUM
