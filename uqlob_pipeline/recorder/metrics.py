"""The recording in Prometheus' text format, on loopback, read from the counters only when somebody asks."""

import shutil
from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from uqlob_pipeline.recorder.recording import Recording
from uqlob_pipeline.recorder.settings import RecorderError

COUNTERS = {
    "messages": "Messages written to the dumps.",
    "received_bytes": "Bytes received.",
    "written_bytes": "Compressed bytes on disk.",
    "snapshots": "Sessions begun by a snapshot of Kraken's.",
    "verified": "Messages whose checksum was right.",
    "checksum_failures": "Messages whose checksum was wrong.",
    "malformed": "Messages that could not be read.",
    "dropped": "Messages received while no verified book stood.",
    "missed_trades": "Trade ids that never came.",
    "files": "Files begun.",
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
        gaps = CounterMetricFamily("uqlob_recorder_gaps", "Session breaks, by what caused them.", labels=[*LABELS, "reason"])
        lag = GaugeMetricFamily("uqlob_recorder_lag_seconds", "Received minus Kraken's own time, last message.", labels=LABELS)
        heard = GaugeMetricFamily("uqlob_recorder_last_received_seconds", "When the last message came.", labels=LABELS)
        for feed in feeds:
            for reason, count in list(feed.gaps.items()):
                gaps.add_metric([feed.channel, feed.symbol, reason], count)
            lag.add_metric([feed.channel, feed.symbol], feed.lag_ns / 1e9)
            heard.add_metric([feed.channel, feed.symbol], feed.last_received / 1e9)
        live = GaugeMetricFamily("uqlob_recorder_live", "1 while a verified book stands.", labels=LABELS)
        for book in self.recording.books:
            live.add_metric([book.channel, book.statistics.symbol], float(book.live))
        yield from (gaps, lag, heard, live)
        yield from self._connections()
        free = GaugeMetricFamily("uqlob_recorder_free_bytes", "Free space where the lake is.")
        free.add_metric([], shutil.disk_usage(self.recording.lake.root).free)
        yield free

    def _connections(self) -> Iterable[Metric]:
        up = GaugeMetricFamily("uqlob_recorder_connected", "1 while the connection stands.", labels=["connection"])
        lost = CounterMetricFamily(
            "uqlob_recorder_connections_lost", "Connections lost, by reason.", labels=["connection", "reason"]
        )
        limited = CounterMetricFamily(
            "uqlob_recorder_rate_limited", "Subscriptions refused for their rate.", labels=["connection"]
        )
        for connection in self.recording.connections:
            said = connection.statistics
            up.add_metric([said.name], float(said.connected))
            limited.add_metric([said.name], said.rate_limited)
            for reason, count in list(said.lost_by.items()):
                lost.add_metric([said.name, reason], count)
        return up, lost, limited


def serve_metrics(recording: Recording, port: int) -> Any:
    """Answer http://127.0.0.1:PORT/metrics in a thread; returns the server, to be shut down."""
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
