# Two commands: `make run` sets up and runs the main job on a built-in scenario; `make test` does that and the tests.
PYTHON   ?= python3
VENV     ?= .venv
TORCH    ?= torch==2.13.0
SCENARIO ?= residual-layernorm-gelu

BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup run test property conformance mutation check format bench suite clean

help:
	@echo "make run [SCENARIO=...]  set up, then capture, plan, build, verify and measure a built-in scenario"
	@echo "make test                all that, then the tests"
	@echo "make mutation            the verifier on some thousand faults and correct variants"
	@echo "make property            10,000 random programs and graphs against eager (5 minutes on two quiet cores)"
	@echo "make conformance         every sample of torch's own operator database (about 45 minutes)"
	@echo "make check               ruff, pyright, import-linter"
	@echo "make bench               measure every built-in scenario against eager"
	@echo "make suite               measure memory-bound kernels against eager, Inductor and XLA (an hour or more)"
	@echo "make format              let ruff rewrite the files"
	@echo "make clean               remove the environment and what was built"

setup: $(STAMP)

# torch and the package are resolved together, so that nothing in the extras can move the pinned torch.
$(STAMP): pyproject.toml Makefile
	@command -v $(PYTHON) >/dev/null || { echo "error: '$(PYTHON)' not found; try make PYTHON=python3.11" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: Python 3.11 or newer is needed, '$(PYTHON)' is $$($(PYTHON) -V 2>&1);" \
	       "try make PYTHON=python3.11" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "error: '$(PYTHON)' has no venv; on Debian or Ubuntu: apt install python3-venv" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV); the first time takes a few minutes" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check '$(TORCH)' -e '.[dev]'
	@touch $@

run: setup
	@$(BIN)/fusebound run $(SCENARIO)

test: run
	@$(BIN)/python -m pytest

property: setup
	@$(BIN)/python -W ignore -m tests.property.search --count 10000 --workers 2

conformance: setup
	@$(BIN)/python -W ignore -m tests.conformance.sweep

mutation: setup
	@$(BIN)/python -m tests.mutation.suite

check: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright
	@$(BIN)/lint-imports

format: setup
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: setup
	@$(BIN)/fusebound bench --all

suite: setup
	@$(BIN)/python -m bench.suite

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -exec rm -rf {} +
