"""The recorder as a separate process: killed, stopped and monitored."""

import asyncio
import json
import os
import signal
import socket
import sys
import time
import urllib.request
from collections import Counter
from contextlib import asynccontextmanager

from uqlob_pipeline.devtools.practice_server.server import PracticeServer
from uqlob_pipeline.devtools.practice_server.token_endpoint import PRACTICE_KEY, PRACTICE_SECRET
from uqlob_pipeline.lake.layout import AssetDay
from uqlob_pipeline.market.kraken.dump_reader import read_lines
from uqlob_pipeline.market.kraken.wire import time_of

from .practice_lake import DAY, comparable

FLUSH = 0.25


@asynccontextmanager
async def recorder(server: PracticeServer, root, *options: str):
    environment = os.environ | {
        "UQLOB_KRAKEN_PUBLIC": server.endpoints.public,
        "UQLOB_KRAKEN_LEVEL3": server.endpoints.level3,
        "UQLOB_KRAKEN_REST": server.endpoints.rest,
    }
    symbols = ",".join(server.market.symbols)
    arguments = ["--symbols", symbols, "--depth", str(server.market.depth), "--out", str(root), "--flush-seconds", str(FLUSH)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "uqlob_pipeline.market.recorder", *arguments, *options),
        env=environment,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def until(condition, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timeout"
        await asyncio.sleep(0.005)


def test_sigkill_loses_nothing_that_was_flushed_and_the_rest_is_replayed(level3_market, practice_lake, undisturbed):
    lake = practice_lake(level3_market)

    half = len(level3_market.updates) // 2

    def updates_on_disk(symbol: str, channel: str = "level3") -> int:
        dumps = lake.lake.dumps(channel, AssetDay(symbol.replace("/", "-"), DAY))
        return sum(json.loads(line).get("type") == "update" for _, line in read_lines(dumps[0])) if dumps else 0

    def first_half_on_disk() -> bool:
        """Books are flushed before trades: a kill in between would leave events without the prints that explain them."""
        sent = Counter((one.symbol, one.channel) for one in level3_market.updates[:half])
        return all(updates_on_disk(symbol, channel) >= count for (symbol, channel), count in sent.items())

    async def run() -> dict[str, int]:
        # The market is held until the second recorder listens: on a busy machine it could be over before the first is killed.
        async with PracticeServer(level3_market, hold_at=half) as server:
            async with recorder(server, lake.lake.root, "--metrics-port", "0") as process:
                await until(first_half_on_disk)
                flushed = {symbol: updates_on_disk(symbol) for symbol in level3_market.symbols}
                process.send_signal(signal.SIGKILL)
                await process.wait()
            await until(lambda: not server.all_subscribed())
            async with recorder(server, lake.lake.root, "--metrics-port", "0") as process:
                await until(server.all_subscribed)
                server.released.set()
                await asyncio.wait_for(server.finished.wait(), 120)
                process.send_signal(signal.SIGTERM)
                await asyncio.wait_for(process.wait(), 60)
            return flushed

    flushed = asyncio.run(run())
    for symbol in level3_market.symbols:
        every = undisturbed(level3_market)[symbol]
        killed, restarted = lake.lake.dumps("level3", AssetDay(symbol.replace("/", "-"), DAY))
        events, report = lake.events(symbol)
        assert (report.sessions, report.quarantined, report.checksums_failed, report.truncated_files) == (2, 0, 0, [])

        kept = sum(json.loads(line).get("type") == "update" for _, line in read_lines(killed))
        assert kept >= flushed[symbol]

        second = [json.loads(line) for _, line in read_lines(restarted)]
        snapshot = next(message for message in second if message.get("type") == "snapshot")
        restart = time_of(snapshot["data"][0]["timestamp"])
        before, after = ([e for e in events if e[0] <= restart], [e for e in events if e[0] > restart])
        assert len(before) > 300
        assert before == every[: len(before)]
        assert comparable(after, [restart]) == comparable([event for event in every if event[0] > restart], [restart])

        # A process killed during a write leaves a partial frame at the end of the file.
        killed.write_bytes(killed.read_bytes() + killed.read_bytes()[:200])
        again, _ = lake.events(symbol)
        assert [event for event in again if event[0] <= restart][: len(before)] == before


def test_sigterm_closes_the_files_and_no_secret_is_logged(level3_market, practice_lake, undisturbed):
    lake = practice_lake(level3_market)
    port = free_port()
    observed: dict[str, object] = {}
    of_book = [one for one in level3_market.stream if one.channel == "level3" and one.symbol == "BTC/USD"]
    verified = f'uqlob_recorder_verified_total{{channel="level3",symbol="BTC-USD"}} {len(of_book)}.0'

    async def run() -> None:
        async with PracticeServer(level3_market, rate=4000.0) as server:
            options = ("--log", "json", "--status-every", "0.3", "--metrics-port", str(port))
            async with recorder(server, lake.lake.root, *options) as process:
                await asyncio.wait_for(server.finished.wait(), 120)
                for _ in range(600):  # until the recorder has counted what it was sent
                    answer = await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{port}/metrics")
                    observed["metrics"] = answer.read().decode()
                    if verified in str(observed["metrics"]):
                        break
                    await asyncio.sleep(0.1)
                process.send_signal(signal.SIGTERM)
                _, errors = await asyncio.wait_for(process.communicate(), 60)
                observed["code"], observed["log"], observed["tokens"] = (
                    process.returncode,
                    errors.decode(),
                    set(server.token_endpoint.valid),
                )

    asyncio.run(run())
    assert observed["code"] == 0
    log = str(observed["log"])
    for secret in (PRACTICE_KEY, PRACTICE_SECRET, *observed["tokens"]):
        assert secret not in log
    incidents = [json.loads(line) for line in log.splitlines()]
    statuses = [one for one in incidents if one["incident"] == "status"]
    assert statuses[-1]["symbols"]["BTC-USD"]["gaps"] == 0
    assert {"messages_per_second", "lag_ms", "gaps", "checksum_failures", "written_bytes"} <= set(
        statuses[-1]["symbols"]["BTC-USD"]
    )
    assert incidents[-1]["incident"] == "ended"
    metrics = str(observed["metrics"])
    assert verified in metrics
    assert 'uqlob_recorder_live{channel="level3",symbol="BTC-USD"} 1.0' in metrics
    assert 'uqlob_recorder_connected{connection="level3-1"} 1.0' in metrics
    for symbol in level3_market.symbols:
        assert lake.events(symbol)[0] == undisturbed(level3_market)[symbol]
