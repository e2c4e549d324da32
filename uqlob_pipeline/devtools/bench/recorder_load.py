"""`uqlob bench record`: the load that the recorder sustains on one core. A practice server sends a simulated market.

Loss is counted from the recorded files, message by message, not from the recorder's own metrics.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from uqlob_pipeline.devtools.practice_server.replayed_market import PracticeMarket
    from uqlob_pipeline.devtools.practice_server.server import PracticeServer

MB = 1e6


@dataclass
class RecordingLoad:
    """One run. Memory is the recorder's resident set; `cores` is its processor time per second."""

    symbols: int
    asked_rate: float
    sustained_rate: float
    seconds: float
    held_back_seconds: float  # time that the sender waited for the recorder; if 0, a rate below the requested one is the sender's
    messages: int
    lost: int
    altered: int
    gaps: int
    checksums_verified: int
    cores: float
    capacity: float  # messages per second at which one core would be full
    memory_start_mb: float
    memory_peak_mb: float
    memory_end_mb: float
    received_mb: float
    written_mb: float


async def _load(market: PracticeMarket, rate: float, lake: Path) -> RecordingLoad:
    # Imported here so that other commands start fast; likewise below.
    import asyncio
    import signal
    import sys

    from uqlob_pipeline.devtools.practice_server.server import PracticeServer
    from uqlob_pipeline.devtools.practice_server.token_endpoint import PRACTICE_KEY, PRACTICE_SECRET
    from uqlob_pipeline.market.recorder.credentials import KEY, SECRET

    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        os.sched_setaffinity(0, cores[:-1])  # the last one is reserved for the recorder
    async with PracticeServer(market, rate=rate, heartbeat_seconds=1.0, keep_books=False) as server:
        environment = os.environ | {
            "UQLOB_KRAKEN_PUBLIC": server.endpoints.public,
            "UQLOB_KRAKEN_LEVEL3": server.endpoints.level3,
            "UQLOB_KRAKEN_REST": server.endpoints.rest,
            KEY: PRACTICE_KEY,
            SECRET: PRACTICE_SECRET,
        }
        command = [sys.executable, "-m", "uqlob_pipeline.market.recorder", "--symbols", ",".join(market.symbols)]
        command += ["--depth", str(market.depth), "--out", str(lake), "--metrics-port", "0"]
        with open(lake / "recorder.log", "wb") as log:
            process = await asyncio.create_subprocess_exec(*command, env=environment, stderr=log)
        try:
            os.sched_setaffinity(process.pid, cores[-1:])
            await _started(server, process)
            busy = _processor_seconds(process.pid)
            memory = [_resident_mb(process.pid)]
            while not server.finished.is_set():
                await asyncio.sleep(0.1)
                memory.append(_resident_mb(process.pid))
            seconds, busy = server.ended - server.began, _processor_seconds(process.pid) - busy
            process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(process.wait(), 30)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            os.sched_setaffinity(0, cores)
    messages, lost, altered, gaps, verified = _compare(market, lake)
    written = sum(file.stat().st_size for file in (lake / "raw").rglob("*.zst"))
    return RecordingLoad(
        symbols=len(market.symbols),
        asked_rate=rate,
        sustained_rate=messages / seconds,
        seconds=seconds,
        held_back_seconds=server.held_back,
        messages=messages,
        lost=lost,
        altered=altered,
        gaps=gaps,
        checksums_verified=verified,
        cores=busy / seconds,
        capacity=messages / busy,
        memory_start_mb=memory[0],
        memory_peak_mb=max(memory),
        memory_end_mb=memory[-1],
        received_mb=sum(len(one.line) for one in market.stream) / MB,
        written_mb=written / MB,
    )


async def _started(server: PracticeServer, process: object) -> None:
    import asyncio

    async with asyncio.timeout(60):
        while server.position == 0:
            if getattr(process, "returncode", None) is not None:
                raise RuntimeError("the recorder ended before the market started: see recorder.log in its lake")
            await asyncio.sleep(0.01)


def _processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mb(process: int) -> float:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / MB
    return 0.0


def _compare(market: PracticeMarket, lake: Path) -> tuple[int, int, int, int, int]:
    """Numbers of messages sent, lost and altered, of session breaks, and of verified messages in the files."""
    from collections import Counter

    from uqlob_pipeline.market.kraken.dump_reader import read_lines

    sent = Counter((one.channel, one.symbol, one.line) for one in market.updates)
    kept: Counter[tuple[str, str, bytes]] = Counter()
    snapshots = verified = 0
    for file in sorted((lake / "raw").rglob("*.zst")):
        channel, symbol = file.parts[-4], file.parts[-3].replace("-", "/")
        for _, line in read_lines(file):
            body = line[: line.rindex(b',"received_at":')] + b"}"
            of_book = channel == market.channel
            if of_book and b'"type":"snapshot"' in line[:64]:
                snapshots += 1
            elif b'"method"' not in line[:64]:
                kept[channel, symbol, body] += 1
                verified += of_book
    missing, strange = sent - kept, kept - sent
    return sent.total(), missing.total(), strange.total(), snapshots - len(market.symbols), verified


def measure(rate: float = 10_000.0, seconds: float = 20.0, symbols: int = 7, depth: int = 1000) -> RecordingLoad:
    """Send `rate` messages per second for `seconds` to a recorder on its own core."""
    import asyncio
    import tempfile

    from uqlob_pipeline.devtools.practice_server.replayed_market import simulated_market
    from uqlob_pipeline.market.simulator import SYMBOLS

    chosen = list(SYMBOLS)[:symbols]
    market = simulated_market(chosen, seconds=seconds, events_per_second=rate / len(chosen), depth=depth)
    with tempfile.TemporaryDirectory(prefix="uqlob-bench-record-") as lake:
        return asyncio.run(_load(market, rate, Path(lake)))


def recording(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    rate: Annotated[float, typer.Option(help="Messages per second, all symbols together.", min=1)] = 10_000.0,
    seconds: Annotated[float, typer.Option(help="Length of the simulated market.", min=1, max=600)] = 20.0,
    symbols: Annotated[int, typer.Option(help="How many symbols share the rate.", min=1, max=7)] = 7,
    depth: Annotated[int, typer.Option(help="Price levels per side: 10, 100 or 1000.")] = 1000,
) -> None:
    """Load the recorder with a simulated market on loopback: sustained rate, loss and memory on one core."""
    from json import dumps

    found = measure(rate, seconds, symbols, depth)
    if json:
        typer.echo(dumps({name: round(value, 3) for name, value in asdict(found).items()}))
    else:
        typer.echo(
            f"{found.messages:,} messages of {found.symbols} symbols in {found.seconds:.1f} s: {found.sustained_rate:,.0f}/s "
            f"({found.asked_rate:,.0f} requested, the sender waited {found.held_back_seconds:.2f} s for the recorder)\n"
            f"lost {found.lost}, altered {found.altered}, gaps {found.gaps}\n"
            f"processor {found.cores:.0%} of one core, which would be full at {found.capacity:,.0f} messages/s\n"
            f"memory {found.memory_start_mb:.0f} MB at the start, {found.memory_peak_mb:.0f} at the peak, "
            f"{found.memory_end_mb:.0f} at the end\n"
            f"{found.received_mb:.1f} MB received, {found.written_mb:.1f} MB written"
        )
    if found.lost or found.altered:
        raise typer.Exit(1)
