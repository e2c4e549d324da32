"""`uqlob bench worth`: what acting on the forecasts earns on several markets, pooled, with its controls.

Each seed gives a lake of the demo's kind, built through the real DAG and kept (see `interval_lakes.py`). `--null` adds lakes of a
market without any signal, with models trained on it. Every lake decides for itself: gates, sizes, k* and the way to act come from
its own calibration half, and the orders of its test days are pooled.
"""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from uqlob_pipeline.devtools.bench.interval_lakes import DEVELOPMENT_SEEDS, IntervalLake, Variant, built_lakes

if TYPE_CHECKING:
    import pyarrow as pa

    from uqlob_pipeline.config.profile import Profile
    from uqlob_pipeline.lake.layout import ModelKey

DAYS_APART = 400  # between the clocks of two lakes, so that no block of time holds orders of both
DAY_NS = 86_400 * 10**9
AS_CHOSEN = "as chosen"


def worth(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    seeds: Annotated[str, typer.Option(help="Markets by seed.")] = DEVELOPMENT_SEEDS,
    workdir: Annotated[Path | None, typer.Option(help="Keep lakes in this directory, and resume or reuse those in it.")] = None,
    null: Annotated[bool, typer.Option("--null", help="Also models of a market without signal, BTC-USD at 5 s.")] = False,
    short: Annotated[bool, typer.Option("--short", help="BTC-USD at 5 s alone, a quarter of the time.")] = False,
    build_only: Annotated[bool, typer.Option("--build-only", help="Build the lakes and print no figure.")] = False,
) -> None:
    """Build demo lakes of several seeds and print what acting on their forecasts is worth, pooled."""
    variants: list[Variant] = ["short" if short else "market", *(["null"] if null else [])]  # type: ignore[list-item]
    with built_lakes(seeds, variants, workdir, lambda line: typer.echo(line, err=True)) as built:
        if build_only:
            return
        report = {variant: judge(lakes) for variant, lakes in built.items()}
    if json:
        typer.echo(json_text.dumps({"seeds": [int(seed) for seed in seeds.split(",")], **report}))
        return
    for variant, figures in report.items():
        typer.echo(f"\n{variant}, seeds {seeds}\n\n{markdown(figures)}")


def judge(lakes: list[IntervalLake]) -> dict[str, list[dict[str, Any]]]:
    """`ways`: every head, gate and policy at the own latency and size. `tiers`: what each lake chose at each fee tier."""
    from uqlob_pipeline.config.profile import load_profile
    from uqlob_pipeline.lake.table_registry import model_keys

    profile = load_profile(str(lakes[0].profile))
    ways, tiers = [], []
    for key in model_keys(profile):
        ways += _ways(lakes, profile, key)
        tiers += _tiers(lakes, profile, key)
    return {"ways": ways, "tiers": tiers}


def _ways(lakes: list[IntervalLake], profile: Profile, key: ModelKey) -> list[dict[str, Any]]:
    """Without fees: one row per head, gate and policy."""
    from uqlob_pipeline.economics.economic_evaluation import evaluate_trades

    orders = (orders_of_test_days(lake, profile, key, number) for number, lake in enumerate(lakes))
    cheapest = profile.economics.model_copy(update={"tiers": profile.economics.tiers[-1:]})
    return evaluate_trades(orders, key, cheapest, _resampling(profile)).to_pylist()


def _tiers(lakes: list[IntervalLake], profile: Profile, key: ModelKey) -> list[dict[str, Any]]:
    """After fees: at each tier, the test orders of what each lake's calibration half chose there."""
    from uqlob_pipeline.economics.economic_evaluation import evaluate_trades
    from uqlob_pipeline.economics.names import ECONOMICS
    from uqlob_pipeline.economics.verdict import chosen_by_tier, own_rows
    from uqlob_pipeline.lake.layout import Lake
    from uqlob_pipeline.models.evaluation_files import read_whole

    found = []
    for tier in profile.economics.tiers:
        parts, named = [], []
        for number, lake in enumerate(lakes):
            rows = own_rows(read_whole(Lake(lake.lake).by_model(ECONOMICS, key)), profile.economics).to_pylist()
            for row in chosen_by_tier(rows):
                if row["tier"] == tier.name:
                    way = {name: row[name] for name in ("head", "gate", "policy")}
                    parts.append(relabelled(orders_of_test_days(lake, profile, key, number), way))
                    named.append(f"{row['head']} {row['gate']} {row['policy']}")
        if parts:
            settings = profile.economics.model_copy(update={"tiers": (tier,)})
            (row,) = evaluate_trades(parts, key, settings, _resampling(profile)).to_pylist()
            found.append(row | {"chosen_ways": named})
    return found


