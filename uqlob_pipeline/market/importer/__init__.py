"""Imports dump files of any layout into the lake's raw files, one directory per channel, symbol and day.

Parsing of single messages belongs to `market.kraken`.
"""
