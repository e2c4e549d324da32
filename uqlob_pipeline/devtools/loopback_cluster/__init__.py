"""A whole cluster on loopback, started and stopped by itself, for `make test-cluster` and `uqlob bench scale`."""
