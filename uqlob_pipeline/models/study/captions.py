"""Captions of the study's tables: market, seeds, windows, mode, and what would change the conclusion."""

import math
from collections.abc import Sequence

from uqlob_models.bootstrap import Bootstrap
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.config.study import REFERENCE
from uqlob_pipeline.models.study.study_tables import SIGNIFICANT, StudyCell

TITLES = {
    "baselines": "Baselines under matched gating",
    "ablations": "Ablation of the objective and of in-context conditioning",
}
METRIC_NAMES = {
    "directional_f1": "dir. F1",
    "sign_accuracy": "sign acc.",
    "sign_accuracy_gain": "sign gain",
    "nlpd": "NLPD",
    "nlpd_raw": "NLPD raw",
    "nlpd_ewma": "NLPD, EWMA width",
    "cov68_raw": "cov68 raw",
    "wr2": "WR²",
}


def column_name(metric: str, gate: int) -> str:
    return METRIC_NAMES[metric] + (f" top {100 - gate} %" if gate else "")


def caption(cells: Sequence[StudyCell], profile: Profile, market: str | None = None) -> str:
    """Market, seeds, windows, mode, and what would change the conclusion. `market` describes it if the profile does not."""
    if not cells:
        return "No row exists yet."
    simulated = profile.simulation
    if market is None:
        market = f"simulated market, seed {simulated.seed}" if simulated else f"recorded data of profile {profile.name}"
    seeds, windows = sorted({cell.seeds for cell in cells}), sorted({cell.windows for cell in cells})
    modes = sorted({cell.mode for cell in cells if cell.mode})
    counted = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0])
    forecasts = f"{windows[0]:,} to {windows[-1]:,}" if len(windows) > 1 else f"{windows[0]:,}"
    tested = [cell for cell in cells if cell.difference is not None]
    unknown = [cell for cell in tested if cell.lower is None]
    marked = [cell for cell in tested if cell.significant]
    per = "per row and market" if cells[0].markets > 1 else "per row"
    sentences = [
        f"{market[0].upper()}{market[1:]}; {counted} training seed{'' if seeds[-1] == 1 else 's'} {per}, "
        f"{forecasts} test forecasts, heads {' and '.join(modes) or 'not trained'}.",
        f"± is the standard deviation over training seeds. Differences are to the row {REFERENCE[cells[0].table]}, paired by "
        f"seed and block of time; * marks {len(marked)} of {len(tested)}, whose 95 % interval excludes zero after Holm's "
        "correction.",
    ]
    if unknown:
        sentences.append(
            f"{len(unknown)} have no interval: fewer than {Bootstrap.minimum_blocks} blocks of time. More test days give one."
        )
    if seeds[0] == 1:
        sentences.append("With one seed, an interval holds for that training alone and not for the method.")
    sentences.append(
        "A difference without a mark is no proof of equality: more seeds, test days or markets narrow the interval. "
        "Another market, recipe or mode may order the rows otherwise."
    )
    closest = closest_call(tested)
    if closest is not None:
        sentences.append(
            f"The first mark to change would be that of {closest.title}, {column_name(closest.metric, closest.gate)}: "
            f"{closest.lower:+.3f} to {closest.upper:+.3f}{'' if closest.significant else ', not marked'}."
        )
    return " ".join(sentences)


def closest_call(tested: Sequence[StudyCell]) -> StudyCell | None:
    """The difference whose corrected p-value is nearest to the level at which it is marked."""
    known = [cell for cell in tested if cell.p_holm is not None]
    return min(known, key=lambda cell: abs(math.log((cell.p_holm or 1.0) / SIGNIFICANT)), default=None)
