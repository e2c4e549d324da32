"""Tests of tokens, features and scales; `synthetic` and `reference` serve the label tests too."""
