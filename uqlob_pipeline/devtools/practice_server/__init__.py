"""A practice server on loopback that implements Kraken's WebSocket v2 and injects every fault seen with Kraken.

For tests, drills and benchmarks only.
"""
