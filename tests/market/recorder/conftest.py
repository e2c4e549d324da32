"""Simulated markets to record, and the events of an undisturbed recording of them."""

from collections.abc import Callable

import pytest

from uqlob_pipeline.devtools.practice_server.replayed_market import PracticeMarket, simulated_market
from uqlob_pipeline.devtools.practice_server.token_endpoint import PRACTICE_KEY, PRACTICE_SECRET
from uqlob_pipeline.market.recorder.credentials import KEY, SECRET

from .practice_lake import DAY, Event, PracticeLake


@pytest.fixture(autouse=True)
def _practice_credentials(monkeypatch):
    monkeypatch.setenv(KEY, PRACTICE_KEY)
    monkeypatch.setenv(SECRET, PRACTICE_SECRET)


@pytest.fixture(scope="session")
def level3_market() -> PracticeMarket:
    return simulated_market(["BTC-USD", "ETH-USD"], seconds=30, events_per_second=100, depth=100, day=DAY)


@pytest.fixture(scope="session")
def level2_market() -> PracticeMarket:
    return simulated_market(["SOL-USD"], seconds=20, events_per_second=100, depth=25, level2=True, day=DAY)


@pytest.fixture
def practice_lake(tmp_path) -> Callable[..., PracticeLake]:
    return lambda market, name="lake": PracticeLake(tmp_path / name, market)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory) -> Callable[[PracticeMarket], dict[str, list[Event]]]:
    """Every event of a market by symbol, from its own lines."""
    known: dict[int, dict[str, list[Event]]] = {}

    def events(market: PracticeMarket) -> dict[str, list[Event]]:
        if id(market) not in known:
            lake = PracticeLake(tmp_path_factory.mktemp("undisturbed"), market)
            lake.write_undisturbed()
            known[id(market)] = {symbol: lake.events(symbol)[0] for symbol in market.symbols}
        return known[id(market)]

    return events
