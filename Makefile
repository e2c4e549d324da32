# The habits, one word each. Every target sets up what it needs; a second run skips what is done.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export DAGSTER_HOME ?= $(CURDIR)/dagster_home

.PHONY: demo test test-slow test-ui ui lint bench clean

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "uqlob needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the packages of pyproject.toml into $(VENV): 2.5 GB, some three minutes, silent unless something is wrong"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

demo: $(VENV)/.installed  ## simulate a market and run the whole DAG on it
	$(BIN)/uqlob demo

test: $(VENV)/.installed  ## everything but the slow and the browser tests
	$(BIN)/pytest -n 2 --dist loadfile -m "not slow and not browser"

test-slow: $(VENV)/.installed  ## what takes minutes: learning, faults, load
	$(BIN)/pytest -m slow

test-ui: $(VENV)/.installed  ## the Dagster and MLflow UIs in a real browser
	$(BIN)/pytest -m browser

ui: $(VENV)/.installed  ## Dagster and MLflow on loopback
	$(BIN)/uqlob ui

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed  ## every benchmark; each prints one JSON object
	$(BIN)/uqlob bench all

clean:  ## what the pipeline made on this machine, never recorded data elsewhere
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
