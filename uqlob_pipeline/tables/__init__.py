"""The functions around the SQL files: features, labels, fits and the dataset profile.

Knows no model and no Dagster.
"""
