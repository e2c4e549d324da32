"""`uqlob economics` as a user runs it: the figures of the lake, and answers to wrong options."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.report.synthetic_lake import fill_lake
from uqlob_pipeline.cli.app import app
from uqlob_pipeline.lake.layout import Lake, ModelKey
from uqlob_pipeline.models.evaluation_files import read_whole

KEY = ModelKey("BTC-USD", 5)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Two models of the demo's profile, evaluated at the tiers 0 and 10M."""
    return fill_lake(tmp_path_factory.mktemp("lake"), ["BTC-USD"], [5, 10], windows=400)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UQLOB_LAKE", "UQLOB_PROFILE"):
        monkeypatch.delenv(name, raising=False)


def uqlob(*words: str) -> Result:
    return CliRunner().invoke(app, ["economics", *words], env={"COLUMNS": "200"})


def _printed(output: str) -> dict[tuple[str, ...], list[str]]:
    """The cells of each row by model, head, gate and policy."""
    rows = [[cell.strip() for cell in line.strip("│ ").split("│")] for line in output.splitlines() if line.startswith("│")]
    return {tuple(row[:4]): row[4:] for row in rows}


def test_the_command_prints_every_row_of_the_tier_as_the_lake_has_it(lake: Lake) -> None:
    command = [sys.executable, "-m", "uqlob_pipeline.cli", "economics", "--latency-ms", "5", "--tier", "10M"]
    ran = subprocess.run(
        [*command, "--lake", str(lake.root), "--profile", "demo"], capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "simulated market: 5 ms, tier 10M (taker 10, maker 0 bps)" in ran.stdout
    printed = _printed(ran.stdout)
    expected = [
        row
        for row in read_whole(lake.by_model("economic_evaluation", KEY)).to_pylist()
        if row["split"] == "test" and row["tier"] in ("10M", None) and row["latency_ms"] == 5.0 and row["size"] == 0.1
    ]
    assert len(expected) == 2 * 2 * 4  # heads, gates, policies
    for row in expected:
        name = row["policy"].replace("_", " ") + (" *" if row["chosen"] else "")
        orders, filled, gross, net, break_even, foresight, random, null = printed[
            "BTC-USD 5s", row["head"], str(row["gate"]), name
        ]
        assert (orders, filled) == (f"{row['orders']:,}", f"{row['fill_rate']:.0%}")
        assert gross == f"{row['gross_bps']:+.2f} ({row['gross_lower']:+.2f} to {row['gross_upper']:+.2f})"
        if row["tier"]:
            assert net == f"{row['net_bps']:+.2f} ({row['net_lower']:+.2f} to {row['net_upper']:+.2f})"
            assert break_even == f"{row['break_even_bps']:.2f}"
        else:
            assert (net, break_even) == ("–", "–")
        assert (foresight, random) == (f"{row['oracle_bps']:+.2f}", f"{row['random_bps']:+.2f}")
        assert null == ("–" if row["null_bps"] is None else f"{row['null_bps']:+.2f}")
    assert any(row["null_bps"] is not None for row in expected)
    assert sum("*" in name for *_, name in printed) == 2 * 2  # one trading policy and one must_trade per model
    for horizon in (5, 10):
        assert f"\nBTC-USD {horizon}s: acting pays " in ran.stdout


def test_the_cheapest_tier_and_the_profiles_latency_are_the_default(lake: Lake) -> None:
    shown = uqlob("--lake", str(lake.root))
    assert shown.exit_code == 0
    assert shown.output == uqlob("--lake", str(lake.root), "--latency-ms", "5", "--tier", "10M").output
    dear = uqlob("--lake", str(lake.root), "--tier", "0")
    assert "tier 0 (taker 40, maker 25 bps)" in dear.output
    assert _printed(dear.output) != _printed(shown.output)


@pytest.mark.parametrize(
    ("words", "option", "complaint"),
    [
        (("--tier", "11M"), "'--tier'", "'11M' is none of the profile's tiers (0, 10k, 50k, "),
        (("--latency-ms", "7"), "'--latency-ms'", "7 is none of the profile's latencies_ms (0.5, 5, 50, 500)"),
        (("--latency-ms", "soon"), "'--latency-ms'", "Input should be a valid number"),
    ],
)
def test_a_wrong_option_is_refused_with_what_is_valid(lake: Lake, words: tuple[str, ...], option: str, complaint: str) -> None:
    refused = uqlob("--lake", str(lake.root), *words)
    assert refused.exit_code == 2
    assert option in refused.output
    assert complaint in refused.output


def test_a_lake_without_evaluated_models_says_what_makes_them(tmp_path: Path) -> None:
    refused = uqlob("--lake", str(tmp_path))
    assert refused.exit_code == 1
    assert refused.stderr == f"no model is evaluated in {tmp_path}: uqlob materialize --select trades,economic_evaluation\n"


def test_a_wrong_profile_is_named(tmp_path: Path) -> None:
    refused = uqlob("--profile", str(tmp_path / "none.toml"))
    assert refused.exit_code == 2
    assert f"no profile at {tmp_path / 'none.toml'}" in refused.stderr.replace("\n", "")
