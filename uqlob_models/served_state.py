"""The state of a served head besides its weights: its calibrator and the confidence threshold of each gate.

Both come from the validation days. The file is plain JSON, stored with the model: a served model starts as warm as the test days
of `calibrated_predictions` do, and a caller adds the outcomes since then.
"""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from uqlob_models.distributions import ZeroInflatedT
from uqlob_models.gating import GATES
from uqlob_models.metrics import FloatArray
from uqlob_models.recalibration import LiveCalibrator, recalibrate_with


@dataclass(frozen=True)
class ServedState:
    calibrator: LiveCalibrator | None = None  # of a regression head
    gates: tuple[tuple[int, float], ...] = ()  # (gate q, the confidence at its quantile of the calibration half), ascending

    @classmethod
    def of(cls, calibrator: LiveCalibrator | None, confidence: FloatArray) -> ServedState:
        """`confidence`: of the calibration half, published SNR or largest probability."""
        gates = [(gate, float(np.quantile(confidence, gate / 100))) for gate in GATES if gate] if confidence.size else []
        return cls(calibrator, tuple(gates))

    def to_json(self) -> str:
        return json.dumps({"calibrator": self.calibrator and self.calibrator.state(), "gates": self.gates})

    @classmethod
    def from_json(cls, text: str) -> ServedState:
        found = json.loads(text)
        calibrator = LiveCalibrator.from_state(found["calibrator"]) if found["calibrator"] else None
        return cls(calibrator, tuple((int(gate), float(threshold)) for gate, threshold in found["gates"]))

    def gate(self, confidence: FloatArray) -> NDArray[np.int64]:
        """The tightest gate that each forecast passes: 90 means among the most confident tenth of the calibration half."""
        passed = np.zeros(len(confidence), dtype=np.int64)
        for gate, threshold in self.gates:
            passed = np.where(confidence >= threshold, gate, passed)
        return passed

    def published(self, raw: ZeroInflatedT, t: NDArray[np.int64] | None = None, past: Past | None = None) -> ZeroInflatedT:
        """The forecasts as `calibrated_predictions` publishes them: corrected by the outcomes that are realised by t.

        These are the outcomes of the validation days and those of the past, whose rows may also be later than a forecast. Without
        t, the outcomes of the validation days are all realised, and there is no past.
        """
        if self.calibrator is None:
            return raw
        live = self.calibrator.copy()
        if t is None:
            live.settle()
            live.last_t, t = None, np.zeros(len(raw), dtype=np.int64)
        now = Past(raw, np.full(len(raw), np.nan), t)
        every = now if past is None else past.followed_by(now)
        order = np.argsort(every.t, kind="stable")
        place = np.argsort(order)  # of each row in order of time
        found = recalibrate_with(live, every.raw[order], every.y[order], every.t[order])
        return found[place[len(every.t) - len(raw) :]]


@dataclass(frozen=True)
class Past:
    """Earlier forecasts of the head, before recalibration, with their outcomes; NaN is no outcome."""

    raw: ZeroInflatedT
    y: FloatArray
    t: NDArray[np.int64]

    def followed_by(self, other: Past) -> Past:
        columns = zip(astuple(self.raw), astuple(other.raw), strict=True)
        raw = ZeroInflatedT(*(np.concatenate(pair) for pair in columns))
        return Past(raw, np.concatenate([self.y, other.y]), np.concatenate([self.t, other.t]))
