# Common tasks. Every target installs what it needs; a second run skips what is up to date.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export DAGSTER_HOME ?= $(CURDIR)/dagster_home

.PHONY: demo test test-slow test-ui ui lint docs bench clean

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "uqlob needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the packages of pyproject.toml into $(VENV): 2.5 GB, about three minutes, no output unless something fails"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

demo: $(VENV)/.installed  ## simulate a market, run the whole DAG on it, print the results
	$(BIN)/uqlob demo

test: $(VENV)/.installed  ## all tests except the slow and the browser tests
	$(BIN)/pytest -n 2 --dist loadfile -m "not slow and not browser"

test-slow: $(VENV)/.installed  ## tests that take minutes: learning, faults, load
	$(BIN)/pytest -m slow

test-ui: $(VENV)/.installed  ## the Dagster and MLflow UIs in a real browser
	$(BIN)/pytest -m browser

ui: $(VENV)/.installed  ## start the Dagster and MLflow UIs on loopback
	$(BIN)/uqlob ui

lint: $(VENV)/.installed  ## style, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m uqlob_pipeline.devtools.table_document --check

docs: $(VENV)/.installed  ## docs/tables.md from the table registry
	$(BIN)/python -m uqlob_pipeline.devtools.table_document

bench: $(VENV)/.installed  ## run every benchmark; each prints one JSON object
	$(BIN)/uqlob bench all

clean:  ## delete the virtual environment, build output and caches; never data of a lake
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
