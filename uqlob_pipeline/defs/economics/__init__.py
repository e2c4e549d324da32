"""The economics group: what acting on the forecasts is worth."""
