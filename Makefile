# Everything a reader or CI runs. Each target builds .venv first if it is not there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_ARGS ?=
TEST_ARGS ?=
BENCH_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all tutorials docs lint format bench bench-paper clean

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

test-all: $(STAMP) ## the slow tests too, and the tutorials in full
	$(BIN)/python -m pytest -m "" $(TEST_ARGS)
	$(BIN)/python -m tutorials check --full

tutorials: $(STAMP) ## run the tutorials small, and compare with what they hold
	SMOKE_TEST=1 $(BIN)/python -m tutorials check

docs: $(STAMP) ## the documentation, into output/docs
	$(BIN)/sphinx-build -W -b html docs output/docs

lint: $(STAMP) ## ruff (lint and format) and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP) ## let ruff repair what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP) ## the benchmarks, long ones in short (BENCH_ARGS="NAME ..." for some of them)
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

bench-paper: $(STAMP) ## the whole setting of the GSSBO paper: hours, goes on where it was
	$(BIN)/python -m benchmarks.gssbo --paper --store output/gssbo.json $(BENCH_ARGS)

clean: ## remove .venv and what the tools leave behind
	rm -rf $(VENV) output build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
