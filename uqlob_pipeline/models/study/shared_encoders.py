"""Pretrained encoders of the study, shared between the variants that do not change them, and their representations.

An encoder is named by a hash of what changes its weights: settings, seed and data. Its representations of all windows, as they
are and mirrored, are computed once and kept beside it.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from uqlob_models.config import NO_EFFECT_ON_WEIGHTS, TrainingConfig, fingerprint
from uqlob_pipeline.lake.atomic_files import atomic_path
from uqlob_pipeline.lake.file_hashes import verified
from uqlob_pipeline.lake.layout import Lake, ModelKey
from uqlob_pipeline.lake.log_function import LogFn
from uqlob_pipeline.models.training_lock import training_lock

if TYPE_CHECKING:
    from uqlob_models.dataset import WindowDataset
    from uqlob_models.frozen import FrozenWindows

RECORD = "encoder.json"


@dataclass(frozen=True)
class SharedEncoder:
    home: Path
    core_seconds: float  # of its pretraining

    @property
    def best(self) -> Path:
        return self.home / "best"


def shared_encoder(
    lake: Lake, key: ModelKey, training_days: "WindowDataset", config: TrainingConfig, log: LogFn
) -> SharedEncoder:
    """The encoder of these settings, pretrained unless another row has done so. `training_days` holds no test day."""
    from uqlob_models.training import train

    home = _home(lake, key) / _identity(training_days, config)
    with training_lock(lake, home, log):
        record = home / RECORD
        if not record.is_file():
            log(f"{key}: pretraining an encoder with seed {config.seed}, which later rows share")
            started = time.process_time()
            train("pretraining", training_days, config, home)
            with atomic_path(record) as temporary:
                temporary.write_text(json.dumps({"core_seconds": time.process_time() - started, "seed": config.seed}))
        return SharedEncoder(home, float(json.loads(record.read_text())["core_seconds"]))


def _home(lake: Lake, key: ModelKey) -> Path:
    return lake.study / "encoders" / f"symbol={key.symbol}" / f"horizon={key.horizon_s}"


def _identity(training_days: "WindowDataset", config: TrainingConfig) -> str:
    settings: dict[str, Any] = asdict(config)
    stage = {name: value for name, value in settings["pretraining"].items() if name not in NO_EFFECT_ON_WEIGHTS}
    kept = {name: settings[name] for name in ("encoder", "seed", "bf16", "store_dtype")}
    return fingerprint({**kept, "stage": stage, "data": training_days.data_version()})


def representations(encoder: SharedEncoder, every_day: "WindowDataset", device: Any, log: LogFn) -> "FrozenWindows":
    """The encoder's representations of all windows, read or computed."""
    import torch

    from uqlob_models.checkpoints import load_model
    from uqlob_models.frozen import FrozenWindows, freeze

    def compute() -> np.ndarray:
        windows = np.arange(len(every_day))
        return freeze(load_model(encoder.best, device).encoder(), every_day, windows).hidden.cpu().numpy()

    name = f"representations-{every_day.data_version()}.npy"
    hidden = cached_array(encoder.home / name, compute, f"encoding {len(every_day)} windows", log)
    return FrozenWindows.of_all(torch.from_numpy(hidden).to(device))


def cached_array(path: Path, compute: Callable[[], np.ndarray], what: str, log: LogFn) -> np.ndarray:
    """An array that is computed once and kept on disk. Versions of other data are cleared away."""
    if not path.is_file():
        log(f"{what}, once for all variants")
        path.parent.mkdir(parents=True, exist_ok=True)
        found = compute()
        with atomic_path(path) as temporary, open(temporary, "wb") as file:
            np.save(file, found, allow_pickle=False)
        for other in path.parent.glob(f"{path.stem.partition('-')[0]}-*.npy"):
            if other != path:
                other.unlink(missing_ok=True)
    kept: np.ndarray = np.load(verified(path), allow_pickle=False)
    return kept
