"""Benchmarks: every performance figure as a ratio measured in one run. Nothing else imports them."""
