"""A slow reference of the input representation: plain Python over a list of events, from the paper's definitions."""

import math
from itertools import groupby
from typing import Any

from tests.tables.synthetic import Event


def sessions_of(events: list[Event]) -> list[list[Event]]:
    return [list(group) for _, group in groupby(events, key=lambda event: event.session)]


def distance_of(event: Event) -> int:
    """Ticks from the opposing best quote, at least one."""
    away = event.ask_ticks - event.price_ticks if event.side == 0 else event.price_ticks - event.bid_ticks
    return away if away > 1 else 1


def bin_of(value: int, edges: list[int]) -> int:
    number = 0
    for edge in edges:
        if value > edge:
            number += 1
    return number


def flow_between(before: Event, now: Event, flow: str) -> float:
    if flow == "dnfi":
        change_bid = now.bid_lots - before.bid_lots
        change_ask = now.ask_lots - before.ask_lots
        net = change_bid - change_ask
    else:
        net = 0
        if now.bid_ticks > before.bid_ticks:
            net += now.bid_lots
        elif now.bid_ticks == before.bid_ticks:
            net += now.bid_lots - before.bid_lots
        else:
            net -= before.bid_lots
        if now.ask_ticks < before.ask_ticks:
            net -= now.ask_lots
        elif now.ask_ticks == before.ask_ticks:
            net -= now.ask_lots - before.ask_lots
        else:
            net += before.ask_lots
    value = net / (now.bid_lots + now.ask_lots)
    return min(1.0, max(-1.0, value))


def vocabulary() -> dict[tuple[int, ...], int]:
    """Counts through the vocabulary in its order of attributes, instead of using a formula."""
    numbers: dict[tuple[int, ...], int] = {}
    for kind in (0, 1, 2):
        for side in (0, 1):
            for volume in range(6):
                for distance in range(6):
                    for same in (0, 1):
                        numbers[kind, side, volume, distance, same] = len(numbers)
    for side in (0, 1):
        for same in (0, 1):
            numbers[3, side, same] = len(numbers)
    return numbers


NUMBERS = vocabulary()


def token_of(event: Event, simultaneous: int, volume_edges: list[int], distance_edges: list[int]) -> int:
    if event.type == 3:
        return NUMBERS[3, event.side, simultaneous]
    bins = bin_of(event.lots, volume_edges), bin_of(distance_of(event), distance_edges)
    return NUMBERS[event.type, event.side, *bins, simultaneous]


def reference_features(
    events: list[Event],
    volume_edges: list[int],
    distance_edges: list[int],
    median_lots: int,
    window: int = 512,
    flow: str = "dnfi",
) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    windows_so_far = 0
    for session in sessions_of(events):
        complete = len(session) // window
        flows: list[float] = []
        for i, event in enumerate(session):
            before = session[i - 1] if i > 0 else None
            flows.append(flow_between(before, event, flow) if before else 0.0)
            same = 1 if before and before.ts == event.ts else 0
            made.append(
                {
                    "seq": len(made),
                    "ts": event.ts,
                    "window": windows_so_far + i // window if i // window < complete else None,
                    "position": i % window,
                    "token": token_of(event, same, volume_edges, distance_edges),
                    "log_dt": math.log(1 + (event.ts - before.ts) / 1000) if before else 0.0,
                    "log_distance": math.log(distance_of(event)),
                    "log_volume": math.log(event.lots / median_lots),
                    "dnfi": flows[-1],
                    "dnfi_50": math.fsum(flows[-50:]),
                    "dnfi_200": math.fsum(flows[-200:]),
                    "qi": (event.bid_lots - event.ask_lots) / (event.bid_lots + event.ask_lots),
                }
            )
        windows_so_far += complete
    return made
