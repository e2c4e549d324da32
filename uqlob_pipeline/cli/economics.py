"""`uqlob economics`: prints what acting on the forecasts is worth, at one latency and one fee tier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from uqlob_pipeline.config.profile import Profile


def economics(
    latency_ms: Annotated[float | None, typer.Option(help="Latency in ms, one of the profile's (default: its own).")] = None,
    tier: Annotated[str | None, typer.Option(help="Fee tier by 30-day volume, such as 10M (default: the last).")] = None,
    profile: Annotated[str | None, typer.Option(help="Built-in profile or path; default: UQLOB_PROFILE, else demo.")] = None,
    lake: Annotated[str | None, typer.Option(help="The lake, a path or a URL; default: UQLOB_LAKE, else ./lake.")] = None,
) -> None:
    """Print what acting on the forecasts is worth on the test days, before and after fees.

    Example: uqlob economics --latency-ms 5 --tier 10M
    """
    # Imported here to keep the start of other commands fast.
    from rich.console import Console

    from uqlob_pipeline.config.profile import ProfileError, load_profile
    from uqlob_pipeline.economics.names import ECONOMICS
    from uqlob_pipeline.economics.verdict import own_rows, verdict
    from uqlob_pipeline.lake.shared_lake import open_lake
    from uqlob_pipeline.lake.table_registry import model_keys
    from uqlob_pipeline.models.evaluation_files import read_whole

    try:
        settings = load_profile(profile)
    except ProfileError as error:
        Console(stderr=True).print(f"[red]{error}[/red]")
        raise typer.Exit(2) from None
    chosen = settings.economics.latency_ms if latency_ms is None else latency_ms
    if chosen not in settings.economics.latencies_ms:
        known = ", ".join(f"{known:g}" for known in settings.economics.latencies_ms)
        raise typer.BadParameter(f"{chosen:g} is none of the profile's latencies_ms ({known})", param_hint="'--latency-ms'")
    fees = settings.economics.tier(tier) if tier else settings.economics.tiers[-1]
    if fees is None:
        known = ", ".join(one.name for one in settings.economics.tiers)
        raise typer.BadParameter(f"'{tier}' is none of the profile's tiers ({known})", param_hint="'--tier'")
    place = open_lake(lake)
    found = [(key, path) for key in model_keys(settings) if (path := place.by_model(ECONOMICS, key)).exists()]
    if not found:
        typer.echo(
            f"no model is evaluated in {place.name}: uqlob materialize --select trades,economic_evaluation",
            err=True,
        )
        raise typer.Exit(1)
    console = Console(width=max(Console().width, 180))  # narrower, the table would break its words
    at_latency = settings.economics.model_copy(update={"latency_ms": chosen})
    rows = [row for _, path in found for row in own_rows(read_whole(path), at_latency).to_pylist()]
    console.print(economics_table(rows, settings, chosen, fees.name))
    for key, path in found:
        console.print(
            f"{key}: {verdict(own_rows(read_whole(path), settings.economics).to_pylist())}", highlight=False, soft_wrap=True
        )


def economics_table(rows: list[dict[str, Any]], profile: Profile, latency_ms: float, tier: str) -> Table:
    """One row per model, head, gate and policy."""
    from rich.table import Table

    fees = profile.economics.tier(tier)
    assert fees is not None
    market = "simulated market" if profile.simulated else "test days"
    cost = f"taker {fees.taker_bps:g}, maker {fees.maker_bps:g} bps"
    table = Table(
        title=f"What acting is worth, {market}: {latency_ms:g} ms, tier {tier} ({cost})",
        caption="bps per filled order, 95 % intervals; break-even: fee per side; must trade: the saving; null: stale forecasts; "
        "*: best of calibration",
    )
    for name in (
        "model",
        "head",
        "gate",
        "policy",
        "orders",
        "filled",
        "before fees",
        "after fees",
        "break-even",
        "foresight",
        "random",
        "null",
    ):
        table.add_column(name, justify="left" if name in ("model", "head", "policy") else "right", no_wrap=True)
    for row in rows:
        if row["tier"] not in (tier, None):
            continue
        table.add_row(
            f"{row['symbol']} {row['horizon_s']}s",
            row["head"],
            str(row["gate"]),
            row["policy"].replace("_", " ") + (" *" if row["chosen"] else ""),
            f"{row['orders']:,}",
            _shown(row["fill_rate"], "{:.0%}"),
            _bounded(row, "gross"),
            _bounded(row, "net") if row["tier"] else "–",
            _shown(row["break_even_bps"], "{:.2f}"),
            _shown(row["oracle_bps"]),
            _shown(row["random_bps"]),
            _shown(row["null_bps"]),
        )
    return table


def _bounded(row: dict[str, Any], name: str) -> str:
    lower, upper = row[f"{name}_lower"], row[f"{name}_upper"]
    return _shown(row[f"{name}_bps"]) + ("" if lower is None else f" ({lower:+.2f} to {upper:+.2f})")


def _shown(value: float | None, form: str = "{:+.2f}") -> str:
    return "–" if value is None else form.format(value)
