# Pagoda's verbs. `make help` lists them.
#
# Everything generated goes under var/ (or PAGODA_HOME), the Python environment in .venv/, the built front end in
# frontend/dist/. Each step is skipped while its inputs are unchanged, so a second `make up` goes straight to starting.

PYTHON ?= python3
BIN := .venv/bin
PAGODA_HOME ?= $(CURDIR)/var
export PAGODA_HOME

PYTEST := $(BIN)/python -m pytest

# What `make bench` runs: `make bench BENCHMARK=prefix OPTIONS=--quick`.
BENCHMARK ?= serving
OPTIONS ?=

.DEFAULT_GOAL := help
.PHONY: help up test test-quick lint format bench model frontend soak clean environment development

help: ## list the verbs
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | awk -F '\t' '{printf "make %-12s %s\n", $$1, $$2}'

environment:
	@setup/environment.sh all '$(PYTHON)'

development:
	@setup/environment.sh dev '$(PYTHON)'

frontend: environment ## build the browser chat (skipped while its sources are unchanged)
	@setup/frontend.sh build

model: environment ## download and convert the default model (once)
	@$(BIN)/pagoda-inference prepare-model

# `exec` makes Pagoda the direct child of make, which passes SIGTERM on; --stop-with-parent covers make being
# interrupted or killed alone (see platform/pagoda/operations/parent.py).
up: environment frontend ## start Pagoda: engine, web and worker under one supervisor
	@exec $(BIN)/python manage.py up --stop-with-parent

test: development frontend model ## every test (about half an hour on 2 cores)
	$(PYTEST) tests --ignore=tests/e2e
	setup/frontend.sh test
	$(PYTEST) tests/e2e

test-quick: development frontend ## the fast tests (about a quarter of an hour on 2 cores)
	$(PYTEST) tests --ignore=tests/e2e -m 'not slow'
	setup/frontend.sh test

lint: development ## ruff, mypy and the front end's checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	setup/frontend.sh lint

format: development ## let the formatters rewrite the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	setup/frontend.sh format

bench: environment model ## a benchmark: make bench BENCHMARK=serving OPTIONS=--quick
	$(BIN)/python -m bench $(BENCHMARK) $(OPTIONS) --json -

soak: development frontend model ## property tests, conversations, engine kills, without end or PAGODA_SOAK_MINUTES
	@setup/soak.sh

clean: ## remove caches and the built front end; data (var/) and the environment (.venv/) stay
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist test-results frontend/dist
	find . -name __pycache__ -not -path './.venv/*' -not -path './frontend/node_modules/*' -prune -exec rm -rf {} +
