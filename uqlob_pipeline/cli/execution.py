"""Runs what was planned on the Dagster instance that the UI shows, in this process or in one process per model."""

import itertools
import time
from typing import Any

import dagster as dg

from uqlob_pipeline.cli.parallel import make_room_in_pool, run_in_parallel, trainings_at_once
from uqlob_pipeline.cli.planning import (
    BOOK_EVENTS,
    Choice,
    MaterializeFailed,
    Run,
    by_process,
    check_choice,
    days_not_taken,
    planned_runs,
    process_title,
    runs_for,
    table_groups,
)
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.defs.instance import TERMINAL_RUN_CONFIG
from uqlob_pipeline.defs.orphaned_runs import PROCESS_TAG, end_orphaned_runs
from uqlob_pipeline.defs.staleness_checks import check_name
from uqlob_pipeline.defs.terminal_origin import show_runs_in_timeline
from uqlob_pipeline.lake.layout import Lake, ModelKey
from uqlob_pipeline.lake.log_function import LogFn
from uqlob_pipeline.lake.process_identity import process_identity
from uqlob_pipeline.lake.staleness import stale_partitions
from uqlob_pipeline.lake.table_registry import ASSET_TABLES

CURRENT_CHECKS = {check_name(table.name): table.name for table in ASSET_TABLES}


def materialize_choice(
    defs: dg.Definitions,
    lake: Lake,
    profile: Profile,
    choice: Choice,
    log: LogFn,
    instance: dg.DagsterInstance,
    profile_name: str | None = None,
) -> int:
    """Bring the chosen part of the DAG up to date; returns the number of runs.

    `profile_name` is how the processes that train in parallel load the same profile.
    """
    check_choice(profile, choice)
    for line in days_not_taken(lake, profile, choice):
        log(line)
    job = defs.resolve_implicit_global_asset_job_def()
    show_runs_in_timeline(instance, job.name)
    for orphan in end_orphaned_runs(instance):
        log(f"run {orphan[:8]} was killed before it ended; resuming")
    count = 0
    checked: set[str] = set()
    for group in table_groups(choice):
        lake.refresh()
        together = by_process(runs_for(group, lake, profile, choice), profile) if group[0].grain == "model" else []
        at_once = trainings_at_once(profile, len(together))
        if at_once > 1:
            _run_models(together, lake, choice, at_once, log, instance, profile_name)
            count += sum(len(runs) for runs in together)
            continue
        for run, number, of in planned_runs(group, lake, profile, choice):
            started = time.monotonic()
            place = f" ({number} of {of})" if of > 1 else ""
            log(f"{run.title}{place}: {'; '.join(sorted(run.reasons))}")
            result = job.execute_in_process(
                instance=instance,
                asset_selection=[dg.AssetKey(name) for name in run.tables],
                run_config=_run_config(run, choice),
                raise_on_error=False,
                tags={PROCESS_TAG: process_identity(), **run.range_tags()},
                partition_key=run.partition_key(),
            )
            count += 1
            for check in result.get_asset_check_evaluations():
                if check.check_name in CURRENT_CHECKS:
                    checked.add(CURRENT_CHECKS[check.check_name])  # what is stale now may be made by a later run of this command
                elif not check.passed:
                    what = f"{check.asset_key.to_user_string()} {check.check_name}"
                    log(f"  {check.severity.value.lower()}: {what}: {check.description}")
            if not result.success:
                raise MaterializeFailed(f"{run.title} failed: {failure_of(result)} (run {result.run_id})")
            log(f"  done in {time.monotonic() - started:.1f} s")
    for table, reasons in stale_partitions(lake, profile, *sorted(checked)).items():
        if reasons:
            log(f"warn: {table} is not current for {len(reasons)} partition(s) after this command: see uqlob status")
    return count


def _run_models(
    together: list[list[Run]],
    lake: Lake,
    choice: Choice,
    at_once: int,
    log: LogFn,
    instance: dg.DagsterInstance,
    profile_name: str | None,
) -> None:
    """Run this command in parallel, once per model or joint training: the runs share the instance, and resume where they were."""
    make_room_in_pool(instance, at_once)
    log(f"{sum(len(runs) for runs in together)} models, {at_once} at a time")
    commands = {process_title(runs): _command(runs, lake, choice, profile_name) for runs in together}
    failed = run_in_parallel(commands, at_once, log)
    if failed:
        raise MaterializeFailed("; ".join(f"{title} failed: {why}" for title, why in failed.items()))


def _command(runs: list[Run], lake: Lake, choice: Choice, profile_name: str | None) -> list[str]:
    """Makes the models of these runs, which are of one symbol; what another of them needs and is current is left alone."""
    keys = [key for run in runs for key in run.keys if isinstance(key, ModelKey)]
    options = {
        "--lake": lake.name,
        "--select": ",".join(max(runs, key=lambda run: len(run.tables)).tables),
        "--symbols": keys[0].symbol,
        "--horizons": ",".join(str(key.horizon_s) for key in keys),
        **({"--profile": profile_name} if profile_name else {}),
    }
    return ["materialize", *itertools.chain(*options.items()), *(["--force"] if choice.force else [])]


def _run_config(run: Run, choice: Choice) -> dict[str, Any]:
    if BOOK_EVENTS not in run.tables:
        return TERMINAL_RUN_CONFIG
    return {**TERMINAL_RUN_CONFIG, "ops": {BOOK_EVENTS: {"config": {"verify_all": choice.verify_all}}}}


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    """The message of the failed step, without Dagster's stack."""
    for event in result.all_events:
        if event.is_step_failure:
            data = event.step_failure_data
            if data.user_failure_data and data.user_failure_data.description:
                return data.user_failure_data.description
            if data.error is not None:
                cause = data.error.cause or data.error
                return cause.message.strip()
    return "see the run in the Dagster UI"
