"""Tests of prices, thresholds and labels."""
