"""The `features` group of the asset graph: its assets and their checks."""
