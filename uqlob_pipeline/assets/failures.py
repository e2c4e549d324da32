"""What Dagster is told when a step does not succeed: try again, give up, or it was stopped.

A `RetryPolicy` would also try again what a person has cancelled, so that retries are asked for here, and only for what may pass:
a lock, a full disk that was freed.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from uqlob_models.outcomes import NonFiniteLoss, TrainingInterrupted
from uqlob_pipeline.fits import NotReady
from uqlob_pipeline.kraken.ingest_report import IngestError
from uqlob_pipeline.profile import ProfileError

MAX_RETRIES = 2
FIRST_WAIT_S = 10


@contextmanager
def told_to_dagster(context: dg.AssetExecutionContext) -> Iterator[None]:
    """What no retry mends is a failure that is not tried again; a training that was stopped is a cancelled run."""
    try:
        yield
    except (NotReady, ProfileError, IngestError, NonFiniteLoss) as error:
        raise dg.Failure(description=str(error), allow_retries=False) from error
    except TrainingInterrupted as error:
        context.log.warning(str(error))
        raise dg.DagsterExecutionInterruptedError(str(error)) from error
    except OSError as error:
        if context.retry_number >= MAX_RETRIES:
            raise dg.Failure(description=f"{type(error).__name__}: {error}", allow_retries=False) from error
        wait = FIRST_WAIT_S * 2**context.retry_number
        context.log.warning(f"{type(error).__name__}: {error}; trying again in {wait} s")
        raise dg.RetryRequested(max_retries=MAX_RETRIES, seconds_to_wait=wait) from error
