"""`uqlob bench universal`: one model over all symbols and horizons, judged on a symbol that it was not trained on.

For each left-out symbol a universal model is trained on the other symbols, and gets the left-out symbol's bins, feature scales,
thresholds and y_ref, which are fitted on its training days. Beside it stand the symbol's own joint model and plain models
(`uqlob bench joint`), which were trained on those days. All are scored on the same test days; k* comes from the symbol's
calibration half. `_published` are the distributions of the same model recalibrated online, as the pipeline publishes them.
Lakes and joint models have the same places below `--workdir` as those of `uqlob bench joint`.
"""

from __future__ import annotations

import json as json_text
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from uqlob_pipeline.devtools.bench.joint_models import core_seconds, counted, train_together, windows_at
from uqlob_pipeline.devtools.bench.joint_scores import Scored, means, paired, score, score_plain, score_published
from uqlob_pipeline.devtools.bench.learning_lake import LearningMarket, market_profile
from uqlob_pipeline.lake.log_function import LogFn

if TYPE_CHECKING:
    from uqlob_models.config import TrainingConfig
    from uqlob_models.joint_dataset import JointDataset
    from uqlob_models.joint_model import JointModel
    from uqlob_models.universal_dataset import UniversalDataset

WITHOUT, WITH = "left_out", "universal"  # trained on the other symbols; on all symbols
JOINT, PLAIN = "joint", ("linear", "boosting")
PUBLISHED = "_published"  # the same forecasts, recalibrated online


def universal(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    seeds: Annotated[str, typer.Option(help="Markets by seed.")] = "21,22",
    symbols: Annotated[str, typer.Option(help="Simulated symbols.")] = "BTC-USD,ETH-USD,SOL-USD,LTC-USD",
    left_out: Annotated[str, typer.Option(help="Symbols to leave out, one at a time; empty: each of them.")] = "",
    all_symbols: Annotated[
        bool, typer.Option("--all-symbols", help="Also train one model on all symbols, and score it on each.")
    ] = False,
    horizons: Annotated[str, typer.Option(help="Horizons in seconds.")] = "5,10,15",
    hours: Annotated[float, typer.Option(help="Hours per day.")] = 0.8,
    workdir: Annotated[Path | None, typer.Option(help="Keep models here, and resume or reuse those in it.")] = None,
) -> None:
    """Train one model over all symbols but one; score it on that one, beside the symbol's own models."""
    import torch

    torch.set_num_threads(1)
    names, chosen = symbols.split(","), [int(horizon) for horizon in horizons.split(",")]
    tested = left_out.split(",") if left_out else names
    if not set(tested) <= set(names) or len(names) < 2:
        raise typer.BadParameter(f"symbols {symbols} must be at least two, and left-out symbols some of them")
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="uqlob-universal-") as temporary:
        root = (workdir or Path(temporary)).absolute()
        for seed in [int(seed) for seed in seeds.split(",")]:
            markets = {
                symbol: SymbolMarket(
                    root / f"{symbol}-{seed}", LearningMarket(symbol=symbol, seed=seed, hours=hours, test_days=6), chosen
                )
                for symbol in names
            }
            results += compare(root, seed, markets, tested, all_symbols, lambda line: typer.echo(line, err=True))
    report = {"seeds": seeds, "symbols": symbols, "horizons_s": chosen, **summary(results)}
    typer.echo(json_text.dumps(report) if json else as_text(report))


@dataclass(frozen=True)
class SymbolMarket:
    """The simulated market of a symbol and seed: its windows, its own models and their scores are kept in `place`."""

    place: Path
    market: LearningMarket
    horizons_s: list[int]

    @cached_property
    def dataset(self) -> JointDataset:
        from uqlob_models.joint_dataset import JointDataset

        lake = self.place / "lake"
        return JointDataset(tuple(windows_at(lake, self.market, horizon, lambda line: None) for horizon in self.horizons_s))

    @property
    def config(self) -> TrainingConfig:
        return market_profile(self.market).training

    def score_models(self, way: str, model: JointModel, place: Path) -> dict[str, list[Scored]]:
        """The scores of a joint model at each horizon, as it is and recalibrated, kept in `place`."""
        found: dict[str, list[Scored]] = {way: [], f"{way}{PUBLISHED}": []}
        for horizon, one in zip(self.horizons_s, self.dataset.horizons, strict=True):
            pair = [model.at(horizon, one.y_ref, kind) for kind in ("regression", "classification")]
            for name, function in ((way, score), (f"{way}{PUBLISHED}", score_published)):
                path = place / f"{horizon}s{name.removeprefix(way)}.npz"
                found[name].append(kept_scores(path, partial(function, pair, one, self.config)))
        return found

    def own_scores(self, log: LogFn) -> dict[str, list[Scored]]:
        """Of the symbol's joint model and the plain models, at each horizon."""
        from uqlob_models.joint_model import JointModel
        from uqlob_models.joint_training import load_joint
        from uqlob_models.plain_models import window_summaries

        directory, _ = train_together(self.place / "joint", self.dataset, self.config, log)
        model = load_joint(directory)
        assert isinstance(model, JointModel)
        found = self.score_models(JOINT, model, self.place / "scores-joint")
        summaries = window_summaries(self.dataset.horizons[0])  # those of a window are the same at every horizon
        for kind in PLAIN:
            place = self.place / f"scores-{kind}"
            found[kind] = [
                kept_scores(place / f"{horizon}s.npz", partial(score_plain, kind, one, self.config, summaries))
                for horizon, one in zip(self.horizons_s, self.dataset.horizons, strict=True)
            ]
        return found


