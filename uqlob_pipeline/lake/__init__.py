"""The data lake: where files live, how they are written and described, and DuckDB on top of them.

Knows the profile and nothing above it: no market format, no model, no Dagster.
"""