def _resampling(profile: Profile) -> Any:
    from dataclasses import replace

    from uqlob_pipeline.models.gated_evaluation import bootstrap

    return replace(bootstrap(profile), replicates=1000, minimum_blocks=20)


def orders_of_test_days(lake: IntervalLake, profile: Profile, key: ModelKey, number: int) -> pa.Table:
    """The orders of a lake's test days at the own latency and the traded size, on a clock of their own."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from uqlob_pipeline.economics.names import TEST, TRADES
    from uqlob_pipeline.lake.layout import Lake
    from uqlob_pipeline.models.evaluation_files import read_whole

    table = read_whole(Lake(lake.lake).by_model(TRADES, key))
    own = pc.and_(
        pc.equal(table["latency_ms"], profile.economics.latency_ms), pc.equal(table["size"], profile.economics.sizes[0])
    )
    table = table.filter(pc.and_(own, pc.equal(table["split"], TEST)))
    days = pc.add(table["date"].cast(pa.int32()), pa.scalar(DAYS_APART * number, pa.int32())).cast(pa.date32())
    for name, values in {"t": pc.add(table["t"], DAYS_APART * number * DAY_NS), "date": days}.items():
        table = table.set_column(table.column_names.index(name), name, values)
    return table


def relabelled(orders: pa.Table, way: dict[str, Any]) -> pa.Table:
    """The orders of one head, gate and policy under one name, so that different choices of lakes are pooled."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name, value in way.items():
        orders = orders.filter(pc.equal(orders[name], value))
    labels = {"head": AS_CHOSEN, "policy": AS_CHOSEN, "gate": -1}
    for name, label in labels.items():
        place, field = orders.column_names.index(name), orders.schema.field(name)
        orders = orders.set_column(place, field, pa.repeat(pa.scalar(label, field.type), orders.num_rows))
    return orders


def markdown(figures: dict[str, list[dict[str, Any]]]) -> str:
    """The two tables as they stand in the documents."""
    from uqlob_pipeline.economics.names import MUST_TRADE

    lines = [
        "| model | head | gate | policy | orders | filled | before fees, bps | break-even fee, bps | foresight | random side "
        "| null |",
        "|" + "---|" * 11,
    ]
    for row in figures["ways"]:
        saves = row["policy"] == MUST_TRADE
        cells = [
            f"{row['symbol']} {row['horizon_s']} s",
            row["head"],
            str(row["gate"]),
            row["policy"],
            f"{row['orders']:,}",
            "" if saves else f"{row['fill_rate']:.0%}",
            bounded(row, "gross_bps", "gross"),
            "" if saves else bounded(row, "break_even_bps", "break_even"),
            bounded(row, "oracle_bps", ""),
            bounded(row, "random_bps", "random"),
            bounded(row, "null_bps", "null"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "| model | tier | taker / maker fee, bps | orders | filled | before fees, bps | after fees, bps | random side | null "
        "| chosen by the lakes |",
        "|" + "---|" * 10,
    ]
    for row in figures["tiers"]:
        cells = [
            f"{row['symbol']} {row['horizon_s']} s",
            row["tier"],
            f"{row['taker_bps']:g} / {row['maker_bps']:g}",
            f"{row['orders']:,}",
            f"{row['fill_rate']:.0%}",
            bounded(row, "gross_bps", "gross"),
            bounded(row, "net_bps", "net"),
            bounded(row, "random_bps", "random"),
            bounded(row, "null_bps", "null"),
            "; ".join(row["chosen_ways"]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def bounded(row: dict[str, Any], value: str, bounds: str) -> str:
    if row[value] is None:
        return ""
    known = bounds and row[f"{bounds}_lower"] is not None
    return f"{row[value]:+.2f}" + (f" ({row[f'{bounds}_lower']:+.2f} to {row[f'{bounds}_upper']:+.2f})" if known else "")