def kept_scores(path: Path, compute: Callable[[], Scored]) -> Scored:
    """The scores in a file, computed and written if it is missing: a resumed benchmark does not fit plain models again."""
    import numpy as np

    if not path.exists():
        found = compute()
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".partial.npz")
        np.savez_compressed(temporary, **vars(found))
        temporary.rename(path)
    with np.load(path) as arrays:
        return Scored(**arrays)


def train_on(place: Path, dataset: UniversalDataset, config: TrainingConfig, log: LogFn) -> tuple[JointModel, float]:
    """The universal model of these symbols and its core-seconds; trained in `place`, or resumed there."""
    from uqlob_models.checkpoints import save_model
    from uqlob_models.joint_model import JointEncoder, JointModel
    from uqlob_models.universal_training import for_symbol, load_universal, train_universal

    with counted(place):
        encoder = train_universal("encoder", dataset, config, place / "encoder")
        shared = load_universal(encoder.model)
        assert isinstance(shared, JointEncoder)
        first = for_symbol(shared, dataset.datasets[0]).at(0)
        version = dataset.data_version()
        save_model(place / "pretrained", first, "pretraining", config, step=encoder.steps, data_version=version, y_ref=1.0)
        heads = train_universal("heads", dataset, config, place / "heads", encoder=place / "pretrained")
    log(f"{place}: universal model of {', '.join(dataset.names)} trained, {core_seconds(place):.0f} core-seconds")
    model = load_universal(heads.model)
    assert isinstance(model, JointModel)
    return model, core_seconds(place)


def compare(
    root: Path, seed: int, markets: dict[str, SymbolMarket], tested: list[str], all_symbols: bool, log: LogFn
) -> list[dict[str, Any]]:
    """One result per tested symbol of a seed: the scores of every way at each horizon, and the core-seconds of its training."""
    from uqlob_models.universal_dataset import UniversalDataset
    from uqlob_models.universal_training import for_symbol

    datasets = {}
    for name, market in markets.items():
        datasets[name] = market.dataset
        log(f"{name} seed {seed}: {len(market.dataset)} windows")
    config = next(iter(markets.values())).config
    results = []
    for name in tested:
        market = markets[name]
        kinds = {WITHOUT: [other for other in markets if other != name], **({WITH: list(markets)} if all_symbols else {})}
        scores: dict[str, list[Scored]] = {}
        seconds: dict[str, float] = {}
        for kind, symbols in kinds.items():
            place = root / f"universal-{seed}-{'-'.join(symbol.partition('-')[0] for symbol in symbols)}"
            dataset = UniversalDataset({symbol: datasets[symbol] for symbol in symbols})
            model, seconds[kind] = train_on(place, dataset, config, log)
            scores |= market.score_models(kind, for_symbol(model, datasets[name]), place / f"scores-{name}")
        scores |= market.own_scores(log)
        seconds[JOINT] = core_seconds(market.place / "joint")
        log(f"{name} seed {seed}: scored on {[len(one.block) for one in scores[WITHOUT]]} forecasts by horizon")
        results.append({"symbol": name, "seed": seed, "horizons_s": market.horizons_s, "scores": scores, "core_seconds": seconds})
    return results


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Figures of every way, and paired differences of the universal models from the others: by symbol, by horizon, pooled."""
    ways = list(results[0]["scores"])
    cells = [(result, number) for result in results for number in range(len(result["horizons_s"]))]
    rows: dict[str, list[tuple[dict[str, Any], int]]] = {}
    for result, number in cells:
        for row in (result["symbol"], f"{result['horizons_s'][number]}s", "all"):
            rows.setdefault(row, []).append((result, number))

    def scores(row: str, way: str) -> list[Scored]:
        return [result["scores"][way][number] for result, number in rows[row]]

    suffixes = {way: PUBLISHED if way.endswith(PUBLISHED) else "" for way in ways}
    ours = [way for way in ways if way.removesuffix(PUBLISHED) in (WITHOUT, WITH)]
    pairs = [(way, other) for way in ours for other in (f"{JOINT}{suffixes[way]}", *PLAIN)]
    return {
        "forecasts": {row: sum(len(one.block) for one in scores(row, WITHOUT)) for row in rows},
        "core_seconds": [{"symbol": result["symbol"], "seed": result["seed"], **result["core_seconds"]} for result in results],
        "differences": {
            f"{way} minus {other}": {row: paired(list(zip(scores(row, way), scores(row, other), strict=True))) for row in rows}
            for way, other in pairs
        },
        **{way: {row: means(scores(row, way)) for row in rows} for way in ways},
    }


def as_text(report: dict[str, Any]) -> str:
    lines = [f"seeds {report['seeds']}, {report['symbols']}; left_out: trained on the other symbols only"]
    for title, rows in report["differences"].items():
        lines.append(f"{title}: difference (95 % interval), negative is better for losses")
        for row, values in rows.items():
            shown = "  ".join(f"{what} {value:+.4f} ({low:+.4f} to {high:+.4f})" for what, (value, low, high) in values.items())
            lines.append(f"{row:>9} {report['forecasts'][row]:>7} forecasts  {shown}")
    return "\n".join(lines)
