"""Market data before it becomes a table: Kraken's formats, importer, downloader, recorder, simulator and stylised facts.

Knows no feature, label or model.
"""
