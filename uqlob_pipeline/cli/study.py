"""`uqlob study`: runs the rows of the paper's two empty tables, lists what is there, and prints them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uqlob_pipeline.cli.workplace import LakeOption, ProfileOption, Workplace, fail, open_workplace

if TYPE_CHECKING:
    from rich.table import Table

    from uqlob_pipeline.config.profile import Profile
    from uqlob_pipeline.config.study import Variant
    from uqlob_pipeline.lake.layout import StudyKey
    from uqlob_pipeline.models.study.study_tables import StudyCell

study = typer.Typer(no_args_is_help=True, help="Baselines and ablations with seeds: run, list and print the study's tables.")
VariantsOption = Annotated[str | None, typer.Option(help="Variants, separated by commas (default: all but optional ones).")]
TableOption = Annotated[str | None, typer.Option(help="baselines or ablations (default: both).")]
SeedsOption = Annotated[int | None, typer.Option(min=1, help="How many seeds per row (default: the profile's).")]
TABLES = ("baselines", "ablations")
HEADINGS = {
    "directional_f1": "dir. F1",
    "sign_accuracy": "sign acc.",
    "sign_accuracy_gain": "sign gain",
    "nlpd": "NLPD",
    "nlpd_raw": "NLPD raw",
    "cov68_raw": "cov68 raw",
    "wr2": "WR²",
}


@study.command()
def run(
    variants: VariantsOption = None,
    table: TableOption = None,
    seeds: SeedsOption = None,
    one_process: Annotated[bool, typer.Option("--one-process", help="Train one row after another in this process.")] = False,
    lake: LakeOption = None,
    profile: ProfileOption = None,
) -> None:
    """Make the rows that are missing or stale. A second call takes seconds, an interrupted one resumes.

    Example: uqlob study run --table ablations --seeds 2
    """
    with open_workplace(lake, profile) as workplace:
        from uqlob_pipeline.cli.parallel import run_in_parallel, trainings_at_once
        from uqlob_pipeline.lake.staleness import NotReady
        from uqlob_pipeline.models.study.rows import why_row_stale

        chosen = _chosen(workplace.profile, variants, table)
        settings = _with_seeds(workplace.profile, seeds)
        try:
            due = [key for key in _keys(settings, chosen) if why_row_stale(workplace.lake, settings, chosen[key.variant], key)]
        except NotReady as error:
            raise fail(error) from error
        names = list(dict.fromkeys(key.variant for key in due))
        typer.echo(f"{len(due)} of {len(_keys(settings, chosen))} rows to make" if due else "every row is current")
        started = time.monotonic()
        at_once = 1 if one_process else trainings_at_once(settings, len(names))
        if at_once > 1:
            from uqlob_pipeline.cli.parallel import make_room_in_pool
            from uqlob_pipeline.defs.instance import open_instance

            with open_instance() as instance:
                make_room_in_pool(instance, at_once)
            commands = {name: _command(workplace, name, seeds) for name in names}
            if failed := run_in_parallel(commands, at_once, _print):
                raise fail(RuntimeError("; ".join(f"{name} failed: {why}" for name, why in failed.items())))
        elif due:
            _run_rows(workplace, settings, due)
        if due:
            typer.echo(f"{len(due)} row(s) in {time.monotonic() - started:.0f} s; uqlob study show prints the tables")


def _command(workplace: Workplace, variant: str, seeds: int | None) -> list[str]:
    options = {"--variants": variant, "--lake": workplace.lake.name, "--profile": workplace.profile_name}
    options |= {"--seeds": str(seeds)} if seeds else {}
    return ["study", "run", "--one-process", *itertools.chain(*options.items())]


def _run_rows(workplace: Workplace, profile: Profile, due: list[StudyKey]) -> None:
    """One Dagster run per row, on the instance that the UI shows."""
    import dagster as dg

    from uqlob_pipeline.cli.execution import failure_of
    from uqlob_pipeline.defs.build_defs import build_defs
    from uqlob_pipeline.defs.instance import TERMINAL_RUN_CONFIG, open_instance
    from uqlob_pipeline.defs.orphaned_runs import PROCESS_TAG
    from uqlob_pipeline.defs.partitions import study_partition_key
    from uqlob_pipeline.lake.process_identity import process_identity
    from uqlob_pipeline.models.study.rows import ROWS

    job = build_defs(profile, workplace.lake).resolve_implicit_global_asset_job_def()
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
    with open_workplace(lake, profile, read_only=True) as workplace:
        from rich.console import Console
        from rich.table import Table

        from uqlob_pipeline.lake.staleness import NotReady
        from uqlob_pipeline.models.study.rows import why_row_stale
        from uqlob_pipeline.models.study.study_tables import fill_command

        chosen = _chosen(workplace.profile, None, table)
        shown = Table(title=f"Rows of the study, profile {workplace.profile.name}")
        for name in ("table", "variant", "what it is", "current", "to fill it"):
            shown.add_column(name, justify="right" if name == "current" else "left")
        for name, variant in chosen.items():
            keys = _keys(workplace.profile, {name: variant})
            try:
                stale = [key for key in keys if why_row_stale(workplace.lake, workplace.profile, variant, key)]
            except NotReady as error:
                raise fail(error) from error
            remedy = fill_command(stale[0]) if stale else ""
            shown.add_row(variant.table, name, variant.title, f"{len(keys) - len(stale)} of {len(keys)}", remedy)
        Console(width=max(Console().width, 150)).print(shown)


@study.command()
def show(
    table: TableOption = None,
    lake: Annotated[
        list[Path] | None, typer.Option(help="Root of a lake; given several times, each is a market (default: ./lake).")
    ] = None,
    symbol: Annotated[str | None, typer.Option(help="One symbol alone (default: all of the study, pooled).")] = None,
    output: Annotated[Path | None, typer.Option(help="Directory for the CSV files (default: study/ of the lake).")] = None,
    profile: ProfileOption = None,
) -> None:
    """Print the tables from the rows that are there, and write them as CSV and to MLflow."""
    with open_workplace(lake[0] if lake else None, profile, read_only=True) as workplace:
        from rich.console import Console

        from uqlob_pipeline.lake.layout import Lake
        from uqlob_pipeline.models.study.study_tables import (
            caption,
            fill_command,
            missing_rows,
            read_rows,
            study_cells,
            write_csv,
        )
        from uqlob_pipeline.tracking.client import Tracking
        from uqlob_pipeline.tracking.study_runs import table_written

        lakes = [Lake(root) for root in lake] if lake else [workplace.lake]
        rows = read_rows(lakes, workplace.profile, symbol)
        console = Console(width=max(Console().width, 170))
        missing = missing_rows(lakes, workplace.profile)
        if not rows:
            typer.echo(f"no row is there yet: {fill_command(missing[0])}", err=True)
            raise typer.Exit(1)
        for name in [table] if table else TABLES:
            cells = study_cells(rows, workplace.profile, name)
            text = caption(cells, workplace.profile, len(lakes))
            console.print(table_of(cells, name), markup=False)
            console.print(text, highlight=False)
            path = write_csv(cells, (output or lakes[0].study) / f"{name}{f'-{symbol}' if symbol else ''}.csv")
            console.print(f"written to {path}", highlight=False, soft_wrap=True)
            if cells and len(lakes) == 1 and symbol is None:
                table_written(Tracking(lakes[0], workplace.profile), name, [path], text, _print)
        for variant in dict.fromkeys(key.variant for key in missing):
            count = sum(key.variant == variant for key in missing)
            first = next(key for key in missing if key.variant == variant)
            console.print(f"missing: {count} row(s) of {variant}: {fill_command(first)}", highlight=False)


def table_of(cells: Sequence[StudyCell], name: str) -> Table:
    """One row per variant, confidence score and horizon, as in the paper's layout."""
    from rich.table import Table

    from uqlob_pipeline.models.study.study_tables import COLUMNS

    titles = {
        "baselines": "Baselines under matched gating",
        "ablations": "Ablation of the objective and of in-context conditioning",
    }
    shown = Table(title=f"{titles[name]} (* significant after Holm's correction; difference with 95 % interval in brackets)")
    shown.add_column("row")
    shown.add_column("horizon", justify="right")
    for metric, gate in COLUMNS[name]:
        shown.add_column(HEADINGS[metric] + (f" top {100 - gate} %" if gate else ""), justify="right")
    for heading in ("parameters", "core s", "ms"):
        shown.add_column(heading, justify="right")
    rows: dict[tuple[str, str, int], dict[tuple[str, int], StudyCell]] = {}
    for cell in cells:
        rows.setdefault((cell.variant, cell.confidence, cell.horizon_s), {})[cell.metric, cell.gate] = cell
    for by_metric in rows.values():
        first = next(iter(by_metric.values()))
        spent = sum(by_metric[name, 0].mean or 0 for name in ("core_seconds", "encoder_core_seconds"))
        shown.add_row(
            f"{first.title} ({'SNR' if first.confidence == 'snr' else 'softmax'})",
            f"{first.horizon_s} s",
            *(cell_text(by_metric[column]) for column in COLUMNS[name]),
            f"{by_metric['parameters', 0].mean or 0:,.0f}",
            f"{spent:,.1f}",
            f"{by_metric['milliseconds_per_forecast', 0].mean or 0:.3f}",
        )
    return shown


def cell_text(cell: StudyCell) -> str:
    """Mean ± spread over seeds, the mark, and the difference to the reference row with its interval."""
    if cell.mean is None:
        return "–"
    text = f"{cell.mean:.3f}" + (f" ±{cell.std:.3f}" if cell.std is not None else "") + ("*" if cell.significant else "")
    if cell.difference is None:
        return text
    bounds = "no interval" if cell.lower is None else f"{cell.lower:+.3f} to {cell.upper:+.3f}"
    return f"{text}\n{cell.difference:+.3f} [{bounds}]"


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
    from uqlob_pipeline.models.study.rows import study_keys

    return study_keys(profile, variants)


def _print(line: str) -> None:
    print(line, flush=True)
