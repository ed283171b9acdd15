# Everything needs only Python ≥ 3.11, git and make: the first command builds .venv, the next ones reuse it.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test lint types unit coverage attack attack-short slow bench docs clean

help:  ## print this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-12s %s\n", $$1, $$2}'

demo: $(STAMP)  ## train SCOPIL-ρ, SCOPIL, SAC and a clone for about five minutes, and compare them
	$(BIN)/python examples/first_run.py

test: lint types unit  ## lint, types and the fast tests: what CI runs

lint: $(STAMP)  ## ruff: mistakes and layout
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(STAMP)  ## pyright over src, tests, tools and examples; a warning counts as an error
	$(BIN)/pyright --warnings

unit: $(STAMP)  ## the fast tests alone; a few of them: make unit TESTS="tests/envs -k gym"
	$(BIN)/pytest -q -n 2 $(TESTS)

coverage: $(STAMP)  ## the fast tests, with the lines of src that they do not run
	@mkdir -p build
	$(BIN)/pytest -q -n 2 --cov --cov-report=term:skip-covered --cov-report=xml:build/coverage.xml $(TESTS)

attack: $(STAMP)  ## 10 000 mutations of every kind of file and 1 000 kills (half an hour; or MUTATIONS=300 KILLS=20)
	PYTHONPATH=tests JAX_PLATFORMS=cpu $(BIN)/python -m attack.campaign --mutations $(or $(MUTATIONS),10000) \
		--kills $(or $(KILLS),1000)
	$(BIN)/pytest -q -m slow tests/attack

attack-short: $(STAMP)  ## the same with 300 mutations and 70 kills (two minutes): what CI runs after the tests
	PYTHONPATH=tests JAX_PLATFORMS=cpu $(BIN)/python -m attack.campaign --mutations 300 --kills 70

slow: $(STAMP)  ## learning tests that take minutes
	$(BIN)/pytest -q -m slow

bench: $(STAMP)  ## measure again what is under benchmarks/ (hours)
	for name in environment speed host_speed cartpole pendulum lap_grid first_safe; do $(BIN)/python benchmarks/$$name.py || exit 1; done

docs: $(STAMP)  ## build docs/ and the generated reference into build/site/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]' -c constraints.txt
	$(BIN)/python tools/build_docs.py

clean:  ## remove .venv, build/ and caches
	rm -rf $(VENV) build .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks examples -name __pycache__ -type d -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt
	@'$(PYTHON)' -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "scopil needs Python 3.11 or newer; found $$($(or $(PYTHON),python3) --version 2>/dev/null || echo none)." \
		"Point to one: make $(MAKECMDGOALS) PYTHON=/path/to/python3.12" >&2; exit 1; }
	test -x $(BIN)/python || '$(PYTHON)' -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
	@touch $@
