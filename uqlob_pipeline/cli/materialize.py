"""`uqlob materialize`: any part of the DAG from a terminal."""

import time
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from uqlob_pipeline.cli.command_context import CommandContext, LakeOption, ProfileOption, fail, open_command_context

if TYPE_CHECKING:
    from uqlob_pipeline.cli.planning import Choice

DAY = "%Y-%m-%d"


class Verify(Enum):
    """How many of Kraken's checksums the replay verifies."""

    SAMPLE = "sample"
    ALL = "all"


def split_words(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip()) if text else ()


def materialize(
    select: Annotated[str | None, typer.Option(help="Assets, separated by commas (default: all).")] = None,
    symbols: Annotated[str | None, typer.Option(help="Symbols such as BTC-USD,ETH-USD (default: the profile's).")] = None,
    first: Annotated[
        datetime | None, typer.Option("--from", formats=[DAY], help="First day (default: the first recorded).")
    ] = None,
    last: Annotated[datetime | None, typer.Option("--to", formats=[DAY], help="Last day (default: the last recorded).")] = None,
    horizons: Annotated[str | None, typer.Option(help="Horizons in seconds, such as 5,10 (default: the profile's).")] = None,
    force: Annotated[bool, typer.Option("--force", help="Compute current tables again too.")] = False,
    verify: Annotated[
        Verify,
        typer.Option(help="Checksums of book_events: the profile's sample, or all (makes days with a sample again)."),
    ] = Verify.SAMPLE,
    submit: Annotated[
        bool,
        typer.Option("--submit", help="Request one backfill from the instance's daemon and wait for it; nothing runs here."),
    ] = False,
    lake: LakeOption = None,
    profile: ProfileOption = None,
) -> None:
    """Bring any part of the DAG up to date, in its order, on the instance that the Dagster UI shows.

    Current tables are left alone: a second call takes seconds, and an interrupted one resumes.
    Example: uqlob materialize --select book_events --symbols BTC-USD --from 2026-01-13
    """
    if first and last and first > last:
        raise typer.BadParameter(
            f"{first:{DAY}} is after {last:{DAY}}: exchange them, or leave one out", param_hint="'--from' and '--to'"
        )
    with open_command_context(lake, profile) as command:
        # Imported here so that other commands start fast; likewise below.
        from uqlob_pipeline.cli.planning import Choice

        try:
            seconds = tuple(int(horizon.removesuffix("s")) for horizon in split_words(horizons))
        except ValueError as error:
            raise typer.BadParameter(f"horizons are seconds such as 5,10, not {horizons}") from error
        run(
            command,
            Choice(
                assets=split_words(select),
                symbols=split_words(symbols),
                first=first.date() if first else None,
                last=last.date() if last else None,
                horizons=seconds,
                force=force,
                verify_all=verify is Verify.ALL,
            ),
            submit=submit,
        )


def run(command: CommandContext, choice: "Choice", *, submit: bool = False) -> int:
    """Materialise a choice in the terminal, here or by the instance's daemon; returns the number of runs."""
    import dagster as dg

    from uqlob_pipeline.cli.execution import materialize_choice
    from uqlob_pipeline.cli.planning import MaterializeFailed, nothing_to_do
    from uqlob_pipeline.cli.submission import StoppedWaiting, submit_choice
    from uqlob_pipeline.defs.build_defs import build_defs
    from uqlob_pipeline.defs.instance import open_instance
    from uqlob_pipeline.lake.atomic_files import sweep_temporaries

    profile, lake = command.profile, command.lake
    sweep_temporaries(lake.root)
    defs = build_defs(profile, lake)
    started = time.monotonic()
    try:
        with open_instance() as instance:
            if submit:
                runs = submit_choice(lake, profile, choice, _print, instance)
            else:
                runs = materialize_choice(defs, lake, profile, choice, _print, instance, command.profile_name)
    except MaterializeFailed as error:
        raise fail(error) from error
    except StoppedWaiting as stopped:
        print(stopped, flush=True)
        raise typer.Exit(130) from stopped
    except (KeyboardInterrupt, dg.DagsterExecutionInterruptedError) as stopped:
        print("stopped; finished work is kept, and the same command resumes here", flush=True)
        raise typer.Exit(130) from stopped
    last = f"{runs} run(s) in {time.monotonic() - started:.0f} s" if runs else nothing_to_do(lake, profile, choice)
    if last:
        print(last)
    return runs


def _print(line: str) -> None:
    print(line, flush=True)
