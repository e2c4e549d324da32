"""Checks that one runs by themselves, on a schedule or by hand: are the fits still what the profile and the lake ask for?"""

from collections.abc import Callable

import dagster as dg

from uqlob_pipeline.features import why_bins_are_stale, why_scales_are_stale
from uqlob_pipeline.labels import why_thresholds_are_stale
from uqlob_pipeline.lake import Lake
from uqlob_pipeline.profile import Profile


def _verdict(lake: Lake, profile: Profile, table: str, ask: Callable[[Lake, Profile, str], str]) -> dg.AssetCheckResult:
    fitted = [symbol for symbol in profile.symbols if lake.by_symbol(table, symbol).exists()]
    stale = {symbol: why for symbol in fitted if (why := ask(lake, profile, symbol))}
    return dg.AssetCheckResult(
        passed=not stale,
        severity=dg.AssetCheckSeverity.WARN,
        description=(
            f"{table} is stale for {', '.join(stale)}: materialise it for these symbols, and then what comes after it"
            if stale
            else f"{table} of {len(fitted)} symbol(s) is what a fit would give now"
        ),
        metadata={"stale": stale},
    )


@dg.asset_check(asset="token_bins")
def bins_stale(lake: dg.ResourceParam[Lake], profile: dg.ResourceParam[Profile]) -> dg.AssetCheckResult:
    """The bins are those of the profile's training days as they are now."""
    return _verdict(lake, profile, "token_bins", why_bins_are_stale)


@dg.asset_check(asset="feature_scales")
def scales_stale(lake: dg.ResourceParam[Lake], profile: dg.ResourceParam[Profile]) -> dg.AssetCheckResult:
    """The scales are those of the profile's training days as they are now."""
    return _verdict(lake, profile, "feature_scales", why_scales_are_stale)


@dg.asset_check(asset="label_thresholds")
def thresholds_stale(lake: dg.ResourceParam[Lake], profile: dg.ResourceParam[Profile]) -> dg.AssetCheckResult:
    """The thresholds are those of the profile's training days as they are now."""
    return _verdict(lake, profile, "label_thresholds", why_thresholds_are_stale)


STALENESS_CHECKS = [bins_stale, scales_stale, thresholds_stale]
