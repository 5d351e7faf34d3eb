# Each target does all of its own set-up in .venv and can be run again; the second run needs no network.
.PHONY: help demo test check bench reliability docs lock clean
.DEFAULT_GOAL := help

BIN := .venv/bin
TRACE := $(CURDIR)/.failpoint-trace
WORKERS ?= 2

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 20

demo: ## see a column's type change under a busy table, with a kill in the middle
	@sh scripts/venv.sh runtime
	@$(BIN)/tideshift demo

test: check ## run the whole suite
	@rm -f $(TRACE)*
	$(BIN)/python -m pytest -n $(WORKERS) --failpoint-trace $(TRACE)
	$(BIN)/python scripts/check_failpoints.py $(TRACE)
	@echo "once more, on the standard library's sqlite3:"
	TIDESHIFT_SQLITE=stdlib $(BIN)/python -m pytest -n $(WORKERS) -m stdlib_sqlite

check: ## lint, types and layers
	@sh scripts/venv.sh dev
	$(BIN)/ruff check .
	$(BIN)/mypy src
	$(BIN)/lint-imports --no-logo

bench: ## measure speed and memory (JSON and a table); never part of the tests
	@sh scripts/venv.sh dev
	$(BIN)/python bench/sqlite.py

reliability: ## run the heavy proofs in full; resumable
	@sh scripts/venv.sh dev
	$(BIN)/python -m tests.reliability

docs: ## write the generated parts of the documentation
	@sh scripts/venv.sh dev
	$(BIN)/python scripts/generate_docs.py

lock: ## renew the hash-locked requirement files (needs a network)
	@sh scripts/venv.sh dev
	@sh scripts/lock.sh $(BIN)/python

clean: ## remove what the other targets made
	rm -rf .venv .venv-lock .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis $(TRACE)*
