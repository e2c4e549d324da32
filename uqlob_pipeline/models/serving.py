"""From a lake to the input of a served model: complete instances, the target last among its windows."""

from typing import Any

import numpy as np

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.file_hashes import read_table
from uqlob_pipeline.lake.layout import AssetDay, Lake, ModelKey
from uqlob_pipeline.lake.staleness import NotReady
from uqlob_pipeline.models.forecasts import day_windows


def served_instances(lake: Lake, profile: Profile, key: ModelKey, day: AssetDay, last: int = 1) -> dict[str, Any]:
    """The tensors that a registered model takes, for the day's last windows that have a full context.

    `tokens` (n, C + 1, T), `continuous` (n, C + 1, 7, T) and `context_displacement` (n, C) in ticks; C windows of context come
    before the target. Outcomes are those known when the target window ends.
    """
    dataset = day_windows(lake, profile, key, day)
    size = profile.training.head.context
    targets = dataset.targets(None, size, labelled=False)[-last:]
    if not len(targets):
        raise NotReady(f"{day}: no window has the {size} known outcomes before it that a forecast at {key.horizon_s} s needs")
    context = dataset.context(size).windows(targets)
    windows = np.concatenate([context, targets[:, None]], axis=1)
    tokens, continuous = dataset.read(windows.ravel())
    return {
        "tokens": tokens.view(np.uint16).astype(np.int32).reshape(*windows.shape, -1),
        "continuous": continuous.astype(np.float32).reshape(*windows.shape, *continuous.shape[1:]),
        "context_displacement": dataset.y[context],
    }


def served_outcomes(lake: Lake, key: ModelKey, day: AssetDay, last: int = 1) -> dict[str, Any]:
    """The parameters that a regression model takes beside the instances of the day's last windows, from the day's `forecasts`.

    `t` is the end of each target window; `past_*` are the earlier forecasts of the day, before recalibration, whose outcome is
    known by now. The model counts an outcome only from when it is known.
    """
    path = lake.forecasts(day)
    if not path.is_file():
        raise NotReady(f"the table forecasts is missing for {day}: run uqlob predict")
    rows = read_table(path, filters=[("horizon_s", "=", key.horizon_s)]).sort_by("t")
    if "location" not in rows.column_names:
        raise NotReady(f"{key} has no regression head: a classification model takes no outcomes")
    prefix = "raw_" if "lower_68" in rows.column_names else ""  # without recalibration the published columns are the head's own
    known = rows.filter(rows["y"].is_valid())
    past = {name: known[f"{prefix}{name}"].to_pylist() for name in ("p_zero", "location", "scale", "dof")}
    past |= {"t": known["t"].to_pylist(), "y": known["y"].to_pylist()}
    return {"t": rows["t"].to_pylist()[-last:], **{f"past_{name}": values for name, values in past.items()}}
