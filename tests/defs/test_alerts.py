"""A failed run reaches the webhook with its reason and where to look."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import dagster as dg
import pytest

from uqlob_pipeline.defs.alerts import ALERT_URL, failure_alert


@dg.op
def fails() -> None:
    raise dg.Failure(description="the disk is full")


@dg.job
def failing() -> None:
    fails()


def test_a_failed_run_is_posted_to_the_webhook(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    received = []

    class Webhook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Webhook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv(ALERT_URL, f"http://127.0.0.1:{server.server_port}")
    result = failing.execute_in_process(instance=instance, raise_on_error=False)
    event = result.get_run_failure_event()
    context = dg.build_run_status_sensor_context("failure_alert", event, instance, result.dagster_run)
    assert failure_alert(context.for_run_failure()) is None
    server.shutdown()
    server.server_close()
    (alert,) = received
    assert alert["run_id"] == result.run_id
    assert alert["url"].endswith(f"/runs/{result.run_id}")
    assert alert["text"].startswith(f"uqlob run {result.run_id[:8]} failed: ")


def test_without_an_address_the_sensor_says_what_to_set(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ALERT_URL, raising=False)
    result = failing.execute_in_process(instance=instance, raise_on_error=False)
    event = result.get_run_failure_event()
    context = dg.build_run_status_sensor_context("failure_alert", event, instance, result.dagster_run)
    skipped = failure_alert(context.for_run_failure())
    assert isinstance(skipped, dg.SkipReason)
    assert ALERT_URL in (skipped.skip_message or "")
