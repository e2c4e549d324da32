"""The profile's section `economics`: what it refuses, and that the error names the key and what is expected."""

from itertools import pairwise
from pathlib import Path

import pytest

from uqlob_pipeline.config.economics import KRAKEN_SPOT
from uqlob_pipeline.config.profile import PROFILES, ProfileError, load_profile


def _profile(folder: Path, section: str) -> str:
    path = folder / "own.toml"
    path.write_text((PROFILES / "demo.toml").read_text() + f"\n[economics]\n{section}\n")
    return str(path)


TIER = "taker_bps = 4.0, maker_bps = 2.0"


@pytest.mark.parametrize(
    ("section", "complaint"),
    [
        ("tiers = []", "economics.tiers: Tuple should have at least 1 item"),
        (f'tiers = [{{ name = "a", {TIER} }}, {{ name = "a", {TIER} }}]', r"tiers: two have the same name \(a, a\)"),
        ('tiers = [{ name = "a", taker_bps = -1, maker_bps = 0 }]', "economics.tiers.0.taker_bps: .*greater than or equal to 0"),
        (
            'tiers = [{ name = "a", taker_bps = 1, maker_bps = -11 }]',
            "economics.tiers.0.maker_bps: .*greater than or equal to -10",
        ),
        ('tiers = [{ name = "a", taker_bps = inf, maker_bps = 0 }]', "economics.tiers.0.taker_bps: .*finite number"),
        ('tiers = [{ name = "a", taker_bps = 1 }]', "economics.tiers.0.maker_bps: Field required"),
        (f'tiers = [{{ name = "a b", {TIER} }}]', "economics.tiers.0.name: String should match pattern"),
        (
            f'tiers = [{{ name = "a", {TIER}, taker = 3 }}]',
            r"economics.tiers.0.taker: no such key \(did you mean taker_bps\?\); valid keys are name, taker_bps, maker_bps",
        ),
        ("latency_ms = 7.0", r"latency_ms = 7.0 must be one of latencies_ms = \[0.5, 5.0, 50.0, 500.0\]"),
        ("latency_ms = 0.0", "economics.latency_ms: Input should be greater than 0"),
        ("latencies_ms = []", "economics.latencies_ms: Tuple should have at least 1 item"),
        ("latencies_ms = [5.0, 5.0]", r"latencies_ms contains a value twice: \[5.0, 5.0\]"),
        ("latencies_ms = [-1.0, 5.0]", "latencies_ms must be above 0 and finite"),
        ("latencies_ms = [5.0, inf]", "latencies_ms must be above 0 and finite"),
        ("latencies_ms = [5.0, 3000.0]", "an order that arrives after 3000 ms misses more than half of the horizon of 5 s"),
        ("gates = [0, 100]", r"gates must lie in \[0, 100\): \[0, 100\]"),
        ("gates = [-1]", r"gates must lie in \[0, 100\): \[-1\]"),
        ("gates = [50, 50]", "gates contains a value twice"),
        ("gates = [0.5]", "economics.gates.0: Input should be a valid integer"),
        ("sizes = [0.0]", "sizes must be above 0 and finite"),
        ("sizes = [nan]", "sizes must be above 0 and finite"),
        ("sizes = [1.0, 1.0]", "sizes contains a value twice"),
        ("patience_s = 0", "economics.patience_s: Input should be greater than 0"),
        ("max_open = 0", "economics.max_open: Input should be greater than or equal to 1"),
        ("null_delay_s = 5", "economics.null_delay_s: Input should be greater than or equal to 60"),
        ('fees_as_of = "soon"', "economics.fees_as_of: Input should be a valid date"),
        ("latency = 5.0", r"economics.latency: no such key \(did you mean latency_ms\?\); valid keys are tiers, fees_as_of, "),
    ],
)
def test_a_wrong_value_is_refused_and_its_key_named(tmp_path: Path, section: str, complaint: str) -> None:
    with pytest.raises(ProfileError, match=complaint):
        load_profile(_profile(tmp_path, section))


def test_own_fees_and_latencies_are_taken(tmp_path: Path) -> None:
    text = 'latency_ms = 2.0\nlatencies_ms = [2.0, 20.0]\ntiers = [{ name = "own", taker_bps = 3, maker_bps = -0.5 }]'
    found = load_profile(_profile(tmp_path, text)).economics
    assert (found.latency_ms, found.latencies_ms, found.tier("own").maker_bps) == (2.0, (2.0, 20.0), -0.5)  # type: ignore[union-attr]
    assert found.tier("10M") is None


def test_the_default_fees_are_krakens_and_fall_with_the_volume() -> None:
    economics = load_profile("demo").economics
    assert economics.tiers == KRAKEN_SPOT
    assert [(tier.name, tier.taker_bps, tier.maker_bps) for tier in (KRAKEN_SPOT[0], KRAKEN_SPOT[-1])] == [
        ("0", 40, 25),
        ("10M", 10, 0),
    ]
    for one, next_one in pairwise(KRAKEN_SPOT):
        assert one.taker_bps > next_one.taker_bps
        assert one.maker_bps > next_one.maker_bps
