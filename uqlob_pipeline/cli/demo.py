"""`uqlob demo`: the whole pipeline on the simulated market."""

from typing import TYPE_CHECKING, Annotated

import typer

from uqlob_pipeline.cli.command_context import CommandContext, LakeOption, ProfileOption, open_command_context
from uqlob_pipeline.cli.materialize import run

if TYPE_CHECKING:
    from uqlob_pipeline.config.profile import Profile
    from uqlob_pipeline.lake.layout import Lake


def demo(
    by_symbol: Annotated[
        bool, typer.Option("--by-symbol", help="Print the results of each symbol by itself, not pooled over symbols.")
    ] = False,
    lake: LakeOption = None,
    profile: ProfileOption = None,
) -> None:
    """Simulate the profile's market and run the whole DAG on it, then print the results and where to look.

    Interrupted and started again, it resumes; once finished, a second call takes seconds.
    """
    with open_command_context(lake, profile) as command:
        _run_demo(command, by_symbol)


def _run_demo(command: CommandContext, by_symbol: bool) -> None:
    # Imported here so that other commands start fast; likewise below.
    from concurrent.futures import ThreadPoolExecutor, as_completed

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from uqlob_pipeline.cli.parallel import cores
    from uqlob_pipeline.cli.planning import Choice
    from uqlob_pipeline.config.profile import ProfileError
    from uqlob_pipeline.lake.atomic_files import sweep_temporaries

    settings, place = command.profile, command.lake
    if settings.simulation is None:
        raise ProfileError(f"profile '{settings.name}' has no [simulation]: the demo needs one, such as UQLOB_PROFILE=demo")
    from uqlob_pipeline.cli.simulate import market_of
    from uqlob_pipeline.lake.shared_lake import working_copy
    from uqlob_pipeline.market.simulator import simulate_day

    sweep_temporaries(place.root)
    market = market_of(settings.simulation)
    days = [(symbol, day) for symbol in settings.symbols for day in settings.days(symbol, "train", "validation", "test")]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    events = 0
    with (
        Progress(*columns, console=Console()) as progress,
        working_copy(place, deletes_dumps=True) as copy,
        ThreadPoolExecutor(cores()) as pool,
    ):
        task = progress.add_task("simulating asset-days", total=len(days))
        written = [pool.submit(simulate_day, copy.root, symbol, day, market) for symbol, day in days]
        try:
            for done in as_completed(written):  # the market's machine code runs without the interpreter's lock
                events += done.result().events
                progress.advance(task)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    print(f"{events:,} simulated events of {len(settings.symbols)} symbols in {place.address(place.root / 'raw')}", flush=True)
    place.refresh()
    run(command, Choice())
    _summary(place, settings, by_symbol)


def _summary(lake: "Lake", profile: "Profile", by_symbol: bool) -> None:
    from rich.console import Console

    from uqlob_pipeline.report.overview import overview_table

    console = Console(width=max(Console().width, 156))  # narrower, the table would break its words
    console.print(overview_table(lake, profile, by_symbol=by_symbol))
    console.print(f"report   {lake.address(lake.report / 'index.html')}", highlight=False, soft_wrap=True)
    console.print("open     make ui   (Dagster on http://127.0.0.1:3000, MLflow on http://127.0.0.1:5000)", highlight=False)
