"""A load test on loopback: no message is lost or altered, and memory does not grow."""

from uqlob_pipeline.devtools.bench.recorder_load import measure


def test_a_load_is_recorded_without_loss():
    found = measure(rate=4000.0, seconds=4.0, symbols=2, depth=100)
    assert found.messages > 10_000
    assert (found.lost, found.altered, found.gaps) == (0, 0, 0)
    assert found.checksums_verified > 0.9 * found.messages
    assert found.memory_end_mb - found.memory_start_mb < 60
    assert found.written_mb < found.received_mb / 4
