"""Translates errors of a step into Dagster's terms: retry, failure or cancellation.

A `RetryPolicy` would also retry a cancelled run. Therefore retries are requested here, and only for temporary errors: a lock,
a full disk.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from uqlob_models.training_result import NonFiniteLoss, TrainingInterrupted
from uqlob_pipeline.config.profile import ProfileError
from uqlob_pipeline.config.study import StudyError
from uqlob_pipeline.lake.file_hashes import DamagedFile
from uqlob_pipeline.lake.staleness import NotReady
from uqlob_pipeline.market.kraken.ingest_report import IngestError

MAX_RETRIES = 2
FIRST_WAIT_S = 10


@contextmanager
def translate_errors(context: dg.AssetExecutionContext) -> Iterator[None]:
    """Permanent errors fail without retry; an interrupted training is a cancelled run."""
    try:
        yield
    except (NotReady, ProfileError, StudyError, IngestError, NonFiniteLoss, DamagedFile) as error:
        raise dg.Failure(description=str(error), allow_retries=False) from error
    except TrainingInterrupted as error:
        context.log.warning(str(error))
        raise dg.DagsterExecutionInterruptedError(str(error)) from error
    except OSError as error:
        if context.retry_number >= MAX_RETRIES:
            raise dg.Failure(description=f"{type(error).__name__}: {error}", allow_retries=False) from error
        wait = FIRST_WAIT_S * 2**context.retry_number
        context.log.warning(f"{type(error).__name__}: {error}; retrying in {wait} s")
        raise dg.RetryRequested(max_retries=MAX_RETRIES, seconds_to_wait=wait) from error
