# Common tasks. Every target installs what it needs; a second run skips what is up to date.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export DAGSTER_HOME ?= $(CURDIR)/dagster_home
# Every process would compile the project's modules again, and tests start many.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo demo-separate study test test-slow test-cluster test-faults test-ui ui lint docs bench clean

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "uqlob needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the packages of pyproject.toml into $(VENV): 2.3 GB, about two minutes, no output unless something fails"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

# What tests, lint and the GARCH reference need beside that: another 0.3 GB.
$(VENV)/.installed-dev: pyproject.toml $(VENV)/.installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

demo: $(VENV)/.installed  ## simulate a market, run the whole DAG on it, print the results
	$(BIN)/uqlob demo

demo-separate: $(VENV)/.installed  ## the demo with a model per symbol, horizon and output, as in the paper, in separate/
	mkdir -p separate
	sed 's/^joint = "horizons"$$/joint = "none"/' uqlob_pipeline/config/profiles/demo.toml > separate/demo.toml
	UQLOB_PROFILE=separate/demo.toml UQLOB_LAKE=separate/lake DAGSTER_HOME=$(CURDIR)/separate/dagster_home $(BIN)/uqlob demo

study: $(VENV)/.installed  ## both tables of the study on the demo's market: baselines and ablations, five seeds; resumes
	$(BIN)/uqlob study run
	$(BIN)/uqlob study show
	$(BIN)/uqlob materialize --select paper_report

test: $(VENV)/.installed-dev  ## all tests except the slow and the browser tests
	$(BIN)/pytest -n 2 --dist loadfile -m "not slow and not browser and not cluster"

test-slow: $(VENV)/.installed-dev  ## tests that take minutes: learning, faults, load
	$(BIN)/pytest -m "slow and not cluster"

# What a cluster needs beside that: another 0.6 GB.
$(VENV)/.installed-cluster: pyproject.toml $(VENV)/.installed-dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,cluster,cluster-test]'
	touch $@

test-cluster: $(VENV)/.installed-cluster  ## the whole DAG on two Ray nodes, Postgres and an S3 server, all started on loopback and stopped
	$(BIN)/pytest -n 0 -m "cluster and not slow"

test-faults: $(VENV)/.installed-cluster  ## faults of a cluster, and the contract of a store on Ceph where Debian's packages are installed
	$(BIN)/pytest -n 0 -m "cluster and slow"

test-ui: $(VENV)/.installed-dev  ## the Dagster and MLflow UIs in a real browser
	$(BIN)/pytest -m browser

ui: $(VENV)/.installed  ## start the Dagster and MLflow UIs on loopback
	$(BIN)/uqlob ui

lint: $(VENV)/.installed-dev  ## style, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m uqlob_pipeline.devtools.table_document --check

docs: $(VENV)/.installed-dev  ## docs/tables.md from the table registry
	$(BIN)/python -m uqlob_pipeline.devtools.table_document

bench: $(VENV)/.installed-dev  ## run every benchmark; each prints one JSON object
	$(BIN)/uqlob bench all

clean:  ## delete the virtual environment, build output and caches; never data of a lake
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
