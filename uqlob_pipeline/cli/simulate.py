"""`uqlob simulate`: write days of the built-in market into a lake."""

import datetime as dt
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from uqlob_pipeline.cli.command_context import fail
from uqlob_pipeline.config.profile import Profile, ProfileError, SimulationSettings, load_profile
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.shared_lake import open_lake, working_copy
from uqlob_pipeline.lake.store import StoreError, StoreRefused
from uqlob_pipeline.market.simulator.market_settings import BOOK_DEPTHS, LEVEL3_DEPTHS, DayWritten, Faults, MarketSettings
from uqlob_pipeline.market.simulator.symbol_specs import SYMBOLS

_FAULTS, _MARKET = "What goes wrong", "The market"

simulate_app = typer.Typer(add_completion=False)


@simulate_app.callback(invoke_without_command=True)
def simulate(
    context: typer.Context,
    symbols: Annotated[str, typer.Option(help=f"Comma-separated, or 'all'. Known: {', '.join(SYMBOLS)}.")] = "BTC-USD",
    profile: Annotated[
        str | None,
        typer.Option(
            help="Continue the market of this profile after its last recorded day: its symbols and market settings; --days alone "
            "is read beside it."
        ),
    ] = None,
    start: Annotated[str, typer.Option(help="First UTC day, YYYY-MM-DD.")] = "2026-01-05",
    days: Annotated[int, typer.Option(min=1, help="How many days, one after another.")] = 1,
    hours: Annotated[float, typer.Option(help="Hours per day, more than 0 and up to 24.")] = 24.0,
    start_hour: Annotated[float, typer.Option(help="UTC hour at which each day begins.")] = 0.0,
    lake: Annotated[str, typer.Option(envvar="UQLOB_LAKE", help="Where data live: a path or s3://bucket/prefix.")] = "lake",
    seed: Annotated[int, typer.Option(help="The same seed and settings give the same bytes.", rich_help_panel=_MARKET)] = 7,
    signal: Annotated[
        float, typer.Option(help="Strength of the hidden pressure; 0 is the null market.", rich_help_panel=_MARKET)
    ] = 1.0,
    regime: Annotated[float, typer.Option(help="Strength of the slow impact regime; 0 is off.", rich_help_panel=_MARKET)] = 1.0,
    shift: Annotated[
        str | None,
        typer.Option(
            help="From this day on (YYYY-MM-DD) the market is in the volatility regime of the paper's test days.",
            rich_help_panel=_MARKET,
        ),
    ] = None,
    events_per_second: Annotated[
        float | None, typer.Option(help="Default: the symbol's own rate, 39 to 156.", rich_help_panel=_MARKET)
    ] = None,
    max_events: Annotated[
        int | None, typer.Option(help="Stop each day after this number of events.", rich_help_panel=_MARKET)
    ] = None,
    depth: Annotated[
        int,
        typer.Option(help=f"Levels per side of the level3 feed: {', '.join(map(str, LEVEL3_DEPTHS))}.", rich_help_panel=_MARKET),
    ] = 1000,
    level2: Annotated[
        int | None,
        typer.Option(help=f"Also write the book channel; levels: {', '.join(map(str, BOOK_DEPTHS))}.", rich_help_panel=_MARKET),
    ] = None,
    reconnects: Annotated[
        int, typer.Option(help="Lost connections per day: a gap, then a fresh snapshot.", rich_help_panel=_FAULTS)
    ] = 0,
    gap_seconds: Annotated[float, typer.Option(help="Length of each gap.", rich_help_panel=_FAULTS)] = 3.0,
    lost_messages: Annotated[
        int, typer.Option(help="Single messages lost per day, so that checksums fail.", rich_help_panel=_FAULTS)
    ] = 0,
    garbage_lines: Annotated[int, typer.Option(help="Unreadable lines per day.", rich_help_panel=_FAULTS)] = 0,
    truncated: Annotated[bool, typer.Option(help="Cut the book archives short.", rich_help_panel=_FAULTS)] = False,
) -> None:
    """Simulate a limit-order-book market and write it as Kraken dumps: level3, trade and instrument messages.

    Days that exist already with the same settings are skipped; with other settings they are replaced. The hidden state
    goes to latent/, never into a dump.

    Example: uqlob simulate --symbols BTC-USD,ETH-USD --start 2026-01-05 --days 10 --hours 2
    Three more days of the demo: uqlob simulate --profile demo --days 3
    """
    if context.invoked_subcommand is not None:
        return
    if profile is not None:
        with _opened(lake) as place:
            _continue_market(profile, place, days)
        return
    try:
        first = dt.date.fromisoformat(start)
    except ValueError:
        raise typer.BadParameter(f"{start!r} is not a day such as 2026-01-05", param_hint="'--start'") from None
    try:
        names = parse_symbols(symbols)
        faults = Faults(reconnects, gap_seconds, lost_messages, garbage_lines, truncated)
        changed = None if shift is None else dt.date.fromisoformat(shift)
        settings = MarketSettings(
            seed, hours, start_hour, events_per_second, signal, regime, depth, level2, faults, max_events, changed
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    with _opened(lake) as place:
        run([(name, first + dt.timedelta(days=day)) for name in names for day in range(days)], settings, place)


@contextmanager
def _opened(lake: str) -> Iterator[Lake]:
    """Where to write: the lake, or a copy of one in a store, from which every whole file is published."""
    try:
        with working_copy(open_lake(lake), deletes_dumps=True) as place:
            yield place
    except (StoreError, StoreRefused) as error:
        raise fail(error) from error


def market_of(chosen: SimulationSettings) -> MarketSettings:
    """The market of a profile."""
    return MarketSettings(
        seed=chosen.seed,
        hours=chosen.hours,
        events_per_second=chosen.events_per_second,
        signal=chosen.signal,
        regime=chosen.regime,
        shift=chosen.shift,
    )


def next_days(lake: Lake, profile: Profile, count: int) -> list[tuple[str, dt.date]]:
    """The days after the last recorded one, of every symbol of the profile."""
    recorded = [day.date for day in lake.recorded_days() if day.symbol in profile.instruments]
    first = max(recorded) + dt.timedelta(days=1) if recorded else profile.first_day
    return [(symbol, first + dt.timedelta(days=number)) for symbol in profile.symbols for number in range(count)]


def _continue_market(name: str, lake: Lake, days: int) -> None:
    try:
        profile = load_profile(name)
    except ProfileError as error:
        raise typer.BadParameter(str(error), param_hint="'--profile'") from None
    if profile.simulation is None:
        raise typer.BadParameter(f"profile '{profile.name}' has no [simulation]: use --profile demo", param_hint="'--profile'")
    run(next_days(lake, profile, days), market_of(profile.simulation), lake)


@simulate_app.command()
def calibrate(
    symbol: Annotated[str, typer.Option(help=f"One of {', '.join(SYMBOLS)}, several with commas, or 'all'.")],
    seeds: Annotated[str, typer.Option(help="Development seeds, one simulated day each.")] = "21,22,23",
    hours: Annotated[float, typer.Option(help="Hours per day.")] = 24.0,
    rounds: Annotated[int, typer.Option(min=1, help="Corrections, one after another.")] = 4,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the fit and write nothing.")] = False,
) -> None:
    """Fit a symbol's market to the paper's tables and write the fitted values into its data file."""
    from uqlob_pipeline.market.simulator.fitting import Targets, fit, write_fitted
    from uqlob_pipeline.report.paper import paper

    try:
        names = parse_symbols(symbol)
        chosen = tuple(int(seed) for seed in seeds.split(","))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    for name in names:
        spec = fit(SYMBOLS[name], Targets.from_paper(paper(), name), chosen, hours, rounds, typer.echo)
        typer.echo(f"wrote {write_fitted(spec)}" if not dry_run else str(spec))


def parse_symbols(text: str) -> list[str]:
    """Names checked against the known symbols before any of them becomes a path."""
    names = list(SYMBOLS) if text.strip() == "all" else [name.strip().upper() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in SYMBOLS]
    if unknown or not names:
        raise ValueError(f"unknown symbols {unknown}; choose from {', '.join(SYMBOLS)}, or 'all'")
    return list(dict.fromkeys(names))


def run(asset_days: list[tuple[str, dt.date]], settings: MarketSettings, lake: Lake) -> list[DayWritten]:
    """Simulate asset-days one after another, with a progress bar, and print what was written."""
    # Imported here so that other commands start fast.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from uqlob_pipeline.market.simulator.writing import simulate_day

    console = Console()
    written: list[DayWritten] = []
    began = time.perf_counter()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("events  {task.fields[rate]}"),
        TextColumn("ETA"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("simulating", total=None, rate="")
        written_events = 0
        for number, (symbol, day) in enumerate(asset_days):

            def report(
                done: int, expected: int, number: int = number, name: str = f"{symbol} {day}", before: int = written_events
            ) -> None:
                rate = (before + done) / max(time.perf_counter() - began, 1e-9)
                # The days still to come are taken to be like this one.
                total = before + expected * (len(asset_days) - number)
                progress.update(task, completed=before + done, total=total, description=name, rate=f"{rate:,.0f}/s")

            written.append(simulate_day(lake.root, symbol, day, settings, report))
            written_events += written[-1].events
        progress.update(task, completed=written_events, total=written_events)
    console.print(_summary(asset_days, written, time.perf_counter() - began))
    console.print(f"in {lake.name}")
    return written


def _summary(asset_days: list[tuple[str, dt.date]], written: list[DayWritten], seconds: float) -> object:
    from rich.table import Table

    table = Table(title="Simulated dumps")
    for column in ("symbol", "days", "of them new", "events", "messages", "trades", "MB"):
        table.add_column(column, justify="left" if column == "symbol" else "right")
    for symbol in dict.fromkeys(symbol for symbol, _ in asset_days):
        days = [day for (name, _), day in zip(asset_days, written, strict=True) if name == symbol]
        new = sum(not day.skipped for day in days)
        counts = [sum(getattr(day, field) for day in days) for field in ("events", "messages", "trades")]
        table.add_row(
            symbol, str(len(days)), str(new), *(f"{count:,}" for count in counts), f"{sum(d.bytes for d in days) / 1e6:,.1f}"
        )
    events = sum(day.events for day in written if not day.skipped)
    table.caption = f"{events:,} events in {seconds:.1f} s" + (f", {events / seconds:,.0f} per second" if events else "")
    return table
