PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST_WORKERS ?= auto
comma := ,

.DEFAULT_GOAL := help
.PHONY: help setup demo test pytest lint types format bench faults healthy fuzz gallery official parity parity-tasks reference docs external clean

help:  ## list what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:[^#]*## /\t/' | expand -t 12

setup: $(VENV)/.stamp  ## make the virtual environment with everything in it

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# JAX comes with CUDA where an NVIDIA driver is.
EXTRAS := dev$(if $(wildcard /proc/driver/nvidia/version),$(comma)cuda)

$(VENV)/.stamp: pyproject.toml setup.py
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[$(EXTRAS)]'
	touch $@

# Without the preflight, which would compile once more what the one pack of the demo compiles anyway.
demo: setup  ## run the small study end to end; prints its answer and where its report is
	$(BIN)/dreamproof run studies/demo.yaml --no-check

# The type checker uses one core for as long as many tests wait for a cluster or a clock.
test: setup lint  ## lint, types and all tests
	$(MAKE) --no-print-directory -j2 types pytest

pytest: setup
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS)

lint: setup  ## ruff
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples

types: setup  ## mypy, strict in the campaign tower
	$(BIN)/mypy

format: setup  ## let ruff fix what it can
	$(BIN)/ruff check --fix src tests benchmarks examples
	$(BIN)/ruff format src tests benchmarks examples

faults: setup  ## inject 1,000 faults of 36 kinds into running studies and print the outcome (about half an hour)
	$(BIN)/python -m dreamproof.testing.faults

healthy: setup  ## 240 healthy runs under disturbances (none may be killed) and 70 hangs (all must be found), simulated
	$(BIN)/python -m dreamproof.testing.healthy

fuzz: setup  ## damage the files of a recorded study at random under every verb, 4,000 examples
	$(BIN)/python -m dreamproof.testing.fuzz

gallery: setup  ## write the documents of the gallery again from its records
	$(BIN)/python -m dreamproof.testing.gallery

bench: setup  ## measure this machine; figures are kept in docs/results
	$(BIN)/python -m benchmarks

official: setup  ## add the real Safety-Gymnasium to the virtual environment
	$(PIP) --no-deps safety-gymnasium==1.0.0

# RECORD_PYTHON may be an interpreter with the official version pins; see docs/environments.md.
RECORD_PYTHON ?= $(BIN)/python
parity: official  ## compare our Goal tasks with the real ones and write benchmarks/PARITY.md, PARITY_GOAL2.md and PARITY_CAR.md
	mkdir -p build
	PYTHONPATH=src $(RECORD_PYTHON) benchmarks/record_official.py build/official.npz --layouts 1500 --transition-episodes 12 --every 5
	$(BIN)/python benchmarks/parity.py build/official.npz --output benchmarks/PARITY.md
	PYTHONPATH=src $(RECORD_PYTHON) benchmarks/record_official.py build/official2.npz --task SafetyPointGoal2 --layouts 600 --transition-episodes 9 --every 6 --policy-episodes 40
	$(BIN)/python benchmarks/parity.py build/official2.npz --output benchmarks/PARITY_GOAL2.md
	PYTHONPATH=src $(RECORD_PYTHON) benchmarks/record_official.py build/official_car.npz --task SafetyCarGoal1 --layouts 600 --transition-episodes 9 --every 6 --policy-episodes 60
	$(BIN)/python benchmarks/parity.py build/official_car.npz --output benchmarks/PARITY_CAR.md --episodes 192

# RECORD_PYTHON has dm-control==1.0.50 and mujoco==3.17.0; TDMPC2 is a checkout of TD-MPC2.
TDMPC2 ?= ../tdmpc2
parity-tasks: setup  ## compare the tasks of MT30 with dm-control and TD-MPC2 and write benchmarks/PARITY_TASKS.md
	mkdir -p build
	PYTHONPATH=src $(RECORD_PYTHON) benchmarks/record_dm_control.py build/mt30.npz --tdmpc2 $(TDMPC2) --episodes 24 --starts 400
	$(BIN)/python -m benchmarks.parity_tasks build/mt30.npz --output benchmarks/PARITY_TASKS.md

external: setup  ## run stable-baselines3 from PyPI, script unchanged, as two studies; one trainer is killed (about ten minutes)
	$(PIP) stable-baselines3 tensorboard
	$(BIN)/python -m benchmarks.external

reference: setup  ## write docs/reference.md from the code
	$(BIN)/python -m dreamproof.testing.reference

docs: setup  ## build the documentation site into build/site; warnings are errors
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	$(BIN)/python -m dreamproof.testing.reference --check
	$(BIN)/mkdocs build --strict --quiet

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
