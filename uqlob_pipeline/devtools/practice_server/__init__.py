"""A practice server on loopback that implements Kraken's WebSocket v2 and injects every fault seen with Kraken."""
