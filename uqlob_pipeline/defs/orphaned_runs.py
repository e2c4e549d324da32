"""Ends the Dagster runs of terminals that were killed.

A run started from a terminal lives in that process; nothing else watches it. Killed, it would be shown as running for ever
and hold the GPU's pool, and whatever trains next would wait for it without end. So each such run says which process it is, and
the next one to come along ends those whose process is gone.
"""

import dagster as dg

from uqlob_pipeline.lake.process_identity import has_ended

PROCESS_TAG = "uqlob/process"
UNDER_WAY = [dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED]


def end_orphaned_runs(instance: dg.DagsterInstance) -> list[str]:
    """Mark runs whose terminal was killed as failed and free what they held; returns their ids."""
    ended = []
    for run in instance.get_runs(filters=dg.RunsFilter(statuses=UNDER_WAY)):
        mark = run.tags.get(PROCESS_TAG)
        if mark and has_ended(mark):
            instance.report_run_failed(run, "the terminal that ran it was killed; materialise again to go on where it was")
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
            ended.append(run.run_id)
    return ended
