"""Tools for developers: benchmarks, the fault drill and the practice server. Nothing in the product imports them."""
