"""`uqlob predict`: forecasts for the days after the validation split, with the models in use."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from uqlob_pipeline.cli.command_context import CommandContext, LakeOption, ProfileOption, open_command_context
from uqlob_pipeline.cli.materialize import DAY, run, split_words

if TYPE_CHECKING:
    from uqlob_pipeline.cli.planning import Choice

FORECAST_ASSETS = ("book_events", "window_prices", "event_features", "window_labels", "forecasts")


def predict(
    symbols: Annotated[str | None, typer.Option(help="Symbols such as BTC-USD,ETH-USD (default: the profile's).")] = None,
    first: Annotated[
        datetime | None, typer.Option("--from", formats=[DAY], help="First day (default: the first after the validation split).")
    ] = None,
    last: Annotated[datetime | None, typer.Option("--to", formats=[DAY], help="Last day (default: the last recorded).")] = None,
    lake: LakeOption = None,
    profile: ProfileOption = None,
) -> None:
    """Forecast the recorded days after the validation split, labelled or not, with the models in use.

    Splits and profile stay as they are, and nothing is trained. Days that are forecast already are left alone.
    Example: uqlob predict --from 2026-01-19
    """
    with open_command_context(lake, profile) as command:
        # Imported here so that other commands start fast.
        from uqlob_pipeline.cli.planning import Choice

        begin = command.profile.splits.test.first
        chosen = first.date() if first else begin
        if chosen < begin:
            raise typer.BadParameter(
                f"{chosen} is a day that the models learnt from: forecasts begin on {begin}", param_hint="'--from'"
            )
        choice = Choice(assets=FORECAST_ASSETS, symbols=split_words(symbols), first=chosen, last=last.date() if last else None)
        run(command, choice)
        _summary(command, choice)


def _summary(command: CommandContext, choice: "Choice") -> None:
    """The forecast days and where their files are."""
    import pyarrow.parquet as pq

    from uqlob_pipeline.cli.planning import chosen_days

    days = [day for day in chosen_days(command.lake, command.profile, choice) if command.lake.forecasts(day).is_file()]
    for day in days:
        path = command.lake.forecasts(day)
        print(f"{day}  {pq.read_metadata(path).num_rows:,} forecasts  {command.lake.address(path)}")
