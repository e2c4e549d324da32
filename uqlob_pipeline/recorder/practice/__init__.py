"""A practice server on loopback that speaks Kraken's WebSocket v2 and can fail in every way that Kraken has been seen to."""
