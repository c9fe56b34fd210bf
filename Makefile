# Everything a reader or CI runs. Each target builds .venv first if it is not there.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# One process for each core, and one thread in each.
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
# What rounds: tests that `test-arithmetic` runs again, and how. ATen's vector width,
# MKL's and OpenBLAS' kernels, threads.
NUMERICAL := $(addprefix test/,linear_operators kernels posteriors inducing acquisition \
	batching pools distributed models) \
	$(patsubst %,test/strategies/test_%.py,box_posterior gssbo initialization \
	learning limits prior_fitting radii repeats sbpe sbpe_box sbpe_certificate \
	sbpe_inferred sbpe_regression strategies tables_without_kernel thompson unique \
	units unknown_hyperparameters)
# In CI an eighth of the tests in one arithmetic; `test-all` runs all in each.
ARITHMETIC := default,COMPATIBLE,Nehalem,2,1/8
WHOLE_ARITHMETIC := default,COMPATIBLE,Nehalem,1,1/1 avx2,AVX2,Haswell,2,1/1 \
	avx2,SSE4_2,Sandybridge,1,1/1
# Tests that need no extra of the installed package but `test`, and take little time.
INSTALLED_TESTS = test/kernels test/linear_operators test/test_readme.py \
	-k "not use_in_ax and not files_that_are_named"
UPSTREAM = git+https://github.com/cornellius-gp/linear_operator \
	git+https://github.com/cornellius-gp/gpytorch git+https://github.com/pytorch/botorch
DEMO_ARGS ?=
# CI takes `dummy`: it reads and resolves all pages, and writes none.
DOCS_BUILDER ?= html
TEST_ARGS ?=
BENCH_ARGS ?=
# A machine with a GPU may have an environment of its own: GPU_PYTHON=python3. Its
# versions are not the pins, so their warnings are no errors.
GPU_PYTHON ?= $(BIN)/python
GPU_TESTS = timeout -k 20 -s INT 300 $(GPU_PYTHON) -m pytest test -k cuda -q -W default \
	--continue-on-collection-errors
GPU_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all test-arithmetic mutants tutorials docs lint format dist dist-test test-upstream bench bench-paper gpu matrix clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 12

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --no-compile -c constraints.txt -e ".[dev]"
	@touch $@

install: $(STAMP) ## build .venv with the pinned versions of constraints.txt

demo: $(STAMP) ## the best row of a table, four ways (DEMO_ARGS="--data FILE.csv")
	$(BIN)/python -m botorch_sparse $(DEMO_ARGS)

test: $(STAMP) ## all tests but the slow ones, and the doctests
	$(ONE_THREAD) $(PYTEST) $(TEST_ARGS)

test-all: $(STAMP) ## the slow tests too, and the tutorials in full
	$(ONE_THREAD) $(PYTEST) -m "" $(TEST_ARGS)
	$(MAKE) test-arithmetic ARITHMETIC="$(WHOLE_ARITHMETIC)"
	$(BIN)/python -m tutorials check --full

test-arithmetic: $(STAMP) ## the numerical tests as processors of other kinds round
	for setting in $(ARITHMETIC); do \
		IFS=, read -r aten mkl openblas threads part <<< "$$setting" && \
		echo "ATen $$aten, MKL $$mkl, OpenBLAS $$openblas, threads: $$threads, part $$part" && \
		ATEN_CPU_CAPABILITY=$$aten MKL_CBWR=$$mkl OPENBLAS_CORETYPE=$$openblas \
		OMP_NUM_THREADS=$$threads OPENBLAS_NUM_THREADS=$$threads \
		OMP_WAIT_POLICY=PASSIVE \
		$(PYTEST) -q -m "not sim and not slow" $(NUMERICAL) --ignore test/distributed/test_ranks.py \
		--part $$part $(TEST_ARGS) || exit; \
	done

mutants: $(STAMP) ## put 200 faults into the package, and see which the tests notice
	$(BIN)/python test/mutants.py map
	$(BIN)/python test/mutants.py run

matrix: ## the tests with the oldest, the pinned and the newest versions, and a table
	$(PYTHON) test/matrix.py -n auto --dist worksteal $(TEST_ARGS)

tutorials: $(STAMP) ## run the tutorials small, and compare with what they hold
	SMOKE_TEST=1 $(BIN)/python -m tutorials check

docs: $(STAMP) ## the documentation, into output/docs
	$(BIN)/sphinx-build -W -j auto -b $(DOCS_BUILDER) docs output/docs

lint: $(STAMP) ## ruff (lint and format), mypy, and linters of the workflows
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/zizmor --offline --quiet .github
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.readthedocs .readthedocs.yaml

format: $(STAMP) ## let ruff repair what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

dist: $(STAMP) ## the source distribution and its wheel, built and checked, into dist
	rm -rf dist build
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl

dist-test: dist ## README's examples, doctests and tests, with the wheel in a bare environment
	scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && \
	$(PYTHON) -m venv "$$scratch/env" && python="$$scratch/env/bin/python" && \
	"$$python" -m pip install -c constraints.txt "$$(echo dist/*.whl)[test]" && \
	tar -xzf dist/*.tar.gz -C "$$scratch" && cd "$$scratch"/botorch_sparse-* && \
	rm -r botorch_sparse && export $(ONE_THREAD) && \
	"$$python" -m pytest -q $(INSTALLED_TESTS) && \
	"$$python" -m pytest -q --pyargs botorch_sparse \
		--ignore-glob "$$scratch/env/*/ax/*" --ignore-glob "$$scratch/env/*/plotting/*"

test-upstream: ## the tests with the main branches of BoTorch, GPyTorch and linear_operator
	$(MAKE) install VENV=.venv-upstream
	.venv-upstream/bin/pip install $(UPSTREAM)
	$(MAKE) test VENV=.venv-upstream TEST_ARGS="-W default $(TEST_ARGS)"

bench: $(STAMP) ## the benchmarks, long ones in short (BENCH_ARGS="NAME ..." for some of them)
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

gpu: $(if $(filter $(BIN)/%,$(GPU_PYTHON)),$(STAMP)) ## the tests on CUDA, and its benchmark into output/gpu.md
	@status=0; mkdir -p output; \
	if $(GPU_PYTHON) -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; \
	then \
		workers=$$($(GPU_PYTHON) -c 'import xdist; print("-n 8")' 2> /dev/null); \
		$(ONE_THREAD) $(GPU_TESTS) $$workers $(TEST_ARGS) || status=$$?; \
	else echo "No CUDA device: no tests, and the benchmark is small, on the CPU."; \
	fi; \
	$(GPU_PYTHON) -m benchmarks.gpu --output output/gpu.md $(GPU_ARGS) || status=$$?; \
	exit $$status

bench-paper: $(STAMP) ## the whole setting of the GSSBO paper: days, goes on where it was
	$(BIN)/python -m benchmarks.gssbo --paper --store output/gssbo.json $(BENCH_ARGS)

clean: ## remove .venv and what the tools leave behind
	rm -rf $(VENV) output build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
