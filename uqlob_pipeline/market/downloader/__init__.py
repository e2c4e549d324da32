"""Downloads Kraken's history from those who serve it as files. What it writes is imported with `uqlob import`."""
