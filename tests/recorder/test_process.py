"""The recorder as a process of its own: killed, stopped, watched."""

import asyncio
import json
import os
import signal
import socket
import sys
import time
import urllib.request
from contextlib import asynccontextmanager

from uqlob_pipeline.kraken.dumps import read_lines
from uqlob_pipeline.kraken.snapshot import time_of
from uqlob_pipeline.lake import AssetDay
from uqlob_pipeline.recorder.practice.server import PracticeServer
from uqlob_pipeline.recorder.practice.tokens import PRACTICE_KEY, PRACTICE_SECRET

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
        *(sys.executable, "-m", "uqlob_pipeline.recorder", *arguments, *options), env=environment, stderr=asyncio.subprocess.PIPE
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


async def until(condition, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.005)


def test_sigkill_costs_at_most_the_last_flush_and_the_rest_imports(level3_market, practice_lake, undisturbed):
    lake = practice_lake(level3_market)
    rate = 1500.0

    async def run() -> int:
        async with PracticeServer(level3_market, rate=rate) as server:
            async with recorder(server, lake.lake.root, "--metrics-port", "0") as process:
                await until(lambda: server.place > 2200)
                process.send_signal(signal.SIGKILL)
                sent = server.place
            async with recorder(server, lake.lake.root, "--metrics-port", "0") as process:
                await asyncio.wait_for(server.finished.wait(), 30)
                process.send_signal(signal.SIGTERM)
                await asyncio.wait_for(process.wait(), 10)
            return sent

    sent = asyncio.run(run())
    for symbol in level3_market.symbols:
        every = undisturbed(level3_market)[symbol]
        killed, restarted = lake.lake.dumps("level3", AssetDay(symbol.replace("/", "-"), DAY))
        events, report = lake.events(symbol)
        assert (report.sessions, report.quarantined, report.checksums_failed, report.truncated_files) == (2, 0, 0, [])

        kept = sum(json.loads(line).get("type") == "update" for _, line in read_lines(killed))
        of_symbol = [place for place, one in enumerate(level3_market.updates) if one[1:3] == ("level3", symbol)]
        lost = sent - of_symbol[kept]
        assert lost <= rate * (FLUSH + 0.5), f"{lost} messages are more than one flush and what was under way"

        second = [json.loads(line) for _, line in read_lines(restarted)]
        snapshot = next(message for message in second if message.get("type") == "snapshot")
        restart = time_of(snapshot["data"][0]["timestamp"])
        before, after = ([e for e in events if e[0] <= restart], [e for e in events if e[0] > restart])
        assert len(before) > 300
        assert before == every[: len(before)]
        assert comparable(after, [restart]) == comparable([event for event in every if event[0] > restart], [restart])

        # Killed within a write, half a frame stands at the end of a file.
        killed.write_bytes(killed.read_bytes() + killed.read_bytes()[:200])
        again, _ = lake.events(symbol)
        assert [event for event in again if event[0] <= restart][: len(before)] == before


def test_sigterm_closes_the_files_and_no_secret_is_told(level3_market, practice_lake, undisturbed):
    lake = practice_lake(level3_market)
    port = free_port()
    told: dict[str, object] = {}

    async def run() -> None:
        async with PracticeServer(level3_market, rate=4000.0) as server:
            options = ("--log", "json", "--status-every", "0.3", "--metrics-port", str(port))
            async with recorder(server, lake.lake.root, *options) as process:
                await asyncio.wait_for(server.finished.wait(), 30)
                await asyncio.sleep(0.2)
                answer = await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{port}/metrics")
                told["metrics"] = answer.read().decode()
                process.send_signal(signal.SIGTERM)
                _, errors = await asyncio.wait_for(process.communicate(), 10)
                told["code"], told["log"], told["tokens"] = process.returncode, errors.decode(), set(server.desk.valid)

    asyncio.run(run())
    assert told["code"] == 0
    log = str(told["log"])
    for secret in (PRACTICE_KEY, PRACTICE_SECRET, *told["tokens"]):
        assert secret not in log
    incidents = [json.loads(line) for line in log.splitlines()]
    statuses = [one for one in incidents if one["incident"] == "status"]
    assert statuses[-1]["symbols"]["BTC-USD"]["gaps"] == 0
    assert {"messages_per_second", "lag_ms", "gaps", "checksum_failures", "written_bytes"} <= set(
        statuses[-1]["symbols"]["BTC-USD"]
    )
    assert incidents[-1]["incident"] == "ended"
    metrics = str(told["metrics"])
    of_book = [one for one in level3_market.stream if one.channel == "level3" and one.symbol == "BTC/USD"]
    assert f'uqlob_recorder_verified_total{{channel="level3",symbol="BTC-USD"}} {len(of_book)}.0' in metrics
    assert 'uqlob_recorder_live{channel="level3",symbol="BTC-USD"} 1.0' in metrics
    assert 'uqlob_recorder_connected{connection="level3-1"} 1.0' in metrics
    for symbol in level3_market.symbols:
        assert lake.events(symbol)[0] == undisturbed(level3_market)[symbol]
