"""Market data before it becomes a table: Kraken's formats, the importer, the recorder and the simulator.

Knows no feature, label or model.
"""
