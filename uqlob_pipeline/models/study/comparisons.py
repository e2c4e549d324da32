"""Two questions that the tables of the study do not answer by themselves, from the same rows and paired in the same way.

Does in-context conditioning earn its cost: no context, and shuffled context labels, against the full objective. And does
fine-tuning the encoder: the headline rows end to end against the frozen ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from uqlob_models.paired_comparison import holm, paired_difference
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.models.study.study_tables import (
    Row,
    is_defined,
    is_significant,
    resampling_of,
    score_of,
    seed_values,
    shown_title,
)

Pair = tuple[str, str]  # a variant, and the one that it is compared with
QUESTIONS: dict[str, tuple[Pair, ...]] = {
    "context": (("no-context", "full"), ("shuffled-context", "full")),
    "end_to_end": (("uq-regression-end-to-end", "uq-regression"), ("uq-classification-end-to-end", "uq-classification")),
}
METRICS = (
    ("nlpd", 0),
    ("nlpd_raw", 0),
    ("sign_accuracy", 0),
    ("sign_accuracy", 90),
    ("directional_f1", 0),
    ("directional_f1", 90),
)


@dataclass(frozen=True)
class Comparison:
    """One metric of a variant and of its reference: means over the seeds that both have, and their paired difference."""

    variant: str
    title: str
    reference: str
    reference_title: str
    horizon_s: int
    seeds: int
    metric: str
    gate: int
    mean: float
    reference_mean: float
    difference: float
    lower: float | None
    upper: float | None
    p_holm: float | None
    significant: bool


def compared_pairs(rows: Mapping[tuple[str, str, int], Row], profile: Profile, pairs: Sequence[Pair]) -> list[Comparison]:
    """Every metric of every pair that is there. Holm's correction is over all of them."""
    resampling = resampling_of(profile)
    found = []
    for variant, reference in pairs:
        for (name, confidence, horizon_s), own in rows.items():
            other = rows.get((reference, confidence, horizon_s))
            if name != variant or other is None:
                continue
            for metric, gate in METRICS:
                difference = paired_difference(own.blocks, other.blocks, score_of(metric, gate), resampling)
                if is_defined(own, metric) and difference is not None and np.isfinite(difference.value):
                    found.append((own, other, horizon_s, metric, gate, difference))
    adjusted = holm([difference.p_value for *_, difference in found])
    comparisons = []
    for (own, other, horizon_s, metric, gate, difference), p_holm in zip(found, adjusted, strict=True):
        seeds = sorted(set(own.blocks) & set(other.blocks))
        mean, reference_mean = (float(np.mean(seed_values(row, metric, gate, seeds))) for row in (own, other))
        comparisons.append(
            Comparison(
                variant=own.variant.name,
                title=shown_title(own.variant, profile),
                reference=other.variant.name,
                reference_title=shown_title(other.variant, profile),
                horizon_s=horizon_s,
                seeds=len(seeds),
                metric=metric,
                gate=gate,
                mean=mean,
                reference_mean=reference_mean,
                difference=difference.value,
                lower=difference.lower,
                upper=difference.upper,
                p_holm=p_holm,
                significant=is_significant(difference, p_holm),
            )
        )
    return comparisons
