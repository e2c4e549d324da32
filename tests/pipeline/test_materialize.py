"""`uqlob materialize` makes what is missing or stale, and only that."""

import dagster as dg
import pytest

from tests.pipeline.conftest import day
from uqlob_pipeline.assets import features, labels, market
from uqlob_pipeline.instance import terminal_logger
from uqlob_pipeline.lake import Lake
from uqlob_pipeline.materialize import Choice, MaterializeFailed, legs, materialize_choice, stretches
from uqlob_pipeline.profile import Profile


def run(resources: dict, lake: Lake, profile: Profile, instance: dg.DagsterInstance, choice: Choice) -> tuple[int, list[str]]:
    defs = dg.Definitions(
        assets=dg.load_assets_from_modules([market, features, labels]), resources=resources, loggers={"terminal": terminal_logger}
    )
    said: list[str] = []
    return materialize_choice(defs, lake, profile, choice, said.append, instance), said


def test_what_is_current_is_left_alone_and_what_is_stale_is_made_again(
    resources: dict, lake: Lake, profile: Profile, instance: dg.DagsterInstance
) -> None:
    chosen = Choice(assets=("book_events", "window_prices"), symbols=("BTC-USD",))
    runs, said = run(resources, lake, profile, instance, chosen)
    assert runs == 1
    assert "2 days" in said[0]
    assert run(resources, lake, profile, instance, chosen) == (0, [])
    lake.window_prices(day(1)).unlink()
    runs, said = run(resources, lake, profile, instance, chosen)
    assert runs == 1
    assert said[0].startswith("window_prices: BTC-USD 2026-01-06: not there")


def test_other_settings_make_a_day_stale_and_say_so(
    resources: dict, lake: Lake, profile: Profile, instance: dg.DagsterInstance
) -> None:
    chosen = Choice(assets=("book_events",), symbols=("BTC-USD",), first=day(0).date, last=day(0).date)
    run(resources, lake, profile, instance, chosen)
    other = profile.model_copy(update={"book": profile.book.model_copy(update={"max_level": 5})})
    runs, said = run({**resources, "profile": other}, lake, other, instance, chosen)
    assert runs == 1
    assert "made with other settings than the profile's" in said[0]


def test_a_failed_run_says_why(resources: dict, lake: Lake, profile: Profile, instance: dg.DagsterInstance) -> None:
    with pytest.raises(
        MaterializeFailed, match=r"token_bins: BTC-USD failed: token_bins of BTC-USD needs book_events of all 6 training days"
    ):
        run(resources, lake, profile, instance, Choice(assets=("token_bins",), symbols=("BTC-USD",)))


def test_an_unknown_asset_names_those_there_are(
    resources: dict, lake: Lake, profile: Profile, instance: dg.DagsterInstance
) -> None:
    with pytest.raises(MaterializeFailed, match=r"no asset is called book_event; there are book_events, "):
        run(resources, lake, profile, instance, Choice(assets=("book_event",)))


def test_days_that_follow_one_another_share_a_run() -> None:
    days = [day(0), day(1), day(3), day(0, "ETH-USD")]
    assert [[str(d) for d in together] for together in stretches(days)] == [
        ["BTC-USD 2026-01-05", "BTC-USD 2026-01-06"],
        ["BTC-USD 2026-01-08"],
        ["ETH-USD 2026-01-05"],
    ]
    long = [day(n) for n in range(70)]
    assert [len(together) for together in stretches(long)] == [32, 32, 6]


def test_the_legs_follow_the_dag() -> None:
    order = [table.asset for leg in legs(Choice()) for table in leg]
    assert order.index("book_events") < order.index("token_bins") < order.index("event_features") < order.index("feature_scales")
