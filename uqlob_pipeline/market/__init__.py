"""Market data before it becomes a table: Kraken's formats, the importer, the recorder, the simulator and stylised facts.

Knows no feature, label or model.
"""
