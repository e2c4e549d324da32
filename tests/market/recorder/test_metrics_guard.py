"""The metrics answer to their own names alone, over real connections."""

import http.client
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from uqlob_pipeline.market.recorder.event_log import EventLog
from uqlob_pipeline.market.recorder.prometheus import serve_metrics
from uqlob_pipeline.market.recorder.recording import Recording
from uqlob_pipeline.market.recorder.settings import RecorderError, RecorderSettings


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port of a recorder that serves its metrics and is connected to nothing."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    recording = Recording(RecorderSettings(("BTC-USD",), level2=True, lake=tmp_path, depth=10), EventLog())
    server = serve_metrics(recording, free)
    yield free
    with pytest.raises(RecorderError, match=f"--metrics-port {free}"):
        serve_metrics(recording, free)
    server.shutdown()
    server.server_close()
    recording.close()


def ask(port: int, *headers: tuple[str, str], method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.putrequest(method, "/metrics", skip_host=True, skip_accept_encoding=True)
    for header in headers:
        connection.putheader(*header)
    connection.endheaders()
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_prometheus_reads_the_metrics_by_each_of_their_names(port: int, name: str) -> None:
    status, body = ask(port, ("Host", f"{name}:{port}"))
    assert status == 200
    assert 'uqlob_recorder_messages_total{channel="book",symbol="BTC-USD"} 0.0' in body


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example"])
def test_a_rebound_host_name_reads_nothing(port: int, host: str) -> None:
    status, body = ask(port, ("Host", host))
    assert (status, "uqlob_recorder" in body) == (403, False)
    assert "is not a name of this server" in body


def test_no_host_and_two_hosts_are_refused(port: int) -> None:
    assert ask(port)[0] == 403
    assert ask(port, ("Host", f"127.0.0.1:{port}"), ("Host", "evil.example"))[0] == 403


def test_a_page_of_another_origin_reads_nothing(port: int) -> None:
    own = ("Host", f"127.0.0.1:{port}")
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{port}"):
        status, body = ask(port, own, ("Origin", origin))
        assert (status, "uqlob_recorder" in body) == (403, False), origin
    assert ask(port, own, ("Sec-Fetch-Site", "cross-site"))[0] == 403, "an image is requested without Origin"
    assert ask(port, own, ("Origin", f"http://127.0.0.1:{port}"))[0] == 200


def test_the_metrics_can_only_be_read(port: int) -> None:
    assert ask(port, ("Host", f"127.0.0.1:{port}"), ("Content-Length", "0"), method="POST")[0] == 405
