"""`uqlob materialize`, `uqlob status` and `uqlob demo`: the pipeline from a terminal."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from uqlob_pipeline.lake import Lake
    from uqlob_pipeline.materialize import Choice
    from uqlob_pipeline.profile import Profile

LakeOption = Annotated[Path | None, typer.Option(envvar="UQLOB_LAKE", help="Where data live (default: ./lake).")]
DAY = "%Y-%m-%d"
ProfileOption = Annotated[str | None, typer.Option(envvar="UQLOB_PROFILE", help="Profile: demo, paper or a .toml file.")]


class Verify(Enum):
    """How many of Kraken's checksums the replay verifies."""

    SAMPLE = "sample"
    ALL = "all"


@contextmanager
def chosen(lake: Path | None, profile: str | None, *, only_look: bool = False) -> Iterator[None]:
    """What the definitions read is the environment: say there what the options said, before any of them is imported.

    Whoever does more than look makes the Dagster instance the lake's own first.
    """
    import atexit
    import os

    from uqlob_pipeline.instance import InstanceRefused, claim_instance
    from uqlob_pipeline.lake import Lake
    from uqlob_pipeline.profile import ProfileError

    atexit.register(_last_words)
    if lake is not None:
        os.environ["UQLOB_LAKE"] = str(lake.absolute())
    if profile is not None:
        os.environ["UQLOB_PROFILE"] = str(Path(profile).absolute()) if profile.endswith(".toml") else profile
    try:
        if not only_look:
            claim_instance(Lake().root)
        yield
    except (ProfileError, InstanceRefused, FileNotFoundError) as error:
        raise _fail(error) from error


def _last_words() -> None:
    """Nothing is said after this: DuckDB's binding would list a hundred of its own objects where torch outlives them."""
    import os
    import sys

    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _split(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip()) if text else ()


def _fail(error: Exception) -> typer.Exit:
    from rich.console import Console

    Console(stderr=True).print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
    return typer.Exit(1)


def materialize(
    select: Annotated[str | None, typer.Option(help="Assets, separated by commas (default: all).")] = None,
    symbols: Annotated[str | None, typer.Option(help="Symbols such as BTC-USD,ETH-USD (default: the profile's).")] = None,
    first: Annotated[
        datetime | None, typer.Option("--from", formats=[DAY], help="First day (default: the first recorded).")
    ] = None,
    last: Annotated[datetime | None, typer.Option("--to", formats=[DAY], help="Last day (default: the last there).")] = None,
    horizons: Annotated[str | None, typer.Option(help="Horizons in seconds, such as 5,10 (default: the profile's).")] = None,
    force: Annotated[bool, typer.Option("--force", help="Make what is current as well.")] = False,
    verify: Annotated[
        Verify,
        typer.Option(help="Checksums of book_events: the profile's sample, or all (makes days with a sample again)."),
    ] = Verify.SAMPLE,
    lake: LakeOption = None,
    profile: ProfileOption = None,
) -> None:
    """Bring any part of the DAG up to date, in its order, on the instance that the Dagster UI shows.

    What is current is left alone, so that a second call takes seconds and an interrupted one goes on where it was.
    Example: uqlob materialize --select book_events --symbols BTC-USD --from 2026-01-13
    """
    with chosen(lake, profile):
        from uqlob_pipeline.materialize import Choice

        try:
            seconds = tuple(int(horizon.removesuffix("s")) for horizon in _split(horizons))
        except ValueError as error:
            raise typer.BadParameter(f"horizons are seconds such as 5,10, not {horizons}") from error
        _materialize(
            Choice(
                assets=_split(select),
                symbols=_split(symbols),
                first=first.date() if first else None,
                last=last.date() if last else None,
                horizons=seconds,
                force=force,
                verify_all=verify is Verify.ALL,
            )
        )


def _materialize(choice: "Choice") -> int:
    import dagster as dg

    from uqlob_pipeline.instance import open_instance
    from uqlob_pipeline.lake import Lake, sweep_temporaries
    from uqlob_pipeline.materialize import MaterializeFailed, materialize_choice, nothing_made
    from uqlob_pipeline.profile import load_profile

    profile, lake = load_profile(), Lake()
    sweep_temporaries(lake.root)
    from uqlob_pipeline.definitions import defs

    started = time.monotonic()
    try:
        with open_instance() as instance:
            runs = materialize_choice(defs, lake, profile, choice, lambda line: print(line, flush=True), instance)
    except MaterializeFailed as error:
        raise _fail(error) from error
    except (KeyboardInterrupt, dg.DagsterExecutionInterruptedError) as stopped:
        print("stopped; what was made stays, and the same command goes on from here", flush=True)
        raise typer.Exit(130) from stopped
    last = f"{runs} run(s) in {time.monotonic() - started:.0f} s" if runs else nothing_made(lake, profile, choice)
    if last:
        print(last)
    return runs


