"""`uqlob study`: runs the rows of the paper's two empty tables, lists what is there, and prints them."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uqlob_pipeline.cli.command_context import CommandContext, LakeOption, ProfileOption, fail, open_command_context

if TYPE_CHECKING:
    from uqlob_pipeline.config.profile import Profile
    from uqlob_pipeline.config.study import Variant
    from uqlob_pipeline.lake.layout import StudyKey

study = typer.Typer(no_args_is_help=True, help="Baselines and ablations with seeds: run, list and print the study's tables.")
VariantsOption = Annotated[str | None, typer.Option(help="Variants, separated by commas (default: all but optional ones).")]
TableOption = Annotated[str | None, typer.Option(help="baselines or ablations (default: both).")]
SeedsOption = Annotated[int | None, typer.Option(min=1, help="How many seeds per row (default: the profile's).")]
TABLES = ("baselines", "ablations")


@study.command()
def run(
    variants: VariantsOption = None,
    table: TableOption = None,
    seeds: SeedsOption = None,
    seed: Annotated[int | None, typer.Option(min=1, help="The rows of one seed alone, counted from 1.")] = None,
    one_process: Annotated[bool, typer.Option("--one-process", help="Train one row after another in this process.")] = False,
    lake: LakeOption = None,
    profile: ProfileOption = None,
) -> None:
    """Make the rows that are missing or stale. A second call takes seconds, an interrupted one resumes.

    Example: uqlob study run --table ablations --seeds 2
    """
    with open_command_context(lake, profile) as command:
        from uqlob_pipeline.cli.parallel import run_in_parallel, trainings_at_once
        from uqlob_pipeline.lake.staleness import NotReady
        from uqlob_pipeline.models.study.rows import why_row_stale

        chosen = _chosen(command.profile, variants, table)
        settings = _with_seeds(command.profile, seeds)
        keys = [key for key in _keys(settings, chosen) if seed in (None, key.seed)]
        try:
            due = [key for key in keys if why_row_stale(command.lake, settings, chosen[key.variant], key)]
        except NotReady as error:
            raise fail(error) from error
        typer.echo(f"{len(due)} of {len(keys)} rows to make" if due else "every row is current")
        started = time.monotonic()
        at_once = 1 if one_process else trainings_at_once(settings, len(due))
        if at_once > 1:
            from uqlob_pipeline.cli.parallel import make_room_in_pool
            from uqlob_pipeline.defs.instance import open_instance

            with open_instance() as instance:
                make_room_in_pool(instance, at_once)
            commands = {title: _command(command, part, seeds) for title, part in shares(due, at_once).items()}
            if failed := run_in_parallel(commands, at_once, _print):
                raise fail(RuntimeError("; ".join(f"{title} failed: {why}" for title, why in failed.items())))
        elif due:
            _run_rows(command, settings, due)
        if due:
            typer.echo(f"{len(due)} row(s) in {time.monotonic() - started:.0f} s; uqlob study show prints the tables")


def shares(due: Sequence[StudyKey], at_once: int) -> dict[str, list[StudyKey]]:
    """The rows of each process by title: one seed each, because the rows of a seed share its encoders. The rows of the last
    seeds, of which there are fewer than processes, are dealt out, so that no core waits."""
    found: dict[str, list[StudyKey]] = {}
    seeds = sorted({key.seed for key in due})
    rest = len(seeds) % at_once
    for seed in seeds:
        parts = -(-at_once // rest) if rest and seed in seeds[-rest:] else 1
        names = list(dict.fromkeys(key.variant for key in due if key.seed == seed))
        for part in range(min(parts, len(names))):
            own = set(names[part::parts])
            title = f"seed {seed}" + (f", part {part + 1} of {parts}" if parts > 1 else "")
            found[title] = [key for key in due if key.seed == seed and key.variant in own]
    return found


def _command(command: CommandContext, keys: Sequence[StudyKey], seeds: int | None) -> list[str]:
    names = dict.fromkeys(key.variant for key in keys)
    options = {"--variants": ",".join(names), "--seed": str(keys[0].seed)}
    options |= {"--lake": command.lake.name, "--profile": command.profile_name}
    options |= {"--seeds": str(seeds)} if seeds else {}
    return ["study", "run", "--one-process", *itertools.chain(*options.items())]


def _run_rows(command: CommandContext, profile: Profile, due: list[StudyKey]) -> None:
    """One Dagster run per row, on the instance that the UI shows."""
    import dagster as dg

    from uqlob_pipeline.cli.execution import failure_of
    from uqlob_pipeline.defs.build_defs import build_defs
    from uqlob_pipeline.defs.instance import TERMINAL_RUN_CONFIG, open_instance
    from uqlob_pipeline.defs.orphaned_runs import PROCESS_TAG
    from uqlob_pipeline.defs.partitions import study_partition_key
    from uqlob_pipeline.lake.process_identity import process_identity
    from uqlob_pipeline.models.study.rows import ROWS

    job = build_defs(profile, command.lake).resolve_implicit_global_asset_job_def()
    try:
        with open_instance() as instance:
            for number, key in enumerate(due, 1):
                started = time.monotonic()
                result = job.execute_in_process(
                    instance=instance,
                    asset_selection=[dg.AssetKey(ROWS)],
                    run_config=TERMINAL_RUN_CONFIG,
                    raise_on_error=False,
                    tags={PROCESS_TAG: process_identity()},
                    partition_key=study_partition_key(key),
                )
                if not result.success:
                    raise fail(RuntimeError(f"{key} failed: {failure_of(result)} (run {result.run_id})"))
                _print(f"{key}: done in {time.monotonic() - started:.0f} s ({number} of {len(due)})")
    except (KeyboardInterrupt, dg.DagsterExecutionInterruptedError) as stopped:
        _print("stopped; finished rows are kept, and the same command resumes here")
        raise typer.Exit(130) from stopped


@study.command("list")
def list_rows(table: TableOption = None, lake: LakeOption = None, profile: ProfileOption = None) -> None:
    """List the variants, how many of their rows are current, and what would fill the others."""
    with open_command_context(lake, profile, read_only=True) as command:
        from rich.console import Console
        from rich.table import Table

        from uqlob_pipeline.lake.staleness import NotReady
        from uqlob_pipeline.models.study.rows import why_row_stale
        from uqlob_pipeline.models.study.study_tables import fill_command

        chosen = _chosen(command.profile, None, table)
        shown = Table(title=f"Rows of the study, profile {command.profile.name}")
        for name in ("table", "variant", "what it is", "current", "to fill it"):
            shown.add_column(name, justify="right" if name == "current" else "left")
        for name, variant in chosen.items():
            keys = _keys(command.profile, {name: variant})
            try:
                stale = [key for key in keys if why_row_stale(command.lake, command.profile, variant, key)]
            except NotReady as error:
                raise fail(error) from error
            remedy = fill_command(stale[0]) if stale else ""
            shown.add_row(variant.table, name, variant.title, f"{len(keys) - len(stale)} of {len(keys)}", remedy)
        Console(width=max(Console().width, 150)).print(shown)


@study.command()
def show(
    table: TableOption = None,
    lake: Annotated[
        list[str] | None, typer.Option(help="A lake, a path or a URL; given several times, each is a market (default: ./lake).")
    ] = None,
    symbol: Annotated[str | None, typer.Option(help="One symbol alone (default: all of the study, pooled).")] = None,
    output: Annotated[Path | None, typer.Option(help="Directory for the CSV files (default: study/ of the lake).")] = None,
    profile: ProfileOption = None,
) -> None:
    """Print the tables from the rows that exist, and write them as CSV and to MLflow."""
    with open_command_context(lake[0] if lake else None, profile, read_only=True) as command, contextlib.ExitStack() as copies:
        from rich.console import Console

        from uqlob_pipeline.cli.study_display import comparison_table, table_of
        from uqlob_pipeline.lake.shared_lake import open_lake, working_copy
        from uqlob_pipeline.models.study.captions import caption
        from uqlob_pipeline.models.study.comparisons import QUESTIONS, compared_pairs
        from uqlob_pipeline.models.study.study_tables import (
            fill_command,
            missing_rows,
            read_rows,
            study_cells,
            write_csv,
        )
        from uqlob_pipeline.tracking.client import Tracking
        from uqlob_pipeline.tracking.study_runs import table_written

        opened = [command.lake, *(open_lake(place) for place in (lake or [])[1:])]
        lakes = [copies.enter_context(working_copy(opened[0])), *opened[1:]]  # the tables are written into the first
        rows = read_rows(lakes, command.profile, symbol)
        console = Console(width=max(Console().width, 170))
        missing = missing_rows(lakes, command.profile)
        if not rows:
            typer.echo(f"no row exists yet: {fill_command(missing[0])}", err=True)
            raise typer.Exit(1)
        for name in [table] if table else TABLES:
            cells = study_cells(rows, command.profile, name)
            text = caption(cells, command.profile, f"{len(lakes)} markets" if len(lakes) > 1 else None)
            console.print(table_of(cells, name), markup=False)
            console.print(text, highlight=False)
            path = write_csv(cells, (output or lakes[0].study) / f"{name}{f'-{symbol}' if symbol else ''}.csv")
            console.print(f"written to {path if output else lakes[0].address(path)}", highlight=False, soft_wrap=True)
            if cells and len(lakes) == 1 and symbol is None:
                table_written(Tracking(lakes[0], command.profile), name, [path], text, _print)
        for question, pairs in QUESTIONS.items() if table is None else ():
            if comparisons := compared_pairs(rows, command.profile, pairs):
                console.print(comparison_table(comparisons, question), markup=False)
        for variant in dict.fromkeys(key.variant for key in missing):
            count = sum(key.variant == variant for key in missing)
            first = next(key for key in missing if key.variant == variant)
            console.print(f"missing: {count} row(s) of {variant}: {fill_command(first)}", highlight=False)


def _chosen(profile: Profile, names: str | None, table: str | None) -> dict[str, Variant]:
    from uqlob_pipeline.config.study import read_variants

    if table is not None and table not in TABLES:
        raise typer.BadParameter(f"'{table}' is no table: baselines or ablations", param_hint="'--table'")
    known = {name: one for name, one in read_variants(profile.study).items() if table in (None, one.table)}
    if names is None:
        return {name: one for name, one in known.items() if not one.optional}
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := [name for name in wanted if name not in known]:
        raise typer.BadParameter(f"no variant {', '.join(unknown)}; there are {', '.join(known)}", param_hint="'--variants'")
    return {name: known[name] for name in wanted}


def _with_seeds(profile: Profile, seeds: int | None) -> Profile:
    if seeds is None:
        return profile
    return profile.model_copy(update={"study": profile.study.model_copy(update={"seeds": seeds})})


def _keys(profile: Profile, variants: dict[str, Variant]) -> list[StudyKey]:
    from uqlob_pipeline.lake.study_keys import study_keys

    return study_keys(profile, variants)


def _print(line: str) -> None:
    print(line, flush=True)
