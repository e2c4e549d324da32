"""What a run says in the terminal: what its assets say, and nothing that hides why one of them failed."""

import dagster as dg
import pytest

from uqlob_pipeline.defs.instance import TERMINAL_RUN_CONFIG, terminal_logger


def test_steps_that_wait_for_a_failed_one_are_not_said(capsys: pytest.CaptureFixture[str], instance: dg.DagsterInstance) -> None:
    @dg.asset
    def fit(context: dg.AssetExecutionContext) -> None:
        context.log.error("no training day is recorded. Not executing.")
        raise dg.Failure("no training day is recorded")

    @dg.asset_check(asset=fit)
    def fit_stale() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    @dg.asset(deps=[fit])
    def made_with_it() -> None: ...

    @dg.asset(deps=[made_with_it])
    def made_with_that() -> None: ...

    assets = [fit, made_with_it, made_with_that]
    defs = dg.Definitions(assets=assets, asset_checks=[fit_stale], loggers={"terminal": terminal_logger})
    job = defs.resolve_implicit_global_asset_job_def()
    assert not job.execute_in_process(instance=instance, run_config=TERMINAL_RUN_CONFIG, raise_on_error=False).success
    assert capsys.readouterr().out == "    error: no training day is recorded. Not executing.\n"