def status(lake: LakeOption = None, profile: ProfileOption = None) -> None:
    """Say what the lake holds and what is stale, and why: trained on other data, made with other settings or code."""
    with chosen(lake, profile, only_look=True):
        _show_status()


def _show_status() -> None:
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    from uqlob_pipeline.lake import Lake
    from uqlob_pipeline.materialize import Choice, chosen_days
    from uqlob_pipeline.profile import load_profile
    from uqlob_pipeline.recorded import left_out
    from uqlob_pipeline.status import NOT_THERE, Notes, why_not_there_or_stale, without_dump

    settings, place = load_profile(), Lake()
    days = chosen_days(place, settings, Choice())
    print(f"{place.root}, profile {settings.name}, {len(days)} recorded asset-days")
    grid = Grid()
    for column in ("asset", "current", "stale", "missing", "why"):
        grid.add_column(column, justify="right" if column in ("current", "stale", "missing") else "left")
    notes = Notes()
    for asset, reasons in why_not_there_or_stale(place, settings, days).items():
        stale = {key: why for key, why in reasons.items() if why and why != NOT_THERE}
        missing = sum(why == NOT_THERE for why in reasons.values())
        current = len(reasons) - missing - len(stale)
        grid.add_row(asset, str(current), str(len(stale)), str(missing), Text(notes.in_grid(stale)))
    Console().print(grid)
    for line in notes.lines():
        print(line)
    absent = without_dump(place, settings)
    if absent:
        more = f" and {len(absent) - 12} more" if len(absent) > 12 else ""
        print(f"no dump: {', '.join(str(day) for day in absent[:12])}{more}")
    for line in left_out(settings, place.recorded_days()):
        print(line)


def demo(lake: LakeOption = None, profile: ProfileOption = None) -> None:
    """Simulate the profile's market and run the whole DAG on it, then print what came out and where to look.

    Interrupted and started again it goes on where it was; when all is done a second call takes seconds.
    """
    with chosen(lake, profile):
        _run_demo()


def _run_demo() -> None:
    from concurrent.futures import ThreadPoolExecutor, as_completed

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from uqlob_pipeline.lake import Lake, sweep_temporaries
    from uqlob_pipeline.materialize import Choice
    from uqlob_pipeline.profile import ProfileError, load_profile
    from uqlob_pipeline.side_by_side import cores

    settings, place = load_profile(), Lake()
    if settings.simulation is None:
        raise ProfileError(f"profile '{settings.name}' has no [simulation]: the demo needs one, such as UQLOB_PROFILE=demo")
    from uqlob_pipeline.simulator import MarketSettings, simulate_day

    sweep_temporaries(place.root)
    chosen = settings.simulation
    market = MarketSettings(
        seed=chosen.seed,
        hours=chosen.hours,
        events_per_second=chosen.events_per_second,
        signal=chosen.signal,
        regime=chosen.regime,
    )
    days = [(symbol, day) for symbol in settings.symbols for day in settings.days(symbol, "train", "validation", "test")]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    events = 0
    with Progress(*columns, console=Console()) as progress, ThreadPoolExecutor(cores()) as pool:
        task = progress.add_task("simulating asset-days", total=len(days))
        written = [pool.submit(simulate_day, place.root, symbol, day, market) for symbol, day in days]
        try:
            for done in as_completed(written):  # the market's machine code runs without the interpreter's lock
                events += done.result().events
                progress.advance(task)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    print(f"{events:,} simulated events of {len(settings.symbols)} symbols in {place.root}/raw", flush=True)
    _materialize(Choice())
    _summary(place, settings)


def _summary(lake: "Lake", profile: "Profile") -> None:
    from rich.console import Console

    from uqlob_pipeline.report.overview import overview_table

    console = Console(width=max(Console().width, 124))  # narrower, the table would break its words
    console.print(overview_table(lake, profile))
    console.print(f"report   {lake.report / 'index.html'}", highlight=False, soft_wrap=True)
    console.print("look     make ui   (Dagster on http://127.0.0.1:3000, MLflow on http://127.0.0.1:5000)", highlight=False)
