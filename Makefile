PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST_WORKERS ?= auto

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types format bench clean

help:  ## list what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:[^#]*## /\t/' | expand -t 12

setup: $(VENV)/.stamp  ## make the virtual environment with everything in it

$(VENV)/.stamp: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

demo: setup  ## run the small study end to end and print where its decision report is
	$(BIN)/dreamproof run studies/demo.yaml

test: setup lint types  ## lint, types and all tests
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS)

lint: setup  ## ruff
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples

types: setup  ## mypy, strict in the campaign tower
	$(BIN)/mypy

format: setup  ## let ruff mend what it can
	$(BIN)/ruff check --fix src tests benchmarks examples
	$(BIN)/ruff format src tests benchmarks examples

bench: setup  ## measure this machine; figures are kept in benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
