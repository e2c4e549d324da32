"""The options that every command shares, and the profile, lake and Dagster instance that they name."""

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from uqlob_pipeline.config.profile import Profile
    from uqlob_pipeline.lake.layout import Lake

LakeOption = Annotated[
    str | None, typer.Option(envvar="UQLOB_LAKE", help="Where data live: a path or s3://bucket/prefix (default: ./lake).")
]
ProfileOption = Annotated[
    str | None, typer.Option(envvar="UQLOB_PROFILE", help="Profile: demo, paper, free-days or a .toml file.")
]


@dataclass(frozen=True)
class CommandContext:
    """The profile and the lake of one command."""

    profile: "Profile"
    lake: "Lake"
    profile_name: str  # as another process must be given it


@contextmanager
def open_command_context(
    lake: Path | str | None, profile: str | None, *, read_only: bool = False, indexed: bool = False
) -> Iterator[CommandContext]:
    """Load the profile and find the lake; expected errors end the command with one line.

    A command that writes claims the Dagster instance for the lake and the profile first. One that asks for staleness alone
    needs no more than an indexed view of a store.
    """
    # Imported here so that other commands start fast, and a command that only reads without Dagster.
    from uqlob_pipeline.config.profile import load_profile
    from uqlob_pipeline.lake.shared_lake import open_lake

    atexit.register(_silence_stderr_at_exit)
    name = str(Path(profile).absolute()) if profile and profile.endswith(".toml") else profile or "demo"
    try:
        place = open_lake(lake, indexed=indexed)
        settings = load_profile(name)
        if not read_only:
            from uqlob_pipeline.defs.instance import claim_instance, claim_profile

            claim_instance(place.name)
            claim_profile(name)
        yield CommandContext(settings, place, name)
    except _expected_errors() as error:  # evaluated when there is an error
        raise fail(error) from error


def _expected_errors() -> tuple[type[Exception], ...]:
    from uqlob_pipeline.config.profile import ProfileError
    from uqlob_pipeline.config.study import StudyError
    from uqlob_pipeline.defs.instance import InstanceRefused
    from uqlob_pipeline.lake.file_hashes import DamagedFile
    from uqlob_pipeline.lake.store import StoreError, StoreRefused

    return ProfileError, StudyError, InstanceRefused, FileNotFoundError, DamagedFile, StoreError, StoreRefused


def _silence_stderr_at_exit() -> None:
    """DuckDB's binding lists a hundred leaked objects at exit where torch outlives them."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def fail(error: Exception) -> typer.Exit:
    """Print an error as one line; the caller raises what is returned."""
    from rich.console import Console

    Console(stderr=True).print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
    return typer.Exit(1)
