# Everything a reader or CI runs. Each target builds .venv first if it is not there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_ARGS ?=
TEST_ARGS ?=
BENCH_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all lint format bench clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 12

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -c constraints.txt -e ".[dev]"
	@touch $@

install: $(STAMP) ## build .venv with the pinned versions of constraints.txt

demo: $(STAMP) ## BBKB, GP-UCB and random search on a table (DEMO_ARGS="--data FILE.csv")
	$(BIN)/python -m botorch_sparse $(DEMO_ARGS)

test: $(STAMP) ## all tests but the slow ones, and the doctests
	$(BIN)/python -m pytest $(TEST_ARGS)

test-all: $(STAMP) ## the slow tests too
	$(BIN)/python -m pytest -m "" $(TEST_ARGS)

lint: $(STAMP) ## ruff (lint and format) and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP) ## let ruff repair what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP) ## the benchmarks of benchmarks/RESULTS.md (BENCH_ARGS passes options)
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

clean: ## remove .venv and what the tools leave behind
	rm -rf $(VENV) output build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
