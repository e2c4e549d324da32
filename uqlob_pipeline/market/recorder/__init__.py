"""The recorder: writes live Kraken books, trades and instruments to the raw dumps of a lake, and counts every loss.

Imports neither numba nor DuckDB nor the models' libraries, because it runs in a small container.
"""
