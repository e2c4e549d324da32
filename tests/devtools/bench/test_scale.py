"""The arithmetic of `uqlob bench scale`, and the market that it runs on."""

from pathlib import Path

from uqlob_pipeline.config.profile import load_profile
from uqlob_pipeline.devtools.bench.scale import SYMBOLS, Variant, write_profile


def test_speed_and_overhead_follow_from_the_times_of_the_steps() -> None:
    figures = Variant(workers=2, seconds=10.0, in_steps=12.0, steps=4, load=1.26).figures(events=1200)
    assert figures["events_per_second"] == 120
    assert figures["events_per_second_in_steps"] == 200  # each of two workers makes 100 per second while it is in a step
    assert figures["overhead_per_step"] == 2.0  # of 20 seconds of two workers 8 are outside of the four steps
    assert figures["load"] == 1.3


def test_the_market_has_two_symbols_and_days_of_the_chosen_length(tmp_path: Path) -> None:
    profile = load_profile(str(write_profile(tmp_path, hours=0.25)))
    assert tuple(profile.symbols) == SYMBOLS
    assert profile.simulation is not None
    assert profile.simulation.hours == 0.25
