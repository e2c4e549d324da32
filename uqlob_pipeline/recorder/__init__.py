"""The recorder: live Kraken books, trades and instruments into the raw dumps of a lake, with no loss that is not counted."""
