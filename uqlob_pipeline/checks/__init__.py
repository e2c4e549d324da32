"""Asset checks, one module a group of assets."""
