"""`uqlob record`: the command line of the recorder."""

import asyncio
import signal
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from uqlob_pipeline.market.recorder.event_log import EventLog
    from uqlob_pipeline.market.recorder.settings import RecorderSettings


class LogChoice(StrEnum):
    TEXT = "text"
    JSON = "json"


def record(
    symbols: Annotated[str, typer.Option(help="Comma-separated pairs as Kraken names them: BTC/USD,ETH/USD.")],
    depth: Annotated[
        int, typer.Option(help="Price levels per side. Level 3: 10, 100 or 1000; level 2: 10, 25, 100, 500 or 1000.")
    ] = 1000,
    level2: Annotated[
        bool, typer.Option("--level2", help="Record price levels (`book`) instead of orders (`level3`); needs no credentials.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="The lake to record into; else UQLOB_LAKE, else ./lake.", show_default=False)
    ] = None,
    publish: Annotated[
        str | None,
        typer.Option(help="Publish closed files to a lake in a store too: s3://bucket/prefix or file:///directory."),
    ] = None,
    log: Annotated[LogChoice, typer.Option(help="How incidents and the status are written to standard error.")] = LogChoice.TEXT,
    status_every: Annotated[
        float | None,
        typer.Option(help="Seconds between two status lines: 1 on a terminal, 10 in JSON, else 60.", min=0.1, show_default=False),
    ] = None,
    metrics_port: Annotated[
        int, typer.Option(help="Prometheus metrics at http://127.0.0.1:PORT/metrics; 0 for none.", min=0, max=65535)
    ] = 9464,
    flush_seconds: Annotated[
        float, typer.Option(help="Seconds between writes, which a killed recorder can lose.", min=0.1, max=60)
    ] = 3.0,
    silence_seconds: Annotated[
        float,
        typer.Option(help="Reconnect after so long without a message; Kraken sends about one heartbeat per second.", min=1),
    ] = 10.0,
) -> None:
    """Record live Kraken books, trades and instruments into the raw dumps of a lake, until Ctrl-C or SIGTERM.

    Every book message is verified with Kraken's checksum when it is received. A loss is counted and becomes a session
    break: the dump continues with a new snapshot. At UTC midnight each symbol starts the next day's file with its
    verified book as a snapshot.

    Level 3 needs an API key with the permission 'WebSocket interface' in KRAKEN_API_KEY and KRAKEN_API_SECRET.
    The key, the secret and the tokens are never logged. UQLOB_KRAKEN_PUBLIC, UQLOB_KRAKEN_LEVEL3 and
    UQLOB_KRAKEN_REST replace Kraken's own endpoints.
    """
    # Imports of the recorder stay inside the functions, for the fast start of `uqlob`.
    # Imported here so that other commands start fast; likewise below.
    from uqlob_pipeline.lake.layout import Lake
    from uqlob_pipeline.lake.store import StoreRefused
    from uqlob_pipeline.market.recorder.event_log import EventLog
    from uqlob_pipeline.market.recorder.settings import Endpoints, RecorderError, RecorderSettings

    event_log = EventLog(log.value)
    try:
        settings = RecorderSettings(
            symbols=tuple(name.strip().upper().replace("/", "-") for name in symbols.split(",") if name.strip()),
            depth=depth,
            level2=level2,
            lake=Lake(out).root,
            endpoints=Endpoints.from_environment(),
            flush_seconds=flush_seconds,
            silence_seconds=silence_seconds,
            publish=publish,
        )
        asyncio.run(_record(settings, event_log, metrics_port, status_every))
    except StoreRefused as error:
        typer.echo(f"uqlob record: {error} with --out, and the store with --publish", err=True)
        raise typer.Exit(1) from None
    except RecorderError as error:
        typer.echo(event_log.redact(f"uqlob record: {error}"), err=True)
        raise typer.Exit(1) from None


async def _record(settings: "RecorderSettings", event_log: "EventLog", metrics_port: int, status_every: float | None) -> None:
    from uqlob_pipeline.market.recorder.recording import Recording
    from uqlob_pipeline.market.recorder.status_display import StatusBoard, show_status, status_display

    recording = Recording(settings, event_log)
    loop = asyncio.get_running_loop()

    def stop(received: signal.Signals) -> None:
        event_log.log("info", "closing the files", signal=received.name)
        recording.stop()
        loop.remove_signal_handler(received)  # a second signal ends the process at once

    for received in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(received, stop, received)
    server = None
    try:
        if metrics_port:
            from uqlob_pipeline.market.recorder.prometheus import serve_metrics

            server = serve_metrics(recording, metrics_port)
        with status_display(event_log) as (show, every):
            await recording.run(show_status(recording, show, status_every or every))
    finally:
        recording.close()
        if server:
            server.shutdown()
            server.server_close()
    rows = StatusBoard(recording).read()
    event_log.log(
        "info",
        "ended",
        seconds=round(time.monotonic() - recording.started, 1),
        messages=sum(row.messages for row in rows),
        gaps=sum(row.gaps for row in rows),
        checksum_failures=sum(row.checksum_failures for row in rows),
        missed_trades=sum(row.missed_trades for row in rows),
        written_bytes=sum(row.written_bytes for row in rows),
    )
