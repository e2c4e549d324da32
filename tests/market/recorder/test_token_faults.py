"""A token endpoint that misbehaves: each wrong answer is a counted failure with back-off, and no other connection notices."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from uqlob_pipeline.devtools.practice_server.server import PracticeServer
from uqlob_pipeline.market.recorder.credentials import TokenError, TokenSource
from uqlob_pipeline.market.recorder.event_log import EventLog
from uqlob_pipeline.market.recorder.recording import Recording
from uqlob_pipeline.market.recorder.settings import Endpoints, RecorderSettings

from .practice_lake import quick

OK = b"HTTP/1.1 200 OK\r\n"
TOKEN = json.dumps({"error": [], "result": {"token": "a-token"}}).encode()
ANSWERS = {
    "bad status line": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "no answer": b"",
    "short body": OK + b"Content-Length: 500\r\n\r\n" + TOKEN,
    "bad chunk": OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + TOKEN,
    "long header": OK + b"X-Long: " + b"a" * 100_000 + b"\r\n\r\n" + TOKEN,
    "many headers": OK + b"".join(b"X-%d: 1\r\n" % i for i in range(200)) + b"\r\n" + TOKEN,
    "deep JSON": OK + b"\r\n" + b"[" * 30_000 + b"]" * 30_000,
    "long body": OK + b"\r\n" + TOKEN[:-1] + b" " * 200_000 + b"}",
    "bad length": OK + b"Content-Length: many\r\n\r\n" + TOKEN,
    "not JSON": OK + b"\r\n<html>maintenance</html>",
    "not UTF-8": OK + b'\r\n"\xff\xfe"',
    "a list": OK + b"\r\n[]",
    "token is null": OK + b'\r\n{"error":[],"result":{"token":null}}',
    "token is two lines": OK + b'\r\n{"error":[],"result":{"token":"a\\nb"}}',
    "errors are numbers": OK + b'\r\n{"error":[1,2]}',
    "server error": b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n",
}


@asynccontextmanager
async def endpoint(answer: Callable[[asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server on loopback that answers every request this way; its address and the requests."""
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            # A socket closed with unread input resets the connection, and the client may lose the answer: read the body too.
            length = re.search(rb"content-length: (\d+)", head.lower())
            await reader.readexactly(int(length[1]) if length else 0)
            requests.append(head)
            await answer(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", requests
    finally:
        server.close()


def fixed(answer: bytes) -> Callable[[asyncio.StreamWriter], Awaitable[None]]:
    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()

    return write


async def drip(writer: asyncio.StreamWriter) -> None:
    """A header without an end, one byte at a time: no single read times out."""
    writer.write(OK + b"X-Slow: ")
    while True:
        writer.write(b"a")
        await writer.drain()
        await asyncio.sleep(0.05)


def source_of(rest: str, **changes: object) -> TokenSource:
    return TokenSource(RecorderSettings(("BTC-USD",), endpoints=Endpoints(rest=rest), **changes), EventLog())  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ANSWERS)
def test_a_wrong_answer_is_a_token_error(name):
    async def run():
        async with endpoint(fixed(ANSWERS[name])) as (address, _):
            with pytest.raises(TokenError, match="no token from") as failed:
                await source_of(address).token()
            assert len(str(failed.value)) < 500

    asyncio.run(run())


def test_a_right_answer_gives_the_token():
    async def run():
        async with endpoint(fixed(OK + b"\r\n" + TOKEN)) as (address, requests):
            assert await source_of(address).token() == "a-token"
            assert b"api-sign: " in requests[0].lower()

    asyncio.run(run())


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(code):
    async def run():
        async with endpoint(fixed(OK + b"\r\n" + TOKEN)) as (elsewhere, requests):
            redirect = b"HTTP/1.1 %d Moved\r\nLocation: %b/\r\nContent-Length: 0\r\n\r\n" % (code, elsewhere.encode())
            async with endpoint(fixed(redirect)) as (address, _):
                with pytest.raises(TokenError, match="redirect is not followed"):
                    await source_of(address).token()
            assert requests == [], "the key was sent to another host"

    asyncio.run(run())


def test_a_drip_feeding_endpoint_meets_the_deadline():
    async def run():
        async with endpoint(drip) as (address, _):
            with pytest.raises(TokenError, match=r"no complete answer within 0.4 s"):
                await asyncio.wait_for(source_of(address, token_request_seconds=0.4).token(), 30)

    asyncio.run(run())


@pytest.mark.parametrize("answer", [*ANSWERS, "drip feed"])
def test_the_other_connections_record_on_while_no_token_comes(answer, level3_market, practice_lake):
    async def run():
        lake = practice_lake(level3_market)
        respond = drip if answer == "drip feed" else fixed(ANSWERS[answer])
        async with PracticeServer(level3_market, rate=None) as server, endpoint(respond) as (address, _):
            settings = quick(server, lake, endpoints=replace(server.endpoints, rest=address), token_request_seconds=0.3)
            recording = Recording(settings, EventLog(stream=open("/dev/null", "w")))  # noqa: SIM115
            public, level3 = (connection.statistics for connection in recording.connections)

            async def stop_after_three_failures() -> None:
                deadline = time.monotonic() + 40
                while time.monotonic() < deadline and not (level3.token_failures >= 3 and public.connected):
                    await asyncio.sleep(0.02)
                recording.stop()
                await asyncio.Event().wait()

            await asyncio.wait_for(recording.run(stop_after_three_failures()), 60)
            recording.event_log.stream.close()
            return public, level3

    public, level3 = asyncio.run(run())
    assert (public.connects, public.failures) == (1, 0)
    assert level3.connects == 0
    assert level3.failures == level3.token_failures == level3.lost_by["token"] >= 3
