"""The `economics` group of the asset graph: its assets and their checks."""
