"""The profile's section `economics`: fees, latencies, sizes and limits of acting on a forecast."""

import datetime as dt

from pydantic import Field, model_validator

from uqlob_pipeline.config.section import Section


class FeeTier(Section):
    """Fees by the trader's 30-day volume."""

    name: str = Field(pattern=r"^[0-9a-zA-Z.]+$", description="the volume in USD from which it holds, such as 10M")
    taker_bps: float = Field(ge=0, allow_inf_nan=False)
    maker_bps: float = Field(ge=-10, allow_inf_nan=False, description="negative where the exchange pays for resting orders")


def _tier(name: str, taker_bps: float, maker_bps: float) -> FeeTier:
    return FeeTier(name=name, taker_bps=taker_bps, maker_bps=maker_bps)


KRAKEN_SPOT = (
    _tier("0", 40, 25), _tier("10k", 35, 20), _tier("50k", 24, 14), _tier("100k", 22, 12), _tier("250k", 20, 10),
    _tier("500k", 18, 8), _tier("1M", 16, 6), _tier("2.5M", 14, 4), _tier("5M", 12, 2), _tier("10M", 10, 0),
)  # fmt: skip


class EconomicsSettings(Section):
    tiers: tuple[FeeTier, ...] = Field(KRAKEN_SPOT, min_length=1, description="Kraken's spot fees by 30-day volume")
    fees_as_of: dt.date = Field(dt.date(2026, 9, 1), description="when the fee schedule was published or seen")
    latency_ms: float = Field(5.0, gt=0, description="from a forecast to the arrival of its order; one of latencies_ms")
    latencies_ms: tuple[float, ...] = Field((0.5, 5.0, 50.0, 500.0), min_length=1)
    gates: tuple[int, ...] = Field((0, 50, 90), min_length=1, description="the least confident percent that are not acted on")
    sizes: tuple[float, ...] = Field(
        (0.1, 1.0, 5.0),
        min_length=1,
        description="in median best queues of the calibration half; the first is traded, the others show the capacity",
    )
    patience_s: float = Field(
        1.0, gt=0, allow_inf_nan=False, description="how long an order rests before it is cancelled; half of the horizon at most"
    )
    max_open: int = Field(1, ge=1, description="positions and resting orders of a symbol at one time")
    null_delay_s: float = Field(
        300.0,
        ge=60,
        allow_inf_nan=False,
        description="minimum age of the forecasts used as the null: too old to predict the next price move",
    )

    @model_validator(mode="after")
    def _consistent(self) -> "EconomicsSettings":
        for name in ("latencies_ms", "gates", "sizes"):
            values = list(getattr(self, name))
            if len(set(values)) < len(values):
                raise ValueError(f"{name} contains a value twice: {values}")
        for name in ("latencies_ms", "sizes"):
            values = list(getattr(self, name))
            if not all(0 < value < float("inf") for value in values):
                raise ValueError(f"{name} must be above 0 and finite: {values}")
        if not all(0 <= gate < 100 for gate in self.gates):
            raise ValueError(f"gates must lie in [0, 100): {list(self.gates)}")
        if self.latency_ms not in self.latencies_ms:
            raise ValueError(f"latency_ms = {self.latency_ms} must be one of latencies_ms = {list(self.latencies_ms)}")
        names = [tier.name for tier in self.tiers]
        if len(set(names)) < len(names):
            raise ValueError(f"tiers: two have the same name ({', '.join(names)})")
        return self

    def tier(self, name: str) -> FeeTier | None:
        return next((tier for tier in self.tiers if tier.name == name), None)
