"""The few numbers that a terminal shows at the end of a run: coverage and gated F1, beside the paper's."""

from rich.table import Table

from uqlob_models.evaluation import HEADS
from uqlob_pipeline.evaluation_tables import read_evaluation
from uqlob_pipeline.lake import Lake, ModelKey
from uqlob_pipeline.profile import Profile
from uqlob_pipeline.report.paper import printed

GATES = (0, 50, 90)


def overview_table(lake: Lake, profile: Profile) -> Table:
    """A row a model and head: coverage of the intervals, directional macro F1 at three gates, and what chance would give."""
    market = "simulated market: its numbers show that the machinery works, nothing more" if profile.simulated else "test days"
    table = Table(
        title=f"Gated evaluation, {market}", caption="reference: share-matched directional F1 of the most confident 10 %"
    )
    for column in ("model", "head", "cov68", "cov95", "F1 all", "F1 top 50 %", "F1 top 10 %", "reference", "paper all / 50 / 10"):
        table.add_column(column, justify="left" if column in ("model", "head") else "right")
    for symbol in profile.symbols:
        for horizon in profile.evaluation.horizons_s:
            evaluation = read_evaluation(lake, ModelKey(symbol, horizon))
            if evaluation is None:
                continue
            scores = {
                (row["head"], row["metric"], row["gate"]): row["value"]
                for row in evaluation.scores.to_pylist()
                if row["gate_kind"] == "percentile"
            }
            for head in HEADS:
                if (head, "directional_f1", 0) not in scores:
                    continue
                beside = [printed("directional_f1", head, horizon, "directional_f1", gate) for gate in GATES]
                table.add_row(
                    f"{symbol} {horizon}s",
                    head,
                    _shown(scores.get((head, "cov68", 0))),
                    _shown(scores.get((head, "cov95", 0))),
                    *(_shown(scores.get((head, "directional_f1", gate))) for gate in GATES),
                    _shown(_difference(scores, head)),
                    " / ".join(_shown(value, 2) for value in beside),
                )
    return table


def _difference(scores: dict[tuple[str, str, int], float | None], head: str) -> float | None:
    score, over = scores.get((head, "directional_f1", 90)), scores.get((head, "directional_f1_over_share", 90))
    return None if score is None or over is None else score - over


def _shown(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}"
