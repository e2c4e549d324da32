"""The formats of dumps that `uqlob import` reads: one module per format, and their recognition.

A format turns the lines of a file into Kraken WebSocket v2 messages, which the importer sorts into the lake.
All of them are of one exchange, Kraken; another venue would enter as a format here.
`known_formats` in `recognition.py` lists them.
"""
