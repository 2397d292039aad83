# Every target sets up what it needs on first use: an environment in .venv with the pinned versions.
# Needs make and Python 3.11 to 3.13, nothing else.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TRACE ?= traces/sample.parquet
CONFIG ?=
RUNS ?= runs
ARGS ?=
.DEFAULT_GOAL := help
.PHONY: help replay report sql test bench lint lock clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  \1 /' | awk '{printf "  make %-8s", $$1; $$1=""; print $$0}'
	@echo
	@echo "  make replay TRACE=my.jsonl.gz CONFIG=replay.toml ARGS='--set engine.max_num_seqs=64'"

$(VENV)/runtime: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; ok = (3, 11) <= sys.version_info < (3, 14); sys.exit(None if ok else "servecast needs Python 3.11, 3.12 or 3.13, this is %d.%d; name another with: make PYTHON=python3.12" % sys.version_info[:2])'
	@echo "Setting up $(VENV) (once) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

$(VENV)/dev: requirements-dev.lock $(VENV)/runtime
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@

replay: $(VENV)/runtime  ## replay TRACE with CONFIG; print a summary, write the report page
	@$(BIN)/servecast replay $(TRACE) $(if $(CONFIG),--config $(CONFIG)) -o $(RUNS) --report $(ARGS)

report: $(VENV)/runtime  ## write the report page of RUN (the newest if not given)
	@$(BIN)/servecast report $(or $(RUN),$(shell ls -td $(RUNS)/*/run.json 2>/dev/null | head -n 1 | xargs -r dirname)) $(ARGS)

sql: $(VENV)/runtime  ## open DuckDB with the newest run loaded (RUN=... for another)
	@$(BIN)/servecast sql $(RUN) $(ARGS)

test: $(VENV)/dev  ## run the tests
	@$(BIN)/python -m pytest $(ARGS)

bench: $(VENV)/dev  ## measure speed; a table, and JSON in bench/
	@$(BIN)/python -m tests.bench $(ARGS)

lint: $(VENV)/dev  ## check style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

lock:  ## pin the newest versions that fit (needs uv)
	uv pip compile pyproject.toml --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --custom-compile-command "make lock" --quiet --group build -o requirements.lock
	uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-emit-index-url --custom-compile-command "make lock" --quiet --group build --group test --group lint -c requirements.lock -o requirements-dev.lock

clean:  ## remove the environment and caches, keep runs and reports
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis
