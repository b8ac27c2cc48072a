# Everything a person or a CI job calls. `make help` lists it; each target is one line there.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV ?= .venv
LOCK := requirements.lock
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
# Parallel test processes, each with its own database.
TEST_JOBS ?= 2
PYTEST_ARGS ?=
HOST ?= 127.0.0.1
PORT ?= 8400
# Settings of the person who calls must not change what tests and generated pages see.
CLEAN_ENV = env $(foreach name,$(filter QH_%,$(shell env | cut -d= -f1 | grep -v '^QH_TEST_')),-u $(name))

##@ Start

.PHONY: help
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z][a-z-]*:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\nVariables: PORT=%s HOST=%s VENV=%s TEST_JOBS=%s PYTEST_ARGS="-k name" PYTHON=/path/to/python\n' \
	  $(PORT) $(HOST) $(VENV) $(TEST_JOBS)

.PHONY: setup
setup: $(STAMP) ## Make the virtual environment from the lock file
	@echo 'setup: $(VENV) is up to date'

$(STAMP): $(LOCK) scripts/bootstrap.sh
	@scripts/bootstrap.sh $(VENV) $(LOCK)
	@touch $@

.PHONY: demo
demo: compiled ## Start a hub with example environments and checkpoints; Ctrl-C ends it
	@exec $(PY) -m qualityhub up --demo --host $(HOST) --port $(PORT)

.PHONY: up
up: compiled ## Start an empty hub on this machine; Ctrl-C ends it
	@exec $(PY) -m qualityhub up --host $(HOST) --port $(PORT)

# Start-up time is import time: bytecode is made once, here, and only for what changed. A tree that
# this user may not write to is no reason to stop.
.PHONY: compiled
compiled: $(STAMP)
	@$(PY) -m compileall -q -x '/demo/environments/' qualityhub workers >/dev/null 2>&1 || true

##@ Check

.PHONY: test
test: lint type contracts migrations schema-check pytest ## Everything a change must pass

.PHONY: pytest
pytest: $(STAMP) ## The tests alone, in parallel
	@$(CLEAN_ENV) $(PY) -m pytest -n $(TEST_JOBS) --dist loadfile -m "not long" $(PYTEST_ARGS)

.PHONY: test-long
test-long: $(STAMP) ## Full-size proofs: simulations, chaos, soak
	@$(CLEAN_ENV) $(PY) -m pytest -m long $(PYTEST_ARGS)

.PHONY: lint
lint: $(STAMP) ## Style and common mistakes
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .

.PHONY: format
format: $(STAMP) ## Rewrite the code in the project's style
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

.PHONY: type
type: $(STAMP) ## Types
	@$(CLEAN_ENV) $(VENV)/bin/mypy

.PHONY: contracts
contracts: $(STAMP) ## Who may import whom
	@$(VENV)/bin/lint-imports

.PHONY: migrations
migrations: $(STAMP) ## No model change without its migration
	@$(CLEAN_ENV) QH_DEBUG=true $(PY) scripts/with_database.py \
	  $(PY) manage.py makemigrations --check --dry-run

.PHONY: schema-check
schema-check: $(STAMP) ## The generated references are up to date
	@$(CLEAN_ENV) scripts/references.sh $(VENV) --check

##@ Generate

.PHONY: schema
schema: $(STAMP) ## OpenAPI document and reference pages, from the code
	@$(CLEAN_ENV) scripts/references.sh $(VENV)

.PHONY: screenshots
screenshots: compiled ## Pictures of the demo's pages into build/screenshots; needs Chromium
	@$(CLEAN_ENV) $(PY) scripts/screenshots.py build/screenshots

.PHONY: lock
lock: $(STAMP) ## Resolve the dependencies anew and write the lock file
	@$(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --no-header --all-extras --upgrade --output-file $(LOCK) pyproject.toml

##@ Measure and clean

.PHONY: bench
bench: compiled ## Every benchmark of benchmarks/, one after the other
	@for script in benchmarks/*.py; do \
	  [[ -e $$script ]] || { echo 'no benchmarks/*.py'; exit 1; }; \
	  echo "== $$script"; $(CLEAN_ENV) $(PY) "$$script"; done

.PHONY: clean
clean: ## Remove what the targets above made, except the hub's data folder
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	@find qualityhub workers tests -name __pycache__ -type d -prune -exec rm -rf {} +
