"""Prometheus metrics of the recording, served on loopback and read from the counters at each scrape."""

import shutil
from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

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


def serve_metrics(recording: Recording, port: int) -> Any:
    """Serve http://127.0.0.1:PORT/metrics in a thread; the caller shuts the returned server down."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(RecordingCollector(recording))
    try:
        server, _ = start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        raise RecorderError(
            f"--metrics-port {port}: {error.strerror} on 127.0.0.1. Choose another port, or 0 for no metrics"
        ) from error
    return server
