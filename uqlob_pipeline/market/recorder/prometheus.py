"""Prometheus metrics of the recording, served on loopback and read from the counters at each scrape.

Requests that name another host, or that a page of another origin sends, are refused as on the other pages of this project.
"""

import shutil
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from uqlob_pipeline.config.web_origins import OwnOrigins, loopback_origins
from uqlob_pipeline.market.recorder.recording import Recording
from uqlob_pipeline.market.recorder.settings import RecorderError

COUNTERS = {
    "messages": "Messages written to the dumps.",
    "received_bytes": "Bytes received.",
    "written_bytes": "Compressed bytes on disk.",
    "snapshots": "Sessions started by a snapshot from Kraken.",
    "verified": "Messages with a correct checksum.",
    "checksum_failures": "Messages with a wrong checksum.",
    "malformed": "Messages that could not be read.",
    "dropped": "Messages received without a verified book.",
    "missed_trades": "Trade ids that were never received.",
    "files": "Files opened.",
}
LABELS = ["channel", "symbol"]


class RecordingCollector(Collector):
    def __init__(self, recording: Recording) -> None:
        self.recording = recording

    def collect(self) -> Iterable[Metric]:
        feeds = self.recording.statistics
        for name, meaning in COUNTERS.items():
            family = CounterMetricFamily(f"uqlob_recorder_{name}", meaning, labels=LABELS)
            for feed in feeds:
                family.add_metric([feed.channel, feed.symbol], getattr(feed, name))
            yield family
        gaps = CounterMetricFamily("uqlob_recorder_gaps", "Session breaks, by reason.", labels=[*LABELS, "reason"])
        lag = GaugeMetricFamily("uqlob_recorder_lag_seconds", "Received minus Kraken's own time, last message.", labels=LABELS)
        last_received = GaugeMetricFamily("uqlob_recorder_last_received_seconds", "Time of the last message.", labels=LABELS)
        for feed in feeds:
            for reason, count in list(feed.gaps.items()):
                gaps.add_metric([feed.channel, feed.symbol, reason], count)
            lag.add_metric([feed.channel, feed.symbol], feed.lag_ns / 1e9)
            last_received.add_metric([feed.channel, feed.symbol], feed.last_received / 1e9)
        live = GaugeMetricFamily("uqlob_recorder_live", "1 while the book is verified.", labels=LABELS)
        for book in self.recording.books:
            live.add_metric([book.channel, book.statistics.symbol], float(book.live))
        yield from (gaps, lag, last_received, live)
        yield from self._connections()
        free = GaugeMetricFamily("uqlob_recorder_free_bytes", "Free disk space of the lake.")
        free.add_metric([], shutil.disk_usage(self.recording.lake.root).free)
        yield free
        if publisher := self.recording.publisher:
            unpublished = GaugeMetricFamily("uqlob_recorder_unpublished_files", "Closed files that the store does not have yet.")
            unpublished.add_metric([], publisher.waiting)
            yield unpublished

    def _connections(self) -> Iterable[Metric]:
        up = GaugeMetricFamily("uqlob_recorder_connected", "1 while the connection is open.", labels=["connection"])
        lost = CounterMetricFamily(
            "uqlob_recorder_connections_lost", "Connections lost, by reason.", labels=["connection", "reason"]
        )
        limited = CounterMetricFamily(
            "uqlob_recorder_rate_limited", "Subscriptions refused by the rate limit.", labels=["connection"]
        )
        tokens = CounterMetricFamily("uqlob_recorder_token_failures", "Failed requests for a token.", labels=["connection"])
        for connection in self.recording.connections:
            statistics = connection.statistics
            tokens.add_metric([statistics.name], statistics.token_failures)
            up.add_metric([statistics.name], float(statistics.connected))
            limited.add_metric([statistics.name], statistics.rate_limited)
            for reason, count in list(statistics.lost_by.items()):
                lost.add_metric([statistics.name, reason], count)
        return up, lost, limited, tokens


WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def guarded(app: WsgiApp, own: OwnOrigins) -> WsgiApp:
    """The application behind the check of `Host` and `Origin`; it takes GET and HEAD alone."""

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        # wsgiref joins repeated headers by commas, so that two hosts are none of this server's names.
        hosts, origins = ([environ[name]] if name in environ else [] for name in ("HTTP_HOST", "HTTP_ORIGIN"))
        why, status = own.refusal(hosts, origins), "403 Forbidden"
        if not why and environ.get("HTTP_SEC_FETCH_SITE") == "cross-site":
            why = "Refused: sent by a page of another site."
        if not why and environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            why, status = "Refused: the metrics can only be read.", "405 Method Not Allowed"
        if not why:
            return app(environ, start_response)
        start_response(status, [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")])
        return [f"{why}\n".encode()]

    return answer


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _QuietHandler(WSGIRequestHandler):
    timeout = 30  # of a client that connects and sends nothing

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not logged."""


def serve_metrics(recording: Recording, port: int) -> WSGIServer:
    """Serve http://127.0.0.1:PORT/metrics in a thread; the caller shuts the returned server down."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(RecordingCollector(recording))
    app = guarded(make_wsgi_app(registry), OwnOrigins(loopback_origins(port)))
    try:
        server = make_server("127.0.0.1", port, app, _Server, _QuietHandler)
    except OSError as error:
        raise RecorderError(
            f"--metrics-port {port}: {error.strerror} on 127.0.0.1. Choose another port, or 0 for no metrics"
        ) from error
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
